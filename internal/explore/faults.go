// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/internal/twin"

// events are what happens around the processes.
func (m *model) events(s *state) {
	if (m.lag || m.second) && s.behind < s.row {
		n := *s
		n.behind++
		m.step(n, "the database's replica catches up, to version %[2]d", 0, n.behind)
	}
	for i := range s.late {
		if s.late[i].what != nothing {
			m.arrive(*s, i)
		}
	}
	for c := range s.client {
		m.network(s, c)
	}
	if s.left.evictions > 0 {
		m.evict(*s)
	}
	if s.left.failovers > 0 {
		m.replication(*s)
	}
	if s.left.restarts > 0 {
		m.restart(*s)
	}
}

// arrive carries out a command whose sender has given up.
func (m *model) arrive(s state, i int) {
	l := s.late[i]
	s.late[i] = late{}
	n := s.at(l.run)
	if n == nil {
		m.step(s, "a late command of client %d is lost", int(l.client), 0)
		return
	}
	switch l.what {
	case lateLease:
		m.askLease(&s, n, order{what: takeLease, token: l.token, replace: l.replace, force: l.force})
		m.step(s, "client %d: the late lease request, token %d, arrives", int(l.client), l.token)
	case lateFill:
		before := n.shelf
		m.run(&n.shelf, order{what: fill, token: l.token, version: l.version, stamp: l.stamp, replace: l.replace})
		if before.data != n.data || before.lease == l.token {
			s.touch(n) // a refused fill of its own lease touches nothing: one push too many does no harm
		}
		m.step(s, "client %d: the late fill of version %d arrives", int(l.client), l.version)
	case lateInvalidate:
		m.carryOut(&s, n, l.version)
		m.step(s, "client %d: the late invalidation of version %d arrives", int(l.client), l.version)
	}
}

// network is what happens between a process and its node.
func (m *model) network(s *state, c int) {
	k, bit := &s.client[c], uint8(1)<<c
	if k.pushes > 0 {
		n := *s
		n.client[c].pushes--
		if m.pushedTickets {
			n.client[c].slot.Value = 0
		} else {
			n.client[c].slot.Invalidate()
		}
		m.step(n, "client %d: a push arrives", c, 0)
	}
	if k.view.pushes > 0 {
		n := *s
		v := &n.client[c].view
		v.pushes--
		if !m.deafView {
			v.good, n.client[c].reader.unmoved = false, false
		}
		m.step(n, "client %d: a push of the generation arrives", c, 0)
	}
	if k.run != s.primary.run {
		m.connect(*s, c)
		return
	}
	// An entry stays for ten seconds at least, as marks do: for longer than the database's replica lags.
	if k.log.At == twin.Open || k.log.At == twin.Covered && (!m.lag || s.behind >= k.log.Version) {
		n := *s
		n.client[c].log.Read(true, s.replica == s.primary.shelf || m.leaveAtOnce)
		m.step(n, "client %d: reads the primary's position", c, 0)
	}
	if !m.l1 {
		return
	}
	if t := s.primary.table; (t.NoFill|t.NoListener)&bit != 0 {
		m.notice(*s, c)
	} else if s.left.kills > 0 {
		n := *s
		n.left.kills--
		n.primary.table.KillFill(c)
		n.primary.gens.KillFill(c)
		m.step(n, "client %d: its fill connection is closed by the server", c, 0)
		n = *s
		n.left.kills--
		n.primary.table.KillListener(c)
		n.primary.gens.KillListener(c)
		n.client[c].pushes, n.client[c].view.pushes = 0, 0
		m.step(n, "client %d: its listener is closed by the server", c, 0)
	}
}

// notice: a connection of the Tracking is gone. What was read through it is not served any more; there is a new one.
func (m *model) notice(s state, c int) {
	silent := s.primary.table.NoListener&(1<<c) == 0 && m.deafFill
	s.primary.table.Connect(c)
	s.primary.gens.Connect(c)
	if !silent {
		m.newTracking(&s.client[c])
	}
	m.step(s, "client %d: has noticed, and connects", c, 0)
}

func (m *model) newTracking(k *client) {
	k.pushes, k.view.pushes = 0, 0
	k.reader.watched = false
	if !m.keepL1 {
		k.slot.Value, k.view.good, k.view.stamp = 0, false, 0
	}
}

// connect: the process meets another run of the server. What its log holds is void before anything else is sent there.
func (m *model) connect(s state, c int) {
	k := &s.client[c]
	k.run = s.primary.run
	if k.log.Read(false, true) {
		k.writer.sent.Voided = k.writer.at == executed
		k.worker.sent.Voided = k.worker.at == executed
	}
	if k.log.At == twin.Void {
		k.losses++
	}
	s.former.table.Connect(c)
	s.former.gens.Connect(c)
	m.newTracking(k)
	k.view.cleared = 0 // numbers of another run
	for i := range s.client {
		if s.client[i].run == s.former.run {
			m.step(s, "client %d: connects to run %d", c, k.run)
			return
		}
	}
	s.former = node{} // nobody is there any more
	m.step(s, "client %d: connects to run %d", c, k.run)
}

// evict is eviction and expiry.
func (m *model) evict(s state) {
	s.left.evictions--
	n := s
	if s.primary.data != 0 {
		n.primary.data, n.primary.old, n.primary.stamp = 0, 0, 0
		n.touch(&n.primary)
		m.step(n, "the entry is evicted", 0, 0)
	}
	if n = s; s.primary.lease != 0 {
		n.primary.lease = 0
		m.step(n, "the lease is evicted", 0, 0)
	}
	if n = s; s.primary.mark != 0 && (!m.lag || m.brittle) {
		n.primary.mark = 0
		m.step(n, "the mark is evicted", 0, 0)
	}
	if n = s; s.primary.seq != 0 {
		n.primary.seq, n.primary.cleared = 0, 0
		n.moveOn(&n.primary)
		m.step(n, "the generation is evicted", 0, 0)
	}
}

// replication: the node's replica receives everything up to now; or it is promoted as it is.
func (m *model) replication(s state) {
	if s.replica != s.primary.shelf {
		n := s
		n.replica = s.primary.shelf
		for c := range n.client {
			if n.client[c].run == n.primary.run {
				n.client[c].log.Replicated()
			}
		}
		m.step(n, "the node's replica catches up", 0, 0)
	}
	if s.former.run != 0 {
		return // one after the other
	}
	s.left.failovers--
	s.former = s.primary
	s.primary = node{shelf: s.replica, run: s.primary.run + 1}
	if m.floorIsForgiven {
		s.primary.old = 0
	}
	m.step(s, "the replica is promoted, run %[2]d", 0, s.primary.run)
}

// restart: the primary saves a snapshot; or it dies and comes back from the last one.
func (m *model) restart(s state) {
	if s.saved != s.primary.shelf {
		n := s
		n.saved = s.primary.shelf
		m.step(n, "the primary saves a snapshot", 0, 0)
	}
	if s.former.run != 0 {
		return
	}
	s.left.restarts--
	s.primary = node{shelf: s.saved, run: s.primary.run + 1}
	s.saved = shelf{}
	if s.primary.data != 0 {
		s.primary.old = 1
	}
	for c := range s.client {
		s.client[c].pushes, s.client[c].view.pushes = 0, 0
	}
	m.step(s, "the primary restarts from its snapshot, run %[2]d", 0, s.primary.run)
}
