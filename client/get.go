// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"time"
)

// Layer says where a value came from.
type Layer int

const (
	// LayerNone says that there is no value. With ErrNotFound and no Result.Node the filter of known keys has said so (CacheConfig.Filter): neither node nor loader was asked.
	LayerNone Layer = iota
	// LayerL1 is this process's own copy.
	LayerL1
	// LayerL2 is the node that owns the key, or another that has a copy of its entry: see Result.Node.
	LayerL2
	// LayerSource is the loader, in this call or in one that it joined.
	LayerSource
)

func (l Layer) String() string {
	switch l {
	case LayerL1:
		return "L1"
	case LayerL2:
		return "L2"
	case LayerSource:
		return "source"
	default:
		return "none"
	}
}

// Result is a value and its provenance. With ErrNotFound, all but Value tell where the absence was learned.
type Result[V any] struct {
	Value   V
	Layer   Layer
	Node    string        // id of the node that owns the key; with Config.Gutter, while that is down, of the one that stands in for it; of a copy (CacheConfig.HotCopies, Copies) of the one that has it
	Age     time.Duration // since the load began, on the node's clock
	Version uint64        // row version; 0 where the cache has none
	Replica string        // address of the replica that it was read from (Config.ReadFrom): it may lack what was invalidated within ReplicaMaxLag; "": none

	// Stale says that the value is known to be older than what it should be: past its soft TTL (a refresh is under way, or is
	// another process's), below the row version that an invalidation announced (the source still answers with the old row), or
	// loaded and older than what the owner has (it was not stored).
	Stale bool

	// LoadErr is why the source did not answer, where Value is past its time and is served in place of an answer (CacheConfig.StaleIfError): the loader's error,
	// ErrLoadTimeout, ErrOverloaded, ErrSourceDown, or what is remembered of the key's last load. Stale is set, and the read has no error. nil: it is no
	// such value.
	LoadErr error
}

// GetOptions are the options of GetWith and LookupWith.
type GetOptions struct {
	// BypassL1: do not read this process's own copy. What the owner has or the loader says replaces it. Copies on other nodes and the filter of known keys answer as ever (but with Refresh).
	BypassL1 bool

	// NoFill: take no lease, store nothing on a node nor in this process, start no refresh: for reads that must not push anything out, or
	// values not to be shared. What the caches hold is read as ever (but with Refresh). Loads are shared only with callers who store nothing either.
	NoFill bool

	// Refresh: do not read the cache at all: load, and store the result for everybody, whatever is there and whoever is loading it. The load begins
	// after the call did; two such calls are two loads. This process's own copy goes, others' as after an Invalidate. A load that fails leaves
	// what is there. A row with an older version than what is there is returned, marked Stale, and not stored. Where the owner does not answer nothing is stored but in the gutter (Config.Gutter), for 10 s at most, and that is
	// no error: what the owner has is there again when it is back. With NoFill the source alone is read: nothing is stored, and every copy stays as it is. On a cache that is itself the truth it is
	// BypassL1: the owner is asked.
	Refresh bool
}

// Get returns the value of a key: from this process, from the node that owns it, or from the loader. See the package comment for the
// way it goes. The errors are ErrNotFound, the loader's own, ErrLoadTimeout, *PanicError or ErrGoexit where it did not return, ctx's, ErrOverloaded, ErrSourceDown, ErrInvalidKey,
// ErrRecursiveLoad and ErrClosed. A node that fails is none, but for a cache that is itself the truth: nobody else can be asked there, and the error
// is a *NodeError.
func (c *Cache[V]) Get(ctx context.Context, key string) (V, error) {
	at := c.clock()
	e, err := c.first(ctx, key, false, at)
	if e != nil && !e.negative {
		return c.copied(e.value), nil
	}
	return c.getOn(ctx, key, e, err, at)
}

// getOn is Get from where it is more than a hit in this process, which so needs little of the stack.
func (c *Cache[V]) getOn(ctx context.Context, key string, e *l1Entry[V], err error, at time.Duration) (none V, _ error) {
	switch {
	case err != nil:
		return none, err
	case e != nil:
		return none, ErrNotFound
	}
	r, err := c.beyond(ctx, key, nil, GetOptions{}, c.opened.Add(at))
	return r.Value, err
}

