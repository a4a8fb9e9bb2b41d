// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-shelf/shelf/ring"
)

// copier is a process with copies on some embedded nodes.
func copier(t *testing.T, nodes int, edit func(*CacheConfig[string])) *Cache[string] {
	t.Helper()
	cfg := Config{OperationTimeout: 5 * time.Second}
	for i := range nodes {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: "n" + strconv.Itoa(i), Addr: miniredis.RunT(t).Addr()})
	}
	cl, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close(context.Background()) })
	cc := CacheConfig[string]{Name: "x", TTL: time.Hour, Load: func(context.Context, string) (string, error) { return "v", nil }, L1: L1Off, HotCopies: 3}
	if edit != nil {
		edit(&cc)
	}
	c, err := NewCache(cl, cc)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSplits: the table of split keys is bounded, forgets what nobody repeats, and has the nodes in the order of the walk.
func TestSplits(t *testing.T) {
	c := copier(t, 4, nil)
	c.split("k", 2)
	walk := c.nodesOf(c.names.data("k"), 4)
	if got := c.copies.splits.of("k", time.Now()); !slices.Equal(got, walk[:2]) || walk[0] != c.slot("k").owner {
		t.Errorf("split over %v, want the first two of %v", got, walk)
	}
	c.split("k", 100) // HotCopies is 3
	if got := c.copies.splits.of("k", time.Now()); !slices.Equal(got, walk[:3]) {
		t.Errorf("split over %v, want the first three of %v", got, walk)
	}
	if got := c.copies.splits.of("k", time.Now().Add(splitHold)); got != nil {
		t.Errorf("%v after %v", got, splitHold)
	}
	for i := range 2 * maxSplits {
		c.split(strconv.Itoa(i), 2)
	}
	if n := c.Stats().Splits; n != maxSplits {
		t.Errorf("%d keys are split, want %d", n, maxSplits)
	}
	c.split("k", 2) // known
	if got := c.copies.splits.of("k", time.Now()); len(got) != 2 {
		t.Errorf("a known key is refused: %v", got)
	}
	c.split("k", 1)
	if got := c.copies.splits.of("k", time.Now()); got != nil {
		t.Errorf("%v after it was unsplit", got)
	}
	c.split("new", 2)
	if got := c.copies.splits.of("new", time.Now()); len(got) != 2 {
		t.Error("there is room, and it is not used")
	}
	if n := c.copies.splits.count(time.Now().Add(splitHold)); n != 0 || c.copies.splits.live.Load() != 0 {
		t.Errorf("%d left after %v", n, splitHold)
	}
	none := copier(t, 4, func(c *CacheConfig[string]) { c.HotCopies = 1 })
	none.split("k", 4)
	if none.Stats().Splits != 0 {
		t.Error("HotCopies 1 splits keys")
	}
}

// TestCopyNames: a copy's names, and those under which copies are owed, are nobody else's, and read back.
func TestCopyNames(t *testing.T) {
	c := copier(t, 2, nil)
	seen := make(map[string]bool)
	for _, key := range []string{"k", "~c:k", "1:k", "c1:x:k:v0", "k:v0", "\x00"} {
		at := c.copyKeys(key)
		for _, name := range append(at, c.names.data(key), splitPrefix+c.names.data(key)) {
			if seen[name] {
				t.Errorf("%q twice", name)
			}
			seen[name] = true
		}
		for node := range 2 {
			owed := c.atCopy(node)(key).owedAs()
			if seen[owed] {
				t.Errorf("%q twice", owed)
			}
			seen[owed] = true
			got, data, ok := copyOwed(owed)
			back, beside, is := c.names.entry(owed)
			if !ok || got != node || data != c.names.data(key) || back != key || !beside || !is || c.client.cacheOf(owed, owed) == nil {
				t.Errorf("%q is read as node %d, %q, %v; key %q, %v, %v", owed, got, data, ok, back, beside, is)
			}
		}
	}
	for _, name := range []string{c.names.data("~c1:k"), "~c:x:k:v0", "~c-1:x:k:v0", "~cl:x:k:v0", "~u:x:k:v0"} {
		if _, _, ok := copyOwed(name); ok {
			t.Errorf("%q is taken for a copy that is owed", name)
		}
	}
}

func (c *Cache[V]) copyKeys(key string) []string {
	k := c.names.copyKeys(key)
	return []string{k.Data, k.Lease, k.Mark, k.Body}
}

