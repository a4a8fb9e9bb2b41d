// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-shelf/shelf/client"
)

var versions = []behaviour{
	{name: "a mark refuses an older row, which is read again once", test: markRefusesOlder},
	{name: "a mark accepts the version that it announces", test: markAcceptsEqual},
	{name: "a mark refuses an absence", test: markRefusesAbsence},
	{name: "a mark lives ten seconds, and the larger version stays in it", test: markLives},
	{name: "versions are full uint64s: above 2^53 they are told apart", test: largeVersions},
	{name: "Set: the larger version wins, the equal one is taken", test: setVersions},
	{name: "WriteThrough announces the version: a loader that lags does not bring the old row back", test: writeThroughMarks},
	{name: "a late refresh does not replace a newer entry by an older", test: olderRefresh},
}

// versioned is plain with versions.
func versioned(load func(ctx context.Context, key string) (row, error)) client.CacheConfig[row] {
	cfg := plain(load)
	cfg.Version = version
	return cfg
}

func markRefusesOlder(s *scene) {
	src := newSource(row{1, "old"})
	c := open(s, versioned(src.load))
	s.must(c.InvalidateVersion(s.Context(), "k", 2))
	r, err := c.Lookup(s.Context(), "k")
	if err != nil || r.Value.Text != "old" || !r.Stale || r.Layer != client.LayerSource {
		s.Errorf("got %+v, %v; want the old row, marked stale", r, err)
	}
	src.loaded(s, "k", 2)
	if p := where(s, c, "k"); p.has(p.data) || p.has(p.lease) || !p.has(p.mark) {
		s.Errorf("entry %v, lease %v, mark %v; want the mark alone", p.has(p.data), p.has(p.lease), p.has(p.mark))
	}
	s.must(c.Invalidate(s.Context(), "k")) // without a version: the mark stays
	if r, err := c.Lookup(s.Context(), "k"); err != nil || !r.Stale {
		s.Errorf("after an unversioned invalidation: %+v, %v; want it stale still", r, err)
	}
	if n := c.Stats().LoadsStale; n != 2 {
		s.Errorf("LoadsStale is %d, want 2", n)
	}
}

func markAcceptsEqual(s *scene) {
	src := newSource(row{7, "new"})
	c := open(s, versioned(src.load))
	s.must(c.InvalidateVersion(s.Context(), "k", 7))
	want(s, c, "k", row{7, "new"}, client.LayerSource)
	want(s, c, "k", row{7, "new"}, client.LayerL2)
	src.loaded(s, "k", 1)
	if v, err := c.GetWith(s.Context(), "k", nil, client.GetOptions{Refresh: true}); err != nil || v.Version != 7 {
		s.Errorf("Refresh: %v, %v", v, err)
	}
	if n := c.Stats().Fills; n != 2 {
		s.Errorf("Fills is %d, want 2: an equal version is the same row", n)
	}
}

func markRefusesAbsence(s *scene) {
	src := newSource(row{})
	c := open(s, versioned(src.load))
	s.must(c.InvalidateVersion(s.Context(), "none", 5))
	if _, err := c.Get(s.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
		s.Errorf("got %v, want ErrNotFound", err)
	}
	if p := where(s, c, "none"); p.has(p.data) {
		s.Error("the absence was stored, below the mark")
	}
}

func markLives(s *scene) {
	c := open(s, versioned(newSource(row{4, "a"}).load))
	for _, v := range []uint64{5, 3} {
		s.must(c.InvalidateVersion(s.Context(), "k", v))
	}
	p := where(s, c, "k")
	if ttl := p.ttl(p.mark); ttl > 10*time.Second || ttl < time.Second {
		s.Errorf("the mark lives %v, want 10 s", ttl)
	}
	if r, err := c.Lookup(s.Context(), "k"); err != nil || !r.Stale {
		s.Errorf("version 4 under a mark of 5: %+v, %v; want it stale", r, err)
	}
	s.must(p.node.PExpire(s.Context(), p.mark, 20*time.Millisecond).Err())
	s.until("the mark ends", func() bool { return !p.has(p.mark) })
	want(s, c, "k", row{4, "a"}, client.LayerSource)
	want(s, c, "k", row{4, "a"}, client.LayerL2)
}

