// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/internal/twin"

// rules are what a scene has of the protocol, and which of its guards are taken away.
type rules struct {
	versions    bool // rows have versions; invalidations announce them
	lag         bool // loads may go to the database's replica
	l1          bool // processes keep copies, by tracked reads
	generations bool // a write clears the whole cache instead of invalidating its key
	through     bool // a write stores the new row under a forced lease
	replay      bool // processes keep a log of what they have invalidated
	second      bool // invalidations are repeated when the database's replica has caught up
	refresh     bool // a reader that has found an entry may refresh it
	brittle     bool // marks may be evicted although loads may go to a replica
	strict      bool // no node may serve what an invalidation that has returned has announced as old

	off twin.Guards // of the scripts

	// Guards of the client.
	agedByFill      bool // an entry is as old as its fill, not as its load
	anyGeneration   bool // readers take an entry of any generation
	viewOfReply     bool // a reply's generation counts as the present one, whatever was pushed since its ticket
	viewOfOthers    bool // a process does not take in the generation that its own clearing has made
	deafView        bool // pushes of the generation are ignored
	retriedToken    bool // a lease request that was not answered is sent again with its token
	unproven        bool // a fill under a lease whose request was not answered
	anySession      bool // a fill goes to whatever server process is there
	loaderIntoL1    bool // L1 takes what a loader has returned, under the ticket of a read that found nothing
	pushedTickets   bool // a push drops the copy but leaves tickets
	ownTickets      bool // so does an own invalidation
	deafFill        bool // a fill connection that was closed is replaced in silence
	keepL1          bool // copies are served although their Tracking is over
	keepFlights     bool // an invalidation leaves the process's flights
	lateJoin        bool // who joins a flight after its load takes what it brings, filled or not
	localFirst      bool // an invalidation drops the own copy first, and only then
	noLocal         bool // an invalidation leaves the own copy
	noRetry         bool // what is in the outbox stays there
	noBypass        bool // reads while an invalidation is pending use the copies
	retryOwnerOnly  bool // a repeated walk ends at the owner
	doneDespitePut  bool // an attempt that ends takes away what was put in since it began
	trustAll        bool // entries from before the start of a primary are trusted
	noReplayBypass  bool // reads use the copies although the log is void
	lateAddIsGood   bool // a confirmation of a run that is gone counts as one of the present run
	shorterReplay   bool // a replay stands for all that the log has, whatever version it has announced
	leaveAtOnce     bool // an entry leaves the log at the first reading, whatever the replica has
	askOnce         bool // a reader asks whether the key is pending, and trusts what it then reads from whatever run is there
	secondIfGood    bool // a second delete is scheduled only by an invalidation that succeeded at once
	doneBeforeAdd   bool // an attempt leaves the outbox before the log has its confirmation
	throughUnlogged bool // the log does not have what a write has stored
	lateForce       bool // a write forces the lease only when the row is written
	floorIsForgiven bool // a promoted replica is trusted whole, what it has of a restarted primary too
}

// scene is a start, and what may happen from there.
type scene struct {
	name string
	rules
	size
	cached  bool // an entry of the row is there at the start
	warm    bool // and in every process
	lagging bool // the row is at version 2, the database's replica at 1
}

// size is how often a thing may happen in a scene.
type size struct {
	reads, writes [clients]uint8
	left          budget
	joins         [clients]uint8
}

// start makes the first state.
func (c *scene) start() state {
	s := state{row: 1, behind: 1, tick: 1, left: c.left}
	if c.lagging {
		s.row = 2
	}
	s.primary.run = 1
	if c.cached || c.warm {
		s.primary.data = s.row
	}
	if c.generations {
		s.primary.seq, s.primary.cleared, s.tick = 1, 1, 2
		s.primary.stamp = s.primary.data
	}
	if c.left.failovers > 0 {
		s.replica = s.primary.shelf
	}
	for i := range s.client {
		k := &s.client[i]
		k.run, k.reader.left, k.joiner.left, k.writer.left = 1, c.reads[i], c.joins[i], c.writes[i]
		if c.warm {
			k.slot.Value = s.row
			s.primary.table.Get(i)
			s.primary.gens.Get(i)
			k.view = view{good: true, cleared: s.primary.cleared, stamp: s.primary.stamp}
		}
	}
	return s
}
