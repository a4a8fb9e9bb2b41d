// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// FilterStats is a snapshot of a cache's filter: CacheStats.Filter.
type FilterStats = stampede.FilterStats

// opFilter is the NodeError.Op of additions to the filter.
const opFilter = "filter"

// makeFilter makes the filter, which does nothing before startFilter.
func (c *Cache[V]) makeFilter() (err error) {
	of := c.cfg.Filter
	if of == nil {
		return nil
	}
	cache := strings.TrimSuffix(c.names.prefix, ":")
	cfg := stampede.FilterConfig{
		ExpectedKeys: of.ExpectedKeys, FalsePositives: of.FalsePositives, RebuildEvery: of.RebuildEvery, Keys: of.Keys,
		Feed: c.client.filterFeed(cache, of.RebuildEvery), Store: c.client.filterStore(cache, cache+c.names.suffix), Draw: c.draw, Tell: c.logFilter,
	}
	if of.AnnounceOnly {
		cfg.Keys = nil
	}
	if c.filter, err = stampede.NewFilter(cfg); err != nil {
		return leafError("CacheConfig.Filter", err)
	}
	c.filterRuns = make(chan struct{})
	return nil
}

// logFilter tells that the filter is consulted, that it is not, or that it serves though it cannot be built anew.
func (c *Cache[V]) logFilter(consulted bool, why string) {
	log, of := c.client.cfg.Logger, []any{"cache", c.cfg.Name, "node", c.filterNode()}
	if consulted {
		of = append(of, "keys", c.filter.Stats().Keys)
	}
	switch {
	case consulted && why == "":
		log.Info("shelf: filter of known keys is consulted", of...)
	case consulted && why == stampede.FilterFoundNoKeys:
		log.Warn("shelf: filter of known keys is consulted", append(of, "reason", why)...)
	case consulted:
		log.Warn("shelf: filter of known keys could not be built anew: the last build serves", append(of, "reason", why)...)
	default:
		log.Warn("shelf: filter of known keys is not consulted: every key may be there", append(of, "reason", why)...)
	}
}

// startFilter runs the filter until the cache is closed.
func (c *Cache[V]) startFilter() {
	if c.filter != nil {
		go func() {
			defer close(c.filterRuns)
			c.filter.Run(c.ending)
		}()
	}
}

// closeFilter waits for the filter and sends what it owes.
func (c *Cache[V]) closeFilter(ctx context.Context) error {
	if c.filterRuns == nil {
		return nil
	}
	select {
	case <-c.filterRuns:
	case <-ctx.Done():
		return fmt.Errorf("shelf: Close: the Keys of cache %s's filter have not ended: %w", c.cfg.Name, ctx.Err())
	}
	if err := c.filter.Close(ctx); err != nil {
		return c.filterError(nil, err)
	}
	return nil
}

// Known makes keys known to the filter (CacheConfig.Filter), of this process at once, of others 2 s later at the latest: for rows that were inserted without Write, WriteThrough or an invalidation of their keys, after
// they were committed. What the cache has stored of their absence stays: Invalidate removes that, and makes them known as well. One command for each 64 keys.
//
// A *NodeError says that others do not know the keys yet; they are sent again until they get through, or Close reports them. Without a filter it does nothing.
func (c *Cache[V]) Known(ctx context.Context, keys ...string) error {
	ctx = context.WithoutCancel(ctx)
	if err := c.admitWrite(ctx, keys...); err != nil {
		return err
	}
	defer c.client.writes.leave()
	return c.known(ctx, keys)
}

func (c *Cache[V]) known(ctx context.Context, keys []string) error {
	if c.filter == nil || len(keys) == 0 {
		return nil
	}
	if err := c.filter.Add(context.WithoutCancel(ctx), keys...); err != nil {
		c.counters.nodeErrors.Add(1)
		return c.filterError(keys, fmt.Errorf("this process knows the keys, others may take them for absent until they are told: %w", closedError(err)))
	}
	return nil
}

// announced is known beside other work: the call returns at once, what it returns waits for it.
func (c *Cache[V]) announced(ctx context.Context, keys []string) (wait func() error) {
	if c.filter == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- c.known(ctx, keys) }()
	return func() error { return <-done }
}

// forgotten is known for what nobody can name: see Filter.Forget.
func (c *Cache[V]) forgotten(ctx context.Context) error {
	if c.filter == nil {
		return nil
	}
	if err := c.filter.Forget(context.WithoutCancel(ctx)); err != nil {
		return c.filterError(nil, closedError(err))
	}
	return nil
}

func (c *Cache[V]) filterError(keys []string, err error) error {
	return &NodeError{Node: c.filterNode(), Cache: c.cfg.Name, Op: opFilter, Keys: keys, Err: err}
}

// filterNode is the id of the node that has the feed.
func (c *Cache[V]) filterNode() string {
	return c.client.nodeID(c.client.ring.OwnerIndex(filterFeedPrefix + strings.TrimSuffix(c.names.prefix, ":")))
}

// filtered says whether a key is certainly absent.
func (c *Cache[V]) filtered(key string, now time.Time) bool {
	return c.filter != nil && c.filter.Absent(key, now)
}

// notThere counts what got past the filter though it was absent.
func (c *Cache[V]) notThere() {
	if c.filter != nil {
		c.filter.Missed(time.Now())
	}
}

// weighAbsence decides whether an absence that was loaded is stored, if keep says that it may be, and tells the filter of a row that it takes for absent.
func (c *Cache[V]) weighAbsence(key string, e *entry[V], now time.Time, keep bool) {
	switch {
	case !e.negative && c.filter != nil:
		c.filter.Found(key)
	case e.negative && keep && e.wire != nil && !c.remembers.Admit(key, now):
		c.counters.negativesOver.Add(1)
		e.wire = nil
	}
}
