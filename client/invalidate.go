// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// Invalidate makes every copy of a key disappear; call it after the database write has been committed. When it returns nil, no reader of any
// process gets the old value from the nodes any more, and none that is loading it now can store it; this process's own copy is gone; another
// process's in-process copy goes within a round trip, where its node pushes, else within that cache's L1BlindTTL.
//
// It does its work even when ctx has ended: the write has happened. A *NodeError says that the owner was not reached, and other processes may
// get its old entry until it is. The invalidation is repeated in the background until it gets through, or Close reports it; meanwhile this process's readers of
// the key go to the loader, whatever is stored. If the error is also ErrOutboxFull there was no room to remember it (Config.OutboxSize): then the
// entry may live until its TTL. If it is ErrSecondDeletesFull the invalidation was done, but its second delete (CacheConfig.SecondDelete) will not come.
// Any other error, ErrInvalidKey or ErrClosed, says that nothing was done. Invalidating again is always safe.
//
// In a cache that is itself the truth it deletes the value, and nothing is repeated: that could remove what somebody has set since.
func (c *Cache[V]) Invalidate(ctx context.Context, key string) error {
	return c.invalidate(ctx, []string{key}, 0)
}

// InvalidateVersion is Invalidate that also announces the row version that the write made: for ten seconds no older row, no
// absence and no row without a version can be stored, as one read from a lagging database replica would be. Only for caches with a
// CacheConfig.Version: in others it keeps every row from being stored for as long. While it is owed to its node, versions are not compared.
func (c *Cache[V]) InvalidateVersion(ctx context.Context, key string, version uint64) error {
	return c.invalidate(ctx, []string{key}, version)
}

// InvalidateMany is Invalidate for many keys: one pipeline a node, the nodes in parallel. The error joins one *NodeError for each node that was
// not reached, with the keys in question; the other keys are done. An invalid key fails the whole call before any I/O.
func (c *Cache[V]) InvalidateMany(ctx context.Context, keys []string) error {
	for i, k := range keys {
		if err := checkKey(k); err != nil && !c.closed.Load() {
			return fmt.Errorf("shelf: keys[%d]: %w", i, err)
		}
	}
	return c.invalidate(ctx, keys, 0)
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
	versionOf := func(string) uint64 { return version }
	announced := c.announced(ctx, keys)
	reached := make(map[string]bool, len(keys))
	do := c.invalidation(versionOf, false)
	bounds := c.boundsOf(&do)
	do.failed = func(failed []*NodeError) []error {
		for _, key := range keys {
			reached[key] = true
		}
		for _, e := range failed {
			for _, key := range e.Keys {
				reached[key] = false
			}
		}
		errs := c.owe(failed, c.slot, versionOf)
		errs = append(errs, c.voidGutter(ctx, keys, func(key string) bool { return reached[key] }, versionOf)...)
		return append(errs, c.voidCopies(context.WithoutCancel(ctx), keys, bounds, versionOf)...)
	}
	errs := c.everywhere(context.WithoutCancel(ctx), opInvalidate, keys, do)
	for key, ok := range reached {
		if ok {
			errs = append(errs, c.again(key, version))
		}
	}
	errs = append(errs, announced())
	return errors.Join(errs...)
}

// errForgotten stands for a node that has carried out what was owed to it, but as one whose history of writes is not the one that was last seen.
var errForgotten = errors.New("shelf: the node has another history of writes than it had, and may not keep what it was sent")

// invalidation is the script that a walk runs on the owners. One that is repeated fails if the node may forget it: it is owed still, and to repeat it at once,
// and so on until the node has been asked which history it has, would keep node and process busy with nothing else for up to a second.
func (c *Cache[V]) invalidation(versionOf func(key string) uint64, again bool) script[V] {
	return script[V]{
		call: func(s *slot[V]) invalidation.Call {
			names := s.names
			names.Split = c.splitName(s)
			return invalidation.Invalidate(names, versionOf(s.key), markTTL, noEpoch)
		},
		check: func(s *slot[V], reply any, sent invalidation.Sent) error {
			r, err := invalidation.ParseInvalidate(reply)
			if err != nil {
				return err
			}
			if r.MarkFailed {
				c.counters.marksFailed.Add(1)
			}
			sent.Name, sent.Version = s.owedAs(), versionOf(s.key)
			if void := c.confirmed(s.owner, sent); void && again {
				return errForgotten
			}
			return nil
		},
	}
}

// confirmed notes what a node has carried out, in case that it forgets it. If it has forgotten it already, it is owed, and void.
func (c *Cache[V]) confirmed(node int, sent invalidation.Sent) (void bool) {
	if c.cfg.Truth {
		return false
	}
	if sent.Version, void = c.client.debts.logs[node].add(sent); void {
		c.client.debts.oweForgotten(node, sent)
	}
	return void
}

