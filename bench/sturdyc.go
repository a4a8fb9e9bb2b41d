// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/viccon/sturdyc"
)

// sturdy is sturdyc with its distributed storage, which is go-redis here.
var sturdy = contender{
	name: "sturdyc", about: "GetOrFetch, 64 shards, distributed storage over go-redis. Another process's change is not seen until the TTL",
	kinds: []string{kindL1, kindStampede}, open: openSturdy,
}

func openSturdy(_ context.Context, s *scene) (*opened, error) {
	d := openDrivers(s, nil)
	c := sturdyc.New[string](max(8*s.Keys, 1<<16), 64, time.Hour, 10,
		sturdyc.WithDistributedStorage(storage{d[0]}), sturdyc.WithNoContinuousEvictions(), sturdyc.WithLog(&sturdyc.NoopLogger{}))
	out := &opened{close: d.close}
	out.text = func(ctx context.Context, key string) (string, error) {
		return c.GetOrFetch(ctx, key, func(ctx context.Context) (string, error) { return s.source.row(ctx, key) })
	}
	out.seed = func(ctx context.Context, keys []string) error {
		for _, key := range keys {
			if _, err := out.text(ctx, key); err != nil {
				return err
			}
		}
		return nil
	}
	return out, nil
}

// storage is a server as sturdyc wants to see one. Errors are misses there.
type storage struct{ c *redis.Client }

func (s storage) Get(ctx context.Context, key string) ([]byte, bool) {
	v, err := s.c.Get(ctx, key).Bytes()
	return v, err == nil
}

func (s storage) Set(ctx context.Context, key string, value []byte) {
	_ = s.c.Set(ctx, key, value, time.Hour)
}

func (s storage) GetBatch(ctx context.Context, keys []string) map[string][]byte {
	found := make(map[string][]byte, len(keys))
	for i, v := range s.c.MGet(ctx, keys...).Val() {
		if text, ok := v.(string); ok {
			found[keys[i]] = []byte(text)
		}
	}
	return found
}

func (s storage) SetBatch(ctx context.Context, records map[string][]byte) {
	for key, value := range records {
		s.Set(ctx, key, value)
	}
}
