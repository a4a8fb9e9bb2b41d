// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import "strings"

// table holds the keys that are tracked by name. Its memory is allocated once.
type table struct {
	index map[string]int32 // place in names
	names []name           // never longer than its first capacity

	// floor is at most the smallest rank in the table. Counts only grow on the scale of the clock, so a smallest rank
	// that was once found stays a lower bound, and a challenger below it is turned away without a search.
	floor float64
}

// name is a key with its count, split into what is known and what is only bounded.
type name struct {
	key    string
	seen   float64 // counted under this name: at most the true count
	before float64 // estimated when it was named: seen + before is at least the true count
	reads  float64 // seen, without what bytes count
	coarse float64 // the most reads that one counted read has stood for; it decays as they do
	hot    bool    // the last verdict
}

// sampled notes one counted read that stands for so many, on the clock's scale.
func (n *name) sampled(reads float64) {
	n.reads += reads
	n.coarse = max(n.coarse, reads)
}

// rank decides who keeps a name. It is the upper bound, so that a newcomer is not at once the weakest of all.
func (n *name) rank() float64 { return n.seen + n.before }

func newTable(size int) table {
	return table{index: make(map[string]int32, size), names: make([]name, 0, size)}
}

// admit gives key a name with these counts, if there is room or a name of lower rank. It returns the name, and the one
// that had to go for it, if any. The result is good until the next admit.
func (t *table) admit(key string, seen, before float64) (n *name, lost name, ok bool) {
	var i int
	if len(t.names) < cap(t.names) {
		i = len(t.names)
		t.names = t.names[:i+1]
	} else {
		if seen+before <= t.floor {
			return nil, name{}, false
		}
		i = t.weakest()
		lost = t.names[i]
		if t.floor = lost.rank(); seen+before <= t.floor {
			return nil, name{}, false
		}
		delete(t.index, lost.key)
	}
	key = strings.Clone(key) // it stays for long, and may be cut out of something large
	t.names[i] = name{key: key, seen: seen, before: before}
	t.index[key] = int32(i)
	return &t.names[i], lost, true
}

// weakest is the place of the name with the lowest rank.
func (t *table) weakest() int {
	at, least := 0, t.names[0].rank()
	for i := 1; i < len(t.names); i++ {
		if r := t.names[i].rank(); r < least {
			at, least = i, r
		}
	}
	return at
}

func (t *table) scale(by float64) {
	t.floor *= by
	for i := range t.names {
		t.names[i].seen *= by
		t.names[i].before *= by
		t.names[i].reads *= by
		t.names[i].coarse *= by
	}
}
