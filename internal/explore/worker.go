// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import "github.com/go-shelf/shelf/internal/twin"

// work takes one step of what a process repeats behind its callers' backs: what is in the outbox, what a new primary may
// have forgotten, second deletes.
func (m *model) work(s *state, c int) {
	w := &s.client[c].worker
	switch w.at {
	case idle:
		m.beginWork(*s, c)
	case wrote:
		m.sendAgain(*s, c)
	case executed:
		m.confirmedAgain(*s, c)
	case dropped:
		m.done(*s, c)
	}
}

func (m *model) beginWork(s state, c int) {
	k := &s.client[c]
	if k.outbox.In && !m.noRetry {
		n := s
		o := &n.client[c]
		if o.outbox.Due() {
			o.worker = walker{at: wrote, job: retry, version: o.outbox.Version}
			m.step(n, "client %d: repeats the invalidation of version %d", c, o.outbox.Version)
		}
	}
	if k.log.At == twin.Void {
		n := s
		n.client[c].worker = walker{at: wrote, job: replay, version: k.log.Version}
		m.step(n, "client %d: replays the invalidation of version %d", c, k.log.Version)
	}
	// It is due when the delay is over, by which time the database's replica has caught up.
	if v, due := k.later.Due(s.behind); due {
		k.worker = walker{at: wrote, job: second, version: v}
		m.step(s, "client %d: the second delete for version %d is due", c, v)
	}
}

func (m *model) sendAgain(s state, c int) {
	k := &s.client[c]
	v := k.worker.version
	if s.left.fails > 0 {
		n := s
		n.left.fails--
		m.failAgain(&n.client[c])
		m.step(n, "client %d: the repeated invalidation of version %d fails", c, v)
		if n.left.lates > 0 && n.post(late{what: lateInvalidate, run: k.run, client: uint8(c), version: v}) {
			n.left.lates--
			m.step(n, "client %d: the repeated invalidation of version %d is not answered", c, v)
		}
	}
	n := s.at(k.run)
	if n == nil {
		return
	}
	k.worker.at, k.worker.run = executed, k.run
	m.carryOut(&s, n, v)
	k.worker.cleared = n.cleared
	m.step(s, "client %d: the repeated invalidation of version %d is carried out", c, v)
}

func (m *model) failAgain(k *client) {
	switch k.worker.job {
	case retry:
		k.outbox.Failed()
	case second:
		k.outbox.Put(k.worker.version)
	}
	k.worker = walker{}
}

// confirmedAgain: the log has it, and the own copy goes too: it is the whole walk.
func (m *model) confirmedAgain(s state, c int) {
	k := &s.client[c]
	if m.doneBeforeAdd && k.worker.job == retry {
		k.outbox.Done()
		k.worker.at = dropped
		m.step(s, "client %d: version %d has left the outbox", c, k.worker.version)
		return
	}
	m.add(k, &k.worker, &k.writer)
	if !m.retryOwnerOnly {
		m.detach(k)
		m.learn(k, k.worker)
		if !m.generations {
			k.slot.Invalidate()
		}
	}
	if k.worker.job == retry {
		k.worker.at = dropped
		m.step(s, "client %d: has repeated the walk for version %d", c, k.worker.version)
		return
	}
	v := k.worker.version
	k.worker = walker{}
	m.step(s, "client %d: has repeated the walk for version %d", c, v)
}

// done: the entry leaves the outbox, unless it was put again.
func (m *model) done(s state, c int) {
	k := &s.client[c]
	v := k.worker.version
	if m.doneBeforeAdd {
		m.add(k, &k.worker, &k.writer)
		k.slot.Invalidate()
	} else {
		if m.doneDespitePut {
			k.outbox.Again = false
		}
		k.outbox.Done()
	}
	k.worker = walker{}
	m.step(s, "client %d: the outbox is told that version %d is through", c, v)
}
