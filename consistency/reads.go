// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

const (
	readBurst = 6                    // reads in a row
	readPause = 4 * time.Millisecond // and then a rest, so that the machine has some left for the nodes
	manyKeys  = 8                    // of a GetMany
)

// readOn reads until ctx ends.
func (s *service) readOn(ctx context.Context, d *dice) {
	whole := context.WithoutCancel(ctx) // reads that are under way at the end are to be seen too
	for ctx.Err() == nil {
		for range readBurst {
			s.readOne(whole, d)
		}
		pause(ctx, readPause)
	}
}

// readOne reads in one of the ways there are.
func (s *service) readOne(ctx context.Context, d *dice) {
	k := &s.kinds[d.IntN(len(s.kinds))]
	switch n := d.IntN(100); {
	case n < 75:
		s.read(ctx, k, d.id(), client.GetOptions{})
	case n < 90:
		s.read(ctx, k, d.id(), client.GetOptions{BypassL1: true})
	case n < 93:
		s.read(ctx, k, d.id(), client.GetOptions{NoFill: true})
	case n < 94:
		s.read(ctx, k, d.id(), client.GetOptions{Refresh: true})
	default:
		s.readMany(ctx, k, d.ids(manyKeys))
	}
}

func (s *service) read(ctx context.Context, k *kind, id string, o client.GetOptions) {
	op := s.rec.Begin()
	defer op.End()
	before := k.troubles()
	r, err := k.cache.LookupWith(ctx, id, nil, o)
	s.saw(k, id, op.Began, r, err, k.troubles() > before)
}

func (s *service) readMany(ctx context.Context, k *kind, ids []string) {
	op := s.rec.Begin()
	defer op.End()
	before := k.troubles()
	found, err := k.cache.GetMany(ctx, ids)
	troubled := k.troubles() > before
	if err != nil {
		s.note("read", err)
		return
	}
	for _, id := range ids {
		r, ok := client.Result[row]{}, error(nil)
		if v, there := found[id]; there {
			r.Value = v
		} else {
			ok = client.ErrNotFound
		}
		s.saw(k, id, op.Began, r, ok, troubled)
	}
}

// readAll reads every key of every cache: this process's copy, and the node's.
func (s *service) readAll(ctx context.Context) {
	for i := range s.kinds {
		for n := range s.Keys {
			id := fmt.Sprint(n)
			s.read(ctx, &s.kinds[i], id, client.GetOptions{})
			s.read(ctx, &s.kinds[i], id, client.GetOptions{BypassL1: true})
			s.read(ctx, &s.kinds[i], id, client.GetOptions{})
		}
	}
}

// troubles counts what fails between the cache and its nodes.
func (k *kind) troubles() uint64 {
	s := k.cache.Stats()
	return s.NodeErrors + s.Bypassed
}

// saw records an answer.
func (s *service) saw(k *kind, id string, began time.Duration, r client.Result[row], err error, troubled bool) {
	read := stalecheck.Read{Key: k.name + ":" + id, Began: began, Ended: stalecheck.Now(), Layer: layer(r.Layer), Marked: r.Stale}
	if troubled {
		read.Class = unreached
	}
	switch {
	case errors.Is(err, client.ErrNotFound):
		read.Absent = true
	case err != nil:
		s.note("read", err)
		return
	case r.Value.whole(read.Key):
		read.Version, read.Value = r.Value.Version, r.Value.Unique
	default: // another row's, or parts of two: version 0 is nobody's
	}
	s.rec.Read(read)
}

func layer(l client.Layer) stalecheck.Layer {
	switch l {
	case client.LayerL1:
		return stalecheck.L1
	case client.LayerL2:
		return stalecheck.L2
	case client.LayerSource:
		return stalecheck.Source
	default:
		return stalecheck.None
	}
}

// pause sleeps, not beyond ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
