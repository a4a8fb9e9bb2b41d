// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// RawValue is what Client.MGet found under one name.
type RawValue struct {
	Value []byte // the caller's; nil where nothing was found, not nil where an empty value was
	Found bool
	Err   error // why it is not known what is there: the *NodeError of its node
}

// MGet is Get for many names: the answers in the order of the names, the nodes asked in parallel, at most 512 names and some 4 MiB a command.
// No names, no answers. A name of a list or a hash counts as not found: Redis does not tell them apart here. A wrong name fails the
// whole call before any I/O, and names its place.
//
// Where a node fails, its names have an Err and the others their values; the error joins one *NodeError for each such node. After a
// command that failed the node is not asked again in this call.
func (c *Client) MGet(ctx context.Context, names []string) ([]RawValue, error) {
	if err := c.beginMany(ctx, names); err != nil {
		return nil, err
	}
	defer c.writes.leave()
	values := make([]RawValue, len(names))
	b := &rawBatch{c: c, op: "mget", names: names, read: true}
	b.send = func(n *redisnode.Node, part []int) []error {
		found, err := n.MGet(ctx, b.pick(part))
		for i, at := range part {
			if err == nil {
				values[at] = RawValue{Value: found[i], Found: found[i] != nil}
			}
		}
		return b.all(err, part)
	}
	b.failed = func(at int, err error) { values[at].Err = err }
	return values, b.run(ctx)
}

// MSet is Set for many names, with one TTL: the nodes in parallel, at most 512 names and some 4 MiB a pipeline. It is not one step: others may see
// some of the values before the rest, and when it fails some may be stored. Names and sizes are checked first: if one is wrong, none is
// stored.
//
// The error joins one *NodeError for each node that failed, with the names that may not be stored (UnreachedKeys gives them all), and one *KeyError
// for each name that was refused.
func (c *Client) MSet(ctx context.Context, values map[string][]byte, ttl time.Duration) error {
	if err := checkRawTTL("mset", "", ttl, true); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(values)) // in order, so that errors read the same each time
	for _, name := range names {
		if err := checkRawValue(name, values[name]); err != nil {
			return err
		}
	}
	if err := c.enterRaw(ctx, names...); err != nil {
		return err
	}
	defer c.writes.leave()
	b := &rawBatch{c: c, op: "mset", names: names, payload: func(name string) int { return len(values[name]) }}
	b.send = func(n *redisnode.Node, part []int) []error {
		commands := make([]redisnode.Command, len(part))
		for i, name := range b.pick(part) {
			commands[i] = setCommand(name, values[name], ttl)
		}
		errs := make([]error, len(part))
		for i, r := range n.DoMany(ctx, commands) {
			if errs[i] = r.Err; redisnode.IsRefusal(r.Err) {
				errs[i] = &KeyError{b.names[part[i]], r.Err}
			}
		}
		return errs
	}
	return b.run(ctx)
}

// Delete removes what is under the names, of whatever type, and returns how many of them held something; a name that is given twice counts
// once. The nodes are asked in parallel, at most 512 names and some 4 MiB a command. The memory of large things is freed in the background (UNLINK).
// A wrong name fails the whole call before any I/O, and names its place.
//
// The error joins one *NodeError for each node that failed, with the names that may be there still; removed then counts those of the others.
func (c *Client) Delete(ctx context.Context, names ...string) (removed int, err error) {
	if err := c.beginMany(ctx, names); err != nil {
		return 0, err
	}
	defer c.writes.leave()
	var count atomic.Int64
	b := &rawBatch{c: c, op: "delete", names: names}
	b.send = func(n *redisnode.Node, part []int) []error {
		cmd := redisnode.Command{"UNLINK"}
		for _, name := range b.pick(part) {
			cmd = append(cmd, name)
		}
		gone, err := n.DoInt(ctx, cmd)
		count.Add(gone)
		return b.all(err, part)
	}
	err = b.run(ctx)
	return int(count.Load()), err
}

// beginMany is enterRaw for a list of names: the error of a wrong one says where it stands.
func (c *Client) beginMany(ctx context.Context, names []string) error {
	for i, name := range names {
		if err := c.checkRawName(name); err != nil {
			return fmt.Errorf("shelf: names[%d]: %w", i, err)
		}
	}
	return c.enterRaw(ctx)
}

// rawBatch is one operation on many names, node by node. A part is some places in names, all of one node, that one command or pipeline takes.
type rawBatch struct {
	c       *Client
	op      string
	names   []string
	read    bool                                        // the values come back: then their size bounds a command too
	payload func(name string) int                       // bytes that are sent beside the name; nil is none
	send    func(n *redisnode.Node, part []int) []error // one error a name; called in one goroutine a node
	failed  func(at int, err error)                     // hears of each name that was not answered; nil: nobody wants to know
}

// run asks the nodes, all at the same time, and joins what failed.
func (b *rawBatch) run(ctx context.Context) error {
	groups := make(map[int][]int)
	for at, name := range b.names {
		owner := b.c.ring.OwnerIndex(name)
		groups[owner] = append(groups[owner], at)
	}
	errs := make([]error, len(b.c.nodes))
	var wg sync.WaitGroup
	for owner, group := range groups {
		wg.Go(func() { errs[owner] = b.onNode(ctx, b.c.nodes[owner], group) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// onNode is one node's part. After a part that went wrong, or when ctx has ended, the rest is not sent: nobody waits for the same node twice.
func (b *rawBatch) onNode(ctx context.Context, n *redisnode.Node, group []int) error {
	unreached := &NodeError{Node: n.ID(), Op: b.op}
	var errs []error
	for len(group) > 0 {
		part := group[:b.fits(n, group)]
		group = group[len(part):]
		if unreached.Err == nil {
			unreached.Err = ctx.Err()
		}
		results := b.all(unreached.Err, part)
		if unreached.Err == nil {
			results = b.send(n, part)
		}
		for i, err := range results {
			name := b.names[part[i]]
			var refused *KeyError
			switch {
			case err == nil:
				continue
			case errors.As(err, &refused):
				errs = append(errs, err)
				continue
			case unreached.Err == nil:
				unreached.Err = closedError(err)
			}
			unreached.Keys = append(unreached.Keys, name)
			if b.failed != nil {
				b.failed(part[i], unreached)
			}
		}
	}
	if unreached.Err != nil {
		errs = append(errs, unreached)
	}
	return errors.Join(errs...)
}

// fits is how many of the names go into one command; at least one.
func (b *rawBatch) fits(n *redisnode.Node, group []int) (count int) {
	most := min(maxKeys, len(group))
	if b.read {
		most = n.BatchKeys(most)
	}
	for bytes := 0; count < most; count++ {
		name := b.names[group[count]]
		if bytes += len(name); b.payload != nil {
			bytes += b.payload(name)
		}
		if count > 0 && bytes > maxPipeline {
			break
		}
	}
	return count
}

func (b *rawBatch) pick(part []int) []string {
	names := make([]string, len(part))
	for i, at := range part {
		names[i] = b.names[at]
	}
	return names
}

// all is the outcome of a command that succeeds or fails as a whole, one for each of its names.
func (b *rawBatch) all(err error, part []int) []error {
	errs := make([]error, len(part))
	for i := range errs {
		errs[i] = err
	}
	return errs
}
