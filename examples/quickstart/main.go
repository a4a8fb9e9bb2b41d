// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Quickstart shows what Shelf does, with nothing to set up:
//
//	go run ./examples/quickstart
//
// A catalogue of 10,000 products stands behind a query that takes 20 ms. Three cache nodes stand before it: real redis-server processes when one is
// on PATH, embedded ones otherwise. Each step prints what it measured.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// Product is a row of the catalogue. Version grows with every update.
type Product struct {
	ID      string
	Name    string
	Cents   int
	Version uint64
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	db := newDatabase(10_000, 20*time.Millisecond)
	nodes, kill, stop, err := startNodes(ctx)
	if err != nil {
		return err
	}
	defer stop()

	// The client: which nodes there are. Everything else has a default; the timeout is longer than its 50 ms here because three nodes and
	// 10,000 callers share this one machine.
	nodes.OperationTimeout, nodes.PoolSize = 2*time.Second, 16
	cl, err := client.New(ctx, nodes)
	if err != nil {
		return err
	}
	defer func() {
		if err := cl.Close(ctx); err != nil {
			log.Print(err)
		}
	}()

	// A cache: what is kept, for how long, and how it is loaded.
	products, err := client.NewCache(cl, client.CacheConfig[Product]{
		Name: "product", Schema: 1, TTL: 10 * time.Minute,
		Load:     db.product,
		LoadMany: db.products,
		Version:  func(p Product) uint64 { return p.Version },
	})
	if err != nil {
		return err
	}

	return errors.Join(
		reads(ctx, products),
		stampede(ctx, cl, db),
		batch(ctx, products, db),
		missing(ctx, products, db),
		update(ctx, products, db),
		nodeLoss(ctx, cl, products, db, kill),
	)
}

// reads shows the three places that a value can come from.
func reads(ctx context.Context, products *client.Cache[Product]) error {
	for _, label := range []string{"first read", "hit"} {
		start := time.Now()
		r, err := products.Lookup(ctx, "4411")
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s from %s (owner %s) in %v\n", label, r.Value.Name, r.Layer, r.Node, round(time.Since(start)))
	}
	// A key that is read 100 times a second or more is hot, and is kept in this process: for L1TTL (a minute) at most, as the node tells of changes;
	// for L1BlindTTL (2 s) where it cannot, as embedded ones.
	for {
		start := time.Now()
		r, err := products.Lookup(ctx, "4411")
		if err != nil {
			return err
		}
		if r.Layer == client.LayerL1 {
			fmt.Printf("L1 hit: the key is hot now, %v\n", time.Since(start))
			return nil
		}
	}
}

