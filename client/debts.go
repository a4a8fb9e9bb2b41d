// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// debts are the invalidations that this process still owes to the nodes: those that failed, those that a failover may have undone, and second
// deletes. Two loops work them off; Close waits for them.
//
// What has failed is owed until an attempt that began later gets through. Until then the process reads no copy of the key, on the node or here, and stores
// none: its readers go to the loader. Why no reader slips through:
//
//   - The debt is noted before the process's own copies, tickets and flights of the key are dropped, and a reader asks for it after it has taken its ticket, and
//     again when its flight begins. So either it sees the debt, or its ticket and its flight are from before and are dropped.
//   - A fill asks once more. What it stores between that moment and the debt goes with the attempt, which removes entry and lease.
//
// Not so in a cache that is itself the truth: a delete is a write there, and one that is repeated later would remove what somebody has set since.
type debts struct {
	outbox *invalidation.Outbox
	later  *invalidation.Later
	logs   []*nodeLog // one a node

	putNews, laterNews chan struct{} // something was added
	settled            chan struct{} // something was worked off
	atWork             atomic.Int64  // second deletes under way
	lastErr            []atomic.Pointer[error]
}

func newDebts(cfg Config) (*debts, error) {
	outbox, err := invalidation.NewOutbox(invalidation.OutboxConfig{Max: cfg.OutboxSize})
	if err != nil {
		return nil, fmt.Errorf("shelf: %w", err)
	}
	later, err := invalidation.NewLater(invalidation.LaterConfig{Max: cfg.SecondDeleteQueue})
	if err != nil {
		return nil, fmt.Errorf("shelf: %w", err)
	}
	d := &debts{
		outbox: outbox, later: later, lastErr: make([]atomic.Pointer[error], len(cfg.Nodes)),
		putNews: make(chan struct{}, 1), laterNews: make(chan struct{}, 1), settled: make(chan struct{}, 1),
	}
	for range cfg.Nodes {
		log, err := newNodeLog(cfg)
		if err != nil {
			return nil, err
		}
		d.logs = append(d.logs, log)
	}
	return d, nil
}

// signal wakes whoever waits at a channel that holds one piece of news.
func signal(news chan struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// put notes a debt. The error says that there was no room: then nobody remembers it.
func (d *debts) put(name string, node int, version uint64) error {
	err := d.outbox.Put(name, node, version, time.Now())
	signal(d.putNews)
	return err
}

// Names of what is owed to one node and is not a key: a Clear, or the invalidation of a tag. They only name an entry of the outbox or of a log.
func clearDebt(of invalidation.Group, node int) string {
	return of.Generation + "\x00" + strconv.Itoa(node)
}

// restartDebt is a clearing of what a node has brought back from before its start.
func restartDebt(of invalidation.Group, node int) string {
	return clearDebt(of, node) + "\x00start"
}

func tagDebt(of invalidation.Group, node int, tag string) string {
	return of.Tags + "\x00" + strconv.Itoa(node) + "\x00" + tag
}

// groupOf reads a name that clearDebt or tagDebt has made: the name of the cache's generation or tag log, and the tag. Any other name is an entry's, whose
// key may hold any bytes: it comes back as it is.
func groupOf(name string) (group, tag string, ok bool) {
	group, rest, ok := strings.Cut(name, "\x00")
	if !ok || !strings.HasPrefix(group, generationPrefix) && !strings.HasPrefix(group, tagsPrefix) {
		return name, "", false
	}
	_, tag, _ = strings.Cut(rest, "\x00")
	return group, tag, true
}

// owes says whether the invalidation of a key, or of the whole cache on its owner, is owed: then no copy may be read, and none stored.
func (c *Cache[V]) owes(s *slot[V]) bool {
	s.losses = c.client.debts.logs[s.owner].losses.Load()
	o := c.client.debts.outbox
	return o.Has(s.names.Data) || o.Has(c.clearDebts[s.owner])
}

// owesTag says whether the invalidation of one of an entry's tags is owed.
func (c *Cache[V]) owesTag(owner int, tags []string) bool {
	o := c.client.debts.outbox
	return !o.Empty() && slices.ContainsFunc(tags, func(tag string) bool { return o.Has(tagDebt(c.names.of, owner, tag)) })
}

// owe notes the keys of which a walk says that they failed, and returns its error, with those apart for which there was no room. It comes before
// dropLocal.
func (c *Cache[V]) owe(failed []*NodeError, at func(key string) *slot[V], versionOf func(key string) uint64) []error {
	var errs []error
	for _, e := range failed {
		if c.cfg.Truth {
			errs = append(errs, e)
			continue
		}
		full := &NodeError{Node: e.Node, Cache: e.Cache, Op: e.Op}
		kept := e.Keys[:0:0]
		for _, key := range e.Keys {
			s := at(key)
			if c.client.debts.put(s.owedAs(), s.owner, versionOf(key)) != nil {
				full.Keys = append(full.Keys, key)
				continue
			}
			kept = append(kept, key)
		}
		if e.Keys = kept; len(kept) > 0 {
			errs = append(errs, e)
		}
		if len(full.Keys) > 0 {
			full.Err = c.client.debts.full(e.Err)
			errs = append(errs, full)
		}
	}
	return errs
}

// full is the error of an invalidation that failed and is not kept.
func (d *debts) full(cause error) error {
	return fmt.Errorf("%w; it will not be repeated: %w: as many as Config.OutboxSize (%d) are waiting", cause, ErrOutboxFull, d.outbox.Stats().Depth)
}

// oweGroup notes a Clear or the invalidation of a tag on one node, and drops everything that this process holds of the cache.
func (c *Cache[V]) oweGroup(node int, name string) error {
	if c.cfg.Truth {
		return nil
	}
	err := c.client.debts.put(name, node, 0)
	if c.l1 != nil {
		c.l1.Clear()
	}
	return err
}

// work runs the two loops until ctx ends, and waits for what they have begun.
func (c *Client) work(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { c.repeatLoop(ctx) })
	loops.Go(func() { c.secondLoop(ctx) })
	loops.Wait()
}

// trouble notes why a node's attempt failed, for report.
func (d *debts) trouble(node int, err error) { d.lastErr[node].Store(&err) }
