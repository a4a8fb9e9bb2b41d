// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
	"github.com/go-shelf/shelf/internal/workload"
	"github.com/go-shelf/shelf/ring"
)

// ordersEnv is where a process finds its orders: with it the program is not the driver.
const ordersEnv = "SHELF_CONSISTENCY_PROCESS"

// orders is what a process is told at its start.
type orders struct {
	Process  int
	Database string
	Nodes    []ring.Node
	Keys     int
	NoPush   bool
	Guard    string // what it does not do (see guards.go)
}

// The orders that come later, a line each; a process that has carried one out says so in its messages.
const (
	quiet = "quiet" // end reads and writes; it is done when no failed invalidation is left
	final = "final" // read every key
)

// message is what a process tells, ten times a second.
type message struct {
	Batch  stalecheck.Batch
	Done   string // the last order that was carried out
	Owed   int    // invalidations that failed and are not through
	Errors map[string]int
	Busy   int // reads that got ErrOverloaded or ErrLoadTimeout: the machine has too much to do
}

const (
	tellEvery   = 100 * time.Millisecond
	readers     = 4
	writers     = 2
	connections = 8 // to the database
	maxLoads    = 5
	slowLoads   = 4
	slowest     = 50 * time.Millisecond
	// patience is how long a read waits for a place among the loads, and for a load of another process. A process that is cut off with a lease in its
	// hand would otherwise hold up the end of a run for as long as leases live.
	patience = time.Second

	allName, hotName = "all", "hot" // of the caches
	tags             = 10           // the last digits of the keys
	minKeys          = 2 * tags
)

// kind is one of the two caches.
type kind struct {
	name     string
	cache    *client.Cache[row]
	writer   *client.Cache[row] // the same, unless a guard is broken
	versions bool               // and tags; the other has neither, but rows that come and go
}

// service is one process of the fleet.
type service struct {
	orders
	store   *store
	clients []*client.Client // one, unless a guard is broken
	kinds   [2]kind
	rec     stalecheck.Recorder
	owed    owed
	silent  owed          // writes that nobody has been told of
	values  atomic.Uint64 // how many it has written

	mu     sync.Mutex
	errors map[string]int // of reads and writes
	busy   int
}

// serve is the main function of a process. It ends when its input does.
func serve(text string) (err error) {
	s := &service{errors: make(map[string]int)}
	if err := json.Unmarshal([]byte(text), &s.orders); err != nil {
		return fmt.Errorf("consistency: orders: %w", err)
	}
	ctx := context.Background()
	if s.store, err = openStore(ctx, s.Database, connections); err != nil {
		return err
	}
	defer s.store.pool.Close()
	if err = s.open(ctx); err == nil {
		err = s.obey(ctx)
	}
	for _, cl := range s.clients {
		ctx, cancel := context.WithTimeout(ctx, stopLimit/2)
		err = errors.Join(err, cl.Close(ctx))
		cancel()
	}
	return err
}

// open makes the client and its caches.
func (s *service) open(ctx context.Context) (err error) {
	if s.kinds, err = s.openClient(ctx); err != nil || s.Guard != guardOneClient {
		return err
	}
	others, err := s.openClient(ctx)
	for i := range s.kinds {
		s.kinds[i].writer = others[i].cache
	}
	return err
}

