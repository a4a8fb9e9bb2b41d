// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"encoding/json"
	"sync/atomic"
	"time"
)

// CacheStats is a snapshot of one cache's counters, since it was made unless they say "now". Their number does not grow with keys.
type CacheStats struct {
	L1Hits        uint64 // reads answered by this process's own copies
	L1Misses      uint64 // reads that went on to a node (all of them with L1Off)
	L1Entries     int    // entries in L1 now
	L1Bytes       int64  // bytes in L1 now
	L1Open        int    // keys whose values are on their way into L1 now
	L1Doubted     uint64 // copies that were there but not served: their node had not told of changes for a second, the cache was cleared, or they are past their time and kept for StaleIfError
	FleetHot      int    // keys that the fleet's rate makes hot now (CacheConfig.HotRate); those that are kept for this process's own rate, or by Pin, alone are not counted
	Pushes        uint64 // changes of entries and of the cache's generation that nodes have told of
	L2Hits        uint64 // reads answered by a node, stale and negative entries included
	ReplicaHits   uint64 // those of them that a replica answered (Config.ReadFrom)
	Waiting       int64  // callers that wait for a load now, their own or one that they joined
	Loads         uint64 // loader calls; a LoadMany call is one, whatever it loads
	LoadErrors    uint64 // loads that failed: errors, timeouts, panics (ErrNotFound is an answer, not a failure)
	LoadsStale    uint64 // rows older than an invalidation had announced, after a second reading: the source lags. Returned, not stored
	Fills         uint64 // loaded values that were stored, each key of a batch counted
	FillsRefused  uint64 // not stored because an invalidation had passed by, or a newer row was there
	FillErrors    uint64 // not known to be stored, because the node was not reached, or refused. A load whose lease had failed is not stored either, and is none of these: see NodeErrors
	Refreshes     uint64 // entries refreshed behind their readers' backs
	RefreshErrors uint64 // refreshes whose loader failed; the old entry stays
	StaleServed   uint64 // reads answered with a value past its time since its load had failed or was not tried (CacheConfig.StaleIfError)
	HeldBack      uint64 // reads that would have loaded a key, or refreshed it, which is left alone since its load has failed (CacheConfig.ErrorBackoff)
	SourceRefused uint64 // the same for keys that were not tried since the breaker on the loader is open
	SourceState   string // the breaker on the loader now: "closed", "open", "probing", "recovering"; "" without one. Only loads move it on: where none is wanted it stays "probing"
	Invalidations uint64 // keys invalidated by this process
	SecondDeletes uint64 // second deletes carried out (CacheConfig.SecondDelete)
	SecondRemoved uint64 // those that removed something: a loader had stored what may have been an old row
	SecondRefused uint64 // second deletes that will not come, for want of room (Config.SecondDeleteQueue, OutboxSize)
	MarksFailed   uint64 // invalidations that deleted but could not leave their mark (a node out of memory)
	SetsOlder     uint64 // Sets that changed nothing because a newer version was there
	Foreign       uint64 // entries that could not be read: other bytes, another codec, a failed decode. Each is loaded again
	Cleared       uint64 // entries that a Clear or InvalidateTag had made unreadable
	Distrusted    uint64 // entries that were there before their node was restarted, or before it lost invalidations: loaded again
	Bypassed      uint64 // reads that went to the loader because an invalidation of the key was owed to its node
	CopyHits      uint64 // those of L2Hits that a copy on another node than the owner answered (CacheConfig.HotCopies, Copies)
	CopiesFilled  uint64 // such copies that this process has made
	CopiesSkipped uint64 // copies of CacheConfig.Copies that it did not make behind a fill, since too many were waiting
	Splits        int    // keys that this process knows to be on several nodes now (CacheConfig.HotCopies)
	Gutter        uint64 // reads that looked into the gutter, since the key's owner was down (Config.Gutter)
	Expired       uint64 // entries past their time on the node's clock though the node still had them
	BodiesGone    uint64 // large values whose body was not there though their entry was: evicted, or replaced at that moment. Read again, or a miss
	NegativesOver uint64 // absences that were returned, not stored: CacheConfig.NegativeRate. When it grows somebody asks for more absent keys than are remembered: see CacheConfig.Filter
	Oversized     uint64 // values above MaxValueBytes, returned but not stored
	Unencodable   uint64 // values that the codec could not encode, returned but not stored
	NodeErrors    uint64 // commands to nodes that failed, or were not sent since the node is down, leases included; those that store are FillErrors. NodeStats.LastFailure has the latest error

	Filter FilterStats // of CacheConfig.Filter
}

