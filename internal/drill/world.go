// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/stalecheck"
	"github.com/go-shelf/shelf/internal/workload"
	"github.com/go-shelf/shelf/ring"
)

const (
	sourceLatency = 5 * time.Millisecond // of a query
	loadCap       = 40                   // queries at once, of all processes together
	longTTL       = 10 * time.Minute     // nothing ends by itself during a drill
	warmRate      = 1e5                  // keys a second, before the traffic
	warmLimit     = 30 * time.Second
	fleetLimit    = 20 * time.Second
	closeLimit    = 3 * time.Second // for all clients
)

// setting says what a drill is played on. Zero values are three nodes without replicas, and two processes that reach them directly.
type setting struct {
	nodes, processes int
	replicas         int           // of each node; then Sentinels watch them
	args             []string      // of the servers
	proxied          []int         // the processes that reach the nodes through proxies of their own
	cold             bool          // the traffic begins on empty nodes
	idle             int           // further clients, of processes that have hardly anything to do
	ttl              time.Duration // of the entries; 0 is ten minutes
	stale            time.Duration // for so long beyond that they may be served where nothing else answers
	client           func(*client.Config)
}

// world is everything that runs in a drill.
type world struct {
	setting
	keys      int
	guard     string
	ids       []string         // of the keys, by rank
	owners    []int16          // of the keys: the numbers of their nodes
	numbers   map[string]int16 // of the nodes, by id
	db        *workload.Database
	values    atomic.Uint64              // the last one written; no two writes have the same
	servers   []*redistest.Server        // the primaries, at the start
	copies    [][]*redistest.Server      // replicas, by node
	sentinels *redistest.Sentinels       // nil without replicas
	proxies   map[int][]*redistest.Proxy // of a process, by node
	processes []*process
	fleet     bool // the processes share a cap, and so must know of each other
	idlers    []*client.Client
	checker   *stalecheck.Checker
	began     time.Time // of the traffic
	crowd     sync.WaitGroup
	jobs      chan func() // for goroutines of the crowd that have nothing to do

	stopWriting func() // ends the writes of the run
}

// launch starts servers, proxies and processes, and warms the cache. The world is not nil, also with an error: close it.
func launch(ctx context.Context, s setting, cfg config) (*world, error) {
	if s.nodes == 0 {
		s.nodes = 3
	}
	if s.processes == 0 {
		s.processes = 2
	}
	if s.ttl == 0 {
		s.ttl = longTTL
	}
	w := &world{setting: s, keys: cfg.keys, guard: cfg.guard, proxies: make(map[int][]*redistest.Proxy), jobs: make(chan func())}
	for rank := range w.keys {
		w.ids = append(w.ids, strconv.Itoa(rank))
	}
	var err error
	if w.db, err = workload.NewDatabase(workload.DatabaseConfig{Rows: w.keys, Latency: sourceLatency}); err != nil {
		return w, err
	}
	w.values.Store(1 << 40) // beyond the prices at the start
	if err := w.startServers(ctx); err != nil {
		return w, err
	}
	for n := range s.processes {
		if err := w.startProcess(ctx, n); err != nil {
			return w, err
		}
	}
	if err := w.awaitFleet(ctx); err != nil {
		return w, err
	}
	w.findOwners()
	if !s.cold {
		if err := w.warm(ctx); err != nil {
			return w, err
		}
	}
	if err := w.startIdlers(ctx); err != nil {
		return w, err
	}
	return w, w.startChecker()
}

// awaitFleet waits until the processes have counted each other.
func (w *world) awaitFleet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fleetLimit)
	defer cancel()
	for _, p := range w.processes {
		for w.fleet && p.client.Stats().FleetLive != len(w.processes) {
			if pause(ctx, pollEvery); ctx.Err() != nil {
				return fmt.Errorf("drill: process %d knows of %d of %d processes", p.n, p.client.Stats().FleetLive, len(w.processes))
			}
		}
	}
	return nil
}

// startIdlers makes the clients of the processes that have hardly anything to do: each has its connections, and that is all.
func (w *world) startIdlers(ctx context.Context) error {
	for range w.idle {
		cl, err := client.New(ctx, client.Config{Nodes: w.ringNodes(0)})
		if err != nil {
			return err
		}
		w.idlers = append(w.idlers, cl)
	}
	return nil
}

func (w *world) startServers(ctx context.Context) error {
	for range w.nodes {
		s, err := redistest.Launch(ctx, redistest.Config{Args: w.args})
		if err != nil {
			return err
		}
		w.servers = append(w.servers, s)
	}
	if err := w.startSentinels(ctx); err != nil {
		return err
	}
	for _, p := range w.proxied {
		for _, s := range w.servers {
			proxy, err := redistest.LaunchProxy(s.Addr())
			if err != nil {
				return err
			}
			w.proxies[p] = append(w.proxies[p], proxy)
		}
	}
	return nil
}

// startSentinels starts replicas, and three Sentinels that find a primary down after a second.
func (w *world) startSentinels(ctx context.Context) (err error) {
	if w.replicas == 0 {
		return nil
	}
	primaries := make(map[string]*redistest.Server)
	for i, s := range w.servers {
		w.copies = append(w.copies, nil)
		for range w.replicas {
			replica, err := redistest.Launch(ctx, redistest.Config{ReplicaOf: s})
			if err != nil {
				return err
			}
			w.copies[i] = append(w.copies[i], replica)
		}
		primaries[nodeID(i)] = s
	}
	w.sentinels, err = redistest.LaunchSentinels(ctx, redistest.SentinelConfig{Primaries: primaries, DownAfter: time.Second, FailoverTimeout: 2 * time.Second})
	return err
}

