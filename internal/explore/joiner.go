// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

// inFlight says that a process's reader is loading, or about to, and others may join it.
func (r *reader) inFlight() bool {
	return (r.at == missed || r.at == wanting || r.at == leased || r.at == loaded || r.at == loadOnly) && !r.apart
}

// join: a second read of the process asks, finds no copy, neither its own nor the node's, and joins.
func (m *model) join(s *state, c int) {
	k := &s.client[c]
	n := s.at(k.run)
	if k.joiner.left == 0 || k.joiner.at != idle || !k.reader.inFlight() || k.serves(&m.rules) != 0 || n == nil || m.usable(&n.shelf) || k.bypassed(&m.rules) {
		return
	}
	next := *s
	next.client[c].joiner = joiner{at: joined, late: k.reader.at == loaded, told: k.told, all: s.told, left: k.joiner.left - 1}
	m.step(next, "client %d: another reader joins the first", c, 0)
}

// joinedGet gives the joiner what the flight brings. It takes it unless it came late and the fill, which went out after it came, was not
// stored: then it loads for itself.
func (m *model) joinedGet(s *state, k *client, v uint8) {
	j := &k.joiner
	if j.at == idle {
		return
	}
	if !j.late || k.reader.filled || m.lateJoin {
		if v < j.told && !m.lag {
			s.broken = ownWrite
		}
		if v < j.all && m.strict {
			s.broken = anyWrite
		}
	}
	*j = joiner{left: j.left}
}

// leave detaches the process's flight.
func (m *model) detach(k *client) {
	if !m.keepFlights && k.reader.inFlight() {
		k.reader.apart = true
	}
}