// largeVersions: 2^53 and its neighbour are one number to Lua, and bytes from 0x80 up sort before others in some locales.
func largeVersions(s *scene) {
	src := newSource(row{})
	c := open(s, versioned(src.load))
	for i, v := range []uint64{1 << 53, 1<<53 + 1, 1<<56 - 1, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1} {
		key := fmt.Sprint("k", i)
		s.must(c.InvalidateVersion(s.Context(), key, v+1))
		src.set(key, row{v, "old"})
		if r, err := c.Lookup(s.Context(), key); err != nil || !r.Stale || r.Version != v {
			s.Errorf("version %d below %d: %+v, %v; want it stale", v, v+1, r, err)
		}
		src.set(key, row{v + 1, "new"})
		want(s, c, key, row{v + 1, "new"}, client.LayerSource)
		want(s, c, key, row{v + 1, "new"}, client.LayerL2)
	}
}

func setVersions(s *scene) {
	c := open(s, aTruth())
	for _, v := range []uint64{1, 1<<53 + 1, math.MaxUint64} {
		key := fmt.Sprint("k", v)
		s.must(c.Set(s.Context(), key, row{v, "first"}))
		s.must(c.Set(s.Context(), key, row{v - 1, "older"})) // for v = 1 the older one has no version
		if v > 1 {
			want(s, c, key, row{v, "first"}, client.LayerL2)
		} else {
			want(s, c, key, row{0, "older"}, client.LayerL2) // without a version the last one wins
		}
		s.must(c.Set(s.Context(), key, row{v, "equal"}))
		want(s, c, key, row{v, "equal"}, client.LayerL2)
	}
	if n := c.Stats().SetsOlder; n != 2 {
		s.Errorf("SetsOlder is %d, want 2", n)
	}
}

func olderRefresh(s *scene) {
	src := newSource(row{2, "new"})
	c := open(s, versioned(src.load))
	want(s, c, "k", row{2, "new"}, client.LayerSource)
	src.set("k", row{1, "from a lagging replica"})
	if _, err := c.GetWith(s.Context(), "k", nil, client.GetOptions{Refresh: true}); err != nil {
		s.Error(err)
	}
	want(s, c, "k", row{2, "new"}, client.LayerL2)
	if n := c.Stats().FillsRefused; n != 1 {
		s.Errorf("FillsRefused is %d, want 1", n)
	}
}

// writeThroughMarks: stored, or crossed by an invalidation that knows no version.
func writeThroughMarks(s *scene) {
	for _, crossed := range []bool{false, true} {
		key := map[bool]string{false: "stored", true: "crossed"}[crossed]
		src := newSource(row{1, "old"}) // a database replica that lags
		a, b := open(s, versioned(src.load)), open(s, versioned(src.load))
		_, err := a.WriteThrough(s.Context(), key, func(ctx context.Context) (row, error) {
			if crossed {
				return row{2, "new"}, b.Invalidate(ctx, key)
			}
			return row{2, "new"}, nil
		})
		s.must(err)
		if !crossed {
			want(s, b, key, row{2, "new"}, client.LayerL2)
			s.must(b.Invalidate(s.Context(), key)) // by somebody who knows no version either
		}
		if r, err := b.Lookup(s.Context(), key); err != nil || r.Value != (row{1, "old"}) || !r.Stale || r.Layer != client.LayerSource {
			s.Errorf("%s: %+v, %v; want the old row, marked stale", key, r, err)
		}
		p := where(s, b, key)
		if ttl := p.ttl(p.mark); p.has(p.data) || ttl > 10*time.Second || ttl <= 0 {
			s.Errorf("%s: entry %v, a mark for %v; want the mark alone, for 10 s", key, p.has(p.data), ttl)
		}
		src.set(key, row{2, "new"}) // it has caught up
		want(s, b, key, row{2, "new"}, client.LayerSource)
		want(s, a, key, row{2, "new"}, client.LayerL2)
	}
}
