// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package redistest runs real redis-server processes for tests and examples,
// and breaks them, and the network before them, on request.
//
// What a cache must survive is not what a fake server does: a node that is
// killed, that hangs with its connections open, that comes back empty at the
// same address, a replica that is behind, a promotion, a line that swallows
// answers. A test says
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
// # Failover
//
// Real Sentinels watch real primaries; they are ready for a failover when they
// are returned:
//
//	servers := redistest.StartReplicated(t, 2) // a primary and two replicas
//	sentinels := redistest.StartSentinels(t, redistest.SentinelConfig{
//		Primaries: map[string]*redistest.Server{"shelf-a": servers[0]},
//	})
//	servers[0].Kill()
//	addr, err := sentinels.AwaitPrimary(ctx, "shelf-a", servers[0].Addr()) // some 3 s later
//	sentinels.Failover("shelf-a") // a planned one
//	sentinels.Stop(0)             // the other two go on
//
// # The network
//
// A [Proxy] stands before one server. Its faults hit what goes through it, or a
// part of that, at any moment:
//
//	p := redistest.StartProxy(t, node.Addr()) // clients dial p.Addr()
//	p.Delay(20*time.Millisecond, 5*time.Millisecond) // each way, plus up to 5 ms
//	p.ToClient().DelaySome(0.1, 50*time.Millisecond) // a tenth of the answers is late
//	p.ToClient().BlackHole() // commands arrive, answers do not
//	p.Heal()                 // ... and now they do
//	p.Only(func(c *redistest.ProxyConn) bool { return c.Sent("SUBSCRIBE") }).Reset()
//	p.New().CutAfter(100)    // connections to come break after 100 bytes
//	p.Refuse()               // "connection refused"; what is open stays
//
// and what passes can be counted:
//
//	r := p.Record()
//	...
//	n := r.Count("MGET") // commands that reached the server
//
// A killed server and a dead network look different: [Server.Kill] ends the
// connections, [Traffic.BlackHole] leaves them open and silent. [Server.Stop] is
// silent too, but the kernel of a stopped server still takes what is sent, so a
// client sees its writes succeed in both cases.
//
// Where a proxy's server is dead, a client's dial succeeds, or fails with a reset,
// and the connection is reset: the proxy has accepted before it can know. Call
// [Proxy.Refuse] together with [Server.Kill] where the difference matters.
// Sentinels know nothing of proxies: a client that is to reach a promoted server
// through one has to translate addresses, in its dialer for instance.
//
// # Without a server
//
// Without a redis-server on the machine a test is skipped, which tells what to
// install; with CI=true in the environment it fails, so that a broken CI image
// cannot pass for a green run. REDIS_SERVER in the environment names another
// binary, for instance an older Redis or Valkey. It is started as a Sentinel too.
package redistest