// counters are the live form of CacheStats.
type counters struct {
	waiting atomic.Int64
	l1Misses, l1Doubted, pushes, l2Hits, replicaHits, loads, loadErrors, loadsStale, fills, fillsRefused, fillErrors, refreshes, refreshErrors,
	staleServed, invalidations, seconds, secondsRemoved, secondsRefused, marksFailed, setsOlder, foreign, cleared, distrusted, bypassed, gutter, copyHits, copiesFilled, copiesSkipped, expired, bodiesGone, oversized, unencodable, nodeErrors atomic.Uint64

	negativesOver atomic.Uint64
}

// Stats returns the cache's counters. It is cheap and may be called at any time.
func (c *Cache[V]) Stats() CacheStats {
	n := &c.counters
	s := CacheStats{
		L1Misses: n.l1Misses.Load(), L1Doubted: n.l1Doubted.Load(), Pushes: n.pushes.Load(), L2Hits: n.l2Hits.Load(), ReplicaHits: n.replicaHits.Load(), Waiting: n.waiting.Load(), Loads: n.loads.Load(), LoadErrors: n.loadErrors.Load(), LoadsStale: n.loadsStale.Load(),
		Fills: n.fills.Load(), FillsRefused: n.fillsRefused.Load(), FillErrors: n.fillErrors.Load(),
		Refreshes: n.refreshes.Load(), RefreshErrors: n.refreshErrors.Load(), Invalidations: n.invalidations.Load(),
		StaleServed: n.staleServed.Load(),
		MarksFailed: n.marksFailed.Load(), SetsOlder: n.setsOlder.Load(), Foreign: n.foreign.Load(), Cleared: n.cleared.Load(), Expired: n.expired.Load(),
		SecondDeletes: n.seconds.Load(), SecondRemoved: n.secondsRemoved.Load(), SecondRefused: n.secondsRefused.Load(), Distrusted: n.distrusted.Load(), Bypassed: n.bypassed.Load(), Gutter: n.gutter.Load(),
		CopyHits: n.copyHits.Load(), CopiesFilled: n.copiesFilled.Load(), CopiesSkipped: n.copiesSkipped.Load(), Splits: c.copies.splitsNow(),
		BodiesGone: n.bodiesGone.Load(),
		Oversized:  n.oversized.Load(), Unencodable: n.unencodable.Load(), NodeErrors: n.nodeErrors.Load(),
	}
	if s.NegativesOver = n.negativesOver.Load(); c.filter != nil {
		s.Filter = c.filter.Stats()
	}
	c.source.figures(&s)
	s.FleetHot = c.warmth.count()
	if c.l1 != nil {
		l := c.l1.Stats()
		// Less the doubted that were read before: a copy is counted as hit first, so that the difference is never negative.
		s.L1Hits, s.L1Entries, s.L1Bytes, s.L1Open = l.Hits-s.L1Doubted, l.Entries, l.Bytes, l.Open
	}
	return s
}

// NodeStats is what the client knows of one node.
type NodeStats struct {
	ID, Addr    string         // Addr: of its primary; "" while that is not known (Config.Sentinel)
	Replicas    []ReplicaStats // that are watched: see Config.ReadFrom and Sentinel
	Engine      string         // "redis", "valkey", "embedded"; "" before the first answer
	Version     string         // the server's
	ClockOffset time.Duration  // the node's clock minus this host's; 0 before the first answer
	Tracking    bool           // the node can push changes (client-side caching), and may
	Pushing     bool           // it does so now
	PushError   error          // why it does not, or why it last stopped
	Unconfirmed int            // invalidations that are kept, for 10 s at least, until all of the node's replicas are known to have them; at most 100,000
	Load        float64        // commands a second that the server has answered lately, and one more for each 4 KiB a second; 0: not known, or a single node. See EventLoad
	PushesLost  uint64         // how often it stopped: a connection lost or silent for 3 s, a flush, a restart. Each time all copies that it watched went
	LastError   error          // the latest failure of a health check; nil while it succeeds

	// State is "up"; "suspect": three heartbeats or commands in a row were not answered, or a part of the commands fails and only a share of the reads is sent; "down":
	// nothing is sent but heartbeats, and reads go to the loader without a wait; or "recovering": a heartbeat was answered again, two more and the node is
	// up (one whose replica was promoted is up at once). It is so since StateSince; zero: from the beginning. A node begins as "up", also one that has never answered: it
	// is down within a second of New. Whether it has answered tells LastError, from New on.
	State      string
	StateSince time.Time

	// SentinelError is why no majority of the Sentinels said who is the primary when they were asked last, with what each of them said: a wrong password, an address where no
	// Sentinel is. They are asked every 10 s, and more often while the primary does not answer. nil while a majority agrees, and without Config.Sentinel.
	SentinelError error

	// LastFailure is the latest command, health checks apart, that failed by the node's fault: it was refused (no memory, no permission, a read-only
	// replica), not answered in time, or the connection broke; at LastFailureAt. It says why reads become loads although LastError is nil.
	// It stays when later commands succeed, so look at the time; nil and zero: none has failed.
	LastFailure   error
	LastFailureAt time.Time
}