func (s *service) openClient(ctx context.Context) (kinds [2]kind, err error) {
	cl, err := client.New(ctx, client.Config{
		Nodes: s.Nodes, NoPush: s.NoPush || s.Guard == guardPush, MaxLoads: maxLoads, LoadQueueTimeout: patience,
		OperationTimeout: 100 * time.Millisecond, // twice the default: nodes, database and fleet share one machine
	})
	if err != nil {
		return kinds, err
	}
	s.clients = append(s.clients, cl)
	all := client.CacheConfig[row]{
		Name: allName, TTL: 5 * time.Minute, L1: client.L1All, WaitTimeout: patience,
		Load: func(ctx context.Context, id string) (row, error) { return s.load(ctx, allName+":"+id) },
	}
	if s.Guard == guardPush {
		all.L1BlindTTL = time.Minute
	}
	hot := client.CacheConfig[row]{
		Name: hotName, TTL: shortTTL, L1: client.L1Hot, HotRate: 20, LargeValueBytes: largeLimit, WaitTimeout: patience,
		Load:    func(ctx context.Context, id string) (row, error) { return s.load(ctx, hotName+":"+id) },
		Version: func(r row) uint64 { return r.Version },
		Tags:    func(r row) []string { return []string{tagOf(r.Key)} },
	}
	for i, cfg := range []client.CacheConfig[row]{all, hot} {
		c, err := client.NewCache(cl, cfg)
		if err != nil {
			return kinds, err
		}
		kinds[i] = kind{name: cfg.Name, cache: c, writer: c, versions: cfg.Version != nil}
	}
	return kinds, nil
}

// load reads a row. One load in slowLoads takes its time after that: its row may be an old one when it returns, and whoever joins it comes late.
func (s *service) load(ctx context.Context, key string) (row, error) {
	r, err := s.store.load(ctx, key)
	if rand.IntN(slowLoads) == 0 {
		pause(ctx, rand.N(slowest))
	}
	return r, err
}

// tagOf is the tag of a key: its last digit.
func tagOf(key string) string { return key[len(key)-1:] }

// obey reads and writes, carries out what is ordered, and tells of everything, until the input ends.
func (s *service) obey(ctx context.Context) error {
	ordered := make(chan string)
	go func() {
		defer close(ordered)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			ordered <- in.Text()
		}
	}()
	busy, stop := context.WithCancel(ctx)
	defer stop()
	crowd := s.crowd(busy)
	out := gob.NewEncoder(os.Stdout)
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	asked := ""
	for {
		select {
		case <-tick.C:
		case order, more := <-ordered:
			switch {
			case !more:
				stop()
				crowd.Wait()
				return nil
			case order == quiet:
				stop()
				crowd.Wait()
				s.breakSilence(ctx)
			case order == final:
				s.readAll(ctx)
			}
			asked = order
		}
		if err := s.tell(out, asked); err != nil {
			return fmt.Errorf("consistency: the driver does not listen: %w", err)
		}
	}
}

// tell sends what there is. "quiet" is not done before the failed invalidations are through.
func (s *service) tell(out *gob.Encoder, done string) error {
	s.settle()
	m := message{Owed: s.owed.len(), Done: done}
	if done == quiet && m.Owed > 0 {
		m.Done = ""
	}
	m.Batch = s.rec.Take()
	s.mu.Lock()
	m.Errors, s.errors = s.errors, make(map[string]int)
	m.Busy, s.busy = s.busy, 0
	s.mu.Unlock()
	return out.Encode(m)
}

// crowd starts the readers and writers, which end with ctx.
func (s *service) crowd(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range readers + writers {
		seed := uint64(1000*s.Process + i)
		wg.Go(func() {
			d, err := newDice(seed, s.Keys)
			if err != nil {
				s.note("dice", err)
				return
			}
			if i < readers {
				s.readOn(ctx, d)
			} else {
				s.writeOn(ctx, d)
			}
		})
	}
	return &wg
}

// dice draw what to do next. They are for one goroutine.
type dice struct {
	*rand.Rand
	keys *workload.Zipf
}

func newDice(seed uint64, keys int) (*dice, error) {
	z, err := workload.NewZipf(seed, 0.99, keys)
	return &dice{rand.New(rand.NewPCG(seed, 7)), z}, err
}

// id draws a key, the low numbers most often.
func (d *dice) id() string { return fmt.Sprint(d.keys.Next()) }

// ids draws n different keys.
func (d *dice) ids(n int) []string {
	var ids []string
	for len(ids) < n {
		if id := d.id(); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// note keeps an error that somebody got.
func (s *service) note(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrLoadTimeout) {
		s.busy++
		return
	}
	s.errors[what+": "+err.Error()]++
}
