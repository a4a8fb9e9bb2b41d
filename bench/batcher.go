// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// batcher is what concurrent reads of a server cost at the least: a queue and two workers that send what has gathered as one MGET. It honours no context, bounds no queue, and
// knows neither entries nor failures.
var batcher = contender{
	name: "bare MGET batcher", about: "a limit: two workers a server over go-redis, at most 256 keys a command; no contexts, no errors of single keys",
	kinds: []string{kindL2}, open: openBatcher, limit: true,
}

func openBatcher(ctx context.Context, s *scene) (*opened, error) {
	d := openDrivers(s, nil)
	var wg sync.WaitGroup
	queues := make([]chan *asking, len(d))
	for i, c := range d {
		queues[i] = make(chan *asking, 4096)
		for range 2 {
			wg.Go(func() { serveBatches(ctx, c, queues[i]) })
		}
	}
	return &opened{
		text: func(_ context.Context, key string) (string, error) {
			i := 0
			if len(queues) > 1 {
				i = d.index(key)
			}
			a := asks.Get().(*asking)
			a.key = key
			queues[i] <- a
			<-a.done
			v, err := a.value, a.err
			asks.Put(a)
			return v, err
		},
		seed: d.seed,
		close: func() {
			for _, q := range queues {
				close(q)
			}
			wg.Wait()
			d.close()
		},
	}, nil
}

// asking is a read in a batch.
type asking struct {
	key, value string
	err        error
	done       chan struct{}
}

var asks = sync.Pool{New: func() any { return &asking{done: make(chan struct{}, 1)} }}

// serveBatches takes what has gathered while the last batch was under way.
func serveBatches(ctx context.Context, c *redis.Client, queue <-chan *asking) {
	const most = 256
	batch, keys := make([]*asking, 0, most), make([]string, 0, most)
	for first := range queue {
		batch, keys = append(batch[:0], first), append(keys[:0], first.key)
	gather:
		for len(batch) < most {
			select {
			case a, ok := <-queue:
				if !ok {
					break gather
				}
				batch, keys = append(batch, a), append(keys, a.key)
			default:
				break gather
			}
		}
		values, err := c.MGet(ctx, keys...).Result()
		for i, a := range batch {
			a.value, a.err = "", err
			if err == nil {
				var ok bool
				if a.value, ok = values[i].(string); !ok {
					a.err = errMissing
				}
			}
			a.done <- struct{}{}
		}
	}
}
