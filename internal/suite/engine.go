// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"net"
	"testing"
	"time"
)

// Ability is something that a behaviour needs and not every engine has.
type Ability string

// The abilities.
const (
	Settings    Ability = "settings"    // CONFIG, and arguments at the start: a memory limit, cluster mode
	Restarts    Ability = "restarts"    // a process that can be killed and started at its address, with a run id
	Snapshots   Ability = "snapshots"   // SAVE, and a restart that brings back what it kept
	Replicas    Ability = "replicas"    // replication
	Users       Ability = "users"       // ACL
	Connections Ability = "connections" // CLIENT LIST, KILL and PAUSE
	Pushes      Ability = "pushes"      // CLIENT TRACKING
)

// Engine is one kind of node that the suite can run on.
type Engine struct {
	Name string
	// Kind and Version are what the client must find out about it: "redis", "valkey" or "embedded", and how the version begins. "" is any.
	Kind, Version string
	// Start runs one empty server for the test and ends it with the test. args are arguments of redis-server, given only where the engine
	// has Settings.
	Start func(tb testing.TB, args ...string) Server
	// Lacks says which abilities the engine does not have, and why.
	Lacks map[Ability]string
	// SlowScripts says that a script takes so long that behaviours with many keys take a fifth of them.
	SlowScripts bool
	// Coarse is by how much earlier than it was asked to the engine may end a key, beyond a few milliseconds.
	Coarse time.Duration
	// Missing, when not nil, is why the engine cannot be run on this machine. The suite is then skipped; with CI=true in the environment it fails, unless the
	// engine is Optional.
	Missing  error
	Optional bool
}

// inexact is by how much earlier than asked a key may end. A millisecond is a node's unit.
func (e *Engine) inexact() time.Duration { return e.Coarse + 5*time.Millisecond }

// Server is one running node.
type Server struct {
	Addr string // host:port
	// Dial reaches the server instead of TCP; nil for TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Restart kills the process and starts another one at the same address, with what a SAVE has kept, else empty; it returns when that answers. nil
	// without Restarts.
	Restart func(tb testing.TB)
	// Replica starts a replica, which may still be connecting when it is returned. nil without Replicas.
	Replica func(tb testing.TB) Server
}
