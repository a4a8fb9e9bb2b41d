// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// Invalidate makes every copy of a key disappear; call it after the database write has been committed. When it returns nil, no reader of any
// process gets the old value from the nodes any more, and none that is loading it now can store it; this process's own copy is gone; another
// process's in-process copy goes within that cache's L1TTL.
//
// It does its work even when ctx has ended: the write has happened. An error is a *NodeError: the owner was not reached, and its entry may live
// until its TTL. Invalidating again later is always safe.
func (c *Cache[V]) Invalidate(ctx context.Context, key string) error {
	return c.invalidate(ctx, []string{key}, 0)
}

// InvalidateVersion is Invalidate that also announces the row version that the write made: for ten seconds no older row, no
// absence and no row without a version can be stored, as one read from a lagging database replica would be.
func (c *Cache[V]) InvalidateVersion(ctx context.Context, key string, version uint64) error {
	return c.invalidate(ctx, []string{key}, version)
}

// InvalidateMany is Invalidate for many keys: one pipeline a node, the nodes in parallel. The error joins one *NodeError for each node that was
// not reached, with the keys in question; the other keys are done.
func (c *Cache[V]) InvalidateMany(ctx context.Context, keys []string) error {
	return c.invalidate(ctx, keys, 0)
}

// Write runs fn, which writes the database, and then invalidates the key, whatever fn returned: a write that failed may have been
// committed all the same. The invalidation does not end with ctx. The error joins fn's and the invalidation's; NodesOnly tells whether fn
// succeeded and only a node was not reached (UnreachedKeys are then to be invalidated again), which most callers will log and not return.
func (c *Cache[V]) Write(ctx context.Context, key string, fn func(ctx context.Context) error) (err error) {
	if err := c.admitWrite(ctx, key); err != nil {
		return err
	}
	defer c.client.writes.leave()
	defer func() { err = errors.Join(err, c.invalidateInside(ctx, []string{key}, 0)) }() // also when fn panics
	return fn(ctx)
}

// WriteThrough runs fn, which writes the database and returns the row as it is now, and stores that row. It takes the key's lease before fn
// runs, so that no reader can store what it read before the write; if another writer has passed by meanwhile, or fn fails, the key
// is invalidated instead. fn should end within LeaseTTL. The error joins fn's and, where it came to that, the invalidation's.
func (c *Cache[V]) WriteThrough(ctx context.Context, key string, fn func(ctx context.Context) (V, error)) (v V, err error) {
	if err := c.admitWrite(ctx, key); err != nil {
		return v, err
	}
	defer c.client.writes.leave()
	s := c.slot(key)
	token := rand.Text()
	_, leaseErr := s.Take(context.WithoutCancel(ctx), token, stampede.Force)
	filled := false
	defer func() { // also when fn panics
		if filled {
			c.dropLocal(key)
			return
		}
		err = errors.Join(err, c.invalidateInside(ctx, []string{key}, 0))
	}()
	began := time.Now()
	if v, err = fn(ctx); err != nil || leaseErr != nil {
		return v, err
	}
	e := c.seal(c.copied(v), false, s.node, began, time.Since(began), SetOptions{})
	if e.wire == nil {
		return v, nil // cannot be stored: the invalidation makes the old one go
	}
	verdict, fillErr := s.Fill(context.WithoutCancel(ctx), token, e)
	filled = fillErr == nil && verdict == stampede.Stored
	return v, nil
}

// SetOptions are the options of SetWith.
type SetOptions struct {
	TTL     time.Duration // instead of the cache's; 0 is the cache's, outside 1 ms to MaxTTL is ErrInvalidTTL
	Version uint64        // instead of what CacheConfig.Version says; 0 is that
}

// Set stores a value in a cache that is itself the truth (CacheConfig.Truth); elsewhere it is ErrNotTruth. The last Set wins, or, where values have versions,
// the larger version: a Set of an older one changes nothing and returns nil. A failure to reach the owner is a *NodeError,
// and then the value may or may not have been stored.
func (c *Cache[V]) Set(ctx context.Context, key string, v V) error {
	return c.set(ctx, map[string]V{key: v}, SetOptions{})
}

// SetWith is Set with options.
func (c *Cache[V]) SetWith(ctx context.Context, key string, v V, o SetOptions) error {
	return c.set(ctx, map[string]V{key: v}, o)
}

// SetMany is Set for many keys: one pipeline a node, the nodes in parallel. The keys are checked first: if one is wrong, none is stored.
func (c *Cache[V]) SetMany(ctx context.Context, values map[string]V) error {
	return c.set(ctx, values, SetOptions{})
}

func (c *Cache[V]) set(ctx context.Context, values map[string]V, o SetOptions) error {
	if c.closed.Load() {
		return ErrClosed
	}
	for k := range values {
		if err := checkKey(k); err != nil {
			return err
		}
	}
	if !c.cfg.Truth {
		return fmt.Errorf("%w: cache %s has a loader: use Write or WriteThrough", ErrNotTruth, c.cfg.Name)
	}
	if o.TTL != 0 {
		if err := checkTTL("SetOptions.TTL", o.TTL); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidTTL, err)
		}
	}
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	if err := c.admitWrite(ctx, keys...); err != nil {
		return err
	}
	defer c.client.writes.leave()
	entries := make(map[string]*entry[V], len(values))
	for _, k := range keys {
		e := c.seal(values[k], false, c.slot(k).node, time.Now(), 0, o)
		if e.wire == nil {
			return &KeyError{k, e.fault}
		}
		entries[k] = &e
	}
	return c.everywhere(ctx, opSet, keys, script[V]{
		before: func(ctx context.Context, part []*slot[V]) error {
			return stageAll(ctx, part, func(s *slot[V]) *entry[V] { return entries[s.key] })
		},
		call: func(s *slot[V]) invalidation.Call {
			e := entries[s.key]
			setCreated(e.wire, s.node.Now(time.Now())) // its clock may not have been known before
			return invalidation.Set(s.names, e.wire, e.hard, e.version, noEpoch)
		},
		check: c.countSet,
	})
}

