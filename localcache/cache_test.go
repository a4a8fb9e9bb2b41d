// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/localcache"
)

func mustNew[V any](t testing.TB, cfg localcache.Config) *localcache.Cache[V] {
	t.Helper()
	c, err := localcache.New[V](cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put[V any](t testing.TB, c *localcache.Cache[V], key string, v V, size int64, expires, now time.Time) {
	t.Helper()
	if !c.Commit(c.Begin(key), v, size, expires, now) {
		t.Fatalf("commit of %q refused", key)
	}
}

func TestConfig(t *testing.T) {
	const overhead = localcache.EntryOverhead
	for _, tc := range []struct {
		cfg  localcache.Config
		want string // part of the error; "" for none
	}{
		{localcache.Config{}, ""},
		{localcache.Config{MaxBytes: overhead}, ""},
		{localcache.Config{MaxEntries: 1}, ""},
		{localcache.Config{MaxEntries: 4, Shards: 4}, ""},
		{localcache.Config{MaxBytes: -1}, "MaxBytes is -1"},
		{localcache.Config{MaxBytes: overhead - 1}, "MaxBytes is 175"},
		{localcache.Config{MaxEntries: -3}, "MaxEntries is -3"},
		{localcache.Config{Shards: -8}, "Shards is -8"},
		{localcache.Config{Shards: 3}, "Shards is 3: must be a power of two"},
		{localcache.Config{Shards: 1 << 17}, "Shards is 131072"},
		{localcache.Config{MaxEntries: 3, Shards: 4}, "no room for an entry"},
		{localcache.Config{MaxBytes: 4*overhead - 1, Shards: 4}, "no room for an entry"},
	} {
		_, err := localcache.New[int](tc.cfg)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%+v: %v", tc.cfg, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "localcache: ") || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%+v: error %v, want one with %q", tc.cfg, err, tc.want)
		}
	}
}

// By default an item that costs at most MaxBytes or 1 MiB, whichever is smaller, is stored, and one above a shard's
// part is refused and counted and leaves the rest alone.
func TestLargestItem(t *testing.T) {
	now := time.Now()
	end := now.Add(time.Hour)
	const key = "large"
	rest := int64(len(key) + localcache.EntryOverhead)
	for _, maxBytes := range []int64{rest, 10_000, 1 << 20, 2<<20 + 1, 64 << 20, 1 << 30} {
		c := mustNew[int](t, localcache.Config{MaxBytes: maxBytes})
		fits := min(maxBytes, 1<<20)
		if !c.Commit(c.Begin(key), 1, fits-rest, end, now) {
			t.Errorf("MaxBytes %d: an item of cost %d refused", maxBytes, fits)
		}
		before := c.Bytes()
		if c.Commit(c.Begin(key), 2, maxBytes-rest+1, end, now) {
			t.Errorf("MaxBytes %d: an item of cost %d stored", maxBytes, maxBytes+1)
		}
		if c.Bytes() != before || c.Stats().RefusedSize != 1 {
			t.Errorf("MaxBytes %d: %d bytes, were %d; %+v", maxBytes, c.Bytes(), before, c.Stats())
		}
	}
}

// The bytes that a cache holds on the heap stay within what it counts, for a V of three words: at 60,000 entries, just
// after the shards' tables have doubled, and at 100,000, when they have done so once more.
func TestBytesCoverTheHeap(t *testing.T) {
	for _, n := range []int{60_000, 100_000} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprintf("product:%07d:v3", i)
		}
		before := heap()
		c := mustNew[[]byte](t, localcache.Config{MaxEntries: 2 * n})
		now := time.Now()
		for _, k := range keys {
			put(t, c, k, make([]byte, 96), 96, now.Add(time.Hour), now)
		}
		held := heap() - before
		t.Logf("%d entries: %d bytes held, %d counted, overhead %d an entry", n, held, c.Bytes(), held/int64(n)-96)
		if held > c.Bytes() {
			t.Errorf("%d entries: %d bytes on the heap, %d counted", n, held, c.Bytes())
		}
		runtime.KeepAlive(keys)
		runtime.KeepAlive(c)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever comes in, the sums never pass the bounds; and a working set that fits is not evicted by chance alone.
