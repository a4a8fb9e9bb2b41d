// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"hash/maphash"

	lru "github.com/hashicorp/golang-lru/v2"
)

// lruAlone is what a lookup costs at the least: a sharded LRU, without TTL, freshness or counters.
var lruAlone = contender{
	name: "bare golang-lru, 64 shards", about: "a limit: no TTL, no freshness, no Redis",
	kinds: []string{kindL1}, open: openLRU, limit: true,
}

func openLRU(_ context.Context, s *scene) (*opened, error) {
	var shards [64]*lru.Cache[string, string]
	for i := range shards {
		var err error
		if shards[i], err = lru.New[string, string](max(s.Keys, 1000)); err != nil {
			return nil, err
		}
	}
	seed := maphash.MakeSeed()
	of := func(key string) *lru.Cache[string, string] {
		return shards[maphash.String(seed, key)%uint64(len(shards))]
	}
	return &opened{
		text: func(_ context.Context, key string) (string, error) {
			v, ok := of(key).Get(key)
			if !ok {
				return "", errMissing
			}
			return v, nil
		},
		seed: func(_ context.Context, keys []string) error {
			for _, key := range keys {
				of(key).Add(key, valueOf(key))
			}
			return nil
		},
		close: func() {},
	}, nil
}