// script is what everywhere does with the keys of one node.
type script[V any] struct {
	before func(ctx context.Context, part []*slot[V]) error // an error: the node did not answer. nil: nothing to do before
	call   func(*slot[V]) invalidation.Call
	check  func(reply any) error
}

// opSet is NodeError.Op of a Set.
const opSet = "set"

func (c *Cache[V]) countSet(reply any) error {
	r, err := invalidation.ParseSet(reply)
	if err == nil && r != invalidation.Stored {
		c.counters.setsOlder.Add(1)
	}
	return err
}

// admitWrite checks the keys and enters the gate that Close waits at. A write is refused when ctx has ended before it began.
func (c *Cache[V]) admitWrite(ctx context.Context, keys ...string) error {
	for _, k := range keys {
		if err := c.admit(ctx, k); err != nil {
			return err
		}
	}
	return c.client.writes.enter()
}

func (c *Cache[V]) invalidate(ctx context.Context, keys []string, version uint64) error {
	ctx = context.WithoutCancel(ctx)
	if err := c.admitWrite(ctx, keys...); err != nil {
		return err
	}
	defer c.client.writes.leave()
	return c.invalidateInside(ctx, keys, version)
}

// invalidateInside walks the shelves in the order in which copies flow: the owner, then this process. The own copies and tickets go last: an own
// reader that took its ticket in between may have read the owner before it was invalidated.
func (c *Cache[V]) invalidateInside(ctx context.Context, keys []string, version uint64) error {
	c.counters.invalidations.Add(uint64(len(keys)))
	return c.everywhere(context.WithoutCancel(ctx), "invalidate", keys, script[V]{
		call: func(s *slot[V]) invalidation.Call {
			return invalidation.Invalidate(s.names, version, markTTL, noEpoch)
		},
		check: func(reply any) error {
			r, err := invalidation.ParseInvalidate(reply)
			if err == nil && r.MarkFailed {
				c.counters.marksFailed.Add(1)
			}
			return err
		},
	})
}

// everywhere runs one script for each key on its owner, one pipeline a node, the nodes in parallel, and then drops what this process
// itself holds of these keys.
func (c *Cache[V]) everywhere(ctx context.Context, op string, keys []string, do script[V]) error {
	groups := make(map[int][]*slot[V])
	for _, k := range keys {
		s := c.slot(k)
		groups[s.owner] = append(groups[s.owner], s)
	}
	errs := make([]error, len(c.client.nodes))
	var wg sync.WaitGroup
	for owner, slots := range groups {
		wg.Go(func() { errs[owner] = c.onNode(ctx, op, slots, do) })
	}
	wg.Wait()
	for _, k := range keys {
		c.dropLocal(k)
	}
	return errors.Join(errs...)
}

// onNode is one node's part of everywhere, in pipelines of a bounded number of commands.
func (c *Cache[V]) onNode(ctx context.Context, op string, slots []*slot[V], do script[V]) error {
	failed := &NodeError{Node: slots[0].nodeID(), Op: op}
	if op == opSet { // an entry carries the node's time, which must be known
		failed.Err = slots[0].node.Meet(ctx)
	}
	if failed.Err != nil {
		c.counters.nodeErrors.Add(1)
		failed.Keys = keysOf(slots)
		return failed
	}
	for len(slots) > 0 {
		part := slots[:min(len(slots), maxScripts)]
		slots = slots[len(part):]
		trouble := false
		for i, r := range do.run(ctx, part) {
			err := r.Err
			if err == nil {
				err = do.check(r.Reply)
			}
			if err != nil {
				failed.Keys, failed.Err = append(failed.Keys, part[i].key), err
			}
			trouble = trouble || redisnode.IsTrouble(r.Err)
		}
		if trouble { // do not wait for the node once more for each part
			for _, s := range slots {
				failed.Keys = append(failed.Keys, s.key)
			}
			break
		}
	}
	if failed.Err == nil {
		return nil
	}
	c.counters.nodeErrors.Add(1)
	return failed
}

// run is one pipeline.
func (do *script[V]) run(ctx context.Context, part []*slot[V]) []redisnode.Result {
	if do.before != nil {
		if err := do.before(ctx, part); err != nil {
			return slices.Repeat([]redisnode.Result{{Err: err}}, len(part))
		}
	}
	calls := make([]redisnode.Call, len(part))
	for i, s := range part {
		calls[i] = wireCall(do.call(s))
	}
	return part[0].node.EvalMany(ctx, calls)
}

// dropLocal detaches the flights of a key and then drops its copy and tickets in this process. In this order: a reader that takes its
// ticket after the drop joins no flight from before it.
func (c *Cache[V]) dropLocal(key string) {
	c.misses.forget(key)
	c.unfilled.forget(key)
	if c.l1 != nil {
		c.l1.Invalidate(key)
	}
}
