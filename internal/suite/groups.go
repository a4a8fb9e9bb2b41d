// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"strings"

	"github.com/go-shelf/shelf/client"
)

var groups = []behaviour{
	{name: "Clear makes every entry unreadable in every process, and voids loads in flight", test: clearAll},
	{name: "InvalidateTag reaches the entries with the tag, and no others", test: clearTag},
	{name: "a generation that the node lost makes no cleared entry readable", test: lostGeneration},
}

// tagged is a cache whose rows carry their text up to the first ':' as a tag.
func tagged(src *source) client.CacheConfig[row] {
	cfg := batching(src)
	cfg.Tags = func(r row) []string {
		tag, _, _ := strings.Cut(r.Text, ":")
		return []string{tag}
	}
	return cfg
}

func clearAll(s *scene) {
	src := newSource(row{1, "old"})
	a, b := open(s, batching(src)), open(s, batching(src))
	keys := numbered(20)
	_, err := a.GetMany(s.Context(), keys)
	s.must(err)
	want(s, b, "key-1", row{1, "old"}, client.LayerL2)
	release := src.hold()
	slow := ask(s, b, "slow")
	s.until("b has read the old row", func() bool { return src.holding() == 1 })
	for _, k := range append(keys, "slow") {
		src.set(k, row{2, "new"})
	}
	s.must(a.Clear(s.Context()))
	release()
	if _, err := slow(); err != nil {
		s.Error(err)
	}
	want(s, b, "slow", row{2, "new"}, client.LayerSource)
	want(s, b, "key-1", row{2, "new"}, client.LayerSource)
	m, err := b.GetMany(s.Context(), keys)
	s.must(err)
	for _, k := range keys {
		if m[k] != (row{2, "new"}) {
			s.Errorf("%s is %v after Clear", k, m[k])
		}
		want(s, a, k, row{2, "new"}, client.LayerL2)
	}
}

func clearTag(s *scene) {
	src := newSource(row{})
	for _, k := range numbered(10) {
		src.set(k, row{1, "even:old"})
	}
	for _, k := range []string{"key-1", "key-3", "key-5"} {
		src.set(k, row{1, "odd:old"})
	}
	a, b := open(s, tagged(src)), open(s, tagged(src))
	_, err := a.GetMany(s.Context(), numbered(10))
	s.must(err)
	s.must(a.InvalidateTag(s.Context(), "odd"))
	for _, c := range []*client.Cache[row]{b, a} {
		_, err := c.GetMany(s.Context(), numbered(10))
		s.must(err)
	}
	for i, k := range numbered(10) {
		src.loaded(s, k, 1+map[int]int{1: 1, 3: 1, 5: 1}[i])
		want(s, b, k, src.rowOf(k), client.LayerL2)
	}
}

// lostGeneration: it may be evicted like any other name.
func lostGeneration(s *scene) {
	src := newSource(row{1, "old"})
	a, b := open(s, batching(src)), open(s, batching(src))
	want(s, a, "k", row{1, "old"}, client.LayerSource)
	s.must(a.Clear(s.Context()))
	src.set("k", row{2, "new"})
	p := where(s, a, "k")
	gone, err := p.node.Del(s.Context(), "~g:x:v0").Result()
	s.must(err)
	if gone != 1 {
		s.Errorf("%d generations were there, want 1", gone)
	}
	want(s, b, "k", row{2, "new"}, client.LayerSource)
	want(s, b, "k", row{2, "new"}, client.LayerL2)
	want(s, a, "k", row{2, "new"}, client.LayerL2)
}
