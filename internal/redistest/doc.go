// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package redistest runs real redis-server processes for tests and examples,
// and breaks them on request.
//
// What a cache must survive is not what a fake server does: a node that is
// killed, that hangs with its connections open, that comes back empty at the
// same address, a replica that is behind. A test says
//
//	node := redistest.Start(t, redistest.Config{})
//	node.Stop()    // hangs: accepts, and answers nothing
//	node.Cont()    // answers again
//	node.Kill()    // refuses connections
//	node.Restart() // the same address, empty
//
// and the server is gone when the test ends, also when the test left it stopped
// or the test's own process was killed; package proc explains how.
//
// Without a redis-server on the machine a test is skipped, which tells what to
// install; with CI=true in the environment it fails, so that a broken CI image
// cannot pass for a green run. REDIS_SERVER in the environment names another
// binary, for instance an older Redis or Valkey.
package redistest