// script is what everywhere does with the keys of one node.
type script[V any] struct {
	at     func(key string) *slot[V]                        // where; nil: at the owner
	before func(ctx context.Context, part []*slot[V]) error // an error: the node did not answer. nil: nothing to do before
	call   func(*slot[V]) invalidation.Call
	// check reads the reply for one key. sent says when the pipeline was sent, when it was answered, and by which run of the server.
	check  func(s *slot[V], reply any, sent invalidation.Sent) error
	failed func([]*NodeError) []error // what becomes of the errors, before this process drops what it holds. nil: nothing
}

// The values of NodeError.Op.
const (
	opInvalidate   = "invalidate"
	opSecondDelete = "second delete"
	opSet          = "set"
	opClear        = "clear"
	opTag          = "invalidate tag"
	opCopies       = "invalidate copy"
)

// everywhere runs one script for each key on its owner, one pipeline a node, the nodes in parallel, and then drops what this process
// itself holds of these keys. It returns one error a node that was not reached, or what do.failed makes of them.
func (c *Cache[V]) everywhere(ctx context.Context, op string, keys []string, do script[V]) (errs []error) {
	if do.at == nil {
		do.at = c.slot
	}
	groups := make(map[int][]*slot[V])
	for _, k := range keys {
		s := do.at(k)
		groups[s.owner] = append(groups[s.owner], s)
	}
	byNode := make([]*NodeError, len(c.client.nodes))
	var wg sync.WaitGroup
	for owner, slots := range groups {
		wg.Go(func() { byNode[owner] = c.onNode(ctx, op, slots, do) })
	}
	wg.Wait()
	failed := slices.DeleteFunc(byNode, func(e *NodeError) bool { return e == nil })
	if do.failed != nil {
		errs = do.failed(failed)
	} else {
		for _, e := range failed {
			errs = append(errs, e)
		}
	}
	for _, k := range keys {
		c.dropLocal(k)
	}
	return errs
}

// onNode is one node's part of everywhere, in pipelines of a bounded number of commands. nil: all went well.
func (c *Cache[V]) onNode(ctx context.Context, op string, slots []*slot[V], do script[V]) *NodeError {
	failed := &NodeError{Node: slots[0].nodeID(), Cache: c.cfg.Name, Op: op}
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
		at := part[0].node.Addr()
		results, sent := do.run(ctx, part)
		if c.client.movedOn(part[0].owner, at, results) {
			results, sent = do.run(ctx, part)
		}
		for i, r := range results {
			err := r.Err
			if err == nil {
				err = do.check(part[i], r.Reply, sent)
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
	failed.Err = closedError(failed.Err)
	return failed
}

// run is one pipeline.
func (do *script[V]) run(ctx context.Context, part []*slot[V]) ([]redisnode.Result, invalidation.Sent) {
	if do.before != nil {
		if err := do.before(ctx, part); err != nil {
			return slices.Repeat([]redisnode.Result{{Err: err}}, len(part)), invalidation.Sent{}
		}
	}
	calls := make([]redisnode.Call, len(part))
	for i, s := range part {
		calls[i] = wireCall(do.call(s))
	}
	sent := sending(part[0].node)
	results := part[0].node.EvalMany(ctx, calls)
	return results, sent.answered(part[0].node)
}

// sendingTo is the beginning of a Sent. The run is that from before the command: if another one answers it, the entry is void from the start, and the
// invalidation is repeated once too often.
type sendingTo invalidation.Sent

func sending(n *redisnode.Node) sendingTo {
	return sendingTo{Began: time.Now(), Run: n.Session().Stream()}
}

// answered completes it. Before the first connection there was no run to name.
func (s sendingTo) answered(n *redisnode.Node) invalidation.Sent {
	if s.At = time.Now(); s.Run == "" {
		s.Run = n.Session().Stream()
	}
	return invalidation.Sent(s)
}

// dropLocal detaches the flights of a key and then drops its copy and tickets in this process. In this order: a reader that takes its
// ticket after the drop joins no flight from before it.
func (c *Cache[V]) dropLocal(key string) {
	c.misses.forget(key)
	c.unfilled.forget(key)
	c.source.forget(key)
	if c.l1 != nil {
		c.l1.Invalidate(key)
	}
}

// again schedules the second delete of a key, where the cache has them. That there is no room for it is an error: none will come.
func (c *Cache[V]) again(key string, version uint64) error {
	if c.cfg.SecondDelete == 0 {
		return nil
	}
	d := c.client.debts
	err := d.later.Add(c.names.data(key), version, time.Now().Add(c.cfg.SecondDelete))
	signal(d.laterNews)
	if err != nil {
		c.counters.secondsRefused.Add(1)
		return &NodeError{Node: c.slot(key).nodeID(), Cache: c.cfg.Name, Op: opSecondDelete, Keys: []string{key},
			Err: fmt.Errorf("the invalidation is done, but no second one will come: %w: as many as Config.SecondDeleteQueue (%d) are waiting", ErrSecondDeletesFull, d.later.Len())}
	}
	return nil
}
