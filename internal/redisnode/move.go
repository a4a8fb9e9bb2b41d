// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"time"
)

// Unknown is the address of a node of which nobody knows yet where it is. Nothing is dialled there: every operation fails at once with
// [ErrUnknown], until [Node.Move].
const Unknown = "unknown:0"

// ErrUnknown says that it is not known yet where the node is.
var ErrUnknown = errors.New("nobody has said yet where the node is")

// Move says that the node is at another address from now on: another server has become what the node's ID stands for. To the owner of the node it is like
// a restart of the server: operations that are under way finish on the old session, or fail within their timeout; the next one goes to a new session, whose
// first connection calls OnRun and OnReplication before it carries a command; the Tracking ends, and Push(nil) is called; the [State] is Up. Move dials nothing and waits for nothing.
//
// synced is the run id of the server there, if the caller has seen it in that run as a replica whose link was up: then what it holds was replicated, and
// not loaded from a snapshot of its own ([Info.WasReplica]). "" says that nothing is known of it.
//
// False says that nothing was done: the node is at that address already, or it is closed.
func (n *Node) Move(addr, synced string) bool {
	n.mu.Lock()
	if n.shut || n.Addr() == addr {
		n.mu.Unlock()
		return false
	}
	n.addr.Store(&addr)
	n.synced = synced
	old, s := n.session.Load(), newSession(n)
	n.sessions[s] = struct{}{}
	n.session.Store(s)
	n.mu.Unlock()
	old.retire() // after the swap, so that whoever is refused finds the new one
	// A Tracking of the old server that is being built is not published any more, since its run is not the new session's; one that was
	// published before the swap is found here.
	if t := n.tracking.present.Load(); t != nil {
		t.end(runEnded, ErrRunChanged)
	}
	if n.large != nil {
		n.large.node.Move(addr, synced)
	}
	n.ailing.Store(false) // nothing is known of the new server
	n.breaker.reset(time.Now())
	return true
}

// present says whether what s meets speaks for or against the server that the node has now: operations on the server that it had may fail long after a Move.
func (s *Session) present() bool { return s.node.Session() == s }
