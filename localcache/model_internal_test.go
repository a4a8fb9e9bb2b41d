// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is the cache written without regard to cost: entries in a slice from the newest to the oldest, the hand as a key, tickets in
// a list that is searched. It has one shard, so its order of eviction is the cache's.
type model struct {
	maxBytes   int64
	maxEntries int
	entries    []modelEntry
	hand       string // "": the oldest
	tickets    []*modelTicket
}

type modelEntry struct {
	key     string
	value   int
	cost    int64
	expires time.Time
	marked  bool
}

type modelTicket struct {
	Ticket
	ended     bool // Cancel or Commit was called with it
	good      bool // a Commit may succeed
	committed bool // it was ended by Commit, after which Cancel must change nothing
}

func (m *model) find(key string) int {
	return slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.key == key })
}

func (m *model) drop(key string) {
	if i := m.find(key); i >= 0 && key == m.hand {
		m.hand = m.newer(i)
	}
	m.entries = slices.DeleteFunc(m.entries, func(e modelEntry) bool { return e.key == key })
}

func (m *model) get(key string, now time.Time) (int, bool) {
	i := m.find(key)
	if i < 0 {
		return 0, false
	}
	e := m.entries[i]
	if !e.expires.After(now) {
		m.drop(key)
		return 0, false
	}
	m.entries[i].marked = true
	return e.value, true
}

// newer is the key after the i-th on the hand's way; "": it begins anew.
func (m *model) newer(i int) string {
	if i == 0 {
		return ""
	}
	return m.entries[i-1].key
}

func (m *model) evict() {
	for {
		i := m.find(m.hand)
		if i < 0 {
			i = len(m.entries) - 1
		}
		m.hand = m.newer(i)
		if !m.entries[i].marked {
			m.drop(m.entries[i].key)
			return
		}
		m.entries[i].marked = false
	}
}

// endAll makes every ticket of key void; key "" means every key's.
func (m *model) endAll(key string) {
	for _, t := range m.tickets {
		if key == "" || t.key == key {
			t.good = false
		}
	}
}

func (m *model) commit(t *modelTicket, value int, size int64, expires, now time.Time) bool {
	if !t.good {
		return false
	}
	m.endAll(t.key)
	cost := size + int64(len(t.key)) + EntryOverhead
	if !expires.After(now) || size < 0 || cost > m.maxBytes {
		return false
	}
	if i := m.find(t.key); i >= 0 {
		m.entries[i] = modelEntry{t.key, value, cost, expires, true}
		for m.bytes() > m.maxBytes {
			m.evict()
		}
		return true
	}
	for len(m.entries) >= m.maxEntries || m.bytes()+cost > m.maxBytes {
		m.evict()
	}
	m.entries = slices.Insert(m.entries, 0, modelEntry{t.key, value, cost, expires, false})
	return true
}

func (m *model) bytes() (sum int64) {
	for _, e := range m.entries {
		sum += e.cost
	}
	return sum
}

func (m *model) open() int {
	keys := map[string]bool{}
	for _, t := range m.tickets {
		if t.good && !t.ended {
			keys[t.key] = true
		}
	}
	return len(keys)
}

