// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/stampede"
)

// SetTTL is called by a loader, with the loader's own context, to give the value that it is about to return a time to live of its own. key is the
// key as the loader got it. The rule is that of CacheConfig.TTL: 1 ms to MaxTTL, anything else is ErrInvalidTTL and changes nothing.
// A TTL longer than the cache's extends, for this value, the time for which it may be served. The cache's jitter applies, and the value softens at the
// same share of its TTL as the cache's others. It holds for the entry that this call of the loader makes, also in a refresh; the next one says it
// again or has the cache's TTL. The last call for a key counts. It has no effect on an absence, which lives NegativeTTL. In LoadMany it is called for
// each key that it concerns. Safe for concurrent use.
func SetTTL(ctx context.Context, key string, ttl time.Duration) error {
	s, _ := ctx.Value(scopeKey{}).(*loadScope)
	if s == nil || !slices.Contains(s.keys, key) {
		return fmt.Errorf("shelf: SetTTL: the context is not that of a loader of key %s", shortKey(key))
	}
	if err := checkTTL("ttl", ttl); err != nil {
		return fmt.Errorf("%w: SetTTL of key %s: %s", ErrInvalidTTL, shortKey(key), strings.TrimPrefix(err.Error(), "shelf: "))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttls == nil {
		s.ttls = make(map[string]time.Duration)
	}
	s.ttls[key] = ttl
	return nil
}

// loadScope is what one loader call knows of itself, in its context. It collects what the loader says beside its value, and it tells which
// keys are being loaded, so that a loader that asks for its own key is told so instead of waiting for itself.
type loadScope struct {
	cache any
	keys  []string
	outer *loadScope // the load that this one is part of, where a loader reads through a cache
	over  atomic.Bool

	mu   sync.Mutex
	ttls map[string]time.Duration
}

type scopeKey struct{}

// scoped marks a context as that of a loader call. The scope is over when the call has ended: a goroutine that the loader leaves behind
// recurses no more.
func scoped(ctx context.Context, cache any, keys []string) (context.Context, *loadScope) {
	outer, _ := ctx.Value(scopeKey{}).(*loadScope)
	s := &loadScope{cache: cache, keys: keys, outer: outer}
	return context.WithValue(ctx, scopeKey{}, s), s
}

// unscoped takes the mark away, for work that nobody waits for.
func unscoped(ctx context.Context) context.Context {
	if nested(ctx) {
		return context.WithValue(ctx, scopeKey{}, (*loadScope)(nil))
	}
	return ctx
}

// nested says whether ctx is a loader's, whose place among the loads serves for what it loads through caches too.
func nested(ctx context.Context) bool {
	s, _ := ctx.Value(scopeKey{}).(*loadScope)
	return s != nil
}

// recursion is ErrRecursiveLoad if ctx is that of a loader that is loading this very key.
func (c *Cache[V]) recursion(ctx context.Context, key string) error {
	s, _ := ctx.Value(scopeKey{}).(*loadScope)
	for ; s != nil; s = s.outer {
		if s.cache == any(c) && !s.over.Load() && slices.Contains(s.keys, key) {
			return fmt.Errorf("%w: cache %s, key %s", ErrRecursiveLoad, c.cfg.Name, shortKey(key))
		}
	}
	return nil
}

func (s *loadScope) ttl(key string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttls[key]
}

// loader reads one row: the cache's own, or one given at the call.
type loader[V any] func(ctx context.Context, key string) (V, error)

// ownLoader is the cache's loader for one key: Load, or LoadMany asked for one.
func (c *Cache[V]) ownLoader() loader[V] {
	if c.cfg.Load != nil {
		return c.cfg.Load
	}
	return func(ctx context.Context, key string) (V, error) {
		rows, err := c.loadRows(ctx, []string{key})
		v, ok := rows[key]
		if err == nil && !ok {
			err = ErrNotFound
		}
		return v, err
	}
}

// loadRows is LoadMany, or, where there is none, Load for one key after the other. LoadMany says that a row does not exist by leaving it out: an
// ErrNotFound from it, of one row perhaps, says nothing of the others, and must not make them all absent.
func (c *Cache[V]) loadRows(ctx context.Context, keys []string) (map[string]V, error) {
	if c.cfg.LoadMany == nil {
		return c.loadEach(ctx, keys)
	}
	rows, err := c.cfg.LoadMany(ctx, keys)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, fmt.Errorf("shelf: LoadMany of cache %s must leave out rows that do not exist, not return ErrNotFound: %s", c.cfg.Name, err.Error())
	case err != nil:
		return nil, err
	}
	return rows, nil
}

func (c *Cache[V]) loadEach(ctx context.Context, keys []string) (map[string]V, error) {
	rows := make(map[string]V, len(keys))
	for _, k := range keys {
		v, err := c.cfg.Load(ctx, k)
		switch {
		case err == nil:
			rows[k] = v
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return rows, nil
}

// load calls a loader for one key and seals what it says. It runs under the guard: the loader, the codec and Version are the user's code.
func (c *Cache[V]) load(ctx context.Context, s *slot[V], load loader[V], forced bool, call *atomic.Pointer[sourceCall]) (stampede.Loaded[entry[V]], error) {
	key, keep := s.key, !s.down
	of, err := c.source.begin([]string{key}, forced, time.Now())
	if err != nil {
		return stampede.Loaded[entry[V]]{}, err
	}
	call.Store(of)
	ctx, scope := scoped(ctx, c, []string{key})
	defer scope.over.Store(true)
	began := time.Now()
	c.counters.loads.Add(1)
	v, err := load(ctx, key)
	negative := errors.Is(err, ErrNotFound)
	if err != nil && !negative {
		of.end(whyOver(ctx, err), time.Now())
		return stampede.Loaded[entry[V]]{}, err
	}
	l := c.loaded(key, v, negative, scope, s.node, began, keep)
	of.end(whyOver(ctx, nil), time.Now()) // whoever waits for the load ends it where it does not come to this: a panic of the codec's, say, is a failure too
	return l, nil
}

// whyOver is how a loader's call has ended that returned err: an answer that comes when its context is over, and an error that only says so, are no answer,
// but what ended the context.
func whyOver(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && (err == nil || errors.Is(err, over)) {
		return context.Cause(ctx)
	}
	return err
}

// loaded seals one value that a loader returned. The value is copied first where values are copied: what the loader does with its
// own buffer afterwards is its own business. keep says that it may be stored on a node: an absence that is not costs nothing of NegativeRate.
func (c *Cache[V]) loaded(key string, v V, negative bool, scope *loadScope, n *redisnode.Node, began time.Time, keep bool) stampede.Loaded[entry[V]] {
	if negative {
		var zero V
		v = zero
	} else {
		v = c.copied(v)
	}
	e := c.seal(v, negative, n, began, time.Since(began), SetOptions{TTL: scope.ttl(key)})
	c.weighAbsence(key, &e, began, keep)
	return stampede.Loaded[entry[V]]{Entry: e, Version: e.version, Negative: negative, Unstorable: e.wire == nil}
}

// countFailure counts a load that ended without an answer, in whatever way: an error of the loader, its timeout, a panic, Goexit. A load that did not begin
// is not the loader's failure.
func (c *Cache[V]) countFailure(err error) {
	var held *heldBack
	if err == nil || errors.Is(err, ErrOverloaded) || errors.Is(err, ErrClosed) || errors.Is(err, ErrSourceDown) || errors.As(err, &held) {
		return
	}
	c.counters.loadErrors.Add(1)
}
