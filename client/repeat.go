// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// owed is one key of a walk that is repeated.
type owed struct {
	name    string // of its entry
	version uint64
}

// repeatLoop sends what the outbox says is due: one batch a node at a time.
func (c *Client) repeatLoop(ctx context.Context) {
	var batches sync.WaitGroup
	defer batches.Wait()
	d := c.debts
	for ctx.Err() == nil {
		for batch := d.outbox.Due(time.Now(), maxScripts); len(batch) > 0; batch = d.outbox.Due(time.Now(), maxScripts) {
			batches.Go(func() {
				c.repeat(ctx, batch)
				signal(d.putNews) // the node may have more
				signal(d.settled)
			})
		}
		at, ok := d.outbox.Next()
		wait(ctx, at, ok, d.putNews)
	}
}

// wait returns at a time, if there is one, or when there is news, or when ctx ends.
func wait(ctx context.Context, at time.Time, ok bool, news <-chan struct{}) {
	var due <-chan time.Time
	if ok {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-news:
	case <-ctx.Done():
	}
}

// repeat is one batch. An attempt repeats the whole walk.
func (c *Client) repeat(ctx context.Context, batch []invalidation.Pending) {
	node := batch[0].Node
	byCache := make(map[registered][]owed)
	failed := make(map[string]error)
	for _, p := range batch {
		group, _, isGroup := groupOf(p.Name)
		cache := c.cacheOf(p.Name, group)
		switch {
		case cache == nil: // cannot be: a cache noted it
			failed[p.Name] = fmt.Errorf("shelf: %q is no entry of a cache", p.Name)
		case isGroup:
			if failed[p.Name] = cache.moveOnAgain(ctx, node, p.Name, p.Version); failed[p.Name] == nil {
				c.debts.logs[node].losses.Add(1) // before it is owed no more: see losses
			}
		default:
			byCache[cache] = append(byCache[cache], owed{p.Name, p.Version})
		}
	}
	for cache, keys := range byCache {
		for name, err := range cache.invalidateAgain(ctx, keys) {
			failed[name] = err
		}
	}
	now := time.Now()
	for _, p := range batch {
		if err := failed[p.Name]; err != nil {
			c.debts.trouble(node, err)
			c.debts.outbox.Failed(p, now, rand.Float64())
		} else {
			c.debts.outbox.Done(p)
		}
	}
}

// cacheOf is the cache that owes something: by the name of an entry, or of what stands for the whole cache.
func (c *Client) cacheOf(name, group string) registered {
	caches, end := strings.TrimPrefix(name, gutterPrefix), ":"
	if _, data, is := copyOwed(name); is {
		caches = data
	}
	if group != name {
		caches, end = strings.TrimPrefix(strings.TrimPrefix(group, generationPrefix), tagsPrefix), ":v"
	}
	for _, cache := range c.cachesOf(caches, end) {
		if cache.owns(name, group) {
			return cache
		}
	}
	return nil
}

// owns says whether an entry's name, or a cache's generation or tag log, is this cache's.
func (c *Cache[V]) owns(name, group string) bool {
	if group != name {
		return group == c.names.of.Generation || group == c.names.of.Tags
	}
	_, _, is := c.names.entry(name)
	return is
}

// invalidateAgain repeats the walk for some keys and returns those that failed. What is owed a second delete gets it now.
func (c *Cache[V]) invalidateAgain(ctx context.Context, what []owed) (failed map[string]error) {
	failed = c.walkAgain(ctx, opInvalidate, what, nil)
	for _, o := range what {
		if key, beside, _ := c.names.entry(o.name); failed[o.name] == nil && !beside {
			if err := c.again(key, o.version); err != nil {
				c.client.cfg.Logger.Error("shelf: no second delete", "cache", c.cfg.Name, "error", err)
			}
		}
	}
	return failed
}

// walkAgain is a walk for keys that have their own versions, at their owners, in the gutter or where they have copies, as their names say. The walk from an owner goes on to
// the copies. removed is told of keys whose entry was there.
func (c *Cache[V]) walkAgain(ctx context.Context, op string, what []owed, removed func()) (failed map[string]error) {
	failed = make(map[string]error)
	var owners, gutters []string
	versions := make(map[string]uint64, len(what)) // by name
	for _, o := range what {
		versions[o.name] = o.version
	}
	copies, what := c.splitOwed(what)
	for _, o := range what {
		if key, gutter, _ := c.names.entry(o.name); gutter {
			gutters = append(gutters, key)
		} else {
			owners = append(owners, key)
		}
	}
	bounds := c.walkPlaces(ctx, op, owners, c.slot, versions, removed, failed)
	c.walkPlaces(ctx, op, gutters, c.inGutter, versions, removed, failed)
	c.goOnToCopies(ctx, owners, bounds, versions, failed)
	c.copiesAgain(ctx, op, copies, versions, failed)
	return failed
}

func (c *Cache[V]) walkPlaces(ctx context.Context, op string, keys []string, at func(key string) *slot[V], versions map[string]uint64, removed func(), failed map[string]error) *copyBounds {
	if len(keys) == 0 {
		return nil
	}
	do := c.invalidation(func(key string) uint64 { return versions[at(key).owedAs()] }, true)
	do.at = at
	bounds := c.boundsOf(&do)
	if check := do.check; removed != nil {
		do.check = func(s *slot[V], reply any, sent invalidation.Sent) error {
			if r, err := invalidation.ParseInvalidate(reply); err == nil && r.Removed {
				removed()
			}
			return check(s, reply, sent)
		}
	}
	for _, err := range c.everywhere(ctx, op, keys, do) {
		var e *NodeError
		if errors.As(err, &e) {
			for _, key := range e.Keys {
				failed[at(key).owedAs()] = e.Err
			}
		}
	}
	return bounds
}
