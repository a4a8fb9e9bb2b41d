// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is one Redis node. It connects when it is used, and again whenever it has to; it never
// blocks on a node that is dead for longer than the timeouts of its [Config] say. Safe for
// concurrent use.
type Node struct {
	cfg      Config
	options  redis.Options
	addr     atomic.Pointer[string] // where the node is now: see Move
	session  atomic.Pointer[Session]
	clock    clock
	reads    reads
	manys    manys
	pace     pace
	tracking tracker
	large    *large // nil in the node of a large itself
	ailing   atomic.Bool
	noRole   atomic.Bool // the server does not permit ROLE
	failures *failures
	breaker  *breaker
	bodies   bool          // this is the node of a large: what comes of its transfers says nothing about small operations
	done     chan struct{} // closed by Close

	telling     sync.Mutex // held while a new connection is told of; before mu
	replication sync.Mutex // held while a reading is told
	heard       time.Time  // when the last one had been answered; under replication

	mu       sync.Mutex
	info     Info   // without the clock
	synced   string // the run that Move was told of
	sessions map[*Session]struct{}
	shut     bool
}

// New checks cfg and makes the node. It does not connect.
func New(cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.PoolSize == 0 {
		cfg.PoolSize = defaultPoolSize
	}
	n := newNode(cfg, *cfg.options())
	n.large = newLarge(n)
	return n, nil
}

// newNode makes a node of a configuration that is complete, with the driver's options that were made of it.
func newNode(cfg Config, o redis.Options) *Node {
	n := &Node{cfg: cfg, options: o, done: make(chan struct{}), sessions: map[*Session]struct{}{}, failures: &failures{tell: cfg.OnRefusal}}
	n.breaker = newBreaker(cfg.ID, n.changed)
	n.pace.timeout, n.pace.waits = cfg.Timeout, new(starved).share
	n.reads.node, n.reads.opened = n, time.Now()
	n.reads.slots = min(readSlots, cfg.wires())
	n.manys.node, n.manys.slots = n, min(manySlots, cfg.wires())
	n.tracking.news = make(chan struct{}, 1)
	n.addr.Store(&o.Addr)
	s := newSession(n)
	n.sessions[s] = struct{}{}
	n.session.Store(s)
	return n
}

// ID is the node's name in its Config.
func (n *Node) ID() string { return n.cfg.ID }

// Addr is where the node is: its address in its Config, or where it has moved to ([Node.Move]).
func (n *Node) Addr() string { return *n.addr.Load() }

// Session returns the present session. It costs nothing.
func (n *Node) Session() *Session { return n.session.Load() }

// Client returns the driver's client of the present session, for commands that have no method
// here. Take it anew for each use and do not close it: the one of a session that has ended is
// closed as soon as the operations of this package are through with it.
func (n *Node) Client() *redis.Client { return n.Session().client }

// Now estimates the node's clock at a local time, which should come from time.Now: its monotonic
// reading keeps the estimate right when the local wall clock is set. Before the first connection
// it returns local. It costs nothing; Info says how far it may be off.
func (n *Node) Now(local time.Time) time.Time { return n.clock.now(local) }

// Probe asks the node for its time and role (and whether it takes writes, see Config.WriteCheck), over a new connection if there is none, and returns
// what is known about the node after it. A server in cluster mode is [ErrClusterMode].
func (n *Node) Probe(ctx context.Context) (Info, error) {
	err := n.ask(ctx)
	n.mu.Lock()
	n.info.LastError = err
	n.mu.Unlock()
	return n.Info(), err
}

// Meet makes sure that Now tells the node's clock: it does what Probe does if the node has never been connected to, and else nothing. An entry that
// is stamped before the first connection would carry the local clock's time, which may be an hour off. It may be nil although the clock is
// not known, for an ACL user that may not call TIME.
func (n *Node) Meet(ctx context.Context) error {
	if n.clock.best.Load() != nil {
		return nil
	}
	if err := n.breaker.shut("TIME"); err != nil {
		return err
	}
	_, err := n.Probe(ctx)
	return err
}

// ask checks the node, in its next session if the server's run changed.
func (n *Node) ask(ctx context.Context) error {
	s := n.Session()
	err := s.ask(ctx)
	if errors.Is(err, ErrRunChanged) {
		err = n.Session().ask(ctx)
	}
	return err
}

// met takes in what a new connection of s has learnt, unless s is over: news of the old run must
// not mix with those of the new one.
func (n *Node) met(s *Session, g greeting, first bool) {
	// 1. the first connection of s has reached A, and goes on from the check below
	// 2. the node moves to B, whose first connection is told of
	// 3. A is told of: as the run that the node has now
	n.telling.Lock()
	defer n.telling.Unlock()
	n.mu.Lock()
	if n.session.Load() != s {
		n.mu.Unlock()
		return
	}
	prev := n.infoLocked() // with the clock of the run that is over
	if first && g.hasClock {
		n.clock.restart(g.clock)
	} else if g.hasClock {
		n.clock.add(g.clock)
	}
	if first {
		n.info = Info{Version: g.version, Engine: g.engine, RunID: g.runID, StartedAt: g.startedAt}
		n.info.TrackingError = n.noTracking(g)
		n.info.WasReplica = g.runID != "" && g.runID == n.synced
	}
	n.info.see(g.replication.Role)
	news := g.can.Tracking && (first || !n.info.Capabilities.Tracking)
	n.info.Capabilities.Tracking = g.can.Tracking || !first && n.info.Capabilities.Tracking
	n.info.Capabilities.Lua = g.can.Lua || !first && n.info.Capabilities.Lua
	n.tracking.able.Store(n.cfg.Push != nil && n.info.Capabilities.Tracking && n.info.RunID != "")
	cur := n.infoLocked()
	n.mu.Unlock()
	if first && n.cfg.OnRun != nil {
		n.cfg.OnRun(prev, cur)
	}
	n.replicated(s, g.replication)
	n.trackingMet(g.runID, news) // last: what is read through a Tracking is read from a run that is known
}

// replace swaps in a new session for old, whose run of the server is over.
func (n *Node) replace(old *Session) {
	n.mu.Lock()
	if n.session.Load() == old && !n.shut {
		s := newSession(n)
		n.sessions[s] = struct{}{}
		n.session.Store(s)
	}
	n.mu.Unlock()
	old.retire() // after the swap, so that whoever is refused finds the new one
}

// forget drops a session that has no users any more.
func (n *Node) forget(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sessions, s)
}

func (n *Node) closed() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// Close closes all connections and returns when no operation is under way any more: those that
// were fail with [ErrClosed] within their timeout, and so does every later one. It ends Run, but
// does not wait for it, except for the last Push(nil). Closing again does nothing. The error is always nil.
func (n *Node) Close() error {
	n.mu.Lock()
	if !n.shut {
		n.shut = true
		close(n.done)
	}
	if n.tracking.cancel != nil {
		n.tracking.cancel()
	}
	tracked := n.tracking.done
	var open []*Session
	for s := range n.sessions {
		open = append(open, s)
	}
	n.mu.Unlock()
	for _, s := range open {
		s.cut()
		<-s.drained
	}
	n.reads.close()
	n.manys.close()
	if n.large != nil {
		n.large.close()
	}
	if tracked != nil {
		<-tracked
	}
	return nil
}
