// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/ring"
	"github.com/go-shelf/shelf/stampede"
)

// Client is a process's connection to the nodes. It is safe for concurrent use; a process needs one. Caches are made from it with
// NewCache.
type Client struct {
	cfg     Config
	ring    *ring.Ring
	nodes   []*redisnode.Node // in the order of ring.Nodes
	ids     []string          // of the nodes, in the same order
	limiter *stampede.Limiter // before every loader of every cache
	guard   *stampede.Guard   // runs every loader

	loops     sync.WaitGroup // one health loop a node, and the two that work off the debts
	stopLoops context.CancelFunc

	absences absences // of the nodes, for the gutter

	debts *debts // invalidations that are owed to the nodes
	fleet *fleet // nil: loads are capped for this process alone
	heat  *heat  // how often the fleet reads keys

	shards    []*shard // the nodes' replicas and who is their primary; nil for a node of which nobody wants to know that
	sentinels *redisnode.Sentinels
	moving    sync.Mutex // held while a node moves

	wakes wakes // of those who wait for another process's load

	mu       sync.RWMutex
	caches   map[string]registered   // by name and schema; nil once Close has begun
	byName   map[string][]registered // by namespace and name
	writes   gate                    // writes of caches and raw operations
	prefixes sync.Map                // of the names of the caches' entries, for raw operations to keep off
	closing  chan struct{}           // made by the first Close, closed when it is through
	closed   error                   // what it returned
}

// registered is what the client needs of a Cache, whatever its type of value.
type registered interface {
	close(ctx context.Context) error
	entryPushed(name string)
	owns(name, group string) bool
	invalidateAgain(ctx context.Context, what []owed) (failed map[string]error)
	invalidateSecond(ctx context.Context, node int, what []owed) (through int)
	moveOnAgain(ctx context.Context, node int, name string, version uint64) error
	restarted(node int, micros uint64, setBack bool)
	generationPushed(node int, name string)
}

// New makes a Client. A wrong configuration is a *ConfigError. Nodes that do not answer are not an error: a service must start while
// a node is down, and does without it. A node in Redis Cluster mode is refused with ErrClusterMode. New asks all nodes at the same
// time and waits for them no longer than a few operation timeouts, or until ctx ends. With Config.Sentinel it asks the Sentinels first: until a majority of them
// has named the primaries, some 1 s where none does; with a Prefix up to 5 s.
func New(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	sentinels, err := cfg.discover(ctx)
	if err != nil {
		return nil, err
	}
	made := false
	defer func() {
		if !made {
			sentinels.Close()
		}
	}()
	r, err := ring.New(ring.Config{Nodes: cfg.Nodes, Points: cfg.RingPoints})
	if err != nil {
		return nil, leafError("Config", err)
	}
	limiter, err := stampede.NewLimiter(stampede.LimiterConfig{
		Max: cfg.MaxLoads, Queue: cfg.LoadQueue, QueueTimeout: cfg.LoadQueueTimeout, Adaptive: cfg.AdaptiveLoads,
	})
	if err != nil {
		return nil, fmt.Errorf("shelf: %w", err)
	}
	c := &Client{
		cfg: cfg, ring: r, limiter: limiter, guard: new(stampede.Guard), sentinels: sentinels,
		absences: make(absences, r.Len()),
		caches:   make(map[string]registered), byName: make(map[string][]registered),
	}
	if c.debts, err = newDebts(cfg); err != nil {
		return nil, err
	}
	if err := c.meetNodes(ctx); err != nil {
		return nil, errors.Join(err, c.closeNodes())
	}
	c.joinFleet(ctx)
	c.heat = newHeat(c.nodes, newLoads(c))
	c.heat.patience, c.heat.refusal = cfg.OperationTimeout, c.logHeat
	made = true
	c.startLoops() //nolint:contextcheck // the loops live until Close, not until ctx ends
	return c, nil
}

// meetNodes makes the nodes, finds out where they are, and asks each once.
func (c *Client) meetNodes(ctx context.Context) error {
	if err := c.openNodes(); err != nil {
		return err
	}
	if err := c.locate(ctx); err != nil {
		return err
	}
	return c.probe(ctx)
}

func (c *Client) openNodes() error {
	var scripts []redisnode.Script
	for _, s := range invalidation.Scripts() {
		scripts = append(scripts, redisnode.Script(s))
	}
	for i, n := range c.ring.Nodes() {
		c.shards = append(c.shards, c.newShard(i, n))
		var hook func(*redis.Options)
		if c.cfg.Redis != nil {
			hook = func(o *redis.Options) { c.cfg.Redis(n, o) }
		}
		node, err := redisnode.New(redisnode.Config{
			ID: n.ID, Addr: cmp.Or(n.Addr, redisnode.Unknown), Timeout: c.cfg.OperationTimeout, PoolSize: c.cfg.PoolSize,
			Options: hook, Scripts: scripts, OnRun: func(prev, now redisnode.Info) { c.runSeen(i, c.placed(i), prev, now) },
			OnReplication: func(r redisnode.Replication) { c.replicationSeen(i, r); c.shards[i].primarySaid(r) },
			OnState:       func(s redisnode.StateChange) { c.stateSeen(i, c.placed(i), s); c.shards[i].stateSeen() },
			WriteCheck:    writeCheckName(c.cfg.Namespace),
			OnRefusal:     func(e *redisnode.Error) { c.logRefusal(c.placed(i), e) },
			Push:          c.onPush(i),
		})
		if err != nil {
			return fmt.Errorf("shelf: node %s: %w", n.ID, err)
		}
		c.nodes, c.ids = append(c.nodes, node), append(c.ids, n.ID)
	}
	return nil
}

