// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/ring"
)

const (
	// positionEvery is how far apart the readings of a primary are that are kept, and positions how many: what the replicas are compared with.
	positionEvery = 250 * time.Millisecond
	positions     = 64
	// unlistedFor is how long a replica is kept that its primary does not list any more: it may only be connecting again.
	unlistedFor = 10 * time.Second
	// minReplicaLag: both are asked once a second, so that nothing is known to be closer than some two.
	minReplicaLag = 3 * time.Second
	// logAtLeast is how long an invalidation is kept in any case (invalidation.ReplayConfig).
	logAtLeast = 10 * time.Second
	// followPool is the most connections to a replica that is asked what it is, and nothing else.
	followPool = 2
)

// checkServers checks what says where the servers are, and which of them are read.
func (c *Config) checkServers() error {
	if c.ReadFrom < ReadPrimary || c.ReadFrom > ReadReplica {
		return &ConfigError{"Config.ReadFrom", int(c.ReadFrom), "must be ReadPrimary, ReadPrimaryPreferred or ReadReplica"}
	}
	if c.ReplicaMaxLag > 0 && c.ReplicaMaxLag < minReplicaLag {
		return &ConfigError{"Config.ReplicaMaxLag", c.ReplicaMaxLag, fmt.Sprintf("must be 0 (meaning %v) or at least %v", DefaultReplicaMaxLag, minReplicaLag)}
	}
	if c.Sentinel != nil {
		return c.checkSentinel()
	}
	if err := checkNodes(c.Nodes); err != nil {
		return err
	}
	for i, n := range c.Nodes {
		for j, addr := range n.Replicas {
			field := fmt.Sprintf("Config.Nodes[%d].Replicas[%d]", i, j)
			if c.ReadFrom == ReadPrimary {
				continue // nobody asks them
			}
			if err := checkAddr(field, addr); err != nil {
				return err
			}
			if k := slices.Index(n.Replicas, addr); k < j {
				return &ConfigError{field, strconv.Quote(addr), fmt.Sprintf("is Replicas[%d] too: it would be read twice as often", k)}
			}
		}
	}
	return nil
}

// logFor is how long an invalidation stays in the log of those that a failover may undo: at least for as long as a replica may be read that is no longer listed by its
// primary, so that a process never reads what it has invalidated itself.
func logFor(cfg Config) time.Duration {
	if cfg.ReadFrom == ReadPrimary {
		return 0
	}
	return max(logAtLeast, cfg.ReplicaMaxLag)
}

// shard is a node with its replicas. One goroutine tends it: starts and ends its replicas, and, where Sentinels say who is the primary, follows that (follow.go).
type shard struct {
	c    *Client
	node int
	conf ring.Node
	news chan struct{} // something has happened: look

	replicas atomic.Pointer[[]*replica] // copied on each change
	turn     atomic.Uint32              // of the replica that is read next
	workers  sync.WaitGroup             // questions under way

	mu     sync.Mutex
	heard  []position           // the latest of the primary, oldest first
	listed map[string]time.Time // the replicas that it lists, and when it did last
	saw    time.Time            // its latest reading
	following
}

// position is how far a primary's stream of writes had come when it was asked.
type position struct {
	at     time.Time // when it was asked
	id     string    // of the stream
	offset int64
}

func (c *Client) newShard(i int, n ring.Node) *shard {
	if c.cfg.Sentinel == nil && (c.cfg.ReadFrom == ReadPrimary || len(n.Replicas) == 0) {
		return nil
	}
	sh := &shard{c: c, node: i, conf: n, news: make(chan struct{}, 1), listed: make(map[string]time.Time)}
	sh.replicas.Store(new([]*replica))
	sh.moved = make(chan struct{})
	return sh
}

