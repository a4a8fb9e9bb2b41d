// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
	"github.com/go-shelf/shelf/internal/workload"
)

// The workload. What its rates are the flags say.
const (
	zipfExponent = 0.99
	hotShare     = 0.2  // of the reads and writes are of one key, rank 0; the others are Zipf over the rest
	writeShare   = 0.05 // so many writes, on top of the reads
	valueBytes   = 100
	troubleEvery = 5 * time.Millisecond
	idleFor      = time.Second // then a goroutine that reads has no more to do
)

// process stands for one process of a service: a client of its own with its own connections, copies and limits.
type process struct {
	n      int
	world  *world
	client *client.Client
	cache  *client.Cache[[]byte]
	rec    stalecheck.Recorder
	owed   owed

	trouble atomic.Uint64 // what troubles said a moment ago

	mu      sync.Mutex
	samples []sample
	errors  map[string]int // of reads and writes, by their text
}

// read reads a key, and records what came of it. due is when the user came.
func (p *process) read(ctx context.Context, due time.Time, rank int) {
	op := p.rec.Begin()
	defer op.End()
	asked := time.Now()
	before := p.trouble.Load()
	r, err := p.cache.Lookup(ctx, p.world.ids[rank])
	done := time.Now()
	s := sample{at: due.Sub(p.world.began), took: done.Sub(due), late: asked.Sub(due), age: r.Age, rank: int32(rank), node: p.world.owners[rank], from: -1}
	switch {
	case errors.Is(err, client.ErrOverloaded):
		s.end = refused
	case err != nil:
		s.end = failed
	default:
		s.end = endOf(&r)
		if s.end != fromL1 {
			s.from = p.world.numbers[r.Node]
		}
		troubled := r.Layer == client.LayerSource && p.troubles() > before
		p.rec.Read(answer(p.world.ids[rank], op.Began, rank, &r, s.end, troubled))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples = append(p.samples, s)
	if s.end == failed {
		p.errors["read: "+err.Error()]++
	}
}

// troubles counts what fails between the cache and its nodes.
func (p *process) troubles() uint64 {
	s := p.cache.Stats()
	return s.NodeErrors + s.FillErrors + s.Bypassed
}

// lookOut keeps what troubles says at hand, since asking for every read would cost more than many a read does.
func (p *process) lookOut(ctx context.Context) {
	for ctx.Err() == nil {
		p.trouble.Store(p.troubles())
		time.Sleep(troubleEvery)
	}
}

// answer is what the checker is told of a read. A value that is another row's has version 0, which is nobody's.
func answer(key string, began time.Duration, rank int, r *client.Result[[]byte], end ending, troubled bool) stalecheck.Read {
	read := stalecheck.Read{Key: key, Began: began, Ended: stalecheck.Now(), Marked: end == fromStale}
	switch r.Layer {
	case client.LayerL1:
		read.Layer = stalecheck.L1
	case client.LayerL2:
		read.Layer = stalecheck.L2
	case client.LayerSource:
		read.Layer = stalecheck.Source
	}
	switch {
	case end == fromReplica:
		read.Class = replica
	case troubled:
		read.Class = unreached
	}
	if owner, version, value := decode(r.Value); owner == rank {
		read.Version, read.Value = version, value
	}
	return read
}

// write changes a row and invalidates it.
func (p *process) write(ctx context.Context, rank int) {
	op := p.rec.Begin()
	defer op.End()
	id := p.world.ids[rank]
	inv := stalecheck.Invalidation{Keys: []string{id}}
	update := func(ctx context.Context) error {
		value := p.world.values.Add(1)
		began := stalecheck.Now()
		row, err := p.world.db.Update(ctx, id, int64(value))
		if err == nil {
			p.rec.Write(stalecheck.Write{Key: id, Version: row.Version, Value: value, Began: began, Committed: stalecheck.Now()})
		}
		inv.Began = stalecheck.Now()
		return err
	}
	var err error
	if p.world.guard == guardInvalidate {
		err = update(ctx)
	} else {
		err = p.cache.Write(ctx, id, update)
	}
	inv.Returned = stalecheck.Now()
	if inv.Failed = err != nil; inv.Failed {
		if !client.NodesOnly(err) {
			p.note("write: " + err.Error())
		}
		p.owed.add(inv)
	}
	p.rec.Invalidation(inv)
}

func (p *process) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errors[text]++
}

