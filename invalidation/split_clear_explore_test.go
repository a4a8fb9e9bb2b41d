// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import "testing"

// The model of copies and clearings: an owner and one other node, each with its generation; two processes that copy, one that clears, and loads. A Clear goes to all nodes in any order, and then over all of them
// once more. What is bad: the other node serves a copy of a row that is older than what a Clear had announced when it returned.
type clearWorld struct {
	row, told int8
	owner     clearNode
	place     clearNode
	copiers   [2]struct{ step, stamp, row int8 }
	clearer   struct{ step, done, made int8 } // done: bit 0, the owner; bit 1, the place
}

type clearNode struct {
	gen        int8
	row, stamp int8
	lease      int8 // copier+1
}

func (n *clearNode) serves() int8 {
	if n.stamp < n.gen {
		return 0
	}
	return n.row
}

func (w clearWorld) next(walks int8, anyGeneration bool) (all []clearWorld) {
	step := func(f func(n *clearWorld)) { n := w; f(&n); all = append(all, n) }
	if w.owner.serves() < w.row {
		step(func(n *clearWorld) { n.owner.row, n.owner.stamp = n.row, n.owner.gen })
	}
	for i, at := range w.copiers {
		switch c := int8(i); at.step {
		case 0:
			if w.place.lease == 0 {
				step(func(n *clearWorld) { n.place.lease = c + 1; n.copiers[c].step, n.copiers[c].stamp = 1, n.place.gen })
			}
		case 1:
			step(func(n *clearWorld) {
				if n.copiers[c].step, n.copiers[c].row = 2, n.owner.serves(); n.copiers[c].row == 0 {
					n.copiers[c] = clearWorld{}.copiers[c]
					if n.place.lease == c+1 {
						n.place.lease = 0
					}
				}
			})
		case 2:
			step(func(n *clearWorld) {
				if p := &n.place; p.lease == c+1 {
					if p.lease = 0; at.stamp == p.gen {
						p.row, p.stamp = at.row, at.stamp
					} else if anyGeneration {
						p.row, p.stamp = at.row, p.gen
					}
				}
				n.copiers[c] = clearWorld{}.copiers[c]
			})
		}
	}
	switch at := w.clearer; {
	case at.step == 0 && w.row < 3:
		step(func(n *clearWorld) { n.row++; n.clearer.step, n.clearer.made = 1, n.row })
	case at.step > walks:
		step(func(n *clearWorld) { n.told, n.clearer = at.made, clearWorld{}.clearer })
	case at.step > 0:
		for bit, node := range []func(n *clearWorld) *clearNode{func(n *clearWorld) *clearNode { return &n.owner }, func(n *clearWorld) *clearNode { return &n.place }} {
			if at.done&(1<<bit) == 0 {
				step(func(n *clearWorld) {
					node(n).gen++
					if n.clearer.done |= 1 << bit; n.clearer.done == 3 {
						n.clearer.step, n.clearer.done = at.step+1, 0
					}
				})
			}
		}
	}
	return all
}

// TestEveryInterleavingOfCopiesAndClearings: with two walks no copy of what was cleared is served; with one it is, and with fills under whatever generation there is.
func TestEveryInterleavingOfCopiesAndClearings(t *testing.T) {
	for _, tc := range []struct {
		walks         int8
		anyGeneration bool
		bad           bool
	}{{2, false, false}, {1, false, true}, {2, true, true}} {
		states, steps := walkOver(clearWorld{row: 1, owner: clearNode{row: 1}}, func(w clearWorld) []clearWorld { return w.next(tc.walks, tc.anyGeneration) },
			func(w clearWorld) bool { r := w.place.serves(); return r > 0 && r < w.told })
		t.Logf("%+v: %d states, %d steps", tc, states, len(steps))
		if (steps != nil) != tc.bad || !tc.bad && states < 500 {
			t.Errorf("%+v: bad after %d steps, in %d states: %+v", tc, len(steps), states, steps)
		}
	}
}