// onPush is what a node's pushes go to; nil: they are not wanted.
func (c *Client) onPush(node int) func(names []string) {
	if c.cfg.NoPush {
		return nil
	}
	return func(names []string) { c.pushed(node, names) }
}

// logRun tells of a server process that took another one's place.
func (c *Client) logRun(n ring.Node, prev, now redisnode.Info) {
	if prev.RunID == "" {
		return
	}
	c.cfg.Logger.Info("shelf: node was restarted", "node", n.ID, "addr", n.Addr,
		"version", now.Version, "run", now.RunID, "previous_run", prev.RunID)
}

// logRefusal tells of a node that answers but does not do what it is asked: its keys are loaded all the time, and nothing else shows it.
func (c *Client) logRefusal(n ring.Node, e *redisnode.Error) {
	c.cfg.Logger.Warn("shelf: node refuses commands", "node", n.ID, "addr", n.Addr, "op", e.Op, "error", e.Err)
}

// nodeID is the id of the i-th node.
func (c *Client) nodeID(i int) string { return c.ids[i] }

// probe meets every node once. Only what no restart of the node would cure is an error.
func (c *Client) probe(ctx context.Context) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() {
			if _, err := n.Probe(ctx); redisnode.IsWrongServer(err) {
				errs[i] = fmt.Errorf("shelf: Config.Nodes: %w", err)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("shelf: New: %w", err)
	}
	return errors.Join(errs...)
}

func (c *Client) startLoops() {
	ctx, stop := context.WithCancel(context.Background())
	c.stopLoops = stop
	for i, n := range c.nodes {
		c.loops.Go(func() {
			if err := n.Run(ctx); err != nil && ctx.Err() == nil {
				c.cfg.Logger.Error("shelf: health checks ended", "node", c.nodeID(i), "error", err)
			}
		})
	}
	c.startShards(ctx)
	c.loops.Go(func() { c.work(ctx) })
	c.loops.Go(func() { c.fleetLoop(ctx) })
	c.loops.Go(func() { c.heat.loop(ctx) })
}

// Node returns the driver's client of the node that owns a name, for whatever Shelf does not do. The name is hashed as it is given: use the same string in the
// command, and none that a cache of this client uses. (Where a *cache's* key lives, Cache.Where tells.)
func (c *Client) Node(name string) *redis.Client {
	return c.nodes[c.ring.OwnerIndex(name)].Client()
}

// Close ends the client. It refuses new calls with ErrClosed, waits for writes, loads and refreshes that are under way, sends what is still owed to
// the nodes (invalidations that failed, second deletes when they are due), and closes the connections. What is still owed when ctx ends, or 10 s after the call where a node does
// not answer, is reported: one *NodeError a node with the names of the entries (Cache.Where), or "all of" a cache, or "tag ... of" one. Second deletes that the
// deadline of ctx leaves no time for go out early, and the error says how many; where ctx is cancelled they are reported like the rest. When ctx ends first it closes the connections all the same and returns an error that says what was left; loaders that
// ignore their context may then still run. A further call waits for the first, or until its own ctx ends, and returns the same.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	caches, first := c.caches, c.closing == nil
	if first {
		c.caches, c.closing = nil, make(chan struct{})
	}
	c.mu.Unlock()
	if first {
		c.closed = c.shut(ctx, caches)
		close(c.closing)
		return c.closed
	}
	select {
	case <-c.closing:
		return c.closed
	case <-ctx.Done():
		return fmt.Errorf("shelf: Close: another call is still at it: %w", ctx.Err())
	}
}

func (c *Client) shut(ctx context.Context, caches map[string]registered) error {
	errs := []error{c.writes.close(ctx)}
	for _, cache := range caches {
		errs = append(errs, cache.close(ctx))
	}
	errs = append(errs, c.guard.Close(ctx), c.debts.finish(ctx, c))
	c.stopLoops()
	c.loops.Wait()
	c.leaveFleet(ctx)
	return errors.Join(append(errs, c.closeNodes())...)
}

func (c *Client) closeNodes() error {
	c.sentinels.Close()
	errs := make([]error, 0, len(c.nodes))
	for _, n := range c.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// register makes a cache known to Close, and refuses a second one of the same name and schema: their entries would be each
// other's, but not their in-process copies.
func (c *Client) register(name string, schema int, cache registered) error {
	id := fmt.Sprintf("%s:v%d", name, schema)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caches == nil {
		return ErrClosed
	}
	if _, twice := c.caches[id]; twice {
		return &ConfigError{"CacheConfig.Name", fmt.Sprintf("%q (schema %d)", name, schema), "exists already in this client"}
	}
	c.caches[id] = cache
	c.prefixes.Store(newNaming(c.cfg.Namespace, name, schema).prefix, true)
	full := strings.TrimSuffix(newNaming(c.cfg.Namespace, name, schema).prefix, ":")
	c.byName[full] = append(c.byName[full], cache)
	return nil
}

// gate counts the calls that are inside and closes once the last has left.
type gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	idle   chan struct{} // closed when closed && inside == 0; made by the first close
}

func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.idle)
	}
}

// close refuses new calls and waits for those inside, or until ctx ends.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.idle = make(chan struct{})
		if g.inside == 0 {
			close(g.idle)
		}
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.inside == 0 {
			return nil
		}
		return fmt.Errorf("shelf: Close: %d writes or raw operations still under way: %w", g.inside, ctx.Err())
	}
}
