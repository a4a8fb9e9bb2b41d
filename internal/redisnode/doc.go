// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package redisnode talks to one Redis node. It is the only code that drives the Redis driver
// (go-redis), and it adds what a cache must know about the server on the other side:
//
// Which process answers. A server that is killed and started again has the same address, but not
// the same memory: leases are gone, or a snapshot brought old ones back. So a [Session] is bound
// to one run of the server, which the run id in INFO names. Every new connection asks for it
// before it carries anything else; one that reaches another run fails with [ErrRunChanged] and
// sends nothing. A value that is filled through the session that was granted its lease therefore
// reaches the process that granted it, or nobody. The [Node] swaps in a new session at once.
//
// What time it is there. Ages of entries are counted on the node's clock, so that clients whose
// own clocks are wrong agree on them. [Node.Now] estimates it from TIME, in the way of Cristian
// (F. Cristian, Probabilistic clock synchronization, 1989): the server read its clock somewhere
// between request and reply, so half the round trip bounds the error, and the quickest of the
// last few readings is the best.
//
// How long to wait. The driver's defaults (5 s, three retries, five dials) are those of a client
// whose data must arrive. A cache would rather miss: one timeout, no retries, one dial. Where a node
// answers most reads quickly and some slowly, a caller leaves a slow one and asks anew. What went
// wrong comes back as an [*Error] that names node and command; [IsTrouble] says whether the node
// is to blame.
//
// How reads travel. They share commands where there are many at once, and have connections of their
// own, over which this package speaks the protocol itself: the driver makes them and never uses them
// again. Everything else goes through the driver.
//
// Whether to ask at all. While [Node.Run] runs, heartbeats and what comes of the operations make up
// the node's [State]. A node that is down is sent nothing but heartbeats: everything else comes
// back at once ([IsDown]). Of one that fails a part of what it is asked, a share is sent.
//
// What changes there. While [Node.Run] runs, a [Tracking] reads keys in such a way that the node
// reports their next change to [Config.Push], and says at any moment whether a copy of what was
// read through it may still be served.
//
// The goroutines of a Node are those of [Node.Run], which is the health loop and keeps the
// Tracking, and of reads that share commands; Run and [Node.Close] wait for them. The driver has
// one for every dial that is under way, and logs through its own global logger, which this package
// leaves alone.
package redisnode
