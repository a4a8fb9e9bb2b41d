// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/hotkey"
	"github.com/go-shelf/shelf/localcache"
	"github.com/go-shelf/shelf/stampede"
)

// pollMin and pollMax bound the pauses between two looks at a lease that another process holds.
const (
	pollMin = 5 * time.Millisecond
	pollMax = 250 * time.Millisecond
)

// Cache is one kind of value in front of one source: products, sessions, prices. It is safe for concurrent use.
type Cache[V any] struct {
	client  *Client
	cfg     CacheConfig[V]
	opened  time.Time // when it was made, by the monotonic clock
	names   naming
	clone   func(V) V              // nil: values are shared
	whole   func(payload []byte) V // nil but where the payload is the value, as it is
	inPlace bool                   // decoding costs next to nothing: Bytes and String

	views      []view   // of the cache's generation, one a node
	clearDebts []string // the name under which a Clear is owed, one a node

	hot *hotkey.Detector              // nil but with L1Hot
	l1  *localcache.Cache[l1Entry[V]] // nil with L1Off

	copies *copying // on other nodes than the owner; nil: none
	warmth *warmth  // nil: nothing follows from how often the fleet reads a key

	filter     *stampede.Filter // nil without CacheConfig.Filter
	filterRuns chan struct{}    // closed when it has ended
	remembers  *stampede.Absences

	misses    gathering[V]                // one load a key
	refreshes stampede.Flight[outcome[V]] // one refresh a key, behind the callers' backs
	unfilled  gathering[V]                // loads that store nothing
	forces    stampede.Flight[outcome[V]] // forced loads, each under a key of its own
	warms     stampede.Flight[outcome[V]] // loads of Warm
	sequence  atomic.Uint64               // the next of those keys
	loop      *stampede.Loop
	source    *source
	closed    atomic.Bool
	ending    context.Context // ends when closed is set, for calls that take long
	end       context.CancelFunc
	counters  counters
	draw      func() float64
}

// NewCache makes a cache on a client. A wrong configuration is a *ConfigError.
func NewCache[V any](cl *Client, cfg CacheConfig[V]) (*Cache[V], error) {
	if cl == nil {
		return nil, &ConfigError{"Client", "nil", "a cache needs a client, from New"}
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cache[V]{
		client: cl, opened: time.Now(), cfg: cfg, clone: cfg.Clone, draw: rand.Float64,
		names: newNaming(cl.cfg.Namespace, cfg.Name, cfg.Schema), views: make([]view, len(cl.nodes)),
	}
	c.remembers = stampede.NewAbsences(cfg.NegativeRate, int(10*cfg.NegativeRate))
	for i := range cl.nodes {
		c.clearDebts = append(c.clearDebts, clearDebt(c.names.of, i))
	}
	c.ending, c.end = context.WithCancel(context.Background()) //nolint:gosec // close calls it
	if _, isBytes := any(c.cfg.Codec).(Bytes); isBytes {
		c.whole, _ = any(func(payload []byte) []byte { return payload }).(func([]byte) V)
	}
	_, isString := any(c.cfg.Codec).(String)
	c.inPlace = isString || c.whole != nil
	if clone, isBytes := any(bytes.Clone).(func(V) V); isBytes && c.clone == nil {
		c.clone = clone
	}
	if c.source, err = newSource(cl, cfg); err != nil {
		return nil, fmt.Errorf("shelf: cache %s: %w", cfg.Name, err)
	}
	if err := firstError(c.makeL1(), c.makeLoop(), c.makeHeat(), c.makeFilter()); err != nil {
		return nil, cacheError(cfg.Name, err)
	}
	c.makeCopying()
	if err := cl.register(cfg.Name, cfg.Schema, c); err != nil {
		return nil, err
	}
	cl.heat.join(c.warmth)
	c.startFilter()
	return c, nil
}

func (c *Cache[V]) makeL1() (err error) {
	if c.cfg.L1 == L1Off {
		return nil
	}
	if c.cfg.L1 == L1Hot {
		if c.hot, err = hotkey.New(hotkey.Config{Enter: c.cfg.HotRate}); err != nil {
			return err
		}
	}
	// The bytes are the bound; as many entries as they hold are welcome.
	entries := max(1, c.cfg.L1MaxBytes/localcache.EntryOverhead)
	c.l1, err = localcache.New[l1Entry[V]](localcache.Config{MaxBytes: c.cfg.L1MaxBytes, MaxEntries: int(min(entries, math.MaxInt32)), Origin: c.opened})
	return err
}

func (c *Cache[V]) makeLoop() (err error) {
	c.loop, err = stampede.NewLoop(stampede.LoopConfig{
		Limiter: c.client.limiter, Guard: c.client.guard,
		LoadTimeout: c.cfg.LoadTimeout, LeaseTTL: c.cfg.LeaseTTL, MaxWait: c.cfg.WaitTimeout,
		PollMin: pollMin, PollMax: pollMax, Draw: c.draw,
	})
	return err
}

// Where tells which node owns a key, by its id, and the name of the key's entry there: for a look at it with other tools.
func (c *Cache[V]) Where(key string) (node, name string) {
	name = c.names.data(key)
	return c.client.nodeID(c.client.ring.OwnerIndex(name)), name
}

// close refuses new calls and waits for the loads under way.
func (c *Cache[V]) close(ctx context.Context) error {
	c.closed.Store(true)
	c.end()
	return errors.Join(c.copies.close(ctx), c.refreshes.Close(ctx), c.misses.close(ctx), c.unfilled.close(ctx), c.forces.Close(ctx), c.warms.Close(ctx), c.closeFilter(ctx))
}

// admit is the check that every call on one key begins with.
func (c *Cache[V]) admit(ctx context.Context, key string) error {
	if c.closed.Load() {
		return ErrClosed
	}
	if err := checkKey(key); err != nil {
		return err
	}
	return ctx.Err()
}

// ownKey returns a key that no other work has, for c.forces.
func (c *Cache[V]) ownKey() string { return strconv.FormatUint(c.sequence.Add(1), 36) }

// copied is v as a caller may have it: a copy of its own where values are copied.
func (c *Cache[V]) copied(v V) V {
	if c.clone == nil {
		return v
	}
	return c.clone(v)
}
