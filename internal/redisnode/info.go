// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import "time"

// Engine is the kind of server.
type Engine string

// The engines. A server that calls itself neither is taken for Redis.
const (
	EngineRedis    Engine = "redis"
	EngineValkey   Engine = "valkey"
	EngineEmbedded Engine = "embedded" // has no INFO server, hence no run id: miniredis
)

// Role is the node's part in replication.
type Role string

// The roles.
const (
	RoleUnknown Role = "" // not asked yet, or the server does not say
	RolePrimary Role = "primary"
	RoleReplica Role = "replica"
)

// Capabilities are what the server can do for this client, which depends on its kind and on what
// the ACL user may call.
type Capabilities struct {
	Tracking bool // CLIENT TRACKING: pushes for keys that change
	Lua      bool // scripts
}

// Info is what was last seen of the node. The zero value means that it was never reached.
type Info struct {
	Version string
	Engine  Engine
	RunID   string // names the run of the server process; "" for an embedded one
	// StartedAt is when this run began, on the node's clock: never earlier than it really did and
	// at most a second later, and not later than the first answer to this Node. An entry created
	// before it comes from an earlier run. Zero where the server does not say.
	StartedAt time.Time
	Role      Role
	// WasReplica says that this Node has seen the server as a replica in this run, whatever it
	// is now: what it holds was replicated, not loaded from its own snapshot.
	WasReplica   bool
	Capabilities Capabilities
	// ClockOffset is how far the node's clock is ahead of the local one, ClockError by how much
	// that may be wrong. Both are 0 before the first connection.
	ClockOffset time.Duration
	ClockError  time.Duration
	// State is what the Node thinks of the server, and StateSince since when; zero: from the beginning.
	State      State
	StateSince time.Time
	// LastError is what the last Probe (or beat of Run) failed with; nil after a success.
	LastError error
	// LastFailure is the latest command that failed with trouble ([IsTrouble]), or because the server does not know it, at LastFailureAt. Neither health
	// checks nor our own full pool count. A success does not clear it, nor does a restart of the server.
	LastFailure   error
	LastFailureAt time.Time
	// TrackingError is why there is no [Tracking]: what the last one ended with, or an attempt, or that the server does
	// not know or not permit CLIENT TRACKING. Nil while there is one, before the first connection, and if Push is nil.
	TrackingError error
}

// Info returns what was last seen of the node, without asking it.
func (n *Node) Info() Info {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.infoLocked()
}

func (n *Node) infoLocked() Info {
	i := n.info
	i.LastFailureAt, i.LastFailure = n.failures.latest()
	i.State, i.StateSince = n.State(), n.breaker.stateSince()
	if best := n.clock.best.Load(); best != nil {
		local := time.Now()
		i.ClockOffset, i.ClockError = best.now(local).Sub(local), best.err
	}
	return i
}

// see notes the role in this run.
func (i *Info) see(r Role) {
	if r == RoleUnknown {
		return // the server did not say this time
	}
	i.Role = r
	i.WasReplica = i.WasReplica || r == RoleReplica
}
