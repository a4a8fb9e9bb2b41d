// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/workload"
)

// generator is the crowd: readers and writers over the rows of a table.
type generator struct {
	load
	store *Store
	ids   []string        // by rank: the most popular first
	known []atomic.Uint64 // by rank: a version that no read may be older than
	turn  uint64          // of the phase, so that phases draw other sequences
}

// newGenerator makes the rows. It refuses a table that has some: the writers would change them.
func newGenerator(ctx context.Context, store *Store, cfg config) (*generator, error) {
	made, err := store.Seed(ctx, cfg.rows)
	if err != nil {
		return nil, fmt.Errorf("catalogue: seed: %w", err)
	}
	if made == 0 {
		return nil, errors.New("catalogue: -database: its table products has rows already, and -load writes: give it an empty database, or none")
	}
	if _, err := store.pool.Exec(ctx, "ANALYZE products"); err != nil {
		return nil, fmt.Errorf("catalogue: analyze: %w", err)
	}
	rows, err := store.pool.Query(ctx, "SELECT id::text FROM products ORDER BY id")
	if err != nil {
		return nil, fmt.Errorf("catalogue: ids: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("catalogue: ids: %w", err)
	}
	// Popular rows lie anywhere in the table, not on one page of it.
	rand.New(rand.NewPCG(cfg.load.seed, 0)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	g := &generator{load: cfg.load, store: store, ids: ids, known: make([]atomic.Uint64, len(ids))}
	_, err = workload.NewZipf(g.seed, g.zipf, len(ids)) // or each reader would have to say so
	return g, err
}

// phase is one way to read and write, for a time.
type phase struct {
	name    string
	longest time.Duration
	reads   uint64 // after which it ends earlier; 0 is none
	read    func(ctx context.Context, id string) (Product, client.Layer, error)
	write   func(ctx context.Context, id string, patch Patch) (Product, error)
}

// plan is what is measured, in order.
func (g *generator) plan(s *Server) []phase {
	direct := phase{name: "without", longest: g.duration, write: g.store.Update}
	direct.read = func(ctx context.Context, id string) (Product, client.Layer, error) {
		p, err := g.store.Product(ctx, id)
		return p, client.LayerSource, err
	}
	cached := phase{name: "warm", longest: g.duration}
	cached.read = func(ctx context.Context, id string) (Product, client.Layer, error) {
		r, err := s.products.Lookup(ctx, id)
		return r.Value, r.Layer, err
	}
	cached.write = func(ctx context.Context, id string, patch Patch) (p Product, err error) {
		err = s.products.Write(ctx, id, func(ctx context.Context) (err error) {
			p, err = g.store.Update(ctx, id, patch)
			return err
		})
		return p, err
	}
	cold := cached
	cold.name, cold.longest, cold.reads = "cold", g.warmup, warmReads*uint64(len(g.ids))
	return []phase{direct, cold, cached}
}

// stopGrace is what reads and writes under way have when a phase ends: they are not cut off, or each phase would end with errors.
const stopGrace = 5 * time.Second

// run runs a phase to its end, or that of ctx, and waits for all that it started.
func (g *generator) run(ctx context.Context, p phase, live *progress) (result, error) {
	g.turn++
	before, err := g.scans(context.WithoutCancel(ctx))
	if err != nil {
		return result{name: p.name}, err
	}
	until, stop := context.WithTimeout(ctx, p.longest)
	defer stop()
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	context.AfterFunc(until, func() { time.AfterFunc(stopGrace, cut) })

	r := newRecorder(g.store)
	var crowd sync.WaitGroup
	for i := range g.readers {
		crowd.Go(func() { g.reader(until, calls, p, r, g.draws(uint64(i))) })
	}
	for i := range g.writers {
		if g.writes > 0 {
			crowd.Go(func() { g.writer(until, calls, p, r, g.draws(1<<32+uint64(i))) })
		}
	}
	g.watch(until, stop, p, r, live)
	crowd.Wait()
	res := r.end(p.name)
	res.cut = ctx.Err() != nil
	after, err := g.scans(context.WithoutCancel(ctx))
	res.scans = after - before - 2*res.total.writes.Load()
	return res, err
}

// watch shows how it goes, and ends the phase when it has had its reads.
func (g *generator) watch(until context.Context, stop func(), p phase, r *recorder, live *progress) {
	tick := time.NewTicker(g.every)
	defer tick.Stop()
	var reads uint64
	for {
		select {
		case <-until.Done():
			return
		case <-tick.C:
		}
		last := r.next()
		reads += last.reads()
		live.show(line(p, time.Since(r.start), last))
		if p.reads > 0 && reads >= p.reads {
			stop()
		}
	}
}

// draws returns the sequence of one reader or writer: another one in each phase.
func (g *generator) draws(who uint64) *workload.Zipf {
	z, err := workload.NewZipf(g.seed+g.turn<<40+who, g.zipf, len(g.ids))
	if err != nil {
		panic("catalogue: " + err.Error()) // newGenerator has tried the arguments
	}
	return z
}

// reader reads, and checks what it gets, until the phase ends.
func (g *generator) reader(until, calls context.Context, p phase, r *recorder, next *workload.Zipf) {
	for until.Err() == nil {
		rank := next.Next()
		known := g.known[rank].Load() // before the read begins: what is written from now on may be missed
		start := time.Now()
		product, layer, err := p.read(calls, g.ids[rank])
		i := r.now.Load()
		i.latency.Record(time.Since(start))
		switch {
		case err != nil:
			i.failed.Add(1)
			r.note(err)
			time.Sleep(10 * time.Millisecond) // a database that is gone fails at once
			continue
		case !whole(product, g.ids[rank]):
			i.wrong.Add(1)
		case product.Version < known:
			i.stale.Add(1)
		}
		i.layers[layer].Add(1)
	}
}

// writer writes at its share of the rate until the phase ends.
func (g *generator) writer(until, calls context.Context, p phase, r *recorder, next *workload.Zipf) {
	tick := time.NewTicker(max(time.Duration(float64(g.writers)/g.writes*float64(time.Second)), time.Microsecond))
	defer tick.Stop()
	for price := int64(1); ; price++ {
		select {
		case <-until.Done():
			return
		case <-tick.C:
		}
		rank := next.Next()
		patch := patchOf(g.ids[rank], price)
		product, err := p.write(calls, g.ids[rank], patch)
		i := r.now.Load()
		if product.Version > 0 { // the row is written, whatever became of the invalidation
			i.writes.Add(1)
		}
		if err != nil {
			i.writesFailed.Add(1)
			r.note(err)
			continue
		}
		raise(&g.known[rank], product.Version) // the invalidation is confirmed: from now on an older row is stale
	}
}

func raise(to *atomic.Uint64, v uint64) {
	for old := to.Load(); old < v && !to.CompareAndSwap(old, v); old = to.Load() {
	}
}

// patchOf changes a row so that a reader can see whether it belongs together.
func patchOf(id string, price int64) Patch {
	name := "product " + id + " for " + strconv.FormatInt(price, 10)
	return Patch{Name: &name, PriceCents: &price}
}

// whole reports whether a product is the row that was asked for, with a name and a price of the same write.
func whole(p Product, id string) bool {
	if p.ID != id {
		return false
	}
	_, price, written := strings.Cut(p.Name, " for ")
	if p.Version < 2 || !written {
		return p.Version == 1 && !written
	}
	n, err := strconv.ParseInt(price, 10, 64)
	return err == nil && n == p.PriceCents
}

// scans is how often PostgreSQL itself says that it has looked something up in the table: once for a read, twice for an Update. A session
// tells it of its own share when it ends; so all sessions are ended, and waited for, first. No call may be under way.
func (g *generator) scans(ctx context.Context) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	var sessions []uint32
	for _, c := range g.store.pool.AcquireAllIdle(ctx) {
		sessions = append(sessions, c.Conn().PgConn().PID())
		c.Release()
	}
	g.store.pool.Reset()
	for left := len(sessions); left > 0; {
		err := g.store.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY($1)", sessions).Scan(&left)
		if err != nil {
			return 0, fmt.Errorf("catalogue: pg_stat_activity: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	err = g.store.pool.QueryRow(ctx, "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relid = 'products'::regclass").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("catalogue: pg_stat_user_tables: %w", err)
	}
	return n, nil
}