// Lookup is Get that also says where the value came from.
func (c *Cache[V]) Lookup(ctx context.Context, key string) (Result[V], error) {
	return c.lookup(ctx, key, nil, GetOptions{})
}

// GetWith is Get with a loader for this call, and options. A nil load is the cache's own loader. Callers that miss the same key at
// the same time share one load, whosever loader it is: give loaders for one key that read the same row. A refresh behind the caller's back, where this
// call starts one, uses its loader as well. A cache that is itself the truth asks a loader that is given for a key that is missing, and stores what
// it says.
func (c *Cache[V]) GetWith(ctx context.Context, key string, load func(ctx context.Context, key string) (V, error), o GetOptions) (V, error) {
	r, err := c.lookup(ctx, key, load, o)
	return r.Value, err
}

// LookupWith is GetWith that also says where the value came from.
func (c *Cache[V]) LookupWith(ctx context.Context, key string, load func(ctx context.Context, key string) (V, error), o GetOptions) (Result[V], error) {
	return c.lookup(ctx, key, load, o)
}

// lookup is the read path, each stop forward only.
func (c *Cache[V]) lookup(ctx context.Context, key string, load loader[V], o GetOptions) (Result[V], error) {
	if c.cfg.Truth && o.Refresh {
		o.Refresh, o.BypassL1 = false, true // what the owner has is the truth: that is what is asked for
	}
	at := c.clock()
	e, err := c.first(ctx, key, o.BypassL1 || o.Refresh, at)
	if err != nil {
		return Result[V]{}, err
	}
	if e != nil {
		return c.local(e, at)
	}
	return c.beyond(ctx, key, load, o, c.opened.Add(at))
}

// first is the part of the read path within this process. Most reads end here: it is kept short. Neither an entry nor an error: go on.
func (c *Cache[V]) first(ctx context.Context, key string, bypass bool, at time.Duration) (*l1Entry[V], error) {
	if c.closed.Load() || !validKey(key) || ctx.Err() != nil { // admit, without its call
		return nil, c.admit(ctx, key)
	}
	if c.hot != nil { // 1 count
		c.hot.Count(key, 0, c.opened.Add(at))
	}
	if c.l1 != nil && !bypass { // 2 L1
		if e := c.fromL1(key, at); e != nil {
			return e, nil
		}
	}
	return nil, nil //nolint:nilnil // it is what most of its callers go on from
}

// beyond is the read path from where this process's copy was not to be had.
func (c *Cache[V]) beyond(ctx context.Context, key string, load loader[V], o GetOptions, now time.Time) (Result[V], error) {
	if !o.Refresh && c.filtered(key, now) { // 3 filter
		return Result[V]{}, ErrNotFound
	}
	c.counters.l1Misses.Add(1)
	c.countAsked(key, 0, now)
	if load == nil && !c.cfg.Truth {
		load = c.ownLoader()
	}
	var at slot[V]
	c.placeInto(&at, key) // 4 ring
	var t ticket[V]
	if !o.NoFill {
		t = c.wantL1(&at, now)
		defer t.cancel()
	}
	if o.Refresh {
		return c.forced(ctx, at.kept(), load, o)
	}
	if c.owes(&at) { // after the ticket: see debts
		t.cancel()
		return c.pastShelves(ctx, at.kept(), load, o, now)
	}
	if c.copies != nil || c.client.cfg.ReadFrom != ReadPrimary {
		return c.fromOthers(ctx, at.kept(), load, o, t, now)
	}
	var e entry[V]
	f, err := at.read(ctx, t.watch, &e) // 5 owner
	if err == nil && f == fresh {       // nothing is needed that a hit does not need
		c.outdate(&at)
		return c.hit(&at, &e, f, t, now)
	}
	if err == nil && f != softened && load != nil { // nor what one of a crowd that misses does not
		c.outdate(&at)
		return c.miss(ctx, &at, load, o, t, now)
	}
	return c.taken(ctx, at.kept(), &e, f, err, load, o, t, now)
}

// fromOthers is the read path beyond this process where others than the owner may be asked first.
func (c *Cache[V]) fromOthers(ctx context.Context, s *slot[V], load loader[V], o GetOptions, t ticket[V], asked time.Time) (Result[V], error) {
	if r, found, err := c.fromCopy(ctx, s, t, load, o, asked); found {
		return r, err
	}
	if r, found, err := c.replicaFirst(ctx, s, t, load, o); found {
		return r, err
	}
	var e entry[V]
	f, err := s.read(ctx, t.watch, &e) // 5 owner
	return c.taken(ctx, s, &e, f, err, load, o, t, asked)
}

