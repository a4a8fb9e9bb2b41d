// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/ring"
)

// nodeLog is what this process remembers of one node in case that the node forgets.
//
// Replication is asynchronous: a replica that is promoted may not have heard of the latest deletes, and then holds entries again that were invalidated. So
// the invalidations that it may miss are kept, and owed once more when the node's stream of writes turns out to be another one. And a primary that comes
// back from a snapshot holds everything that was deleted since: what was created before its start is not trusted.
type nodeLog struct {
	sent   *invalidation.Replay
	stream string        // of the last reading; readings come one at a time
	source atomic.Uint64 // its number, for copies

	started atomic.Int64              // entries created before this moment of the node's clock, in ns, are not trusted
	missed  atomic.Pointer[time.Time] // nor those from before this moment of ours: nobody remembers what was invalidated till then

	// losses counts the times that the node turned out to have lost invalidations. A reader notes it before it asks what is owed, and trusts no reply if it has
	// changed since:
	//   1. R asks what is owed: nothing
	//   2. a replica is promoted that has not heard of K's delete; the delete is owed, and done again
	//   3. R's read, sent between the two, brings the old entry; by now nothing is owed
	// The same if the invalidation of a tag is owed, since which tags the entry has is not known before it is read. So it counts each that got through late, too.
	losses atomic.Uint64
	void   int // of the last reading
}

// clockMargin is by how much the clocks of a primary and its successor may differ where created-at is compared with what happened under the other.
const clockMargin = time.Second

func newNodeLog(cfg Config) (*nodeLog, error) {
	sent, err := invalidation.NewReplay(invalidation.ReplayConfig{MinAge: logFor(cfg)})
	if err != nil {
		return nil, fmt.Errorf("shelf: %w", err)
	}
	return &nodeLog{sent: sent}, nil
}

// add takes in what the node has carried out, and says whether that was a run that is over: then it counts for nothing, and is owed with that
// version. A server that does not say which run it is has no replicas either.
func (l *nodeLog) add(sent invalidation.Sent) (version uint64, void bool) {
	if sent.Run == "" {
		return 0, false
	}
	return l.sent.Add(sent)
}

// trusts says whether an entry of this age can be believed to be what it was when it was stored.
func (l *nodeLog) trusts(created time.Time, n *redisnode.Node) bool {
	if created.UnixNano() < l.started.Load() {
		return false
	}
	missed := l.missed.Load()
	return missed == nil || created.After(n.Now(*missed).Add(clockMargin))
}

// miss raises the moment before which nothing is trusted.
func (l *nodeLog) miss(at time.Time) {
	for {
		old := l.missed.Load()
		if old != nil && !old.Before(at) || l.missed.CompareAndSwap(old, &at) {
			return
		}
	}
}

// runSeen takes in that a node is another process than before, or was met for the first time: this process may have been away when it was restarted. It
// runs before the new connection carries a command. A server that has been a replica in this run holds what it was sent, not a snapshot; but what
// it was sent may be what its primary had brought back from one.
func (c *Client) runSeen(node int, n ring.Node, prev, now redisnode.Info) {
	c.logRun(n, prev, now)
	l := c.debts.logs[node]
	floor := int64(0)
	if !c.cfg.TrustSnapshots && now.Role != redisnode.RoleReplica && !now.WasReplica && !now.StartedAt.IsZero() {
		floor = now.StartedAt.UnixNano()
	}
	if old := l.started.Swap(floor); old > 0 { // what is there now may be older, and have been sent what the other one had brought back
		l.miss(time.Unix(0, old).Add(-prev.ClockOffset)) // from the clock of the node that was to ours, for the one that is
	}
	if floor > 0 && prev.RunID != "" {
		setBack := prev.ClockOffset-now.ClockOffset > clockMargin
		c.mu.RLock()
		defer c.mu.RUnlock()
		for _, cache := range c.caches {
			cache.restarted(node, uint64(now.StartedAt.UnixMicro()), setBack)
		}
	}
}

// restarted sees that what a node has brought back from before its start is unreadable for everybody: also for who meets it later, or meets a replica that was
// sent it. This process does not trust it in any case, so that it may wait until there is room.
//
// But if the node's clock is behind that of the run before, neither the age of an entry nor that of the last clearing tells what is from before the start:
//  1. the clock is five minutes ahead, at 12:05; K is stored. A snapshot is written; K is deleted
//  2. the host is restarted, its clock set right: the node starts at 12:00 and has K again, and a generation of 12:05
//  3. five minutes later K is an entry like those that were stored since
//
// Then it is a Clear, and nothing is read before that is done.
func (c *Cache[V]) restarted(node int, micros uint64, setBack bool) {
	switch {
	case c.cfg.Truth:
	case setBack:
		_ = c.oweGroup(node, c.clearDebts[node])
	default:
		_ = c.client.debts.put(restartDebt(c.names.of, node), node, micros)
	}
}

// replicationSeen takes in how far a primary's replicas are. It runs before a new connection carries a command: so whoever reads from a primary that
// has lost something sees what is owed.
//
// A primary that has become a replica takes over what its new primary has, over the same connections, and that one may not have heard of the latest
// invalidations. They are owed from the first reading that says so; a replica refuses them, and so they stay owed until there is a primary again.
func (c *Client) replicationSeen(node int, r redisnode.Replication) {
	l := c.debts.logs[node]
	var void int
	if r.Role == redisnode.RolePrimary {
		void = l.sent.Read(invalidation.Position{At: r.At, Run: r.Stream, Offset: r.Offset, Replicas: r.Replicas})
	} else {
		l.sent.Void(r.At)
		void = l.sent.Stats().Void
	}
	other, more := l.stream != "" && l.stream != r.Stream, void > l.void
	l.stream, l.void = r.Stream, void
	l.source.Store(sourceOf(r.Stream))
	if other || more {
		if lost := l.sent.Lost(); !lost.IsZero() {
			l.miss(lost)
			l.sent.Covered(lost)
		}
	}
	if void == 0 {
		return
	}
	if other {
		c.cfg.Logger.Warn("shelf: node may have lost its latest writes: invalidations are repeated",
			"node", c.nodeID(node), "keys", void, "run", r.RunID)
	}
	c.debts.oweVoid(node)
	if other || more {
		l.losses.Add(1) // after they are owed: who notes it now sees them
	}
	if other { // a replica that was promoted takes now what it has refused
		c.debts.outbox.Wake(node, time.Now())
		signal(c.debts.putNews)
	}
}

// oweVoid owes to a node what it may have forgotten. Also what is owed already: its attempt may be on its way back from the run that is over.
func (d *debts) oweVoid(node int) {
	for _, s := range d.logs[node].sent.Take() {
		d.oweForgotten(node, s)
	}
}

// oweForgotten owes to a node an invalidation that it may have forgotten. Where there is no room, nothing from before it is trusted.
func (d *debts) oweForgotten(node int, s invalidation.Sent) {
	if d.put(s.Name, node, s.Version) != nil {
		d.logs[node].miss(s.At)
	}
}
