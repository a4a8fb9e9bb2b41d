// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
)

// Processes is the engine of redis-server processes on this machine (see redistest.Find).
func Processes() Engine {
	_, err := redistest.Find()
	return Engine{Name: "processes", Missing: err, Start: func(tb testing.TB, args ...string) Server {
		return process(redistest.Start(tb, redistest.Config{Args: args, Persist: true})) // nothing is saved but by SAVE
	}}
}

func process(s *redistest.Server) Server {
	return Server{
		Addr:    s.Addr(),
		Restart: func(testing.TB) { s.Restart() }, // what fails there fails the test that started it
		Replica: func(tb testing.TB) Server { return process(s.Replica(tb, redistest.Config{Persist: true})) },
	}
}

// embedded numbers the embedded nodes, so that each has an address of its own.
var embedded atomic.Int64

// Embedded is the engine of clienttest: nodes inside the test process.
func Embedded() Engine {
	const noCommand = "miniredis has no %s"
	return Engine{
		Name: "embedded", Kind: "embedded", SlowScripts: true, // a Lua state for each call
		Coarse: 100 * time.Millisecond, // its clock rests between walks over the keys
		Lacks: map[Ability]string{
			Settings:    fmt.Sprintf(noCommand, "CONFIG, no memory limit and no cluster mode"),
			Restarts:    "it is no process, and has no run id: a session cannot tell that the node came back empty",
			Snapshots:   fmt.Sprintf(noCommand, "SAVE"),
			Replicas:    fmt.Sprintf(noCommand, "replication"),
			Users:       fmt.Sprintf(noCommand, "ACL"),
			Pushes:      fmt.Sprintf(noCommand, "CLIENT TRACKING: a copy in another process lives L1BlindTTL"),
			Connections: fmt.Sprintf(noCommand, "CLIENT LIST, KILL or PAUSE"),
		},
		Start: func(tb testing.TB, _ ...string) Server {
			tb.Helper()
			cfg := clienttest.Start(tb, 1).Config()
			var o redis.Options
			cfg.Redis(cfg.Nodes[0], &o)
			return Server{Addr: fmt.Sprintf("embedded-%d:6379", embedded.Add(1)), Dial: o.Dialer}
		},
	}
}
