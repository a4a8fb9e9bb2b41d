// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// The bounds of tags.
const (
	// MaxTags is the most tags that a value may have.
	MaxTags = 64
	// MaxTagBytes is the longest tag, in bytes.
	MaxTagBytes = 256

	// maxTagLog is how many tags a node notes for a cache. Beyond that the oldest are forgotten, and entries older than their invalidation
	// count as cleared.
	maxTagLog = 10_000
)

// Clear makes every entry of this cache unreadable, on all nodes, without scanning them: one command a node. When it returns nil, no
// reader of any process gets an entry from a node that was stored, or whose load began, before the call; this process's own copies are
// gone; another process's in-process copies go as after Invalidate. What was cleared is loaded again when it is asked for, at most MaxLoads at a time.
// In a cache that is itself the truth it deletes everything, and one that failed is not repeated: call it again. With a filter (CacheConfig.Filter) every process forgets that too (another one 2 s later at the latest), and absent keys are
// looked for again until a new scan has ended.
//
// It does its work even when ctx has ended. An error joins one *NodeError for each node that was not reached: as after an Invalidate that failed, the clearing is repeated
// until it gets through, and until then this process loads what that node owns.
func (c *Cache[V]) Clear(ctx context.Context) error {
	return errors.Join(c.onAllNodes(ctx, opClear, "", invalidation.Clear(c.names.of)), c.forgotten(ctx))
}

// InvalidateTag is Clear for the entries that carry a tag (CacheConfig.Tags): Invalidate for all rows of a category, say, of which nobody knows the keys.
// Absent rows have no tags: a row that is new in the category is invalidated by its key. A tag is 1 to MaxTagBytes bytes, anything else is ErrInvalidTag.
func (c *Cache[V]) InvalidateTag(ctx context.Context, tag string) error {
	if err := checkTag(tag); err != nil {
		return err
	}
	if c.cfg.Tags == nil {
		return fmt.Errorf("%w: %q: cache %s has no CacheConfig.Tags", ErrInvalidTag, tag, c.cfg.Name)
	}
	return c.onAllNodes(ctx, opTag, tag, invalidation.InvalidateTag(c.names.of, tag, maxTagLog))
}

func checkTag(tag string) error {
	switch {
	case tag == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidTag)
	case len(tag) > MaxTagBytes:
		return fmt.Errorf("%w: %s: at most %d bytes", ErrInvalidTag, shortKey(tag), MaxTagBytes)
	}
	return nil
}

// tag asks for the tags of an entry that is to be stored.
func (c *Cache[V]) tag(e *entry[V]) error {
	if e.negative || c.cfg.Tags == nil {
		return nil
	}
	e.tags = c.cfg.Tags(e.value)
	if len(e.tags) > MaxTags {
		return fmt.Errorf("%w: a value of cache %s has %d, at most %d", ErrInvalidTag, c.cfg.Name, len(e.tags), MaxTags)
	}
	for _, tag := range e.tags {
		if err := checkTag(tag); err != nil {
			return err
		}
	}
	return nil
}

// onAllNodes makes the cache's generation on every node move on, the nodes in parallel, and then detaches what this process is loading: a load that began
// before is not given to those who come after. The copies in L1 hold no longer once the view knows the new generation.
func (c *Cache[V]) onAllNodes(ctx context.Context, op, tag string, call invalidation.Call) error {
	if c.closed.Load() {
		return ErrClosed
	}
	if err := c.client.writes.enter(); err != nil {
		return err
	}
	defer c.client.writes.leave()
	ctx = context.WithoutCancel(ctx)
	errs := make([]error, len(c.client.nodes))
	for range c.walks() {
		c.walkOnce(ctx, op, tag, call, errs)
	}
	c.misses.forgetAll()
	c.unfilled.forgetAll()
	c.source.forgetAll()
	return errors.Join(errs...)
}

// walkOnce is one walk over the nodes that have no error yet.
func (c *Cache[V]) walkOnce(ctx context.Context, op, tag string, call invalidation.Call, errs []error) {
	var wg sync.WaitGroup
	for i := range c.client.nodes {
		if errs[i] != nil {
			continue
		}
		wg.Go(func() {
			name := c.clearDebts[i]
			if tag != "" {
				name = tagDebt(c.names.of, i, tag)
			}
			if err := c.moveOn(ctx, i, tag, name, 0, call); err != nil && !errors.Is(err, errForgotten) { // that is owed by now
				c.counters.nodeErrors.Add(1)
				if c.oweGroup(i, name) != nil {
					err = c.client.debts.full(err)
				}
				errs[i] = &NodeError{Node: c.client.nodeID(i), Cache: c.cfg.Name, Op: op, Tag: tag, Err: closedError(err)}
			}
		})
	}
	wg.Wait()
}

// moveOn is one node's part of onAllNodes. name and version are those under which it is owed to the node, should that forget it.
func (c *Cache[V]) moveOn(ctx context.Context, node int, tag, name string, version uint64, call invalidation.Call) error {
	n := c.client.nodes[node]
	var sent sendingTo
	var session *redisnode.Session
	var reply any
	var err error
	send := func() {
		sent, session = sending(n), n.Session()
		reply, err = session.Eval(ctx, wireCall(call))
	}
	at := n.Addr()
	if send(); errors.Is(err, redisnode.ErrRunChanged) {
		send()
	}
	if c.client.movedOn(node, at, []redisnode.Result{{Err: err}}) {
		send()
	}
	if err != nil {
		return err
	}
	gen, err := invalidation.ParseClear(reply)
	if err != nil {
		return err
	}
	if tag == "" {
		c.views[node].learn(session, gen)
	} else {
		c.views[node].note(session, tag, gen)
	}
	done := sent.answered(n)
	done.Name, done.Version = name, version
	if c.confirmed(node, done) {
		return errForgotten
	}
	return nil
}

// moveOnAgain repeats a Clear, or a tag's invalidation, that is owed to a node, or clears what a node had before it was restarted.
func (c *Cache[V]) moveOnAgain(ctx context.Context, node int, name string, version uint64) error {
	_, tag, _ := groupOf(name)
	if name == restartDebt(c.names.of, node) {
		return c.moveOn(ctx, node, "", name, version, invalidation.ClearBefore(c.names.of, version))
	}
	call := invalidation.Clear(c.names.of)
	if tag != "" {
		call = invalidation.InvalidateTag(c.names.of, tag, maxTagLog)
	}
	err := c.moveOn(ctx, node, tag, name, 0, call)
	if err == nil {
		c.moveOthersOn(ctx, node, tag, call)
	}
	if c.l1 != nil {
		c.l1.Clear() // as after the first attempt: what was taken in between
	}
	c.misses.forgetAll()
	c.unfilled.forgetAll()
	return err
}