// taken goes on from what the owner said. asked is when the read began.
func (c *Cache[V]) taken(
	ctx context.Context, s *slot[V], e *entry[V], f freshness, err error, load loader[V], o GetOptions, t ticket[V], asked time.Time,
) (Result[V], error) {
	if err == nil {
		c.outdate(s)
	}
	switch {
	case err != nil && leftBy(ctx, err) != nil:
		return Result[V]{Node: s.nodeID()}, leftBy(ctx, err)
	case err != nil:
		c.counters.nodeErrors.Add(1)
		s.fails(err) // a miss, for this node
		if r, found, err := c.copyInstead(ctx, s, o); found {
			return r, err
		}
		if r, found, err := c.replicaInstead(ctx, s); found {
			return r, err
		}
	case f == fresh || f == softened:
		r, err := c.hit(s, e, f, t, asked)
		if f == softened && !o.NoFill && load != nil {
			c.refreshBehind(ctx, s, load)
		}
		return r, err
	}
	if load == nil {
		return c.noSource(s)
	}
	return c.miss(ctx, s, load, o, t, asked) // 6 miss, 7 load and fill
}

// hit is the answer that the owner's entry gives.
func (c *Cache[V]) hit(s *slot[V], e *entry[V], f freshness, t ticket[V], asked time.Time) (Result[V], error) {
	c.counters.l2Hits.Add(1)
	c.countSize(s.key, e.size, asked)
	now := c.now()
	t.commit(e, s, asked, now)
	c.checkCopies(s)
	return c.resultAt(e, LayerL2, s, f == softened && e.ageAt(now) >= e.soft, now)
}

// pastShelves is the read of a key whose invalidation has not got through: the loader is asked, and nothing is stored.
func (c *Cache[V]) pastShelves(ctx context.Context, s *slot[V], load loader[V], o GetOptions, asked time.Time) (Result[V], error) {
	c.bypass(s)
	if load == nil {
		return c.noSource(s)
	}
	return c.miss(ctx, s, load, o, ticket[V]{}, asked)
}

// bypass marks a slot whose node is not to be asked.
func (c *Cache[V]) bypass(s *slot[V]) {
	c.counters.bypassed.Add(1)
	s.down = true
	if s.node.Ailing() {
		s.cause = errOwed
	}
}

// leftBy is the error of a caller whose own context is over: ctx may say so a moment later than the node's connection does.
func leftBy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, over := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, over) {
			return over
		}
	}
	return nil
}

// local is the answer of an L1 hit.
func (c *Cache[V]) local(e *l1Entry[V], at time.Duration) (Result[V], error) {
	age := at - e.born
	r := Result[V]{Layer: LayerL1, Node: c.client.nodeID(int(e.owner)), Age: age, Version: e.version, Stale: age >= e.soft}
	if e.negative {
		return r, ErrNotFound
	}
	r.Value = c.copied(e.value)
	return r, nil
}

// result is the answer that an entry gives.
func (c *Cache[V]) result(e *entry[V], layer Layer, s *slot[V], stale bool) (Result[V], error) {
	return c.resultAt(e, layer, s, stale, c.now())
}

// resultAt is result for who has just looked at the clock.
func (c *Cache[V]) resultAt(e *entry[V], layer Layer, s *slot[V], stale bool, now time.Time) (Result[V], error) {
	r := Result[V]{Layer: layer, Node: s.nodeID(), Age: e.ageAt(now), Version: e.version, Stale: stale}
	if e.negative {
		c.notThere()
		return r, ErrNotFound
	}
	r.Value = e.value
	return r, nil
}

// noSource is the answer to a miss where nothing stands behind the cache. That the owner cannot be asked is not the same as that there is
// no entry, and here nobody else can be asked: it is the caller's error.
func (c *Cache[V]) noSource(s *slot[V]) (Result[V], error) {
	r := Result[V]{Node: s.nodeID()}
	if s.cause != nil {
		return r, &NodeError{Node: s.nodeID(), Cache: c.cfg.Name, Op: "get", Keys: []string{s.key}, Err: closedError(s.cause)}
	}
	return r, ErrNotFound
}