func TestBounds(t *testing.T) {
	now := time.Now()
	cfg := localcache.Config{MaxBytes: 8 << 20, MaxEntries: 10_000}
	c := mustNew[int](t, cfg)
	for i := range 30_000 {
		put(t, c, fmt.Sprint("k", i), i, int64(i%700), now.Add(time.Hour), now)
		if c.Len() > cfg.MaxEntries || c.Bytes() > cfg.MaxBytes {
			t.Fatalf("after %d: %d entries, %d bytes", i, c.Len(), c.Bytes())
		}
	}
	if c.Len() < cfg.MaxEntries*8/10 {
		t.Errorf("only %d of %d entries used", c.Len(), cfg.MaxEntries)
	}
}

// An entry that lives a nanosecond is legal: stored, served at the very instant, gone at the next.
func TestLifeOfOneNanosecond(t *testing.T) {
	c := mustNew[int](t, localcache.Config{})
	now := time.Now()
	put(t, c, "k", 7, 1, now.Add(1), now)
	if v, ok := c.Get("k", now); !ok || v != 7 {
		t.Errorf("at its own instant: %d, %v", v, ok)
	}
	if _, ok := c.Get("k", now.Add(1)); ok {
		t.Error("served at its end")
	}
	if st := c.Stats(); st.Expired != 1 || st.Hits != 1 || st.Misses != 1 || st.Entries != 0 {
		t.Errorf("%+v", st)
	}
}

// Extreme times neither panic nor wrap around.
func TestExtremeTimes(t *testing.T) {
	c := mustNew[int](t, localcache.Config{})
	now := time.Now()
	if c.Commit(c.Begin("k"), 1, 1, time.Time{}, now) {
		t.Error("an entry that ended in the year 1 was stored")
	}
	put(t, c, "k", 1, 1, now.AddDate(5000, 0, 0), now)
	if _, ok := c.Get("k", now.AddDate(200, 0, 0)); !ok {
		t.Error("gone after 200 of 5,000 years")
	}
	if _, ok := c.Get("k", time.Time{}); !ok {
		t.Error("a time before the entry was stored is not after its end")
	}
}

// Times without a monotonic reading, walked by hand, work as well.
func TestInventedTimes(t *testing.T) {
	c := mustNew[string](t, localcache.Config{})
	now := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	put(t, c, "k", "v", 1, now.Add(time.Minute), now)
	for _, tc := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {59 * time.Second, true}, {time.Minute - 1, true}, {time.Minute, false}, {0, false}} {
		if _, ok := c.Get("k", now.Add(tc.after)); ok != tc.want {
			t.Errorf("after %v: %v, want %v", tc.after, ok, tc.want)
		}
	}
}

