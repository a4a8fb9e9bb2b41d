// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"

	"github.com/go-shelf/shelf/stampede"
)

// gathering is where the readers of a process that miss a key come together, so that one of them loads it for all.
//
// A reader that is itself a loader holds a place among the loads. If it joined a run that waits for a place, and all places were held so, both
// would wait for ever; so such readers gather by themselves, on the places that they have. The lease still makes it one load.
type gathering[V any] struct {
	outside stampede.Flight[outcome[V]]
	inLoads stampede.Flight[outcome[V]]
}

// flight is the one for a reader with this context.
func (g *gathering[V]) flight(ctx context.Context, l *stampede.Limiter) *stampede.Flight[outcome[V]] {
	if l.Holds(ctx) {
		return &g.inLoads
	}
	return &g.outside
}

// forget detaches what is under way for a key: who comes from now on does not join it.
func (g *gathering[V]) forget(key string) {
	g.outside.Forget(key)
	g.inLoads.Forget(key)
}

// forgetAll is forget for all keys.
func (g *gathering[V]) forgetAll() {
	g.outside.ForgetAll()
	g.inLoads.ForgetAll()
}

func (g *gathering[V]) close(ctx context.Context) error {
	return errors.Join(g.outside.Close(ctx), g.inLoads.Close(ctx))
}
