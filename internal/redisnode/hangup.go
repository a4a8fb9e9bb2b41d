// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import "errors"

// changed is told of each change of the node's state.
//
// When the node goes down, what waits for it has waited enough: what is queued is refused, and the connections are closed, so that what is under way ends
// now and not at its timeout. It is also why a node that comes back is met over new connections. Those from before may lead nowhere, if it was the
// network, and say so only by a timeout each. A server that has answered keeps them: it is there.
func (n *Node) changed(c StateChange) {
	if c.To == Down {
		if e := (*Error)(nil); !errors.As(c.Err, &e) || !isReply(e) {
			n.Session().hangUp()
			n.large.node.Session().hangUp()
		}
		if err := n.breaker.shut("GET"); err != nil { // it may be up again
			n.reads.refuse(err)
		}
		if err := n.breaker.shut("MGET"); err != nil {
			n.manys.refuse(err)
		}
	}
	if n.cfg.OnState != nil {
		n.cfg.OnState(c)
	}
}

// hangUp closes the session's connections; the next operations make new ones.
func (s *Session) hangUp() {
	s.connsMu.Lock()
	for c := range s.conns {
		c.over.Store(true)
		_ = c.Conn.Close()
	}
	s.connsMu.Unlock()
	s.wires.purge() // the driver finds out by itself
}

// full says that there is to be no further connection: to a node that is down there is one of the driver's, for the heartbeats. Operations that were waiting for a
// place in the pool when it went down come here, several at once, and would wait once more. alone: the dial that may go on is the only one, and ends with dialled.
func (s *Session) full(ours bool) (alone bool, err error) {
	g := s.node.breaker.barred()
	if g == nil {
		return false, nil
	}
	if ours || s.asking.Load() == 0 {
		return false, g.why
	}
	s.connsMu.Lock()
	defer s.connsMu.Unlock()
	if s.dialling {
		return false, g.why
	}
	for c := range s.conns {
		if !c.ours {
			return false, g.why
		}
	}
	s.dialling = true
	return true, nil
}

// dialled ends a dial that was alone: its connection is noted, if it has one.
func (s *Session) dialled() {
	s.connsMu.Lock()
	defer s.connsMu.Unlock()
	s.dialling = false
}

// keep notes a new connection.
func (s *Session) keep(c *watchfulConn) {
	s.connsMu.Lock()
	defer s.connsMu.Unlock()
	s.conns[c] = struct{}{}
}

// drop forgets one that was closed.
func (s *Session) drop(c *watchfulConn) {
	s.connsMu.Lock()
	defer s.connsMu.Unlock()
	delete(s.conns, c)
}