// primarySaid takes in what the node's own server says about its replication.
func (sh *shard) primarySaid(r redisnode.Replication) {
	if sh == nil {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if r.Role != redisnode.RolePrimary {
		sh.demote(r.At)
		return
	}
	sh.demoted = false
	sh.history, sh.saw = r.ID, r.At
	last := len(sh.heard) - 1
	if last < 0 || sh.heard[last].id != r.ID || r.At.Sub(sh.heard[last].at) >= positionEvery {
		if len(sh.heard) == positions {
			sh.heard = slices.Delete(sh.heard, 0, 1)
		}
		sh.heard = append(sh.heard, position{r.At, r.ID, r.Offset})
	}
	for addr := range r.Replicas {
		if _, known := sh.listed[addr]; !known {
			signal(sh.news)
		}
		sh.listed[addr] = r.At
	}
}

// stateSeen takes in that the node's state has changed: whether it is sick is looked at soon.
func (sh *shard) stateSeen() {
	if sh != nil {
		signal(sh.news)
	}
}

// proven is the latest moment at which the primary was no further than that; zero: there is none.
func (sh *shard) proven(id string, offset int64) time.Time {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, p := range slices.Backward(sh.heard) {
		if p.id == id && p.offset <= offset {
			return p.at
		}
	}
	return time.Time{}
}

// readable is the next replica that may be read at now; nil: none.
func (sh *shard) readable(now time.Time) *replica {
	all := *sh.replicas.Load()
	if len(all) == 0 {
		return nil
	}
	first := int(sh.turn.Add(1))
	for i := range all {
		if p := all[(first+i)%len(all)]; p.readable(now) {
			return p
		}
	}
	return nil
}

// replica is one replica of a node: a node of its own, without pushes and scripts.
type replica struct {
	shard *shard
	addr  string
	node  *redisnode.Node
	stop  context.CancelFunc
	done  chan struct{} // closed when its health checks have ended

	standing atomic.Pointer[standing]
	asking   atomic.Bool // its role is being asked
}

// standing is what the latest reading of a replica has shown. It is taken anew before the first command to another run of its server, so that it never speaks of
// another one.
type standing struct {
	role    redisnode.Role
	run, id string
	asOf    time.Time // it has everything that its primary had confirmed by then; zero: nothing is proven
	synced  bool      // it was seen with its link up, in this run
}

// said takes in what the replica says about its replication. Readings come one at a time.
func (p *replica) said(r redisnode.Replication) {
	was, now := p.standing.Load(), standing{role: r.Role, run: r.RunID, id: r.ID}
	if r.Role == redisnode.RoleReplica {
		now.asOf, now.synced = p.shard.proven(r.ID, r.Offset), r.LinkUp
	} else {
		signal(p.shard.news) // it was promoted
	}
	if was != nil && was.run == now.run {
		now.synced = now.synced || was.synced
		if was.id == now.id && was.asOf.After(now.asOf) {
			now.asOf = was.asOf
		}
	}
	p.standing.Store(&now)
}

// readable says whether values may be read from it at now: it says that it is a replica, and is known to have what its primary had ReplicaMaxLag ago.
func (p *replica) readable(now time.Time) bool { return p.allows(p.standing.Load(), now) }

func (p *replica) allows(s *standing, now time.Time) bool {
	return s != nil && s.role == redisnode.RoleReplica && !s.asOf.IsZero() && now.Sub(s.asOf) <= p.shard.c.cfg.ReplicaMaxLag
}

// stillAs says whether what the replica has just answered is from the run of its server of which was speaks, and that may still be read. It is asked after the answer has come:
//
//  1. R finds that the replica may be read, going by what its run 1 has said
//  2. it is restarted from a snapshot of an hour ago
//  3. R's read goes to run 2. By then run 2 has said where it is; R has not looked
func (p *replica) stillAs(was *standing, now time.Time) bool {
	s := p.standing.Load()
	return p.allows(was, now) && p.allows(s, now) && s.run == was.run
}

// wasSynced says whether a run of its server has been seen as a replica that was in sync.
func (p *replica) wasSynced(run string) bool {
	s := p.standing.Load()
	return s != nil && s.synced && run != "" && s.run == run
}

// start makes the replica at an address and begins its health checks.
func (sh *shard) start(ctx context.Context, addr string) (*replica, error) {
	p := &replica{shard: sh, addr: addr, done: make(chan struct{})}
	cfg := sh.server(addr)
	cfg.OnReplication = p.said
	if cfg.PoolSize = sh.c.cfg.PoolSize; sh.c.cfg.ReadFrom == ReadPrimary {
		cfg.PoolSize = followPool
	}
	n, err := redisnode.New(cfg)
	if err != nil {
		return nil, err
	}
	p.node = n
	ctx, p.stop = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		_ = n.Run(ctx) // always nil
	}()
	return p, nil
}

