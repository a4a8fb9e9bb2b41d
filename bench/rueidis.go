// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/rueidis"
)

// rueidis, a client for each server and the keys hashed by hand where there are several.
var (
	rueidisPlain = contender{
		name: "rueidis", about: "defaults",
		kinds: []string{kindL2, kindMany}, open: openRueidis(rueidis.ClientOption{}),
	}
	rueidisDelay = contender{
		name: "rueidis, 20 us flush delay", about: "MaxFlushDelay 20 us",
		kinds: []string{kindL2}, open: openRueidis(rueidis.ClientOption{MaxFlushDelay: 20 * time.Microsecond}),
	}
	rueidisCache = contender{
		name: "rueidis, client-side cache", about: "DoCache; misses and writes by hand: DoCache, load, SET; DEL",
		kinds: []string{kindL1, kindZipf}, open: openRueidis(rueidis.ClientOption{CacheSizeEachConn: 1 << 30}),
	}
)

// cacheTTL is how long rueidis's client-side cache keeps an entry.
const cacheTTL = time.Hour

// rueidises are one client for each server.
type rueidises []rueidis.Client

func openRueidis(o rueidis.ClientOption) func(context.Context, *scene) (*opened, error) {
	return func(_ context.Context, s *scene) (*opened, error) {
		r := make(rueidises, len(s.Addrs))
		for i, addr := range s.Addrs {
			o.InitAddress, o.ForceSingleClient = []string{addr}, true
			c, err := rueidis.NewClient(o)
			if err != nil {
				return nil, err
			}
			r[i] = c
		}
		out := &opened{seed: r.seed, close: r.close, write: r.remove}
		switch s.Kind {
		case kindL1:
			out.text = r.cached
			out.settle = readAll(s, out.text)
		case kindZipf:
			out.text = func(ctx context.Context, key string) (string, error) { return r.aside(ctx, key, s.source) }
		case kindMany:
			out.bytes, out.many = r.get, r.many
		default:
			out.bytes = r.get
		}
		return out, nil
	}
}

func (r rueidises) index(key string) int { return int(xxhash.Sum64String(key) % uint64(len(r))) }

func (r rueidises) of(key string) rueidis.Client {
	if len(r) == 1 {
		return r[0]
	}
	return r[r.index(key)]
}

func (r rueidises) get(ctx context.Context, key string) ([]byte, error) {
	c := r.of(key)
	return c.Do(ctx, c.B().Get().Key(key).Build()).AsBytes()
}

func (r rueidises) cached(ctx context.Context, key string) (string, error) {
	c := r.of(key)
	return c.DoCache(ctx, c.B().Get().Key(key).Cache(), cacheTTL).ToString()
}

func (r rueidises) aside(ctx context.Context, key string, from *source) (string, error) {
	v, err := r.cached(ctx, key)
	if !rueidis.IsRedisNil(err) {
		return v, err
	}
	if v, err = from.row(ctx, key); err != nil {
		return "", err
	}
	c := r.of(key)
	return v, c.Do(ctx, c.B().Set().Key(key).Value(v).Ex(time.Hour).Build()).Error()
}

func (r rueidises) remove(ctx context.Context, key string) error {
	c := r.of(key)
	return c.Do(ctx, c.B().Del().Key(key).Build()).Error()
}

// many is an MGET a server, all at once.
func (r rueidises) many(ctx context.Context, keys []string, each func(key, value string)) error {
	parts := make([][]string, len(r))
	for _, key := range keys {
		i := r.index(key)
		parts[i] = append(parts[i], key)
	}
	replies, errs := make([][]rueidis.RedisMessage, len(r)), make([]error, len(r))
	var wg sync.WaitGroup
	for i, part := range parts {
		if len(part) > 0 {
			wg.Go(func() { replies[i], errs[i] = r[i].Do(ctx, r[i].B().Mget().Key(part...).Build()).ToArray() })
		}
	}
	wg.Wait()
	for i, values := range replies {
		for j := range values {
			if text, err := values[j].ToString(); err == nil {
				each(parts[i][j], text)
			}
		}
	}
	return errors.Join(errs...)
}

func (r rueidises) seed(ctx context.Context, keys []string) error {
	return eachPart(keys, 1000, func(part []string) error {
		for i, c := range r {
			var sets rueidis.Commands
			for _, key := range part {
				if r.index(key) == i {
					sets = append(sets, c.B().Set().Key(key).Value(valueOf(key)).Ex(time.Hour).Build())
				}
			}
			for _, reply := range c.DoMulti(ctx, sets...) {
				if err := reply.Error(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (r rueidises) close() {
	for _, c := range r {
		c.Close()
	}
}