func TestStats(t *testing.T) {
	c := mustNew[int](t, localcache.Config{Shards: 1, MaxEntries: 2})
	now := time.Now()
	end := now.Add(time.Minute)
	put(t, c, "a", 1, 0, end, now)
	put(t, c, "b", 1, 0, now.Add(1), now)
	c.Get("a", now)                               // hit; b is now the oldest
	c.Get("x", now)                               // miss
	put(t, c, "c", 1, 0, end, now.Add(2))         // b was over: expired
	put(t, c, "d", 1, 0, end, now)                // a evicted
	c.Commit(c.Begin("e"), 1, 0, now, now)        // refused: over
	c.Commit(c.Begin("e"), 1, 1<<50, end, now)    // refused: size
	c.Commit(localcache.Ticket{}, 1, 0, end, now) // refused: void
	c.Invalidate("c")                             // entry dropped
	open := c.Begin("z")                          //
	c.Invalidate("z")                             // ticket voided
	c.Cancel(open)                                //
	c.Begin("y")                                  // stays open
	got, want := c.Stats(), localcache.Stats{
		Hits: 1, Misses: 1, Expired: 1, Evicted: 1, Commits: 4, RefusedVoid: 1, RefusedExpired: 1, RefusedSize: 1,
		Invalidated: 1, Voided: 1, Entries: 1, Bytes: localcache.EntryOverhead + 1, Open: 1,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.Refused() != 3 {
		t.Errorf("Refused() = %d, want 3", got.Refused())
	}
}

// Find is Get by the cache's clock, without a copy: it counts, marks and drops as Get does.
func TestFind(t *testing.T) {
	origin := time.Now()
	c := mustNew[[4]int](t, localcache.Config{Shards: 1, MaxEntries: 2, Origin: origin})
	end := origin.Add(time.Minute)
	put(t, c, "a", [4]int{1}, 0, end, origin)
	put(t, c, "b", [4]int{2}, 0, end, origin)
	first, again := c.Find("a", 0), c.Find("a", time.Minute-1)
	if first == nil || first != again || *first != [4]int{1} {
		t.Errorf("found %v and %v", first, again)
	}
	put(t, c, "c", [4]int{3}, 0, end, origin) // a was asked for: b goes
	if c.Find("a", 0) == nil || c.Find("b", 0) != nil {
		t.Error("b was kept in place of a")
	}
	put(t, c, "a", [4]int{4}, 0, end, origin)
	if *first != [4]int{1} {
		t.Errorf("what was found has become %v", *first)
	}
	if c.Find("a", time.Minute) != nil || c.Len() != 1 {
		t.Error("an entry that is over is there")
	}
	if st := c.Stats(); st.Hits != 3 || st.Misses != 2 || st.Expired != 1 || st.Evicted != 1 {
		t.Errorf("%+v", st)
	}
}

// Hits and misses are counted one by one, by however many at once.
func TestReadsAreCounted(t *testing.T) {
	const readers, reads = 128, 20_000 // so many that some share a counter
	c := mustNew[int](t, localcache.Config{})
	now := time.Now()
	put(t, c, "k", 1, 0, now.Add(time.Hour), now)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for range reads {
				c.Get("k", now)
				c.Get("x", now)
			}
		})
	}
	wg.Wait()
	if st := c.Stats(); st.Hits != readers*reads || st.Misses != readers*reads {
		t.Errorf("%d hits and %d misses, want %d of each", st.Hits, st.Misses, readers*reads)
	}
}

// Peek counts nothing, drops nothing and keeps nothing: not even what it has just seen from being the next to be evicted.
func TestPeek(t *testing.T) {
	c := mustNew[int](t, localcache.Config{Shards: 1, MaxEntries: 2})
	now := time.Now()
	end := now.Add(time.Minute)
	put(t, c, "a", 1, 0, end, now)
	put(t, c, "b", 2, 0, end, now)
	before := c.Stats()
	for _, tc := range []struct {
		key  string
		at   time.Time
		want int
		ok   bool
	}{{"a", now, 1, true}, {"a", end.Add(-1), 1, true}, {"a", end, 0, false}, {"x", now, 0, false}} {
		if got, ok := c.Peek(tc.key, tc.at); got != tc.want || ok != tc.ok {
			t.Errorf("Peek(%s) after %v = %d, %v", tc.key, tc.at.Sub(now), got, ok)
		}
	}
	if got := c.Stats(); got != before {
		t.Errorf("Peek has left a trace: %+v, before %+v", got, before)
	}
	put(t, c, "c", 3, 0, end, now)
	if _, ok := c.Get("a", now); ok {
		t.Error("a was peeked at, and so kept in place of b")
	}
}

// Drop takes the entry, and leaves the tickets: what was read under them is as good as before.
func TestDrop(t *testing.T) {
	c := mustNew[int](t, localcache.Config{})
	now := time.Now()
	end := now.Add(time.Minute)
	put(t, c, "k", 1, 0, end, now)
	ticket := c.Begin("k")
	c.Drop("k")
	c.Drop("x")
	if _, ok := c.Get("k", now); ok {
		t.Error("the entry is still there")
	}
	if s := c.Stats(); s.Invalidated != 1 || s.Voided != 0 || s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	if !c.Commit(ticket, 2, 0, end, now) {
		t.Error("the ticket is void")
	}
}

// A hit allocates nothing, and neither does a ticket.
func TestAllocs(t *testing.T) {
	c := mustNew[[]byte](t, localcache.Config{})
	now := time.Now()
	put(t, c, "k", []byte("v"), 1, now.Add(time.Hour), now)
	for name, f := range map[string]func(){
		"hit":           func() { c.Get("k", now) },
		"miss":          func() { c.Get("absent", now) },
		"invalidate":    func() { c.Invalidate("absent") },
		"begin, cancel": func() { c.Cancel(c.Begin("other")) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}
