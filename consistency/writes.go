// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

const (
	writePause = 80 * time.Millisecond // the mean between two writes of a writer
	fewKeys    = 3                     // of a write of many
	// clearEvery is how many writes there are between two that clear a cache, about: a cache that is always empty shows nothing.
	clearEvery = 150
)

// writeOn writes until ctx ends, and reads what it has written.
func (s *service) writeOn(ctx context.Context, d *dice) {
	whole := context.WithoutCancel(ctx) // whether a write that was given up was committed, nobody knows
	for ctx.Err() == nil {
		k := &s.kinds[d.IntN(len(s.kinds))]
		for _, id := range s.writeOne(whole, k, d) {
			s.read(whole, k, id, client.GetOptions{})
		}
		pause(ctx, time.Duration(d.Float64()*2*float64(writePause)))
	}
}

// writeOne writes in one of the ways there are, and returns the keys.
func (s *service) writeOne(ctx context.Context, k *kind, d *dice) []string {
	id := d.id()
	absent := !k.versions && comesAndGoes(id) && d.IntN(2) == 0
	switch n := d.IntN(100); {
	case d.IntN(clearEvery) == 0:
		s.writeAnd(ctx, k, []string{id}, false, invalidation{kind: k, all: true})
	case n < 3 && k.versions:
		s.writeSilently(ctx, k, fmt.Sprint(d.IntN(s.Keys))) // any key: the next write of a hot one comes soon, and brings the news
		return nil
	case n < 40:
		s.write(ctx, k, id, absent)
	case n < 60 && k.versions:
		s.writeVersion(ctx, k, id)
	case n < 60:
		s.writeAnd(ctx, k, []string{id}, absent, invalidation{kind: k, ids: []string{id}})
	case n < 75 && !absent:
		s.writeThrough(ctx, k, id)
	case n < 80 && k.versions:
		ids := d.ids(fewKeys)
		for i := range ids { // of one tag
			ids[i] = ids[i][:len(ids[i])-1] + tagOf(id)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		s.writeAnd(ctx, k, ids, false, invalidation{kind: k, tag: tagOf(id)})
		return ids
	default:
		ids := d.ids(fewKeys)
		s.writeAnd(ctx, k, ids, false, invalidation{kind: k, ids: ids})
		return ids
	}
	return []string{id}
}

// comesAndGoes: some rows are deleted and made again.
func comesAndGoes(id string) bool { return id[len(id)-1] == '3' || id[len(id)-1] == '7' }

// update changes one row in the database and records that.
func (s *service) update(ctx context.Context, k *kind, id string, absent bool) (row, error) {
	key := k.name + ":" + id
	unique := uint64(s.Process+1)<<40 | s.values.Add(1)
	began := stalecheck.Now()
	r, err := s.store.update(ctx, key, unique, absent)
	if err != nil {
		s.note("write", err)
		return r, err
	}
	s.rec.Write(stalecheck.Write{Key: key, Version: r.Version, Value: unique, Absent: absent, Began: began, Committed: stalecheck.Now()})
	return r, nil
}

// writeSilently is a write by a program that knows of no cache: nobody invalidates it. Old copies may live until their TTL; before the last look they
// are invalidated all the same.
func (s *service) writeSilently(ctx context.Context, k *kind, id string) {
	op := s.rec.Begin()
	defer op.End()
	if _, err := s.update(ctx, k, id, false); err == nil {
		s.silent.add(invalidation{kind: k, ids: []string{id}})
	}
}

// breakSilence invalidates what was written silently.
func (s *service) breakSilence(ctx context.Context) {
	for _, inv := range s.silent.take() {
		s.invalidate(ctx, inv)
	}
}

// write is Cache.Write.
func (s *service) write(ctx context.Context, k *kind, id string, absent bool) {
	if s.Guard == guardInvalidate || s.Guard == guardStore {
		s.writeBadly(ctx, k, id, absent)
		return
	}
	op := s.rec.Begin()
	defer op.End()
	inv := invalidation{kind: k, ids: []string{id}}
	err := k.writer.Write(ctx, id, func(ctx context.Context) error {
		_, err := s.update(ctx, k, id, absent)
		inv.began = stalecheck.Now()
		return err
	})
	s.returned(inv, err)
}

// writeVersion is a write and InvalidateVersion.
func (s *service) writeVersion(ctx context.Context, k *kind, id string) {
	op := s.rec.Begin()
	defer op.End()
	r, err := s.update(ctx, k, id, false)
	if err != nil {
		return
	}
	inv := invalidation{kind: k, ids: []string{id}, began: stalecheck.Now()}
	s.returned(inv, k.writer.InvalidateVersion(ctx, id, r.Version))
}

// writeThrough is Cache.WriteThrough: it confirms the row that it stores.
func (s *service) writeThrough(ctx context.Context, k *kind, id string) {
	op := s.rec.Begin()
	defer op.End()
	inv := invalidation{kind: k, ids: []string{id}}
	_, err := k.writer.WriteThrough(ctx, id, func(ctx context.Context) (row, error) {
		r, err := s.update(ctx, k, id, false)
		inv.began, inv.upTo = stalecheck.Now(), r.Version
		return r, err
	})
	s.returned(inv, err)
}

// writeAnd writes rows and then invalidates by keys, by tag, or everything.
func (s *service) writeAnd(ctx context.Context, k *kind, ids []string, absent bool, inv invalidation) {
	op := s.rec.Begin()
	defer op.End()
	for _, id := range ids {
		if _, err := s.update(ctx, k, id, absent); err != nil {
			return
		}
	}
	s.invalidate(ctx, inv)
}