// MarshalJSON is the struct with the texts of its errors, which have no JSON of their own; null where there is none.
func (s NodeStats) MarshalJSON() ([]byte, error) {
	type fields NodeStats // without this method
	return json.Marshal(struct {
		fields
		PushError, LastError, LastFailure, SentinelError *string
	}{fields(s), errorText(s.PushError), errorText(s.LastError), errorText(s.LastFailure), errorText(s.SentinelError)})
}

func errorText(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}

// Stats is a snapshot of what caches share.
type Stats struct {
	Nodes         []NodeStats
	LoadsCap      int    // loader calls that may run at once now: Config.MaxLoads, or less by AdaptiveLoads or FleetLoads
	LoadsRunning  int    // loader calls under way, those that ignore their timeout included
	LoadsQueued   int    // loads that wait for a place
	LoadsHighest  int    // the most loader calls that ever ran at once
	LoadsRejected uint64 // loads refused with ErrOverloaded

	FleetLive  int // live processes of the namespace, this one included, as last known; 0 without Config.FleetLoads, or before a node has answered
	FleetShare int // this process's share of Config.FleetLoads; 0 without it

	HeatKeys   uint64 // keys of which nodes were told how often this process reads them, or asked how often all do (CacheConfig.NoFleetHot), each time counted
	HeatWrites uint64 // those of them where something was added to what the node knows
	HeatErrors uint64 // calls for that which failed: the node did not answer, or does not permit them

	Owed          int       // invalidations that have not got through, or that a node may have lost, now: they are repeated, and reads of these keys go to the loader
	OwedSince     time.Time // since when the oldest of them is owed; zero when there is none
	OwedRefused   uint64    // how often one was not kept: Config.OutboxSize was reached
	SecondDeletes int       // second deletes that wait until they are due, now
}

// Stats returns the client's counters.
func (c *Client) Stats() Stats {
	l := c.limiter.Stats()
	s := Stats{LoadsCap: l.Cap, LoadsRunning: l.Running, LoadsQueued: l.Queued, LoadsHighest: l.Highest, LoadsRejected: l.Rejected}
	s.FleetLive, s.FleetShare = c.fleet.figures()
	s.HeatKeys, s.HeatWrites, s.HeatErrors = c.heat.figures()
	o := c.debts.outbox.Stats()
	s.Owed, s.OwedSince, s.OwedRefused, s.SecondDeletes = o.Depth, o.Oldest, o.Full, c.debts.later.Len()
	for i, n := range c.ring.Nodes() {
		info, t, ends := c.nodes[i].Info(), c.nodes[i].Tracking(), c.nodes[i].TrackingStats()
		s.Nodes = append(s.Nodes, NodeStats{
			ID: n.ID, Addr: c.addrOf(i), Replicas: c.shards[i].stats(time.Now()), Engine: string(info.Engine), Version: info.Version,
			ClockOffset: info.ClockOffset, Tracking: info.Capabilities.Tracking, Pushing: t != nil && t.Fresh(time.Now()), PushError: info.TrackingError,
			Unconfirmed:   c.debts.logs[i].sent.Stats().Depth,
			PushesLost:    ends.ListenerLost + ends.FillLost + ends.Silent + ends.Flushed + ends.RunChanged,
			SentinelError: c.shards[i].sentinelError(), Load: c.heat.loads.of(i),
			LastError: info.LastError, State: info.State.String(), StateSince: info.StateSince,
			LastFailure: info.LastFailure, LastFailureAt: info.LastFailureAt,
		})
	}
	return s
}