// stampede lets a key that many want expire and then asks for it 10,000 times at once.
func stampede(ctx context.Context, cl *client.Client, db *database) error {
	first := true
	offers, err := client.NewCache(cl, client.CacheConfig[Product]{
		Name: "offer", TTL: 10 * time.Minute,
		Load: func(ctx context.Context, id string) (Product, error) {
			if first { // a loader may give single values a time to live of their own
				first = false
				if err := client.SetTTL(ctx, id, 200*time.Millisecond); err != nil {
					return Product{}, err
				}
			}
			return db.product(ctx, id)
		},
	})
	if err != nil {
		return err
	}
	if _, err := offers.Get(ctx, "42"); err != nil {
		return err
	}
	time.Sleep(250 * time.Millisecond) // now it has expired
	before, start := db.queries.Load(), time.Now()
	const callers = 10_000
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range callers {
		wg.Go(func() {
			if _, err := offers.Get(ctx, "42"); err != nil {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("stampede: %d callers failed", n)
	}
	fmt.Printf("stampede: %d callers, %d load\n", callers, db.queries.Load()-before)
	fmt.Printf("          all answered in %v\n", round(time.Since(start)))
	return nil
}

// batch reads 100 keys at once, twice.
func batch(ctx context.Context, products *client.Cache[Product], db *database) error {
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint(100 + i)
	}
	for _, label := range []string{"batch", "batch again"} {
		before, start := db.queries.Load(), time.Now()
		found, err := products.GetMany(ctx, ids)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d of %d keys in %v, database queries: %d\n", label, len(found), len(ids), round(time.Since(start)), db.queries.Load()-before)
	}
	return nil
}

// missing asks for a row that does not exist: that is remembered too.
func missing(ctx context.Context, products *client.Cache[Product], db *database) error {
	before := db.queries.Load()
	for range 100 {
		if _, err := products.Get(ctx, "no-such-product"); !errors.Is(err, client.ErrNotFound) {
			return errors.Join(errors.New("missing: want client.ErrNotFound"), err)
		}
	}
	fmt.Printf("missing key: asked 100 times, database queries: %d\n", db.queries.Load()-before)
	return nil
}

// update writes the database through Write, which makes every copy of the old row go.
func update(ctx context.Context, products *client.Cache[Product], db *database) error {
	old, err := products.Get(ctx, "4411")
	if err != nil {
		return err
	}
	err = products.Write(ctx, "4411", func(context.Context) error { return db.setPrice("4411", old.Cents/2) })
	if err != nil {
		return err
	}
	p, err := products.Get(ctx, "4411")
	if err != nil {
		return err
	}
	fmt.Printf("update: price %d -> %d, seen by the next read\n", old.Cents, p.Cents)
	if p.Cents != old.Cents/2 {
		return fmt.Errorf("update: read %d after writing %d", p.Cents, old.Cents/2)
	}
	return nil
}

// nodeLoss kills a node while 300 keys are being read: from then on its keys come from the database, and nobody gets an error.
func nodeLoss(ctx context.Context, cl *client.Client, products *client.Cache[Product], db *database, kill func(id string)) error {
	ids := make([]string, 300)
	for i := range ids {
		ids[i] = fmt.Sprint(1000 + i)
	}
	if _, err := products.GetMany(ctx, ids); err != nil {
		return err
	}
	victim, _ := products.Where("4411")
	before, start := db.queries.Load(), time.Now()
	layers, failed := make(map[client.Layer]int), 0
	for i, id := range ids {
		if i == 100 {
			kill(victim)
		}
		r, err := products.Lookup(ctx, id)
		if err != nil {
			failed++
		}
		layers[r.Layer]++
	}
	fmt.Printf("node killed: %s died after 100 of 300 reads; errors: %d; %d reads from nodes, %d from the database (queries: %d), %v\n",
		victim, failed, layers[client.LayerL2], layers[client.LayerSource], db.queries.Load()-before, round(time.Since(start)))
	if failed > 0 {
		return fmt.Errorf("node loss: %d reads failed", failed)
	}
	fmt.Printf("             loader calls at once, at most: %d\n", cl.Stats().LoadsHighest)
	return nil
}

// startNodes starts three cache nodes and says what they are. kill ends one by its id, as kill -9 does.
func startNodes(ctx context.Context) (cfg client.Config, kill func(id string), stop func(), err error) {
	path, err := redistest.Find()
	if errors.Is(err, redistest.ErrNotFound) {
		fmt.Println("nodes: 3 embedded ones (no redis-server on PATH; they cannot push changes, so copies in this process live 2 s)")
		nodes := clienttest.New(3)
		return nodes.Config(), func(id string) { nodes.ByID(id).Down() }, nodes.Close, nil
	}
	if err != nil {
		return client.Config{}, nil, nil, err
	}
	servers := make(map[string]*redistest.Server)
	stop = func() {
		for _, s := range servers {
			if err := s.Close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	for i := range 3 {
		id := fmt.Sprintf("node-%d", i)
		s, err := redistest.Launch(ctx, redistest.Config{})
		if err != nil {
			stop()
			return client.Config{}, nil, nil, err
		}
		servers[id] = s
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: id, Addr: s.Addr()})
	}
	fmt.Printf("nodes: 3 real ones (%s)\n", path)
	return cfg, func(id string) { servers[id].Kill() }, stop, nil
}

// database is the slow source: products in memory behind a query that takes its time.
type database struct {
	latency time.Duration
	queries atomic.Int64

	mu   sync.Mutex
	rows map[string]Product
}

func newDatabase(rows int, latency time.Duration) *database {
	db := &database{latency: latency, rows: make(map[string]Product, rows)}
	for i := range rows {
		id := fmt.Sprint(i)
		db.rows[id] = Product{ID: id, Name: "product " + id, Cents: 1000 + i, Version: 1}
	}
	return db
}

// products is SELECT ... WHERE id = ANY(ids).
func (db *database) products(ctx context.Context, ids []string) (map[string]Product, error) {
	db.queries.Add(1)
	select {
	case <-time.After(db.latency):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	found := make(map[string]Product, len(ids))
	for _, id := range ids {
		if p, ok := db.rows[id]; ok {
			found[id] = p
		}
	}
	return found, nil
}

// product is SELECT ... WHERE id = id. A row that is not there is client.ErrNotFound.
func (db *database) product(ctx context.Context, id string) (Product, error) {
	found, err := db.products(ctx, []string{id})
	if err != nil {
		return Product{}, err
	}
	p, ok := found[id]
	if !ok {
		return Product{}, client.ErrNotFound
	}
	return p, nil
}

func (db *database) setPrice(id string, cents int) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	p := db.rows[id]
	p.Cents, p.Version = cents, p.Version+1
	db.rows[id] = p
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