// steps runs script, two bytes a step, on the cache and on the model, and compares them after each step.
func steps(t testing.TB, script []byte) {
	t.Helper()
	cfg := Config{Shards: 1, MaxEntries: 8, MaxBytes: 10 * EntryOverhead}
	c, err := New[int](cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &model{maxBytes: cfg.MaxBytes, maxEntries: cfg.MaxEntries}
	now := time.Now()
	for n := 0; n+1 < len(script); n += 2 {
		op, arg := script[n], script[n+1]
		now = now.Add(time.Duration(op>>6) * time.Second)
		what := step(t, c, m, op, int(arg), n, now)
		check(t, c)
		if c.Len() != len(m.entries) || c.Bytes() != m.bytes() || c.Stats().Open != m.open() {
			t.Fatalf("step %d, %s: %d entries, %d bytes, %d open; model %d, %d, %d", n, what,
				c.Len(), c.Bytes(), c.Stats().Open, len(m.entries), m.bytes(), m.open())
		}
		for i, key := range queue(t, &c.shards[0]) {
			if want := m.entries[len(m.entries)-1-i]; key != want.key || c.shards[0].held.index.find(c.hash(key), key).marked.Load() != want.marked {
				t.Fatalf("step %d, %s: %q at place %d of the queue, model has %+v", n, what, key, i, want)
			}
		}
	}
}

// step does one thing to both sides and says what it was.
func step(t testing.TB, c *Cache[int], m *model, op byte, arg, n int, now time.Time) string {
	t.Helper()
	key := fmt.Sprint("k", arg%12)
	switch op & 15 {
	case 0, 1, 2, 3:
		v, ok := c.Get(key, now)
		if wv, wok := m.get(key, now); v != wv || ok != wok {
			t.Fatalf("step %d: Get(%q) = %d, %v; model %d, %v", n, key, v, ok, wv, wok)
		}
		return "Get " + key
	case 4, 5, 6, 7:
		m.tickets = append(m.tickets, &modelTicket{Ticket: c.Begin(key), good: true})
		return "Begin " + key
	case 8, 9, 10, 11, 12:
		return commitStep(t, c, m, op, arg, n, now)
	case 13:
		if len(m.tickets) == 0 {
			return "nothing"
		}
		tk := m.tickets[arg%len(m.tickets)]
		if tk.ended && !tk.committed {
			return "nothing" // cancelling twice is the caller's mistake
		}
		c.Cancel(tk.Ticket)
		if !tk.committed {
			tk.ended, tk.good = true, false
		}
		return "Cancel " + tk.key
	case 14:
		c.Invalidate(key)
		m.drop(key)
		m.endAll(key)
		return "Invalidate " + key
	default:
		if arg%8 != 0 { // rarely, so that something is there to be cleared
			return "nothing"
		}
		c.Clear()
		m.entries, m.hand = nil, ""
		m.endAll("")
		return "Clear"
	}
}

func commitStep(t testing.TB, c *Cache[int], m *model, op byte, arg, n int, now time.Time) string {
	t.Helper()
	if len(m.tickets) == 0 {
		return "nothing"
	}
	// Mostly one of the last few tickets, or hardly any would still be good.
	from := max(0, len(m.tickets)-6)
	if arg%16 == 0 {
		from = 0
	}
	tk := m.tickets[from+arg%(len(m.tickets)-from)]
	if tk.ended && !tk.committed {
		return "nothing" // so is committing a ticket that was cancelled
	}
	size := int64(arg) * 4
	if arg > 250 {
		size = 11*EntryOverhead - int64(arg) // does not fit
	}
	if arg == 255 {
		size = -1
	}
	expires := now.Add(time.Duration(op>>4&3-1) * time.Second) // some are over before they arrive
	got := c.Commit(tk.Ticket, n, size, expires, now)
	want := m.commit(tk, n, size, expires, now)
	tk.ended, tk.good, tk.committed = true, false, true
	if got != want {
		t.Fatalf("step %d: Commit(%q, size %d) = %v, model %v", n, tk.key, size, got, want)
	}
	return "Commit " + tk.key
}

// Random steps on the cache and on the plain model give the same answers, the same entries in the same order of use,
// the same byte count and the same open tickets.
func TestModel(t *testing.T) {
	runs := 300
	if testing.Short() {
		runs = 30
	}
	for seed := range uint64(runs) {
		rng := rand.New(rand.NewPCG(seed, 7))
		script := make([]byte, 800)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		steps(t, script)
	}
}

func FuzzModel(f *testing.F) {
	f.Add([]byte{4, 1, 8 | 2<<4, 1, 0, 1, 14, 1, 0, 1})
	f.Add([]byte{4, 1, 4, 1, 14, 1, 4, 1, 8 | 3<<4, 0, 13, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		steps(t, script[:min(len(script), 2000)])
	})
}
