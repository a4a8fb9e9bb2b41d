// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// Write runs fn, which writes the database, and then invalidates the key, whatever fn returned: a write that failed may have been
// committed all the same. The invalidation does not end with ctx. The error joins fn's and the invalidation's; NodesOnly tells whether fn
// succeeded and only a node was not reached (then the invalidation is repeated by itself, see Invalidate), which most callers will log and not return.
//
// With a ctx that has ended, an invalid key (ErrInvalidKey) or a closed client (ErrClosed) fn is not run and nothing is invalidated.
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
// is invalidated instead. Where values have versions, the row's is announced as by InvalidateVersion. fn should end within LeaseTTL. The error joins fn's and, where it came to that, the invalidation's.
//
// With a ctx that has ended, an invalid key or a closed client fn is not run and nothing is invalidated, as in Write.
func (c *Cache[V]) WriteThrough(ctx context.Context, key string, fn func(ctx context.Context) (V, error)) (v V, err error) {
	if err := c.admitWrite(ctx, key); err != nil {
		return v, err
	}
	defer c.client.writes.leave()
	s := c.slot(key)
	s.mark = markTTL
	token, version := rand.Text(), uint64(0)
	_, leaseErr := s.Take(context.WithoutCancel(ctx), token, stampede.Force)
	filled := false
	defer func() { // also when fn panics
		if filled { // at the owner, which others may still find down
			err = errors.Join(append(c.voidGutter(context.WithoutCancel(ctx), []string{key}, func(string) bool { return true }, func(string) uint64 { return version }), err)...)
			err = errors.Join(append(c.voidAfterFill(context.WithoutCancel(ctx), s, version, false), err)...)
			c.dropLocal(key)
			err = errors.Join(err, c.known(ctx, []string{key}))
			return
		}
		err = errors.Join(err, c.invalidateInside(ctx, []string{key}, version))
	}()
	began := time.Now()
	if v, err = fn(ctx); err != nil {
		return v, err
	}
	if c.cfg.Version != nil {
		version = c.cfg.Version(v)
	}
	if leaseErr != nil {
		return v, nil
	}
	e := c.seal(c.copied(v), false, s.node, began, time.Since(began), SetOptions{})
	if e.wire == nil {
		return v, nil // cannot be stored: the invalidation makes the old one go
	}
	sent := sending(s.node)
	verdict, fillErr := s.Fill(context.WithoutCancel(ctx), token, e)
	if filled = fillErr == nil && verdict == stampede.Stored; filled { // a node that forgets it has the old row again
		done := sent.answered(s.node)
		done.Name, done.Version = s.names.Data, e.version
		c.confirmed(s.owner, done)
	}
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
			return &KeyError{k, err}
		}
	}
	if !c.cfg.Truth {
		return fmt.Errorf("%w: cache %s has a loader: use Write or WriteThrough", ErrNotTruth, c.cfg.Name)
	}
	if o.TTL != 0 {
		if err := checkTTL("SetOptions.TTL", o.TTL); err != nil {
			return fmt.Errorf("%w: %s", ErrInvalidTTL, strings.TrimPrefix(err.Error(), "shelf: "))
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
	return errors.Join(c.everywhere(ctx, opSet, keys, script[V]{
		before: func(ctx context.Context, part []*slot[V]) error {
			return stageAll(ctx, part, func(s *slot[V]) *entry[V] { return entries[s.key] })
		},
		call: func(s *slot[V]) invalidation.Call {
			e := entries[s.key]
			setCreated(e.wire, s.node.Now(time.Now())) // its clock may not have been known before
			return invalidation.Set(s.names, e.wire, e.hard, e.version, noEpoch)
		},
		check: c.countSet,
	})...)
}

func (c *Cache[V]) countSet(_ *slot[V], reply any, _ invalidation.Sent) error {
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