// encode is the value that the cache keeps of a row.
func encode(rank int, r workload.Row) []byte {
	b := make([]byte, valueBytes)
	binary.BigEndian.PutUint64(b, uint64(rank))
	binary.BigEndian.PutUint64(b[8:], r.Version)
	binary.BigEndian.PutUint64(b[16:], uint64(r.PriceCents))
	return b
}

// decode takes it apart. The rank of what is no value is -1.
func decode(b []byte) (rank int, version, value uint64) {
	if len(b) != valueBytes {
		return -1, 0, 0
	}
	return int(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
}

// load is the loader of the caches.
func (w *world) load(ctx context.Context, id string) ([]byte, error) {
	row, err := w.db.Query(ctx, id)
	if err != nil {
		return nil, err
	}
	rank, err := strconv.Atoi(id)
	return encode(rank, row), err
}

func (w *world) loadMany(ctx context.Context, ids []string) (map[string][]byte, error) {
	rows, err := w.db.QueryMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	values := make(map[string][]byte, len(rows))
	for id, row := range rows {
		rank, err := strconv.Atoi(id)
		if err != nil {
			return nil, err
		}
		values[id] = encode(rank, row)
	}
	return values, nil
}

// draws are the keys that one stream of users asks for. They are for one goroutine.
type draws struct {
	*rand.Rand
	zipf *workload.Zipf
}

func newDraws(seed uint64, keys int) (*draws, error) {
	z, err := workload.NewZipf(seed, zipfExponent, keys-1)
	return &draws{rand.New(rand.NewPCG(seed, 1)), z}, err
}

func (d *draws) rank() int {
	if d.Float64() < hotShare {
		return 0
	}
	return 1 + d.zipf.Next()
}

// stream calls do at the times of a Poisson process of that rate, each in a goroutine of its own, until ctx ends. It is an open loop: users come when they
// come, however long the ones before them have to wait. When this goroutine comes late, all that are due are begun at once, and their waiting counts
// from when they were due.
func (w *world) stream(ctx context.Context, rate float64, d *draws, do func(due time.Time, rank int)) {
	for due := time.Now(); ; {
		due = due.Add(time.Duration(d.ExpFloat64() / rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return
		}
		rank := d.rank()
		w.begin(func() { do(due, rank) })
	}
}

// begin does it in a goroutine that has nothing to do, or in a new one. (A new one for each read would spend its time on growing its stack.)
func (w *world) begin(do func()) {
	select {
	case w.jobs <- do:
	default:
		w.crowd.Go(func() { w.work(do) })
	}
}

func (w *world) work(do func()) {
	idle := time.NewTimer(idleFor)
	defer idle.Stop()
	for {
		do()
		idle.Reset(idleFor)
		select {
		case do = <-w.jobs:
		case <-idle.C:
			return
		}
	}
}

// traffic starts the users of all processes. They end when the contexts do; w.crowd waits for them.
func (w *world) traffic(ctx, writing context.Context, rate float64, seed uint64) error {
	whole := context.WithoutCancel(ctx) // reads that are under way at the end are to be seen too
	each := rate / float64(len(w.processes))
	for i, p := range w.processes {
		reads, err := newDraws(seed+uint64(2*i), w.keys)
		if err != nil {
			return err
		}
		writes, err := newDraws(seed+uint64(2*i+1), w.keys)
		if err != nil {
			return err
		}
		w.crowd.Go(func() { p.lookOut(ctx) })
		w.crowd.Go(func() {
			w.stream(ctx, each, reads, func(due time.Time, rank int) { p.read(whole, due, rank) })
		})
		w.crowd.Go(func() {
			w.stream(writing, each*writeShare, writes, func(_ time.Time, rank int) { p.write(whole, rank) })
		})
	}
	return nil
}
