// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/go-redis/cache/v9"
)

// redisCache is go-redis/cache, over a client where there is one server and over a Ring where there are more.
var redisCache = contender{
	name: "go-redis/cache", about: "Once; for L1 hits and Zipf with a TinyLFU that has room for every key. Another process's change is not seen in it until its TTL",
	kinds: []string{kindL1, kindL2, kindMiss, kindStampede, kindZipf}, open: openRedisCache,
}

func openRedisCache(_ context.Context, s *scene) (*opened, error) {
	options, out := &cache.Options{}, &opened{}
	if len(s.Addrs) == 1 {
		d := openDrivers(s, nil)
		options.Redis, out.seed, out.close = d[0], d.seed, d.close
	} else {
		r := openRing(s)
		options.Redis, out.seed = r, seedRing(r)
		out.close = func() { _ = r.Close() }
	}
	if s.Kind == kindL1 || s.Kind == kindZipf {
		options.LocalCache = cache.NewTinyLFU(4*s.Keys, time.Hour)
	}
	c := cache.New(options)
	if s.Kind == kindL2 {
		out.bytes = func(ctx context.Context, key string) (v []byte, err error) { return v, c.Get(ctx, key, &v) }
		return out, nil
	}
	out.text = func(ctx context.Context, key string) (v string, err error) {
		return v, c.Once(&cache.Item{Ctx: ctx, Key: key, Value: &v, TTL: time.Hour, Do: func(*cache.Item) (any, error) {
			return s.source.row(ctx, key)
		}})
	}
	if s.Kind == kindL1 {
		out.text = func(ctx context.Context, key string) (v string, err error) { return v, c.Get(ctx, key, &v) }
		out.settle = readAll(s, out.text)
	}
	out.write = c.Delete
	return out, nil
}
