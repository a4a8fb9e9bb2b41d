// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
)

// ErrRecursiveLoad is returned to a loader that asks for a key which it is
// itself loading: waiting would be waiting for itself.
var ErrRecursiveLoad = errors.New("shelf: recursive load")

// loading is one link of the chain of loads that a context is part of. The
// chain travels in the context's values and so survives the detachment from
// the caller's cancellation.
type loading struct {
	flight any                   // two flights may know the same key without being the same load
	has    func(key string) bool // false once the load has ended: a goroutine that outlives it recurses no more
	up     *loading
}

type loadingKey struct{}

// withLoading marks ctx as belonging to a load of the keys for which has
// answers true.
func withLoading(ctx context.Context, flight any, has func(key string) bool) context.Context {
	up, _ := ctx.Value(loadingKey{}).(*loading)
	return context.WithValue(ctx, loadingKey{}, &loading{flight: flight, has: has, up: up})
}

// isLoading reports whether ctx belongs to an unfinished load of key on flight.
func isLoading(ctx context.Context, flight any, key string) bool {
	l, _ := ctx.Value(loadingKey{}).(*loading)
	for ; l != nil; l = l.up {
		if l.flight == flight && l.has(key) {
			return true
		}
	}
	return false
}

// uninvolved returns ctx without its loads and places: nobody waits for a
// background run, so it recurses into nothing; and it must take a place of its
// own, since the load that started it gives its place back when it ends.
func uninvolved(ctx context.Context) context.Context {
	if l, _ := ctx.Value(loadingKey{}).(*loading); l != nil {
		ctx = context.WithValue(ctx, loadingKey{}, (*loading)(nil))
	}
	if p, _ := ctx.Value(placeKey{}).(*heldPlace); p != nil {
		ctx = context.WithValue(ctx, placeKey{}, (*heldPlace)(nil))
	}
	return ctx
}