// group are the servers of a node.
func (w *world) group(node int) []*redistest.Server {
	all := []*redistest.Server{w.servers[node]}
	if w.copies != nil {
		all = append(all, w.copies[node]...)
	}
	return all
}

// startProcess makes a client and its cache.
func (w *world) startProcess(ctx context.Context, n int) error {
	p := &process{n: n, world: w, errors: make(map[string]int)}
	cfg := client.Config{
		Nodes:    w.ringNodes(n),
		MaxLoads: loadCap / w.setting.processes,
	}
	if w.sentinels != nil {
		cfg.Nodes, cfg.Sentinel = nil, &client.SentinelConfig{Addrs: w.sentinels.Addrs()}
		for i := range w.servers {
			cfg.Sentinel.Masters = append(cfg.Sentinel.Masters, nodeID(i))
		}
	}
	if w.setting.client != nil {
		w.setting.client(&cfg)
	}
	if w.guard == guardCap {
		cfg.MaxLoads, cfg.FleetLoads = 10*loadCap, 0
	}
	w.fleet = cfg.FleetLoads > 0
	cache := client.CacheConfig[[]byte]{
		Name: "item", TTL: w.ttl, StaleIfError: w.stale, Load: w.load, LoadMany: w.loadMany,
	}
	if w.guard == guardLoad {
		cache.Load = badly(cache.Load)
	}
	var err error
	if p.client, err = client.New(ctx, cfg); err != nil {
		return err
	}
	w.processes = append(w.processes, p)
	p.cache, err = client.NewCache(p.client, cache)
	return err
}

func nodeID(i int) string { return "node-" + strconv.Itoa(i) }

// ringNodes are the nodes as a process reaches them.
func (w *world) ringNodes(process int) []ring.Node {
	nodes := make([]ring.Node, len(w.servers))
	for i, s := range w.servers {
		nodes[i] = ring.Node{ID: nodeID(i), Addr: s.Addr()}
		if proxies := w.proxies[process]; proxies != nil {
			nodes[i].Addr = proxies[i].Addr()
		}
	}
	return nodes
}

// findOwners asks the client where each key lives.
func (w *world) findOwners() {
	w.numbers = make(map[string]int16)
	for i := range w.servers {
		w.numbers[nodeID(i)] = int16(i)
	}
	for _, id := range w.ids {
		node, _ := w.processes[0].cache.Where(id)
		w.owners = append(w.owners, w.numbers[node])
	}
}

// target is the node that a fault strikes: the one that owns the key of which a fifth of all reads is.
func (w *world) target() int { return int(w.owners[0]) }

// endOf says where an answer came from.
func endOf(r *client.Result[[]byte]) ending {
	switch {
	case r.LoadErr != nil:
		return fromStale
	case r.Layer == client.LayerSource:
		return fromLoad
	case r.Layer == client.LayerL1:
		return fromL1
	case r.Replica != "":
		return fromReplica
	}
	return fromNode
}

// warm fills the nodes with every row.
func (w *world) warm(ctx context.Context) error {
	defer w.db.ResetCounts()
	var r client.WarmResult
	var err error
	ctx, cancel := context.WithTimeout(ctx, warmLimit)
	defer cancel()
	for ctx.Err() == nil { // a busy machine may be too slow for some; what is there is passed over
		r, err = w.processes[0].cache.Warm(ctx, slices.Values(w.ids), client.WarmOptions{Rate: warmRate, Share: 1, Batch: 500})
		if err == nil && r.Loaded+r.Present == int64(w.keys) {
			return nil
		}
	}
	return fmt.Errorf("drill: of %d keys %d were loaded and %d present: %d failed, %d were not stored: %w", w.keys, r.Loaded, r.Present, r.Failed, r.Unstored, err)
}

// close ends everything that is left.
func (w *world) close() error {
	var errs []error
	if w.db != nil {
		w.db.Hang(false)
		w.db.Fail(nil)
		w.db.Slow(0)
	}
	for _, p := range w.proxies {
		for _, proxy := range p {
			proxy.Heal()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, cl := range w.clients() {
		if err := cl.Close(ctx); err != nil && !client.NodesOnly(err) { // what is owed to a node that is not there any more stays owed
			errs = append(errs, fmt.Errorf("drill: close a client: %w", err))
		}
	}
	for _, p := range w.proxies {
		for _, proxy := range p {
			errs = append(errs, proxy.Close())
		}
	}
	if w.sentinels != nil {
		errs = append(errs, w.sentinels.Close())
	}
	for i := range w.servers {
		for _, s := range w.group(i) {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

func (w *world) clients() []*client.Client {
	all := slices.Clone(w.idlers)
	for _, p := range w.processes {
		all = append(all, p.client)
	}
	return all
}

// failed says why a run is worth nothing: a server or a proxy that did not do what it was told.
func (w *world) failed() error {
	var errs []error
	for i := range w.servers {
		for _, s := range w.group(i) {
			errs = append(errs, s.Err())
		}
	}
	if w.sentinels != nil {
		errs = append(errs, w.sentinels.Err())
	}
	for _, proxies := range w.proxies {
		for _, p := range proxies {
			errs = append(errs, p.Err())
		}
	}
	return errors.Join(errs...)
}
