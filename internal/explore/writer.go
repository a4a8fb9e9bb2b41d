// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/invalidation"

// write takes one step of a process's writer: the row, the invalidation, and what becomes of it.
func (m *model) write(s *state, c int) {
	w := &s.client[c].writer
	switch w.at {
	case idle:
		switch {
		case w.left > 0 && m.through && !m.lateForce:
			m.force(*s, c)
		case w.left > 0:
			m.writeRow(*s, c)
		}
	case forced:
		if m.lateForce {
			m.force(*s, c)
		} else {
			m.writeRow(*s, c)
		}
	case wrote:
		if w.token > 0 {
			m.store(*s, c)
		} else {
			m.send(*s, c)
		}
	case executed:
		m.confirmed(*s, c)
	case failed:
		m.record(*s, c)
	case recorded:
		m.back(*s, c, "client %d: Invalidate of version %d returns an error")
	}
}

func (m *model) writeRow(s state, c int) {
	w := &s.client[c].writer
	s.row++
	w.at, w.version = wrote, s.row
	w.left--
	if m.lateForce {
		w.at = forced
	}
	if m.localFirst {
		s.client[c].slot.Invalidate()
	}
	m.step(s, "client %d: writes version %d", c, s.row)
}

// force takes the lease from whoever has it.
func (m *model) force(s state, c int) {
	k := &s.client[c]
	w := &k.writer
	t := uint8(20 + 2*c + int(w.left)) // below are the readers'
	if s.left.fails > 0 {
		n := s
		n.left.fails--
		n.client[c].writer.at = forced
		m.step(n, "client %d: wants to force the lease, token %d, which fails", c, t)
		if n.left.lates > 0 && n.post(late{what: lateLease, run: k.run, client: uint8(c), token: t, force: true}) {
			n.left.lates--
			m.step(n, "client %d: wants to force the lease, token %d, which is not answered", c, t)
		}
	}
	n := s.at(k.run)
	if n == nil {
		return
	}
	m.askLease(&s, n, order{what: takeLease, token: t, force: true})
	w.at, w.token, w.run = forced, t, k.run
	if m.lateForce {
		w.at = wrote
	}
	m.step(s, "client %d: forces the lease, token %d", c, t)
}

// store: the new row, under the lease; if that is gone, an invalidation.
func (m *model) store(s state, c int) {
	k := &s.client[c]
	w := &k.writer
	n := s.at(w.run)
	if n == nil {
		w.token = 0
		m.step(s, "client %d: the process that granted the lease is gone: version %d is not stored", c, w.version)
		return
	}
	a := m.run(&n.shelf, order{what: fill, token: w.token, version: w.version, stamp: n.seq})
	if a.fill != invalidation.Stored {
		w.token = 0
		m.step(s, "client %d: stores version %d: refused", c, w.version)
		return
	}
	s.touch(n)
	w.at = executed
	m.step(s, "client %d: stores version %d", c, w.version)
}

// send: it is carried out; or it fails, and may be carried out later.
func (m *model) send(s state, c int) {
	k := &s.client[c]
	v := k.writer.version
	if s.left.fails > 0 {
		n := s
		n.left.fails--
		n.client[c].writer.at = failed
		m.step(n, "client %d: the invalidation of version %d fails", c, v)
		if n.left.lates > 0 && n.post(late{what: lateInvalidate, run: k.run, client: uint8(c), version: v}) {
			n.left.lates--
			m.step(n, "client %d: the invalidation of version %d is not answered", c, v)
		}
	}
	n := s.at(k.run)
	if n == nil {
		return // to be noticed first
	}
	k.writer.at, k.writer.run = executed, k.run
	m.carryOut(&s, n, v)
	k.writer.cleared = n.cleared
	m.step(s, "client %d: the invalidation of version %d is carried out", c, v)
}

// carryOut is the invalidation at a node.
func (m *model) carryOut(s *state, n *node, v uint8) {
	if m.generations {
		m.run(&n.shelf, order{what: clearAll, now: s.tick})
		s.tick = n.seq + 1
		s.moveOn(n)
		return
	}
	had := n.data != 0
	m.run(&n.shelf, order{what: invalidate, version: v})
	if had {
		s.touch(n)
	}
}

// confirmed: the reply is there: the log has it, the own copy goes, the call returns.
func (m *model) confirmed(s state, c int) {
	k := &s.client[c]
	if k.writer.token == 0 || !m.throughUnlogged {
		m.add(k, &k.writer, &k.worker)
	}
	s.told = max(s.told, k.writer.version)
	m.back(s, c, "client %d: Invalidate of version %d returns nil")
}

// add puts a confirmation into the log; the other walk of the process hears of it.
func (m *model) add(k *client, w, other *walker) {
	if !m.replay {
		return
	}
	current := w.run == k.run || m.lateAddIsGood
	sent := w.sent
	sent.Voided = sent.Voided && !m.lateAddIsGood
	version := w.version
	if m.shorterReplay {
		version = max(version, k.log.Version)
	}
	if k.log.Add(sent, current, version) && other.at == executed {
		other.sent.Renewed = true
	}
}

// learn takes in the generation that a clearing by this process has made, if it is of the present run.
func (m *model) learn(k *client, w walker) {
	if w.at == executed && w.run == k.run && !m.viewOfOthers {
		k.view.cleared = max(k.view.cleared, w.cleared)
	}
}

// record: the outbox has it, before the own copy goes.
func (m *model) record(s state, c int) {
	k := &s.client[c]
	k.outbox.Put(k.writer.version)
	k.writer.at = recorded
	m.step(s, "client %d: version %d is in the outbox", c, k.writer.version)
}

// back drops the own copy, and returns to the caller.
func (m *model) back(s state, c int, what string) {
	k := &s.client[c]
	v := k.writer.version
	m.detach(k)
	switch {
	case m.generations: // the own copies stay; what the view knows decides
		m.learn(k, k.writer)
	case m.localFirst, m.noLocal:
	case m.ownTickets:
		k.slot.Value = 0
	default:
		k.slot.Invalidate()
	}
	if m.second && (!m.secondIfGood || k.writer.at == executed) {
		k.later.Add(v, v)
	}
	k.told = max(k.told, v)
	k.writer = walker{left: k.writer.left}
	m.step(s, what, c, v)
}