// TestCopyOfAnOwnerThatLostInvalidations: a copy is not believed if its owner turned out to have lost invalidations after the reader had asked what is owed; nor one from another run.
func TestCopyOfAnOwnerThatLostInvalidations(t *testing.T) {
	c := copier(t, 2, func(c *CacheConfig[string]) { c.NoEarlyRefresh = true })
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	home := c.slot("k")
	node := c.nodesOf(home.names.Data, 2)[1]
	if left, _ := c.bring(t.Context(), "k", 1, node, 2, time.Time{}, nil); left == 0 {
		t.Fatal("no copy was made")
	}
	read := func(between func()) freshness {
		cp := c.copyAt(home, 1, node)
		_ = c.owesCopy(&cp)
		between()
		var e entry[string]
		f, err := cp.read(t.Context(), nil, &e)
		if err != nil {
			t.Fatal(err)
		}
		return cp.believes(&e, f)
	}
	log := c.client.debts.logs[home.owner]
	for what, between := range map[string]func(){
		"the owner lost some":       func() { log.losses.Add(1) },
		"the copy's node lost some": func() { c.client.debts.logs[node].losses.Add(1) },
	} {
		if f := read(func() {}); f != fresh {
			t.Fatalf("before: %v", f)
		}
		if f := read(between); f != unusable {
			t.Errorf("%s: %v", what, f)
		}
	}
	log.source.Store(7)
	if f := read(func() {}); f != unusable {
		t.Errorf("of another run: %v", f)
	}
}

// TestCopyBounds: how many nodes an invalidation covers, by what is configured and what the owner says.
func TestCopyBounds(t *testing.T) {
	for _, tc := range []struct {
		hot, copies, voided int
		silent, none, three int // the owner does not answer, has no record, has one of 3
	}{
		{1, 0, 0, 5, 1, 3},
		{4, 0, 0, 4, 1, 3},
		{2, 0, 0, 2, 1, 3}, // others may make more
		{0, 2, 0, 2, 2, 2}, // nobody asks for the record
		{0, 1, 4, 4, 4, 4},
		{2, 4, 0, 4, 4, 4},
		{9, 9, 9, 5, 5, 5},
	} {
		c := copier(t, 5, func(c *CacheConfig[string]) { c.HotCopies, c.Copies, c.CopiesVoided = tc.hot, tc.copies, tc.voided })
		what := fmt.Sprintf("HotCopies %d, Copies %d, CopiesVoided %d", tc.hot, tc.copies, tc.voided)
		covers := func(record string) int {
			do := c.invalidation(func(string) uint64 { return 0 }, false)
			b := c.boundsOf(&do)
			if record != "silent" {
				s := c.slot("k")
				if record != "" {
					c.client.nodes[s.owner].Client().Set(t.Context(), splitPrefix+s.names.Data, record, time.Minute)
				}
				if e := c.onNode(t.Context(), opInvalidate, []*slot[string]{s}, do); e != nil {
					t.Fatal(e)
				}
			}
			return c.bound(b, "k")
		}
		if silent, none, three := covers("silent"), covers(""), covers("3 3 1"); silent != tc.silent || none != tc.none || three != tc.three {
			t.Errorf("%s: %d, %d, %d nodes; want %d, %d, %d", what, silent, none, three, tc.silent, tc.none, tc.three)
		}
	}
	if c := copier(t, 5, func(c *CacheConfig[string]) { c.HotCopies = 0 }); c.copies != nil {
		t.Error("a cache without copies pays for them")
	}
	if c := copier(t, 1, nil); c.copies != nil {
		t.Error("a cache on one node has copies")
	}
}

// TestHotRateOfCopies: without L1, HotRate is from which on (an eighth of it) a process tells the fleet what it asks for.
func TestHotRateOfCopies(t *testing.T) {
	for _, l1 := range []L1Mode{L1Off, L1All} {
		c := copier(t, 2, func(c *CacheConfig[string]) { c.L1, c.HotRate = l1, 8 })
		now := time.Now()
		for range 4 { // some 2 a second: above an eighth of 8, far below an eighth of the default
			c.countAsked("k", 0, now)
		}
		c.client.heat.mu.Lock()
		c.warmth.look(now)
		known := len(c.warmth.keys)
		c.client.heat.mu.Unlock()
		if known != 1 {
			t.Errorf("L1 mode %d: a key that is read at an eighth of HotRate is not told of; HotRate %v", l1, c.warmth.hotRate)
		}
	}
}
