// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-shelf/shelf/client"
)

var batches = []behaviour{
	{name: "GetMany: duplicates, absent rows, and hits and misses mixed", test: manyMixed},
	{name: "GetMany of more keys than one command takes", test: manyKeys},
	{name: "GetMany waits for leases that others hold, and loads the rest", test: manyLeased},
	{name: "GetMany's fills are refused by leases and marks like others", test: manyRefused},
	{name: "GetMany and Get share loads in one process", test: manyShared},
}

func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "key-" + strconv.Itoa(i)
	}
	return keys
}

// batching is a versioned cache with LoadMany.
func batching(src *source) client.CacheConfig[row] {
	cfg := versioned(src.load)
	cfg.LoadMany = src.loadMany
	return cfg
}

func manyMixed(s *scene) {
	src := newSource(row{})
	for _, k := range numbered(10) {
		src.set(k, row{1, "value of " + k})
	}
	a, b := open(s, batching(src)), open(s, batching(src))
	want(s, a, "key-3", row{1, "value of key-3"}, client.LayerSource)
	asked := append(append(numbered(10), "none"), numbered(5)...)
	for i, c := range []*client.Cache[row]{a, b} {
		m, err := c.GetMany(s.Context(), asked)
		if err != nil || len(m) != 10 {
			s.Errorf("call %d: %d values, %v; want 10", i, len(m), err)
		}
		for k, v := range m {
			if v.Text != "value of "+k {
				s.Errorf("call %d: %s has %q", i, k, v.Text)
			}
		}
	}
	for _, k := range append(numbered(10), "none") {
		src.loaded(s, k, 1)
	}
	if src.many != 1 {
		s.Errorf("%d calls of LoadMany, want 1", src.many)
	}
	if m, err := a.GetMany(s.Context(), nil); err != nil || len(m) != 0 {
		s.Errorf("no keys: %v, %v", m, err)
	}
	if _, err := a.GetMany(s.Context(), []string{"key-1", ""}); !errors.Is(err, client.ErrInvalidKey) {
		s.Errorf("an empty key: %v, want ErrInvalidKey", err)
	}
}

func manyKeys(s *scene) {
	n := s.many(1500)
	src := newSource(row{})
	for _, k := range numbered(n) {
		src.set(k, row{1, "value of " + k})
	}
	a, b := open(s, batching(src)), open(s, batching(src))
	for i, c := range []*client.Cache[row]{a, b, a} {
		m, err := c.GetMany(s.Context(), numbered(n))
		if err != nil || len(m) != n {
			s.Errorf("call %d: %d values, %v; want %d", i, len(m), err, n)
		}
		for k, v := range m {
			if v.Text != "value of "+k {
				s.Errorf("call %d: %s has %q", i, k, v.Text)
			}
		}
	}
	if st := a.Stats(); st.Fills != uint64(n) || st.L2Hits != uint64(n) || b.Stats().L2Hits != uint64(n) {
		s.Errorf("%d fills, %d and %d hits; want %d each", st.Fills, st.L2Hits, b.Stats().L2Hits, n)
	}
	for _, k := range numbered(n) {
		src.loaded(s, k, 1)
	}
}

func manyLeased(s *scene) {
	src, other := newSource(row{1, "a"}), newSource(row{1, "b"})
	a, b := open(s, batching(src)), open(s, batching(other))
	release := src.hold()
	first := ask(s, a, "key-5")
	s.until("a holds the lease", func() bool { return src.holding() == 1 })
	var m map[string]row
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m, err = b.GetMany(s.Context(), numbered(10))
	}()
	s.until("the rest is stored", func() bool { return b.Stats().Fills == 9 }) // while the one key is still waited for
	release()
	<-ended
	if err != nil || len(m) != 10 || m["key-5"].Text != "a" || m["key-6"].Text != "b" {
		s.Errorf("GetMany: %v, %v", m, err)
	}
	other.loaded(s, "key-5", 0)
	if _, err := first(); err != nil {
		s.Error(err)
	}
}

func manyRefused(s *scene) {
	src := newSource(row{1, "old"})
	a, b := open(s, batching(src)), open(s, batching(src))
	s.must(b.InvalidateVersion(s.Context(), "key-1", 2)) // the source lags behind
	release := src.hold()
	ended := make(chan error, 1)
	go func() {
		m, err := a.GetMany(s.Context(), numbered(3))
		if len(m) != 3 {
			err = errors.Join(err, fmt.Errorf("%d values, want 3", len(m)))
		}
		ended <- err
	}()
	s.until("the load runs", func() bool { return src.holding() == 1 })
	for _, k := range numbered(3) {
		if p := where(s, a, k); !p.has(p.lease) {
			s.Errorf("%s has no lease", k)
		}
	}
	s.must(b.Invalidate(s.Context(), "key-2")) // the slow reader's race
	release()
	s.must(<-ended)
	for k, stored := range map[string]bool{"key-0": true, "key-1": false, "key-2": false} {
		if p := where(s, a, k); p.has(p.data) != stored || p.has(p.lease) {
			s.Errorf("%s: entry %v, lease %v; want %v and false", k, p.has(p.data), p.has(p.lease), stored)
		}
	}
}

func manyShared(s *scene) {
	src := newSource(row{1, "a"})
	c := open(s, batching(src))
	release := src.hold()
	first := ask(s, c, "key-0")
	s.until("the load runs", func() bool { return src.holding() == 1 })
	ended := make(chan error, 1)
	go func() {
		m, err := c.GetMany(s.Context(), numbered(2))
		if len(m) != 2 {
			err = errors.Join(err, fmt.Errorf("%d values, want 2", len(m)))
		}
		ended <- err
	}()
	s.until("the batch's load runs", func() bool { return src.holding() == 2 })
	release()
	s.must(<-ended)
	if r, err := first(); err != nil || r.Value.Text != "a" {
		s.Errorf("%+v, %v", r, err)
	}
	for _, k := range numbered(2) {
		src.loaded(s, k, 1)
		p := where(s, c, k)
		s.until(k+" is stored", func() bool { return p.has(p.data) && p.ttl(p.data) > time.Second })
	}
}
