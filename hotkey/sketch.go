// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

const sketchRows = 4

// sketch is a count-min sketch: four rows of counters, a key has one counter in each, shared with whatever other keys
// chance puts there. The smallest of the four is the estimate. It is never below the key's true count.
//
// Counters are float32: a counter stops growing at 2^24 reads within a half-life, far above where a key is named.
type sketch struct {
	cells []float32 // row after row
	width uint32    // a power of two
}

func newSketch(width int) sketch {
	return sketch{cells: make([]float32, sketchRows*width), width: uint32(width)}
}

// cell is the place of the key's counter in a row. Two independent halves of one hash serve for all rows (Kirsch and
// Mitzenmacher, ESA 2006).
func (s *sketch) cell(hash uint64, row uint32) *float32 {
	h := uint32(hash) + row*(uint32(hash>>32)|1)
	return &s.cells[row*s.width+(h&(s.width-1))]
}

// estimate is an upper bound on what was added for the key.
func (s *sketch) estimate(hash uint64) float32 {
	least := *s.cell(hash, 0)
	for row := uint32(1); row < sketchRows; row++ {
		least = min(least, *s.cell(hash, row))
	}
	return least
}

// add adds weight for the key and returns the new estimate.
func (s *sketch) add(hash uint64, weight float64) float64 {
	estimate := float64(s.estimate(hash)) + weight
	s.raise(hash, estimate)
	return estimate
}

// raise makes the key's estimate at least count. Counters that are above it already stay as they are: they owe it to
// other keys, and raising them too (as the plain sketch does) would only make the error larger.
func (s *sketch) raise(hash uint64, count float64) {
	for row := range uint32(sketchRows) {
		c := s.cell(hash, row)
		*c = max(*c, float32(count))
	}
}

// scale multiplies all counters. What is left of a read after 20 half-lives is let go: it would turn into a
// denormal number in the end, with which arithmetic is slow.
func (s *sketch) scale(by float64) {
	for i, c := range s.cells {
		if c *= float32(by); c < 1e-6 {
			c = 0
		}
		s.cells[i] = c
	}
}
