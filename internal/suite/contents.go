// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-shelf/shelf/client"
)

var contents = []behaviour{
	{name: "bytes come back as they were", test: exactBytes},
	{name: "large and compressed values come back whole, and go whole", test: largeValues},
	{name: "a value above MaxValueBytes is returned, not stored, and counted", test: oversized},
	{name: "a value beyond the server's own limit hurts nobody else", needs: []Ability{Settings}, alone: true, test: serverLimit},
	{name: "bytes that are not ours are a miss, and are replaced", test: foreign},
	{name: "a list or hash under a key's name is a miss, and is replaced", test: wrongType},
	{name: "another codec's entry is a miss, and is replaced", test: otherCodec},
}

func exactBytes(s *scene) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	values := map[string][]byte{"empty": {}, "every": every, "crlf": []byte("\r\n$5\r\n"), "large": bytes.Repeat(every, 4<<10-16)}
	cfg := plain(func(_ context.Context, key string) ([]byte, error) { return values[key], nil })
	a, b := open(s, cfg), open(s, cfg)
	for key, v := range values {
		loaded := bytes.Clone(v)
		for i, c := range []*client.Cache[[]byte]{a, a, b} {
			r, err := c.Lookup(s.Context(), key)
			if err != nil || r.Value == nil || !bytes.Equal(r.Value, loaded) {
				s.Errorf("%s: %d bytes, %v; want the %d that were loaded", key, len(r.Value), err, len(loaded))
			}
			if i > 0 && r.Layer != client.LayerL2 {
				s.Errorf("%s: read %d from %v", key, i, r.Layer)
			}
			for j := range r.Value {
				r.Value[j] = 'X' // it is this caller's own
			}
		}
		if !bytes.Equal(v, loaded) {
			s.Errorf("%s: a caller's edit has reached the loader's buffer", key)
		}
	}
}

// largeValues: from LargeValueBytes on a value lies beside its entry.
func largeValues(s *scene) {
	const size = 512 << 10
	for name, how := range map[string]client.Compression{"plain": client.CompressNone, "zstd": client.CompressZstd} {
		text := strings.Repeat("0123456789abcdef", size/16)
		cfg := plain(func(_ context.Context, key string) (string, error) { return key + text, nil })
		cfg.Name, cfg.Compression, cfg.LargeValueBytes = name, how, 1<<10
		a, b := open(s, cfg), open(s, cfg)
		for i, c := range []*client.Cache[string]{a, a, b} {
			r, err := c.Lookup(s.Context(), "k")
			if err != nil || r.Value != "k"+text || (i > 0) != (r.Layer == client.LayerL2) {
				s.Errorf("%s: read %d: %d bytes from %v, %v", name, i, len(r.Value), r.Layer, err)
			}
		}
		s.must(b.Invalidate(s.Context(), "k"))
		if p := where(s, a, "k"); p.has(p.data) || p.has("~b:"+p.data) {
			s.Errorf("%s: after Invalidate: entry %v, body %v; want neither", name, p.has(p.data), p.has("~b:"+p.data))
		}
	}
	s.empty("after invalidations")
}

func oversized(s *scene) {
	const limit = 1 << 10
	var mu sync.Mutex
	loads := 0
	cfg := plain(func(_ context.Context, key string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		loads++
		return strings.Repeat("x", map[string]int{"large": limit + 1}[key]+1), nil
	})
	cfg.MaxValueBytes = limit
	c := open(s, cfg)
	for range 3 {
		r, err := c.Lookup(s.Context(), "large")
		if err != nil || len(r.Value) != limit+2 || r.Layer != client.LayerSource {
			s.Errorf("%d bytes from %v, %v", len(r.Value), r.Layer, err)
		}
	}
	p := where(s, c, "large")
	if p.has(p.data) || loads != 3 || c.Stats().Oversized != 3 {
		s.Errorf("entry %v, %d loads, Oversized %d; want none, 3 and 3", p.has(p.data), loads, c.Stats().Oversized)
	}
	t := open(s, client.CacheConfig[string]{Name: "t", TTL: time.Minute, Truth: true, MaxValueBytes: limit})
	if err := t.Set(s.Context(), "k", strings.Repeat("x", limit+1)); !errors.Is(err, client.ErrTooLarge) {
		s.Errorf("Set: %v, want ErrTooLarge", err)
	}
}

