// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import (
	"testing"
	"time"
)

// TestMemoryIsBounded: what is older than History is forgotten, and a read of it is still found stale, by what is remembered at least.
func TestMemoryIsBounded(t *testing.T) {
	c, err := New(Config{Processes: 1, History: time.Minute, Rules: []Rule{{Name: "any"}}})
	if err != nil {
		t.Fatal(err)
	}
	var v uint64
	for now := time.Second; now < time.Hour; now += time.Second {
		v++
		err := c.Add(0, Batch{
			Writes:        []Write{{Key: "k", Version: v, Value: v, Began: now, Committed: now + 1}},
			Invalidations: []Invalidation{{Keys: []string{"k"}, Began: now + 1, Returned: now + 2}},
			Reads:         []Read{{Key: "k", Version: v, Value: v, Began: now + 3, Ended: now + 4}},
			Upto:          now + 5,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.keys["k"].versions); n > 65 {
		t.Errorf("%d versions are kept, one a second for a minute was asked for", n)
	}
	if len(c.reads) > 0 || len(c.invs) > 0 {
		t.Errorf("%d reads and %d invalidations wait for nothing", len(c.reads), len(c.invs))
	}
	c.Add(0, Batch{Reads: []Read{{Key: "k", Version: 1, Value: 1, Began: time.Hour, Ended: time.Hour + 1}}, Upto: Forever})
	if r := c.Report(); r.Rules[0].Broken != 1 || r.Rules[0].Max < 55*time.Second || r.Wrong != 0 {
		t.Errorf("a read of a forgotten version: %+v", r)
	}
}
