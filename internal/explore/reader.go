// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/invalidation"

// usable says whether a reader takes the entry of a shelf.
func (m *model) usable(s *shelf) bool {
	return s.data != 0 && (s.old == 0 || m.trustAll) && (!m.generations || m.anyGeneration || s.cleared <= s.stamp && s.stamp <= s.seq)
}

// read takes one step of a process's reader.
func (m *model) read(s *state, c int) {
	k := &s.client[c]
	switch k.reader.at {
	case idle:
		if k.reader.left > 0 {
			n := *s
			n.client[c].reader.told, n.client[c].reader.all = k.told, s.told
			m.ask(n, c)
		}
	case asked:
		m.own(*s, c)
	case reading:
		m.get(*s, c)
	case replied:
		m.reply(*s, c)
	case missed:
		m.want(*s, c)
	case wanting:
		m.lease(*s, c)
	case leased:
		m.load(*s, c)
	case loaded:
		m.fill(*s, c)
	case loadOnly:
		m.finish(*s, c, s.row, "client %d: loads version %d and stores nothing")
		if m.lag && s.behind < s.row {
			m.finish(*s, c, s.behind, "client %d: loads version %d from the replica and stores nothing")
		}
	}
}

// ask: is the key pending? own copy? ticket. It notes how often its process has lost something, to see when it has the reply whether
// the answer still stands.
func (m *model) ask(s state, c int) {
	k := &s.client[c]
	r := &k.reader
	r.losses, r.at = k.losses, asked
	switch {
	case k.bypassed(&m.rules):
		r.at = loadOnly
		m.step(s, "client %d: wants to read; the key is pending: bypass", c, 0)
	case m.size.left.fails > 0:
		m.step(s, "client %d: wants to read; the key is not pending", c, 0)
	default: // nothing can come between that matters
		m.own(s, c)
	}
}

// own: the own copy, or a ticket for it.
func (m *model) own(s state, c int) {
	k := &s.client[c]
	if v := k.serves(&m.rules); v != 0 {
		m.finish(s, c, v, "client %d: reads its own copy, version %d")
		return
	}
	if m.l1 {
		k.slot.Begin(0)
		k.reader.watched, k.reader.unmoved = true, true
	}
	k.reader.at = reading
	m.step(s, "client %d: has no copy of its own, and asks the node under a ticket", c, 0)
}

// stands says whether what the reader has been told of the key, when it asked, holds for a reply that has come since.
func (m *model) stands(k *client) bool { return k.reader.losses == k.losses || m.askOnce }

// get is the read at the node. It goes through the Tracking, unless that has been replaced since.
func (m *model) get(s state, c int) {
	k := &s.client[c]
	n := s.at(k.run)
	if n == nil || n.table.NoFill&(1<<c) != 0 && k.reader.watched {
		return // the connection is gone: to be noticed first
	}
	if k.reader.watched {
		n.table.Get(c)
		if m.generations {
			n.gens.Get(c)
		}
	}
	if m.usable(&n.shelf) {
		k.reader.at, k.reader.value, k.reader.stamp, k.reader.cleared = replied, n.data, n.stamp, n.cleared
		m.step(s, "client %d: GET finds version %d", c, n.data)
		return
	}
	k.reader.at, k.reader.replace, k.reader.spoilt = missed, n.data != 0, n.data != 0
	if !m.loaderIntoL1 {
		k.slot.Cancel(0)
	}
	m.step(s, "client %d: GET finds nothing usable (%d)", c, n.data)
}

// reply: what was read comes into L1 under its ticket, and is served.
func (m *model) reply(s state, c int) {
	k := &s.client[c]
	v := k.reader.value
	if !m.stands(k) {
		k.slot.Cancel(0)
		k.reader.at, k.reader.value, k.reader.replace, k.reader.spoilt = missed, 0, true, true
		m.step(s, "client %d: has read version %d, which it does not trust", c, v)
		return
	}
	if v < k.reader.all && m.strict {
		s.broken = anyWrite
	}
	if k.reader.watched || m.keepL1 {
		k.view.cleared = max(k.view.cleared, k.reader.cleared)
		k.view.good = k.view.good || k.reader.unmoved || m.viewOfReply
		if k.slot.Commit(0, v) {
			k.view.stamp = k.reader.stamp
		}
	} else {
		k.slot.Cancel(0)
	}
	if m.refresh {
		n := s
		n.client[c].reader.at, n.client[c].reader.replace = missed, true
		m.step(n, "client %d: has read version %d, and will refresh it", c, v)
	}
	m.finish(s, c, v, "client %d: has read version %d, and keeps it if its ticket is good")
}