// serverLimit: the server closes the connection on which it is told of more than proto-max-bulk-len. One other command may be lost with it, a fill
// perhaps or the release of a lease: so the answers must be right at once, and the small values stored soon.
func serverLimit(s *scene) {
	s.do(0, "CONFIG", "SET", "proto-max-bulk-len", "1mb")
	large := strings.Repeat("x", 2<<20)
	cfg := plain(func(_ context.Context, key string) (string, error) {
		if key == "large" {
			return large, nil
		}
		return "small", nil
	})
	cfg.MaxValueBytes = 8 << 20
	cfg.LoadTimeout, cfg.LeaseTTL = time.Second, 2*time.Second
	c := open(s, cfg)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if v, err := c.Get(s.Context(), "large"); err != nil || v != large {
				s.Errorf("%d bytes, %v", len(v), err)
			}
		})
	}
	for _, k := range numbered(20) {
		wg.Go(func() {
			if v, err := c.Get(s.Context(), k); err != nil || v != "small" {
				s.Errorf("%s: %.20q, %v", k, v, err)
			}
		})
	}
	wg.Wait()
	for _, k := range numbered(20) {
		s.until(k+" is on the node", func() bool {
			r, err := c.Lookup(s.Context(), k)
			if err != nil || r.Value != "small" {
				s.Errorf("%s: %.20q, %v", k, r.Value, err)
			}
			return r.Layer == client.LayerL2
		})
	}
}

// foreign: whatever the bytes look like, also when eight of them stand where a version larger than any would be.
func foreign(s *scene) {
	ours := "\xf5\x53\x01\x01\x00\x00\x00\x38"
	for name, bytes := range map[string]string{
		"empty": "", "text": "hello", "only the magic": ours[:2], "a cut header": ours + strings.Repeat("\xff", 20),
		"a header of garbage": ours + strings.Repeat("\xff", 200), "zeros": strings.Repeat("\x00", 100),
	} {
		src := newSource(row{1, "a"})
		c := open(s, versioned(src.load))
		p := where(s, c, name)
		s.must(p.node.Set(s.Context(), p.data, bytes, time.Hour).Err())
		want(s, c, name, row{1, "a"}, client.LayerSource)
		want(s, c, name, row{1, "a"}, client.LayerL2)
		if c.Stats().Foreign == 0 {
			s.Errorf("%s: not counted", name)
		}
		s.must(p.node.Set(s.Context(), p.data, bytes, time.Hour).Err())
		if m, err := c.GetMany(s.Context(), []string{name}); err != nil || m[name] != (row{1, "a"}) {
			s.Errorf("%s in a batch: %v, %v", name, m, err)
		}
		want(s, c, name, row{1, "a"}, client.LayerL2)
		src.loaded(s, name, 2)
	}
}

func wrongType(s *scene) {
	c := open(s, plain(newSource(row{Text: "a"}).load))
	for _, command := range []string{"RPUSH", "SADD", "APPEND"} {
		p := where(s, c, command)
		s.must(p.node.Do(s.Context(), command, p.data, "x").Err())
		want(s, c, command, row{Text: "a"}, client.LayerSource)
		want(s, c, command, row{Text: "a"}, client.LayerL2)
	}
	p := where(s, c, "removed")
	s.must(p.node.Do(s.Context(), "HSET", p.data, "f", "x").Err())
	s.must(p.node.Do(s.Context(), "RPUSH", p.lease, "x").Err())
	s.must(p.node.Do(s.Context(), "RPUSH", p.mark, "x").Err())
	if v, err := c.Get(s.Context(), "removed"); err != nil || v.Text != "a" {
		s.Errorf("with a list for a lease: %v, %v; want the loaded value", v, err)
	}
	s.must(c.Invalidate(s.Context(), "removed"))
	want(s, c, "removed", row{Text: "a"}, client.LayerSource)
	want(s, c, "removed", row{Text: "a"}, client.LayerL2)
}

func otherCodec(s *scene) {
	texts := open(s, plain(func(context.Context, string) (string, error) { return "{}", nil }))
	rows := open(s, plain(newSource(row{Text: "a"}).load))
	want(s, texts, "k", "{}", client.LayerSource)
	want(s, rows, "k", row{Text: "a"}, client.LayerSource)
	want(s, rows, "k", row{Text: "a"}, client.LayerL2)
	want(s, texts, "k", "{}", client.LayerSource)
	if rows.Stats().Foreign == 0 || texts.Stats().Foreign == 0 {
		s.Errorf("Foreign is %d and %d", rows.Stats().Foreign, texts.Stats().Foreign)
	}
}
