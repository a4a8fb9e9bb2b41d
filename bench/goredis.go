// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The driver itself, in its four ways. Over several servers the keys are hashed by hand, but for Ring, which does it itself.
var (
	goRedis = contender{
		name: "go-redis", about: "PoolSize 10 for each core (the default); misses and writes by hand: GET, load, SET; DEL",
		kinds: []string{kindL2, kindMiss, kindMany, kindStampede, kindZipf}, open: openGoRedis,
	}
	goRedisPipelining = contender{
		name: "go-redis, automatic pipelining", about: "AutoPipeline with its defaults",
		kinds: []string{kindL2}, open: openGoRedisPipelining,
	}
	goRedisCache = contender{
		name: "go-redis, client-side cache", about: "room for every key",
		kinds: []string{kindL1}, open: openGoRedisCache,
	}
	goRedisRing = contender{
		name: "go-redis Ring", about: "defaults; GetMany is one pipeline of GETs, which it splits",
		kinds: []string{kindL2, kindMany}, open: openGoRedisRing,
	}
	// threeTrips is what a miss is compared with: as many round trips where a miss has them. A server that is asked after a pause, and a process that slept, answer more slowly
	// than in a loop.
	threeTrips = contender{
		name: "three GETs of go-redis around the load", about: "a limit: GET, GET, load, GET",
		kinds: []string{kindMiss}, open: openThreeTrips, limit: true,
	}
)

// drivers are one client of the driver for each server.
type drivers []*redis.Client

func openDrivers(s *scene, change func(*redis.Options)) drivers {
	d := make(drivers, len(s.Addrs))
	for i, addr := range s.Addrs {
		o := &redis.Options{
			Addr: addr, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}
		if change != nil {
			change(o)
		}
		d[i] = redis.NewClient(o)
	}
	return d
}

func (d drivers) index(key string) int { return int(xxhash.Sum64String(key) % uint64(len(d))) }

func (d drivers) of(key string) *redis.Client {
	if len(d) == 1 {
		return d[0]
	}
	return d[d.index(key)]
}

func (d drivers) close() {
	for _, c := range d {
		_ = c.Close() // the process ends
	}
}

