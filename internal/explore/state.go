// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/internal/twin"

const clients = 3

// state is one moment. All of it is bytes, so that comparing and hashing it is quick.
type state struct {
	row, behind uint8 // versions of the row in the database and in its replica
	told        uint8 // the newest version whose invalidation has returned nil
	tick        uint8 // the server's clock, for generations
	primary     node
	former      node  // after a failover: serves those who have not heard of it; run 0: there is none
	replica     shelf // the copy that would be promoted
	saved       shelf // the snapshot on disk
	client      [clients]client
	late        [2]late
	left        budget
	broken      fault
}

// node is a server process.
type node struct {
	shelf
	table twin.Table // who has read the key
	gens  twin.Table // who has read the generation
	run   uint8
}

// shelf is twin.Shelf in bytes: versions and tokens are small numbers, 0 for none.
type shelf struct {
	data  uint8 // the version of the row that the entry was made of
	old   uint8 // 1: it was created before its server process began
	stamp uint8 // the number of the generation that it was stored under
	lease uint8
	mark  uint8

	seq, cleared uint8 // the generation
}

// client is one process.
type client struct {
	run    uint8     // the server process that it is connected to
	slot   twin.Slot // its own copy; a copy whose Tracking is over is not served, and taken for none
	pushes uint8     // on their way, in order
	view   view
	told   uint8 // the newest version whose invalidation by this process has returned

	losses uint8 // times that its node turned out to have lost invalidations of this process
	outbox twin.Outbox
	later  twin.Later
	log    twin.Log
	reader reader
	joiner joiner
	writer walker
	worker walker
}

// view is what a process knows of the cache's generation, which decides about its own copy.
type view struct {
	pushes  uint8 // of the generation, on their way
	good    bool  // it was read through the present Tracking, and no push has come since
	cleared uint8 // of the newest generation seen in this run
	stamp   uint8 // of the own copy
}

// reader is a read.
type reader struct {
	at      stage
	value   uint8
	token   uint8
	run     uint8 // who granted the lease
	floor   uint8 // the mark's version in the lease's reply
	stamp   uint8 // the generation in it
	replace bool  // the entry that is there is to be replaced
	spoilt  bool  // since it is not usable: its version is not compared
	watched bool  // its Tracking is the present one
	unmoved bool  // no push of the generation has come since its ticket
	cleared uint8 // of the generation that the GET has brought
	losses  uint8 // of the process, when it last asked what is pending
	told    uint8 // what it must see at least, of this process's writes
	all     uint8 // and of all, on a node
	apart   bool  // nobody joins it any more
	filled  bool  // its fill was stored
	tries   uint8 // tokens used, in all reads
	left    uint8 // reads that may yet begin
}

// joiner is a second read of a process, which joins the first one's flight when it has found nothing. (Had it come alone, it
// would be a reader.)
type joiner struct {
	at        stage
	late      bool // the load was over when it joined
	told, all uint8
	left      uint8
}

// walker is an invalidation: one that follows a write, or one of those that run behind.
type walker struct {
	at      stage
	job     job
	version uint8
	token   uint8 // of the lease that a write has forced, while it is good for something
	cleared uint8 // of the generation that a clearing has made
	run     uint8 // who has granted it, or carried out the invalidation
	sent    twin.Sent
	left    uint8 // writes that may yet begin
}

type stage uint8

const (
	idle stage = iota
	asked
	reading
	replied
	missed
	wanting
	leased
	loaded
	loadOnly
	joined
	forced
	wrote
	executed
	failed
	recorded
	dropped
)

type job uint8

const (
	noJob job = iota
	retry
	replay
	second
)

// late is a command whose sender has given up; it may be carried out at any time, by the process that it was sent to.
type late struct {
	what           command
	run            uint8
	client, token  uint8
	version, stamp uint8
	replace, force bool
}

type command uint8

const (
	nothing command = iota
	lateLease
	lateFill
	lateInvalidate
)

// budget is how often each fault may yet come.
type budget struct {
	evictions, kills, lates, fails, failovers, restarts uint8
}

type fault uint8

const (
	none fault = iota
	ownWrite
	anyWrite
)

func (f fault) String() string {
	return [...]string{"", "a process was given something older than what it has written", "a node served something older than what was invalidated"}[f]
}

// at is the server process of that run, nil if it is gone.
func (s *state) at(run uint8) *node {
	switch run {
	case s.primary.run:
		return &s.primary
	case s.former.run:
		return &s.former
	}
	return nil
}

// touch tells those who have read the key.
func (s *state) touch(n *node) {
	told := n.table.Change()
	for c := range s.client {
		if told&(1<<c) != 0 {
			s.client[c].pushes++
		}
	}
}

// moveOn tells those who have read the generation.
func (s *state) moveOn(n *node) {
	told := n.gens.Change()
	for c := range s.client {
		if told&(1<<c) != 0 {
			s.client[c].view.pushes++
		}
	}
}

// post puts a command on its way that may arrive at any time; false if there is no room.
func (s *state) post(l late) bool {
	for i := range s.late {
		if s.late[i].what == nothing {
			s.late[i] = l
			return true
		}
	}
	return false
}

// bypassed says whether a process must not trust any copy of the key.
func (c *client) bypassed(r *rules) bool {
	return (c.outbox.In && !r.noBypass) || c.log.At == twin.Void && !r.noReplayBypass
}

// serves is the version of the own copy, 0 where there is none that a reader may have.
func (c *client) serves(r *rules) uint8 {
	if r.generations && (!c.view.good || c.view.stamp < c.view.cleared) {
		return 0
	}
	return c.slot.Value
}
