// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"sync"
	"time"

	"github.com/go-shelf/shelf/client"
)

var reading = []behaviour{
	{name: "a miss loads once, and the others find it on the node", test: missFillHit},
	{name: "callers of one key in two processes share one load", test: oneLoad},
	{name: "a lease that another process holds is waited for", test: leaseHeld},
	{name: "a lease whose holder is gone ends by itself", test: leaseAbandoned},
	{name: "a lease is waited for WaitTimeout, then the value is loaded and not stored", test: leaseOutwaited},
	{name: "absence is remembered, and an invalidation ends that", test: absence},
	{name: "a loader's error leaves nothing on the node and the key alone", test: loaderError},
	{name: "Refresh loads anew and stores; NoFill stores nothing", test: options},
}

func missFillHit(s *scene) {
	src := newSource(row{Text: "a"})
	src.set("empty", row{})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	for _, key := range []string{"k", "empty"} {
		v := src.rowOf(key)
		want(s, a, key, v, client.LayerSource)
		want(s, a, key, v, client.LayerL2)
		want(s, b, key, v, client.LayerL2)
		src.loaded(s, key, 1)
		p := where(s, a, key)
		if !p.has(p.data) || p.has(p.lease) || p.has(p.mark) {
			s.Errorf("%s: entry %v, lease %v, mark %v; want the entry alone", key, p.has(p.data), p.has(p.lease), p.has(p.mark))
		}
	}
}

func oneLoad(s *scene) {
	const callers = 50
	src := newSource(row{Text: "a"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	release := src.hold()
	var wg sync.WaitGroup
	for range callers {
		for _, c := range []*client.Cache[row]{a, b} {
			wg.Go(func() {
				if v, err := c.Get(s.Context(), "k"); err != nil || v.Text != "a" {
					s.Errorf("got %v, %v", v, err)
				}
			})
		}
	}
	s.until("all callers wait", func() bool { return a.Stats().Waiting+b.Stats().Waiting == 2*callers && src.holding() > 0 })
	release()
	wg.Wait()
	src.loaded(s, "k", 1)
	want(s, a, "k", row{Text: "a"}, client.LayerL2)
}

func leaseHeld(s *scene) {
	src, other := newSource(row{Text: "a"}), newSource(row{Text: "b"})
	a, b := open(s, plain(src.load)), open(s, plain(other.load))
	release := src.hold()
	first := ask(s, a, "k")
	s.until("the load runs", func() bool { return src.holding() == 1 })
	if p := where(s, a, "k"); !p.has(p.lease) || p.ttl(p.lease) > leaseTTL || p.ttl(p.lease) < leaseTTL-patience {
		s.Errorf("the lease lives %v, want up to %v", p.ttl(p.lease), leaseTTL)
	}
	second := ask(s, b, "k")
	s.until("the other waits", func() bool { return b.Stats().Waiting == 1 })
	release()
	if r, err := first(); err != nil || r.Layer != client.LayerSource {
		s.Errorf("the holder got %+v, %v", r, err)
	}
	if r, err := second(); err != nil || r.Value.Text != "a" || r.Layer != client.LayerL2 {
		s.Errorf("the other got %+v, %v; want the holder's value from L2", r, err)
	}
	other.loaded(s, "k", 0)
}

func leaseAbandoned(s *scene) {
	src := newSource(row{Text: "a"})
	c := open(s, plain(src.load))
	where(s, c, "k").plant(300 * time.Millisecond)
	start := time.Now()
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	if d := time.Since(start); d < 200*time.Millisecond || d > patience {
		s.Errorf("the load came after %v, want it when the lease of 300 ms had ended", d)
	}
	want(s, c, "k", row{Text: "a"}, client.LayerL2)
}

func leaseOutwaited(s *scene) {
	cfg := plain(newSource(row{Text: "a"}).load)
	cfg.WaitTimeout = 100 * time.Millisecond
	c := open(s, cfg)
	p := where(s, c, "k")
	p.plant(time.Minute)
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	if p.has(p.data) || !p.has(p.lease) {
		s.Errorf("entry %v, lease %v; want the other's lease alone", p.has(p.data), p.has(p.lease))
	}
}

func absence(s *scene) {
	src := newSource(row{Text: "a"})
	a, b := open(s, plain(src.load)), open(s, plain(src.load))
	for _, c := range []*client.Cache[row]{a, b, a} {
		if _, err := c.Get(s.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
			s.Errorf("got %v, want ErrNotFound", err)
		}
	}
	src.loaded(s, "none", 1)
	s.must(b.Invalidate(s.Context(), "none"))
	if _, err := a.Get(s.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
		s.Errorf("got %v, want ErrNotFound", err)
	}
	src.loaded(s, "none", 2)
}

func loaderError(s *scene) {
	src := newSource(row{Text: "a"})
	c := open(s, plain(src.load))
	down := errors.New("the database is down")
	src.fail(down)
	p := where(s, c, "k")
	for range 2 {
		if _, err := c.Get(s.Context(), "k"); !errors.Is(err, down) {
			s.Errorf("got %v, want the loader's error", err)
		}
		if p.has(p.data) || p.has(p.lease) {
			s.Errorf("entry %v, lease %v; want neither", p.has(p.data), p.has(p.lease))
		}
	}
	src.loaded(s, "k", 1) // the second read was told what the first had met
	src.fail(nil)
	s.must(c.Invalidate(s.Context(), "k"))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	want(s, c, "k", row{Text: "a"}, client.LayerL2)
}

func options(s *scene) {
	src := newSource(row{Text: "a"})
	c := open(s, plain(src.load))
	p := where(s, c, "k")
	if v, err := c.GetWith(s.Context(), "k", nil, client.GetOptions{NoFill: true}); err != nil || v.Text != "a" || p.has(p.data) || p.has(p.lease) {
		s.Errorf("NoFill: %v, %v; entry %v, lease %v", v, err, p.has(p.data), p.has(p.lease))
	}
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	src.set("k", row{Text: "b"})
	want(s, c, "k", row{Text: "a"}, client.LayerL2)
	if v, err := c.GetWith(s.Context(), "k", nil, client.GetOptions{Refresh: true}); err != nil || v.Text != "b" {
		s.Errorf("Refresh: %v, %v", v, err)
	}
	want(s, c, "k", row{Text: "b"}, client.LayerL2)
}