// server is the configuration for a server of this node that is not, or not yet, its primary.
func (sh *shard) server(addr string) redisnode.Config {
	n := sh.conf
	n.Addr = addr
	cfg := redisnode.Config{ID: fmt.Sprintf("%s (%s)", n.ID, addr), Addr: addr, Timeout: sh.c.cfg.OperationTimeout, PoolSize: 1}
	if sh.c.cfg.Redis != nil {
		cfg.Options = func(o *redis.Options) { sh.c.cfg.Redis(n, o) }
	}
	return cfg
}

// end ends a replica and waits for it.
func (p *replica) end() {
	p.stop()
	_ = p.node.Close() // always nil
	<-p.done
}

// wanted are the addresses of the replicas that there should be now.
func (sh *shard) wanted() []string {
	primary := sh.c.nodes[sh.node].Addr()
	if sh.c.cfg.Sentinel == nil {
		return slices.DeleteFunc(slices.Clone(sh.conf.Replicas), func(addr string) bool { return addr == primary })
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	maps.DeleteFunc(sh.listed, func(addr string, at time.Time) bool { return addr == primary || sh.saw.Sub(at) > unlistedFor })
	return slices.Sorted(maps.Keys(sh.listed))
}

// muster starts and ends replicas, so that there are those that should be.
func (sh *shard) muster(ctx context.Context) {
	want := sh.wanted()
	var now, gone []*replica
	for _, p := range *sh.replicas.Load() {
		if i := slices.Index(want, p.addr); i >= 0 {
			now, want = append(now, p), slices.Delete(want, i, i+1)
		} else {
			gone = append(gone, p)
		}
	}
	for _, addr := range want {
		p, err := sh.start(ctx, addr)
		if err != nil {
			sh.c.cfg.Logger.Warn("shelf: replica cannot be used", "node", sh.conf.ID, "addr", addr, "error", err)
			continue
		}
		now = append(now, p)
	}
	sh.replicas.Store(&now)
	for _, p := range gone { // after nobody finds it any more
		p.end()
	}
}

// run tends the shard until ctx ends.
func (sh *shard) run(ctx context.Context) {
	defer func() {
		for _, p := range *sh.replicas.Load() {
			p.end()
		}
		sh.workers.Wait()
	}()
	for ctx.Err() == nil {
		sh.muster(ctx)
		if sh.c.sentinels == nil {
			wait(ctx, time.Time{}, false, sh.news)
			continue
		}
		sh.follow(ctx)
		sh.rest(ctx)
	}
}

// ReplicaStats is what the client knows of one replica.
type ReplicaStats struct {
	Addr     string        // host:port
	Readable bool          // it may be read now, where ReadFrom says so: it says that it is a replica, and Lag is within Config.ReplicaMaxLag. It may be dead for some seconds: reads then go past it, Lag grows
	Lag      time.Duration // it is known to have what its primary had that long ago. Some 1 to 2 s where all is well. 0: nothing is known yet, or it is no replica of this primary, or nobody is there
}

// stats are those of the replicas.
func (sh *shard) stats(now time.Time) []ReplicaStats {
	if sh == nil {
		return nil
	}
	var all []ReplicaStats
	for _, p := range *sh.replicas.Load() {
		st := ReplicaStats{Addr: p.addr, Readable: p.readable(now)}
		if s := p.standing.Load(); s != nil && !s.asOf.IsZero() {
			st.Lag = now.Sub(s.asOf)
		}
		all = append(all, st)
	}
	return all
}

// placed is a node as it is placed now.
func (c *Client) placed(node int) ring.Node {
	n := c.ring.Nodes()[node]
	n.Addr = c.addrOf(node)
	return n
}

// addrOf is where a node's primary is; "" while nobody knows.
func (c *Client) addrOf(node int) string {
	if addr := c.nodes[node].Addr(); addr != redisnode.Unknown {
		return addr
	}
	return ""
}
