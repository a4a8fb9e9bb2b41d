// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-shelf/shelf/client"
)

var lifetimes = []behaviour{
	{name: "the node ends an entry at its TTL", test: hardTTL},
	{name: "jitter shortens by up to a tenth, NoJitter by nothing", test: jitterBounds},
	{name: "absences and values with a TTL of their own live as long as they should", test: otherTTLs},
	{name: "past its soft TTL an entry is served while one process refreshes it", test: softTTL},
	{name: "early refresh comes before the soft TTL", test: earlyRefresh},
	{name: "nothing that belongs to a key is left without an expiry", test: allExpire},
}

func hardTTL(s *scene) {
	src := newSource(row{Text: "a"})
	cfg := plain(src.load)
	cfg.TTL = 500 * time.Millisecond
	cfg.SoftTTL = cfg.TTL
	c := open(s, cfg)
	begin := time.Now()
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	p := where(s, c, "k")
	s.until("the node ends the entry", func() bool { return !p.has(p.data) })
	if d := time.Since(begin); d < cfg.TTL-s.engine.inexact() {
		s.Errorf("the entry was gone after %v, its TTL is %v", d, cfg.TTL)
	}
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	src.loaded(s, "k", 2)
}

func jitterBounds(s *scene) {
	const ttl = 100 * time.Second
	keys := numbered(s.many(500))
	for _, jitter := range []float64{0, client.DefaultJitter} {
		cfg := batching(newSource(row{}))
		cfg.Name, cfg.TTL, cfg.NoJitter = fmt.Sprintf("jitter-%v", jitter), ttl, jitter == 0
		c := open(s, cfg)
		begin := time.Now()
		if _, err := c.GetMany(s.Context(), keys); err != nil {
			s.Fatal(err)
		}
		shortest, longest := ttl, time.Duration(0)
		for _, k := range keys {
			p := where(s, c, k)
			left := p.ttl(p.data)
			shortest, longest = min(shortest, left), max(longest, left)
		}
		spent := time.Since(begin)
		if least := ttl - time.Duration(jitter*float64(ttl)) - spent - s.engine.inexact(); longest > ttl || shortest < least {
			s.Errorf("jitter %v: the entries live %v to %v, want %v to %v", jitter, shortest, longest, least, ttl)
		}
		if jitter > 0 && longest-shortest < ttl/20 {
			s.Errorf("jitter %v: %d entries live %v to %v: they are not spread", jitter, len(keys), shortest, longest)
		}
	}
}

func otherTTLs(s *scene) {
	cfg := plain(func(ctx context.Context, key string) (row, error) {
		if key == "none" {
			return row{}, client.ErrNotFound
		}
		return row{Text: "a"}, client.SetTTL(ctx, key, time.Hour)
	})
	cfg.NegativeTTL = 20 * time.Second
	c := open(s, cfg)
	begin := time.Now()
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	if _, err := c.Get(s.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
		s.Error(err)
	}
	for key, ttl := range map[string]time.Duration{"k": time.Hour, "none": cfg.NegativeTTL} {
		p := where(s, c, key)
		if left := p.ttl(p.data); left > ttl || left < ttl-time.Since(begin)-s.engine.inexact() {
			s.Errorf("%s lives %v, want %v", key, left, ttl)
		}
	}
}

func softTTL(s *scene) {
	src := newSource(row{Text: "old"})
	cfg := plain(src.load)
	cfg.SoftTTL = 50 * time.Millisecond
	a, b := open(s, cfg), open(s, cfg)
	want(s, a, "k", row{Text: "old"}, client.LayerSource)
	release := src.hold()
	src.set("k", row{Text: "new"})
	s.until("a refresh begins", func() bool {
		want(s, a, "k", row{Text: "old"}, client.LayerL2)
		want(s, b, "k", row{Text: "old"}, client.LayerL2)
		return src.holding() > 0
	})
	s.until("it is marked stale", func() bool { // the two may differ by a moment about what time it is on the node
		r, err := b.Lookup(s.Context(), "k")
		s.must(err)
		return r.Stale
	})
	for range 20 {
		want(s, a, "k", row{Text: "old"}, client.LayerL2)
		want(s, b, "k", row{Text: "old"}, client.LayerL2)
	}
	src.loaded(s, "k", 2)
	release()
	s.until("the refreshed row is there", func() bool {
		r, err := b.Lookup(s.Context(), "k")
		s.must(err)
		if r.Layer != client.LayerL2 {
			s.Errorf("a reader had to wait for the refresh: from %v", r.Layer)
		}
		return r.Value.Text == "new"
	})
}

// earlyRefresh: with such a beta every draw elects its reader.
func earlyRefresh(s *scene) {
	src := newSource(row{Text: "old"})
	cfg := plain(func(ctx context.Context, key string) (row, error) {
		begin := time.Now()
		r, err := src.load(ctx, key)
		for time.Since(begin) < 2*time.Millisecond { // a load that costs something
		}
		return r, err
	})
	cfg.NoEarlyRefresh, cfg.Beta = false, 1e9
	c := open(s, cfg)
	want(s, c, "k", row{Text: "old"}, client.LayerSource)
	src.set("k", row{Text: "new"})
	want(s, c, "k", row{Text: "old"}, client.LayerL2)
	s.until("the refreshed row is there", func() bool {
		r, err := c.Lookup(s.Context(), "k")
		s.must(err)
		return r.Value.Text == "new" && r.Layer == client.LayerL2
	})
}

// allExpire looks at everything that a bit of everything leaves behind.
func allExpire(s *scene) {
	ctx := s.Context()
	src := newSource(row{3, "a"})
	c, t := open(s, versioned(src.load)), open(s, aTruth())
	want(s, c, "k", row{3, "a"}, client.LayerSource)
	_, absent := c.Get(ctx, "none")
	_, many := c.GetMany(ctx, numbered(20))
	_, through := c.WriteThrough(ctx, "w", func(context.Context) (row, error) { return row{1, "b"}, nil })
	if !errors.Is(absent, client.ErrNotFound) {
		s.Error(absent)
	}
	s.must(errors.Join(many, through, c.InvalidateVersion(ctx, "m", 9), t.Set(ctx, "s", row{1, "c"})))
	release := src.hold()
	answer := ask(s, c, "leased")
	s.until("a lease is there", func() bool { return src.holding() == 1 })
	names := 0
	for i := range s.servers {
		keys := s.names(i)
		names += len(keys)
		for _, k := range keys {
			if ttl, err := s.raw(i).PTTL(ctx, k).Result(); err != nil || ttl <= 0 && ttl != -2 { // -2: it has just ended
				s.Errorf("%q on node-%d: PTTL %v, %v", k, i, ttl, err)
			}
		}
	}
	if names < 26 {
		s.Errorf("only %d names on the nodes", names)
	}
	release()
	_, err := answer()
	s.must(err)
}
