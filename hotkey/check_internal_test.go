// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey

import "testing"

// check fails the test if the parts of d contradict each other, or if it has grown.
func check(t testing.TB, d *Detector) {
	t.Helper()
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		if len(s.table.index) != len(s.table.names) {
			t.Fatalf("shard %d: index of %d, %d names", i, len(s.table.index), len(s.table.names))
		}
		for j := range s.table.names {
			n := &s.table.names[j]
			if at, ok := s.table.index[n.key]; !ok || int(at) != j {
				t.Fatalf("shard %d: %q is at %d, index says %d, %v", i, n.key, j, at, ok)
			}
			if n.seen < 0 || n.before < 0 {
				t.Fatalf("shard %d: %q has seen %v, before %v", i, n.key, n.seen, n.before)
			}
			if n.rank() < s.table.floor*(1-1e-9) {
				t.Fatalf("shard %d: %q has rank %v, below the floor %v", i, n.key, n.rank(), s.table.floor)
			}
		}
		if !(s.clock.weight >= 1) || s.clock.weight > 1<<halfLivesPerScale {
			t.Fatalf("shard %d: a read weighs %v", i, s.clock.weight)
		}
		s.mu.Unlock()
	}
}
