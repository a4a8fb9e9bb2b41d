// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"strings"

	"github.com/go-shelf/shelf/client"
)

var names = []behaviour{
	{name: "keys are any bytes: braces, NUL, UTF-8, 64 KiB", test: oddKeys},
	{name: "what is no key is refused before anything is sent", test: invalidKeys},
	{name: "namespaces do not meet", test: namespaces},
	{name: "another schema is another entry", test: schemas},
}

func oddKeys(s *scene) {
	keys := []string{
		"foo{}{bar}", "{}foo", "foo{{bar}}zap", "foo{bar}{zap}", "a}b{c", "{u1}.a", "{u1}.b", "a b", " a b", "a b ", "a\r\nGET x", "a\x00b", "a\x00", "\x00",
		"\xff\xfe", "caf\u00e9", "cafe\u0301", strings.Repeat("k", client.MaxKeyBytes), strings.Repeat("k", client.MaxKeyBytes-1),
		"~l:x:k:v0", "~m:x:k:v0", "x:k:v0", "k:v0", "k", "*", "k?", "[k]", "%s", "$-1",
	}
	echo := func(_ context.Context, key string) (string, error) { return key, nil }
	a, b := open(s, plain(echo)), open(s, plain(echo))
	for _, k := range keys {
		want(s, a, k, k, client.LayerSource)
		p := where(s, a, k)
		if p.data != "x:"+k+":v0" || !p.has(p.data) {
			s.Errorf("%.40q lives at %.60q, there: %v", k, p.data, p.has(p.data))
		}
	}
	for _, k := range keys {
		want(s, b, k, k, client.LayerL2) // so no two of them share an entry
	}
	if m, err := b.GetMany(s.Context(), keys); err != nil || len(m) != len(keys) {
		s.Errorf("GetMany: %d of %d, %v", len(m), len(keys), err)
	}
	for i, k := range keys {
		s.must(b.Invalidate(s.Context(), k))
		if p := where(s, a, k); p.has(p.data) {
			s.Errorf("%.40q is still there", k)
		}
		for _, other := range keys[i+1:] {
			if p := where(s, a, other); !p.has(p.data) {
				s.Errorf("the invalidation of %.40q removed %.40q", k, other)
			}
		}
	}
}

func invalidKeys(s *scene) {
	c, t := open(s, plain(newSource(row{}).load)), open(s, aTruth())
	ctx := s.Context()
	for _, k := range []string{"", strings.Repeat("k", client.MaxKeyBytes+1)} {
		_, e1 := c.Get(ctx, k)
		_, e2 := c.GetMany(ctx, []string{k})
		e3 := c.Write(ctx, k, func(context.Context) error { s.Error("the write was begun"); return nil })
		_, e4 := c.WriteThrough(ctx, k, func(context.Context) (row, error) { s.Error("the write was begun"); return row{}, nil })
		for i, err := range []error{e1, e2, e3, e4, c.Invalidate(ctx, k), c.InvalidateMany(ctx, []string{"a", k}), c.InvalidateVersion(ctx, k, 1), t.Set(ctx, k, row{})} {
			if !errors.Is(err, client.ErrInvalidKey) {
				s.Errorf("call %d with %d bytes: %v, want ErrInvalidKey", i, len(k), err)
			}
		}
	}
	s.empty("after calls with invalid keys")
}

func namespaces(s *scene) {
	caches := make(map[string]*client.Cache[row])
	for _, ns := range []string{"", "a", "b"} {
		cfg := s.config()
		cfg.Namespace = ns
		caches[ns] = on(s, s.client(cfg), versioned(newSource(row{1, "of " + ns}).load))
		want(s, caches[ns], "k", row{1, "of " + ns}, client.LayerSource)
	}
	for ns, c := range caches {
		want(s, c, "k", row{1, "of " + ns}, client.LayerL2)
		s.must(c.InvalidateVersion(s.Context(), "k", 1))
		prefix := ns
		if ns != "" {
			prefix += "/"
		}
		if p := where(s, c, "k"); p.data != prefix+"x:k:v0" || !p.has(p.mark) {
			s.Errorf("namespace %q: the entry is %q, its mark is there: %v", ns, p.data, p.has(p.mark))
		}
		want(s, c, "k", row{1, "of " + ns}, client.LayerSource)
	}
}

func schemas(s *scene) {
	cl := s.client(s.config())
	for schema, text := range []string{"first", "second"} {
		cfg := plain(newSource(row{Text: text}).load)
		cfg.Schema = schema
		c := on(s, cl, cfg)
		want(s, c, "k", row{Text: text}, client.LayerSource)
		want(s, c, "k", row{Text: text}, client.LayerL2)
	}
}
