// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
)

// bot asks for keys that do not exist, and counts the queries that reach the database.
type bot struct {
	name                      string
	keys, asked               int64
	nothing, negative, filter int64 // queries
}

// runBots lets two bots ask: one for very many keys, each once; and one for a hundred keys, over and over.
func runBots(ctx context.Context, nodes *cluster, many int64) ([]*bot, error) {
	repeats := many / 500
	bots := []*bot{
		{name: fmt.Sprintf("%d,000 random keys, each once", many/1000), keys: many, asked: many},
		{name: fmt.Sprintf("100 keys, each %d times", repeats), keys: 100, asked: 100 * repeats},
	}
	fmt.Printf("\n%-32s %10s %s\n", "", "", "   database queries, with")
	fmt.Printf("%-32s %10s %10s %16s %10s\n", "a bot asks for absent keys", "reads", "nothing", "negative entries", "filter")
	for i, b := range bots {
		for _, with := range []struct {
			name    string
			set     func(*client.CacheConfig[string])
			queries *int64
		}{
			{"nothing", func(c *client.CacheConfig[string]) { c.NoNegative = true }, &b.nothing},
			{"negative", func(*client.CacheConfig[string]) {}, &b.negative},
			{"filter", func(c *client.CacheConfig[string]) {
				c.Filter = &client.FilterConfig{ExpectedKeys: rows, Keys: allKeys}
			}, &b.filter},
		} {
			var err error
			if *with.queries, err = b.run(ctx, nodes, fmt.Sprint("bot-", i, "-", with.name), with.set); err != nil {
				return nil, fmt.Errorf("bot, with %s: %w", with.name, err)
			}
		}
		fmt.Printf("%-32s %10d %10d %16d %10d\n", b.name, b.asked, b.nothing, b.negative, b.filter)
	}
	fmt.Println("(Keys that are asked for once are not helped by being remembered, and a process stores 50 absences a second.)")
	return bots, nil
}

// allKeys gives the keys that the database has.
func allKeys(_ context.Context, yield func(key string) bool) error {
	for i := range rows {
		if !yield(strconv.Itoa(i)) {
			break
		}
	}
	return nil
}

func (b *bot) run(ctx context.Context, nodes *cluster, name string, set func(*client.CacheConfig[string])) (queries int64, err error) {
	var count atomic.Int64
	cfg := client.CacheConfig[string]{
		Name: name, TTL: 10 * time.Minute, L1: client.L1Off,
		Load: func(context.Context, string) (string, error) { count.Add(1); return "", client.ErrNotFound },
	}
	set(&cfg)
	caches, end, err := nodes.caches(ctx, 1, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	c := caches[0]
	for cfg.Filter != nil && !c.Stats().Filter.Complete {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("the filter is not complete: %s: %w", c.Stats().Filter.Why, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	var wg sync.WaitGroup
	var next, wrong atomic.Int64
	for range 32 {
		wg.Go(func() {
			for n := next.Add(1); n <= b.asked; n = next.Add(1) {
				if _, err := c.Get(ctx, "bot-"+strconv.FormatInt(n%b.keys, 10)); !errors.Is(err, client.ErrNotFound) {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := wrong.Load(); n > 0 {
		return 0, fmt.Errorf("%d reads of absent keys did not end with ErrNotFound", n)
	}
	return count.Load(), nil
}
