// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/ring"
)

// shelf is the library under test. Its operation timeout is a second, since clients and servers share a machine on which a pause of 50 ms is nothing unusual; the
// others' are three seconds and more.
var shelf = contender{
	name: "Shelf", about: "OperationTimeout 1 s, everything else as it comes; early refresh off, so that only misses load",
	kinds: []string{kindL1, kindL2, kindMiss, kindMany, kindStampede, kindZipf, kindParts},
	open:  openShelf,
}

func openShelf(ctx context.Context, s *scene) (*opened, error) {
	if s.Kind == kindParts {
		return &opened{close: func() {}}, nil
	}
	cfg := client.Config{OperationTimeout: time.Second}
	for i, addr := range s.Addrs {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: "node-" + strconv.Itoa(i), Addr: addr})
	}
	cl, err := client.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var o *opened
	switch s.Kind {
	case kindL1, kindZipf:
		o, err = shelfTexts(cl, s)
	default:
		o, err = shelfBytes(cl, s)
	}
	if err != nil {
		return nil, err
	}
	o.close = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		_ = cl.Close(ctx) // what is pending goes with the servers
	}
	return o, nil
}

func shelfConfig[V any](s *scene, row func(string) V) client.CacheConfig[V] {
	load := func(ctx context.Context, key string) (v V, err error) {
		text, err := s.source.row(ctx, key)
		if err != nil {
			return v, err
		}
		return row(text), nil
	}
	return client.CacheConfig[V]{
		Name: "bench", TTL: time.Hour, NoEarlyRefresh: true, Load: load,
		LoadMany: func(ctx context.Context, keys []string) (map[string]V, error) {
			rows := make(map[string]V, len(keys))
			for _, key := range keys {
				rows[key] = row(valueOf(key))
			}
			return rows, ctx.Err()
		},
	}
}

// shelfBytes is a cache of []byte without L1.
func shelfBytes(cl *client.Client, s *scene) (*opened, error) {
	cfg := shelfConfig(s, func(text string) []byte { return []byte(text) })
	cfg.L1 = client.L1Off
	c, err := client.NewCache(cl, cfg)
	if err != nil {
		return nil, err
	}
	return &opened{
		bytes: c.Get,
		many: func(ctx context.Context, keys []string, each func(key, value string)) error {
			found, err := c.GetMany(ctx, keys)
			for key, v := range found {
				each(key, asText(v))
			}
			return err
		},
		seed: seedShelf(c),
	}, nil
}

// shelfTexts is a cache of strings: with everything in L1 for kindL1, else as it comes.
func shelfTexts(cl *client.Client, s *scene) (*opened, error) {
	cfg := shelfConfig(s, func(text string) string { return text })
	if s.Kind == kindL1 {
		cfg.L1, cfg.L1TTL, cfg.L1MaxBytes = client.L1All, time.Hour, 1<<30
	}
	c, err := client.NewCache(cl, cfg)
	if err != nil {
		return nil, err
	}
	o := &opened{
		text: c.Get, seed: seedShelf(c),
		write: func(ctx context.Context, key string) error {
			return c.Write(ctx, key, func(ctx context.Context) error { return ctx.Err() })
		},
	}
	if s.Kind == kindL1 {
		o.settle = func(ctx context.Context) error { return settleShelf(ctx, c, s) }
	}
	return o, nil
}

func seedShelf[V any](c *client.Cache[V]) func(context.Context, []string) error {
	return func(ctx context.Context, keys []string) error {
		return eachPart(keys, 1000, func(part []string) error {
			_, err := c.GetMany(ctx, part)
			return err
		})
	}
}

// settleShelf reads until every key is in this process. What was loaded is not: that takes a read of the node.
func settleShelf(ctx context.Context, c *client.Cache[string], s *scene) error {
	want := s.Keys * len(s.Sizes)
	for range 20 {
		for _, size := range s.Sizes {
			if err := seedShelf(c)(ctx, s.keys(size)); err != nil {
				return err
			}
		}
		if c.Stats().L1Entries == want {
			return nil
		}
	}
	return fmt.Errorf("bench: %d of %d keys are in L1", c.Stats().L1Entries, want)
}

// numbered are n nodes that nobody dials.
func numbered(n int) []ring.Node {
	return slices.Collect(func(yield func(ring.Node) bool) {
		for i := range n {
			if !yield(ring.Node{ID: fmt.Sprintf("cache-%03d", i), Addr: fmt.Sprintf("10.0.0.%d:6379", i)}) {
				return
			}
		}
	})
}
