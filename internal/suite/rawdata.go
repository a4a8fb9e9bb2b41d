// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-shelf/shelf/client"
)

var rawData = []behaviour{
	{name: "raw names: bytes, times to live, locks and counters", test: rawNames},
	{name: "raw names in bulk: the answers in the order of the names", test: rawMany},
	{name: "a warm-up loads what is missing, once", test: warmUp},
}

func rawNames(s *scene) {
	cl, ctx := s.client(s.config()), s.Context()
	for name, value := range map[string]string{"plain": "v", "empty": "", "any bytes {\x00}\r\n": "\x00\xff\r\n"} {
		s.must(cl.Set(ctx, name, []byte(value), time.Minute))
		got, found, err := cl.Get(ctx, name)
		left, _, err2 := cl.TTL(ctx, name)
		if err := errors.Join(err, err2); err != nil || !found || string(got) != value || left > time.Minute || left < time.Minute-patience {
			s.Errorf("%q is %q, %t, for %v, %v", name, got, found, left, err)
		}
	}
	for _, token := range []string{"a", "b"} {
		if stored, err := cl.SetNX(ctx, "lock", []byte(token), time.Minute); err != nil || stored != (token == "a") {
			s.Errorf("SetNX by %s: %t, %v", token, stored, err)
		}
	}
	if found, err := cl.Expire(ctx, "lock", time.Hour); err != nil || !found {
		s.Errorf("Expire: %t, %v", found, err)
	}
	for i, by := range []int64{math.MaxInt64 - 1, 1, -math.MaxInt64} {
		if n, err := cl.Incr(ctx, "count", by, time.Hour); err != nil || n != []int64{math.MaxInt64 - 1, math.MaxInt64, 0}[i] {
			s.Errorf("Incr by %d: %d, %v", by, n, err)
		}
	}
	for _, name := range []string{"lock", "count"} {
		if left, found, err := cl.TTL(ctx, name); err != nil || !found || left > time.Hour || left < time.Hour-patience {
			s.Errorf("%s lives for %v, %t, %v", name, left, found, err)
		}
	}
	_, err := cl.Incr(ctx, "plain", 1, client.NoExpiry)
	var refused *client.KeyError
	if !errors.As(err, &refused) || client.Unavailable(err) {
		s.Errorf("Incr of what is no number: %v, want a *KeyError", err)
	}
	s.must(cl.Set(ctx, "plain", nil, client.NoExpiry))
	if left, _, err := cl.TTL(ctx, "plain"); err != nil || left != client.NoExpiry {
		s.Errorf("without an expiry: %v, %v", left, err)
	}
}

func rawMany(s *scene) {
	cl, ctx := s.client(s.config()), s.Context()
	names := numbered(s.many(1500))
	values := make(map[string][]byte)
	for _, name := range names {
		values[name] = []byte("value of " + name)
	}
	s.must(cl.MSet(ctx, values, time.Minute))
	asked := append([]string{"missing", names[1]}, names...)
	got, err := cl.MGet(ctx, asked)
	s.must(err)
	for i, name := range asked {
		if want := values[name]; got[i].Found != (want != nil) || string(got[i].Value) != string(want) {
			s.Errorf("%s is %+v, want %q", name, got[i], want)
		}
	}
	if n, err := cl.Delete(ctx, asked...); err != nil || n != len(names) {
		s.Errorf("%d were removed, %v; want %d", n, err, len(names))
	}
	s.empty("after Delete")
}

func warmUp(s *scene) {
	src := newSource(row{1, "a"})
	a, b := open(s, batching(src)), open(s, batching(src))
	keys := append(numbered(s.many(500)), "none")
	want(s, a, keys[0], row{1, "a"}, client.LayerSource)
	missing := int64(len(keys) - 1)
	for i, c := range []*client.Cache[row]{a, b} {
		r, err := c.Warm(s.Context(), slices.Values(keys), client.WarmOptions{Rate: 1e5})
		if want := []int64{missing, 0}[i]; err != nil || r.Loaded != want || r.Present != int64(len(keys))-want || r.Absent != min(want, 1) {
			s.Errorf("call %d: %+v, %v; want %d loaded", i, r, err, want)
		}
	}
	if m, err := b.GetMany(s.Context(), keys); err != nil || len(m) != len(keys)-1 {
		s.Errorf("%d values, %v; want %d", len(m), err, len(keys)-1)
	}
	for _, k := range keys {
		src.loaded(s, k, 1)
	}
}