// want: before it asks for the lease, is the key pending?
func (m *model) want(s state, c int) {
	k := &s.client[c]
	k.reader.losses, k.reader.at = k.losses, wanting
	switch {
	case k.bypassed(&m.rules):
		k.reader.at = loadOnly
		m.step(s, "client %d: wants the lease; the key is pending: bypass", c, 0)
	case m.replay:
		m.step(s, "client %d: wants the lease", c, 0)
	default: // nothing can come between that matters
		m.lease(s, c)
	}
}

// lease: granted, found, or held; or the request is lost, or late.
func (m *model) lease(s state, c int) {
	k := &s.client[c]
	r := &k.reader
	n := s.at(k.run)
	if n == nil {
		return
	}
	r.run, r.token = k.run, m.token(c, r.tries)
	if s.left.lates > 0 {
		m.loseLease(s, c)
	}
	if !m.retriedToken || r.tries == 0 {
		r.tries++
	}
	a := m.askLease(&s, n, order{what: takeLease, token: r.token, replace: r.replace})
	switch {
	case a.lease == invalidation.Granted:
		r.at, r.floor, r.stamp = leased, a.mark, a.seq
		m.step(s, "client %d: is granted the lease, token %d", c, r.token)
	case a.lease == invalidation.Found && m.usable(&n.shelf) && m.stands(k):
		if n.data < r.all && m.strict {
			s.broken = anyWrite
		}
		m.finish(s, c, n.data, "client %d: asks for the lease and finds version %d")
	default: // held, or bytes that were not usable a moment ago: it waits, or loads for itself
		r.at = loadOnly
		m.step(s, "client %d: is not granted the lease", c, 0)
	}
}

// askLease is the lease script, which makes a generation where there is none.
func (m *model) askLease(s *state, n *node, o order) answer {
	before := n.seq
	o.now = s.tick
	a := m.run(&n.shelf, o)
	if n.seq != before {
		s.tick = n.seq + 1
		s.moveOn(n)
	}
	return a
}

// token is new for each request of a process.
func (m *model) token(c int, tries uint8) uint8 { return uint8(c)*6 + tries + 1 }

func (m *model) loseLease(s state, c int) {
	r := &s.client[c].reader
	s.left.lates--
	if !s.post(late{what: lateLease, run: r.run, client: uint8(c), token: r.token, replace: r.replace}) {
		return
	}
	if m.retriedToken {
		r.at = missed
		m.step(s, "client %d: the lease request, token %d, is not answered; it will be sent again", c, r.token)
		return
	}
	r.tries++
	r.at = loadOnly
	if m.unproven {
		r.at = leased
	}
	m.step(s, "client %d: the lease request, token %d, is not answered", c, r.token)
}

// load reads the row, here or there. What is below the floor is not stored.
func (m *model) load(s state, c int) {
	for _, v := range []uint8{s.row, s.behind} {
		n := s
		r := &n.client[c].reader
		if m.versions && v < r.floor && !m.off.NoMark {
			if at := n.at(r.run); at != nil {
				m.run(&at.shelf, order{what: release, token: r.token})
			}
			m.finish(n, c, v, "client %d: loads version %d, which is below the mark, and gives the lease back")
		} else {
			r.at, r.value = loaded, v
			m.step(n, "client %d: loads version %d", c, v)
		}
		if !m.lag || s.behind == s.row {
			return
		}
	}
}

// fill goes to the server process that granted the lease.
func (m *model) fill(s state, c int) {
	k := &s.client[c]
	r := &k.reader
	if s.left.lates > 0 {
		n := s
		n.left.lates--
		if n.post(late{what: lateFill, run: r.run, client: uint8(c), token: r.token, version: r.value, stamp: r.stamp, replace: r.spoilt}) {
			m.finish(n, c, r.value, "client %d: the fill of version %d is not answered")
		}
	}
	to := r.run
	if m.anySession {
		to = k.run
	}
	n := s.at(to)
	if n == nil {
		m.finish(s, c, r.value, "client %d: the process that granted the lease is gone: version %d is not stored")
		return
	}
	a := m.run(&n.shelf, order{what: fill, token: r.token, version: r.value, stamp: r.stamp, replace: r.spoilt})
	what := "client %d: fills version %d: refused"
	if a.fill == invalidation.Stored {
		what = "client %d: fills version %d: stored"
		r.filled = true
		s.touch(n)
		if to != r.run && !m.agedByFill {
			n.old = 1 // the load began before this process did
		}
	}
	if m.loaderIntoL1 {
		k.slot.Commit(0, r.value)
	}
	m.finish(s, c, r.value, what)
}

// finish ends a read with its value.
func (m *model) finish(s state, c int, v uint8, what string) {
	r := &s.client[c].reader
	if v < r.told && !m.lag {
		s.broken = ownWrite
	}
	m.joinedGet(&s, &s.client[c], v)
	s.client[c].slot.Cancel(0)
	*r = reader{tries: r.tries, left: r.left - 1}
	m.step(s, what, c, v)
}