// seed stores the plain values.
func (d drivers) seed(ctx context.Context, keys []string) error {
	return eachPart(keys, 1000, func(part []string) error {
		pipes := make([]redis.Pipeliner, len(d))
		for i, c := range d {
			pipes[i] = c.Pipeline()
		}
		for _, key := range part {
			pipes[d.index(key)].Set(ctx, key, valueOf(key), time.Hour)
		}
		for _, p := range pipes {
			if _, err := p.Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

func openGoRedis(_ context.Context, s *scene) (*opened, error) {
	d := openDrivers(s, nil)
	o := &opened{
		bytes: func(ctx context.Context, key string) ([]byte, error) { return d.of(key).Get(ctx, key).Bytes() },
		many:  d.many, seed: d.seed, close: d.close,
	}
	switch s.Kind {
	case kindMiss, kindStampede, kindZipf:
		o.bytes, o.many = nil, nil
		o.text = func(ctx context.Context, key string) (string, error) { return d.aside(ctx, key, s.source) }
		o.write = func(ctx context.Context, key string) error { return d.of(key).Del(ctx, key).Err() }
	case kindL2:
		o.many = nil
	}
	return o, nil
}

// aside is the cache that people write themselves: get, load, set.
func (d drivers) aside(ctx context.Context, key string, from *source) (string, error) {
	c := d.of(key)
	v, err := c.Get(ctx, key).Result()
	if !errors.Is(err, redis.Nil) {
		return v, err
	}
	if v, err = from.row(ctx, key); err != nil {
		return "", err
	}
	return v, c.Set(ctx, key, v, time.Hour).Err()
}

// many is an MGET a server, all at once.
func (d drivers) many(ctx context.Context, keys []string, each func(key, value string)) error {
	parts := make([][]string, len(d))
	for _, key := range keys {
		i := d.index(key)
		parts[i] = append(parts[i], key)
	}
	replies, errs := make([][]any, len(d)), make([]error, len(d))
	var wg sync.WaitGroup
	for i, part := range parts {
		if len(part) > 0 {
			wg.Go(func() { replies[i], errs[i] = d[i].MGet(ctx, part...).Result() })
		}
	}
	wg.Wait()
	for i, values := range replies {
		for j, v := range values {
			if text, ok := v.(string); ok {
				each(parts[i][j], text)
			}
		}
	}
	return errors.Join(errs...)
}

func openGoRedisPipelining(_ context.Context, s *scene) (*opened, error) {
	d := openDrivers(s, nil)
	lines := make([]*redis.AutoPipeliner, len(d))
	for i, c := range d {
		var err error
		if lines[i], err = c.AutoPipeline(); err != nil {
			return nil, err
		}
	}
	return &opened{
		bytes: func(ctx context.Context, key string) ([]byte, error) {
			i := 0
			if len(lines) > 1 {
				i = d.index(key)
			}
			return lines[i].Get(ctx, key).Bytes()
		},
		seed: d.seed, close: d.close,
	}, nil
}

func openGoRedisCache(_ context.Context, s *scene) (*opened, error) {
	d := openDrivers(s, func(o *redis.Options) {
		o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{MaxEntries: 4 * s.Keys, MaxMemoryBytes: 1 << 30, MaxStaleness: time.Hour}
	})
	text := func(ctx context.Context, key string) (string, error) { return d.of(key).Get(ctx, key).Result() }
	return &opened{text: text, seed: d.seed, close: d.close, settle: readAll(s, text)}, nil
}

// readAll reads every key twice.
func readAll(s *scene, read func(context.Context, string) (string, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		for range 2 {
			for _, size := range s.Sizes {
				for _, key := range s.keys(size) {
					if _, err := read(ctx, key); err != nil {
						return fmt.Errorf("bench: %s: %w", key, err)
					}
				}
			}
		}
		return nil
	}
}

func openRing(s *scene) *redis.Ring {
	addrs := make(map[string]string, len(s.Addrs))
	for i, addr := range s.Addrs {
		addrs[fmt.Sprintf("node-%d", i)] = addr
	}
	return redis.NewRing(&redis.RingOptions{Addrs: addrs, DisableIdentity: true})
}

// seedRing stores the plain values through a ring.
func seedRing(r *redis.Ring) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error {
		return eachPart(keys, 1000, func(part []string) error {
			_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
				for _, key := range part {
					p.Set(ctx, key, valueOf(key), time.Hour)
				}
				return nil
			})
			return err
		})
	}
}

func openGoRedisRing(_ context.Context, s *scene) (*opened, error) {
	r := openRing(s)
	o := &opened{
		bytes: func(ctx context.Context, key string) ([]byte, error) { return r.Get(ctx, key).Bytes() },
		seed:  seedRing(r),
		close: func() { _ = r.Close() },
	}
	if s.Kind == kindMany {
		o.many = func(ctx context.Context, keys []string, each func(key, value string)) error {
			replies := make([]*redis.StringCmd, len(keys))
			_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i, key := range keys {
					replies[i] = p.Get(ctx, key)
				}
				return nil
			})
			for i, reply := range replies {
				if reply.Err() == nil {
					each(keys[i], reply.Val())
				}
			}
			return err
		}
	}
	return o, nil
}

// openThreeTrips reads one key that is there, whichever is asked for.
func openThreeTrips(ctx context.Context, s *scene) (*opened, error) {
	d := openDrivers(s, nil)
	key := s.key(s.Sizes[0], "there")
	return &opened{
		bytes: func(ctx context.Context, _ string) (v []byte, err error) {
			for trip := range 3 {
				if trip == 2 {
					if _, err := s.source.row(ctx, key); err != nil {
						return nil, err
					}
				}
				if v, err = d[0].Get(ctx, key).Bytes(); err != nil {
					return nil, err
				}
			}
			return v, nil
		},
		close: d.close,
	}, d.seed(ctx, []string{key})
}
