// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// secondLoop carries out second deletes when they are due.
func (c *Client) secondLoop(ctx context.Context) {
	d := c.debts
	for ctx.Err() == nil {
		d.atWork.Store(int64(maxScripts * len(c.nodes))) // before they leave the schedule, so that none is out of sight
		due := d.later.Due(time.Now(), maxScripts*len(c.nodes))
		d.atWork.Store(int64(len(due)))
		c.second(ctx, due)
		d.atWork.Store(0)
		signal(d.settled)
		if len(due) > 0 {
			continue
		}
		at, ok := d.later.Next()
		wait(ctx, at, ok, d.laterNews)
	}
}

// secondNow carries out all second deletes that are left, due or not, and says how many got through.
func (c *Client) secondNow(ctx context.Context) int {
	return c.second(ctx, c.debts.later.Flush())
}

// second carries out some second deletes, one pipeline a node and cache at a time. What fails is owed like any invalidation. It says how many got
// through.
func (c *Client) second(ctx context.Context, due []invalidation.Delayed) int {
	type place struct {
		node  int
		cache registered
	}
	groups := make(map[place][]owed)
	for _, l := range due {
		p := place{c.ring.OwnerIndex(l.Name), c.cacheOf(l.Name, l.Name)}
		groups[p] = append(groups[p], owed{l.Name, l.Version})
	}
	var wg sync.WaitGroup
	var through atomic.Int64
	for p, keys := range groups {
		wg.Go(func() { through.Add(int64(p.cache.invalidateSecond(ctx, p.node, keys))) })
	}
	wg.Wait()
	return int(through.Load())
}

// invalidateSecond is the second delete of some keys of one node. It says how many got through.
func (c *Cache[V]) invalidateSecond(ctx context.Context, node int, keys []owed) (through int) {
	c.counters.seconds.Add(uint64(len(keys)))
	failed := make(map[string]error)
	if n := c.client.nodes[node]; n.Ailing() { // to ask it would hold up the other nodes' for a timeout
		for _, o := range keys {
			failed[o.name] = errDown
		}
	} else {
		failed = c.walkAgain(ctx, opSecondDelete, keys, func() { c.counters.secondsRemoved.Add(1) })
	}
	for _, o := range keys {
		if failed[o.name] == nil {
			through++
			continue
		}
		c.client.debts.trouble(node, failed[o.name])
		if err := c.client.debts.put(o.name, node, o.version); err != nil {
			c.counters.secondsRefused.Add(1)
			c.client.cfg.Logger.Error("shelf: a second delete is lost", "cache", c.cfg.Name, "name", o.name, "error", err)
		}
		key, _ := c.names.key(o.name)
		c.dropLocal(key)
	}
	return through
}
