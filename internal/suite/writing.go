// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"time"

	"github.com/go-shelf/shelf/client"
)

var writing = []behaviour{
	{name: "an invalidation voids the load in flight: the slow reader stores nothing", test: slowReader},
	{name: "a slow reader does not replace what was loaded after the invalidation", test: slowReaderOvertaken},
	{name: "Write invalidates, whatever the database said", test: write},
	{name: "WriteThrough stores the row that was written", test: writeThrough},
	{name: "WriteThrough gives way to an invalidation that comes in between", test: writeThroughCrossed},
	{name: "WriteThrough voids the load in flight", test: writeThroughVoids},
	{name: "InvalidateMany removes on every node", test: invalidateMany},
	{name: "Set: the last wins, Invalidate deletes, a missing key is not found", test: truth},
	{name: "SetMany stores on every node, or nothing where a key is wrong", test: setMany},
}

func slowReader(s *scene) {
	src := newSource(row{Text: "old"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	release := src.hold()
	first := ask(s, a, "k")
	s.until("a has read the old row", func() bool { return src.holding() == 1 })
	src.set("k", row{Text: "new"})
	s.must(b.Invalidate(s.Context(), "k"))
	release()
	if r, err := first(); err != nil || r.Value.Text != "old" {
		s.Errorf("the slow reader got %+v, %v; want what it had read", r, err)
	}
	if p := where(s, a, "k"); p.has(p.data) || p.has(p.lease) {
		s.Errorf("entry %v, lease %v; want neither", p.has(p.data), p.has(p.lease))
	}
	if n := a.Stats().FillsRefused; n != 1 {
		s.Errorf("FillsRefused is %d, want 1", n)
	}
	want(s, a, "k", row{Text: "new"}, client.LayerSource)
}

func slowReaderOvertaken(s *scene) {
	src := newSource(row{Text: "old"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	release := src.hold()
	first := ask(s, a, "k")
	s.until("a has read the old row", func() bool { return src.holding() == 1 })
	src.set("k", row{Text: "new"})
	s.must(b.Invalidate(s.Context(), "k"))
	second := ask(s, b, "k") // has the next lease while a still has the first
	s.until("b has read the new row", func() bool { return src.holding() == 2 })
	release()
	if _, err := first(); err != nil {
		s.Error(err)
	}
	if r, err := second(); err != nil || r.Value.Text != "new" {
		s.Errorf("the second reader got %+v, %v", r, err)
	}
	want(s, b, "k", row{Text: "new"}, client.LayerL2)
	want(s, a, "k", row{Text: "new"}, client.LayerL2)
}

func write(s *scene) {
	src := newSource(row{Text: "a"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	failed := errors.New("the connection broke: committed or not, nobody knows")
	for i, result := range []error{nil, failed} {
		want(s, b, "k", src.rowOf("k"), client.LayerSource)
		next := row{Text: string(rune('b' + i))}
		err := a.Write(s.Context(), "k", func(context.Context) error {
			src.set("k", next)
			return result
		})
		if !errors.Is(err, result) {
			s.Errorf("Write: %v, want %v", err, result)
		}
		if p := where(s, a, "k"); p.has(p.data) {
			s.Error("the entry is still there")
		}
	}
}

func writeThrough(s *scene) {
	src := newSource(row{Text: "a"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	want(s, b, "k", row{Text: "a"}, client.LayerSource)
	v, err := a.WriteThrough(s.Context(), "k", func(context.Context) (row, error) {
		src.set("k", row{Text: "b"})
		return row{Text: "b"}, nil
	})
	if err != nil || v.Text != "b" {
		s.Errorf("WriteThrough: %v, %v", v, err)
	}
	want(s, b, "k", row{Text: "b"}, client.LayerL2)
	src.loaded(s, "k", 1)
	failed := errors.New("failed")
	if _, err := a.WriteThrough(s.Context(), "k", func(context.Context) (row, error) { return row{}, failed }); !errors.Is(err, failed) {
		s.Errorf("WriteThrough: %v, want %v", err, failed)
	}
	if p := where(s, a, "k"); p.has(p.data) || p.has(p.lease) {
		s.Errorf("after a failed write: entry %v, lease %v; want neither", p.has(p.data), p.has(p.lease))
	}
}

func writeThroughCrossed(s *scene) {
	src := newSource(row{Text: "a"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	_, err := a.WriteThrough(s.Context(), "k", func(ctx context.Context) (row, error) {
		src.set("k", row{Text: "other's"})
		return row{Text: "mine"}, b.Invalidate(ctx, "k")
	})
	s.must(err)
	if p := where(s, a, "k"); p.has(p.data) || p.has(p.lease) {
		s.Errorf("entry %v, lease %v; want neither", p.has(p.data), p.has(p.lease))
	}
	want(s, b, "k", row{Text: "other's"}, client.LayerSource)
}

func writeThroughVoids(s *scene) {
	src := newSource(row{Text: "old"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	release := src.hold()
	first := ask(s, a, "k")
	s.until("a has read the old row", func() bool { return src.holding() == 1 })
	_, err := b.WriteThrough(s.Context(), "k", func(context.Context) (row, error) { return row{Text: "new"}, nil })
	s.must(err)
	release()
	if _, err := first(); err != nil {
		s.Error(err)
	}
	want(s, a, "k", row{Text: "new"}, client.LayerL2)
}

func invalidateMany(s *scene) {
	cfg := plain(newSource(row{Text: "a"}).load)
	cfg.LoadMany = newSource(row{Text: "a"}).loadMany
	c := open(s, cfg)
	keys := numbered(200)
	_, err := c.GetMany(s.Context(), keys)
	s.must(err)
	for _, k := range keys {
		if p := where(s, c, k); !p.has(p.data) {
			s.Fatalf("%s is not on its node", k)
		}
	}
	s.must(c.InvalidateMany(s.Context(), keys))
	s.empty("after InvalidateMany")
}

// aTruth is the configuration of a cache with no source behind it.
func aTruth() client.CacheConfig[row] {
	return client.CacheConfig[row]{Name: "t", TTL: time.Minute, Truth: true, L1: client.L1Off, Version: version}
}

func truth(s *scene) {
	a, b := open(s, aTruth()), open(s, aTruth())
	for _, text := range []string{"1", "2"} {
		s.must(a.Set(s.Context(), "k", row{Text: text}))
		want(s, b, "k", row{Text: text}, client.LayerL2)
	}
	p := where(s, a, "k")
	if ttl := p.ttl(p.data); ttl > time.Minute || ttl < time.Minute-patience {
		s.Errorf("the entry lives %v, want a minute", ttl)
	}
	s.must(a.SetWith(s.Context(), "k", row{Text: "3"}, client.SetOptions{TTL: time.Hour}))
	if ttl := p.ttl(p.data); ttl > time.Hour || ttl < time.Hour-patience {
		s.Errorf("the entry lives %v, want an hour", ttl)
	}
	s.must(b.Invalidate(s.Context(), "k"))
	if _, err := a.Get(s.Context(), "k"); !errors.Is(err, client.ErrNotFound) {
		s.Errorf("after Invalidate: %v, want ErrNotFound", err)
	}
}

func setMany(s *scene) {
	c := open(s, aTruth())
	values := make(map[string]row)
	for _, k := range numbered(200) {
		values[k] = row{Text: "value of " + k}
	}
	values[""] = row{}
	if err := c.SetMany(s.Context(), values); !errors.Is(err, client.ErrInvalidKey) {
		s.Errorf("with an empty key: %v, want ErrInvalidKey", err)
	}
	s.empty("with an empty key")
	delete(values, "")
	s.must(c.SetMany(s.Context(), values))
	for k, v := range values {
		want(s, c, k, v, client.LayerL2)
	}
}
