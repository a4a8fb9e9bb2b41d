// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// closePatience bounds how long a Close without a deadline goes on trying what failed.
const closePatience = 10 * time.Second

// finishing is a Close that waits until nothing is owed any more.
type finishing struct {
	*debts
	c        *Client
	patience time.Time // until when what failed is tried
	bounded  bool
	limit    time.Time // if bounded: when second deletes that are not due yet go out
	hurried  bool      // they did
	early    int       // how many
}

// finish waits until nothing is owed any more. What is still owed when ctx ends, or after closePatience, is reported (see Client.Close). Second deletes that
// would come too late go out early, and are reported too: they protect less.
func (d *debts) finish(ctx context.Context, c *Client) error {
	for i := range c.nodes {
		d.outbox.Wake(i, time.Now())
	}
	signal(d.putNews)
	f := finishing{debts: d, c: c, patience: time.Now().Add(closePatience)}
	if f.limit, f.bounded = ctx.Deadline(); f.bounded { // what has to go out early needs a little of the time that is left
		f.limit = f.limit.Add(-min(4*c.cfg.OperationTimeout, time.Until(f.limit)/4))
	}
	for ctx.Err() == nil {
		until, done := f.next(ctx, time.Now())
		if done {
			break
		}
		wait(ctx, until, true, d.settled)
	}
	return f.report()
}

// next says until when to wait for something to be settled, or that there is nothing to wait for.
func (f *finishing) next(ctx context.Context, now time.Time) (until time.Time, done bool) {
	if f.bounded && !f.hurried && !now.Before(f.limit) {
		f.hurried = true
		f.early = f.c.secondNow(ctx)
	}
	// The outbox twice: an invalidation that gets through moves from it to the schedule, and a second delete that fails the other way.
	paid := f.outbox.Empty()
	waiting := f.later.Len() + int(f.atWork.Load())
	switch {
	case paid && waiting == 0 && f.outbox.Empty():
		return now, true
	case waiting == 0:
		return f.patience, !now.Before(f.patience)
	case f.bounded && !f.hurried:
		return f.limit, false
	default:
		return now.Add(time.Second), false // the schedule knows when it is due
	}
}

// report is the error that says what is left.
func (f *finishing) report() error {
	var errs []error
	if f.early > 0 {
		errs = append(errs, fmt.Errorf("shelf: Close: %d second deletes went out before they were due: a source that lags may still undo them", f.early))
	}
	seconds, owed := make([][]string, len(f.c.nodes)), make([][]string, len(f.c.nodes))
	for _, l := range f.later.Flush() {
		i := f.c.ring.OwnerIndex(l.Name)
		seconds[i] = append(seconds[i], l.Name)
	}
	for _, p := range f.outbox.Drain() {
		if group, tag, is := groupOf(p.Name); is {
			errs = append(errs, f.group(p.Node, group, tag))
		} else {
			owed[p.Node] = append(owed[p.Node], p.Name)
		}
	}
	for i := range f.c.nodes {
		if len(seconds[i]) > 0 {
			errs = append(errs, &NodeError{Node: f.c.nodeID(i), Op: opSecondDelete, Keys: seconds[i], Err: ErrClosed})
		}
		if len(owed[i]) > 0 {
			errs = append(errs, &NodeError{Node: f.c.nodeID(i), Op: opInvalidate, Keys: owed[i], Err: f.why(i)})
		}
	}
	return errors.Join(errs...)
}

// why is the error of what is still owed to a node.
func (f *finishing) why(node int) error {
	if last := f.lastErr[node].Load(); last != nil {
		return fmt.Errorf("%w before it got through, the last time: %w", ErrClosed, *last)
	}
	return ErrClosed
}

// group is the error of a Clear, or of a tag's invalidation, that is still owed; nil for the clearing of a node that was restarted: others do that too.
func (f *finishing) group(node int, group, tag string) error {
	cache, isClear := strings.CutPrefix(group, generationPrefix)
	switch {
	case isClear && tag != "":
		return nil
	case isClear:
		return &NodeError{Node: f.c.nodeID(node), Cache: cache, Op: opClear, Err: f.why(node)}
	default:
		return &NodeError{Node: f.c.nodeID(node), Cache: strings.TrimPrefix(group, tagsPrefix), Op: opTag, Tag: tag, Err: f.why(node)}
	}
}
