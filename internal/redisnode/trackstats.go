// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ending is why a Tracking ended.
type ending int

const (
	notEnded ending = iota
	listenerLost
	fillLost
	fellSilent
	flushed
	runEnded
	trackingStopped
	endings
)

var (
	errSilent  = fmt.Errorf("a connection did not answer for %v", giveUpAfter)
	errFlushed = errors.New("the server dropped all keys (FLUSHALL, FLUSHDB, SWAPDB or a full resync)")
)

var endingNames = [endings]string{
	listenerLost: "listener connection", fillLost: "fill connection", fellSilent: "silence", flushed: "flush",
	runEnded: "run of the server", trackingStopped: "stopped",
}

// TrackingStats counts what happened to the Trackings of a Node since New.
type TrackingStats struct {
	Begun  uint64 // came to be
	Failed uint64 // attempts that did not
	// Begun ones that ended, by cause. A server that dies takes all connections along: the first to be noticed counts.
	ListenerLost uint64 // the listener's connection was closed
	FillLost     uint64 // a fill connection was closed
	Silent       uint64 // a connection did not answer for 3 s
	Flushed      uint64 // the server dropped all keys
	RunChanged   uint64 // the server was seen in another run
	Stopped      uint64 // Run or the Node ended
	Pushes       uint64 // names that were pushed
	Flushes      uint64 // pushes that meant every key
}

type trackingCounts struct {
	begun, failed, pushes, flushes atomic.Uint64
	ended                          [endings]atomic.Uint64
}

// TrackingStats returns the counters. Each is right by itself; they are not read at one moment.
func (n *Node) TrackingStats() TrackingStats {
	c := &n.tracking.stats
	return TrackingStats{
		Begun: c.begun.Load(), Failed: c.failed.Load(),
		ListenerLost: c.ended[listenerLost].Load(), FillLost: c.ended[fillLost].Load(), Silent: c.ended[fellSilent].Load(),
		Flushed: c.ended[flushed].Load(), RunChanged: c.ended[runEnded].Load(), Stopped: c.ended[trackingStopped].Load(),
		Pushes: c.pushes.Load(), Flushes: c.flushes.Load(),
	}
}

// noTracking is why the server that said g cannot track, if anybody wants it to.
func (n *Node) noTracking(g greeting) error {
	if n.cfg.Push == nil || g.noTracking == nil {
		return nil
	}
	return &Error{Node: n.cfg.ID, Op: "CLIENT TRACKING", Err: g.noTracking}
}

// note takes in the end of a Tracking; published says whether it had begun.
func (n *Node) note(why ending, err error, published bool) {
	if published {
		n.tracking.stats.ended[why].Add(1)
	} else {
		n.tracking.stats.failed.Add(1)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.info.TrackingError = &Error{Node: n.cfg.ID, Op: "tracking: " + endingNames[why], Err: err}
}
