// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
)

// oneNode is what must be true while one node is dead, stopped or slow.
var oneNode = []func(*outcome) check{noErrors, firstSecond, thenAsBefore, capKept, fresh}

// drills are the lines of the table, in their order.
func drills() []drill {
	return []drill{
		{name: "kill -9 of a primary", quick: true, checks: oneNode,
			strike: func(w *world) { w.servers[w.target()].Kill() },
			heal:   func(w *world) { w.servers[w.target()].Restart() }},
		{name: "SIGSTOP of a primary", quick: true, checks: oneNode,
			strike: func(w *world) { w.servers[w.target()].Stop() },
			heal:   func(w *world) { w.servers[w.target()].Cont() }},
		{name: "kill -9 of a primary, with Sentinel", lasts: failoverTime, checks: oneNode, setting: setting{replicas: 1, client: preferPrimary},
			strike: func(w *world) { w.servers[w.target()].Kill() },
			heal:   func(w *world) { w.servers[w.target()].Restart() }},
		{name: "SIGSTOP of a primary, with Sentinel", lasts: failoverTime, checks: oneNode, setting: setting{replicas: 1, client: preferPrimary},
			strike: func(w *world) { w.servers[w.target()].Stop() },
			heal:   func(w *world) { w.servers[w.target()].Cont() }},
		{name: "kill -9 of a replica that is read", checks: oneNode, setting: setting{replicas: 1, client: readReplicas},
			strike: func(w *world) { w.copies[w.target()][0].Kill() },
			heal:   func(w *world) { w.copies[w.target()][0].Restart() }},
		{name: "kill -9 of a Sentinel", checks: oneNode, setting: setting{replicas: 1, client: preferPrimary},
			strike: func(w *world) { w.sentinels.Kill(0) },
			heal:   func(w *world) { w.sentinels.Restart(0) }},
		{name: "20 failovers", own: playFailovers, setting: setting{replicas: 2, processes: 1, client: preferPrimary}},
		{name: "50 ms more for 10 % of a node's replies", checks: oneNode, setting: setting{proxied: []int{0, 1}},
			strike: func(w *world) {
				w.throughProxies(w.target(), func(p *redistest.Proxy) { p.ToClient().DelaySome(slowShare, slowBy) })
			},
			heal: func(w *world) { w.throughProxies(w.target(), (*redistest.Proxy).Heal) }},
		{name: "connections reset at random", quick: true, checks: []func(*outcome) check{noErrors, capKept, fresh}, setting: setting{proxied: []int{0, 1}},
			every: 50 * time.Millisecond, again: resetSome},
		{name: "one process cut off, and healed", quick: true, checks: []func(*outcome) check{noErrors, capKept, fresh}, setting: setting{proxied: []int{1}},
			strike: func(w *world) { w.ofProcess(1, func(p *redistest.Proxy) { p.BlackHole() }) },
			heal:   func(w *world) { w.ofProcess(1, (*redistest.Proxy).Heal) }},
		{name: "kill -9 of one of 5 nodes, with a gutter", lasts: 60 * time.Second, checks: []func(*outcome) check{noErrors, capKept, gutterHits, evenReads, fresh},
			setting: setting{nodes: 5, client: func(c *client.Config) { c.Gutter = true }},
			strike:  func(w *world) { w.servers[w.target()].Kill() },
			heal:    func(w *world) { w.servers[w.target()].Restart() }},
		{name: "all nodes stopped, and back", checks: []func(*outcome) check{noErrors, capKept, hitsBack(backLimit), noSecondWave, fresh}, after: 10 * time.Second,
			strike: func(w *world) { w.all((*redistest.Server).Stop) },
			heal:   func(w *world) { w.all((*redistest.Server).Cont) }},
		{name: "all nodes killed, back empty", quick: true, setting: setting{cold: true, client: sharedCap}, before: 30 * time.Second, lasts: 10 * time.Second, after: backLimit + 2*time.Second,
			checks: []func(*outcome) check{onlyOverload, atTheCap(sourceLatency + allDeadSlower), refusedAtOnce, capKept, hitsBack(backLimit), noSecondWave, fresh},
			strike: func(w *world) {
				w.db.Slow(allDeadSlower)
				w.all((*redistest.Server).Kill)
			},
			heal: func(w *world) {
				w.all((*redistest.Server).Restart)
				w.db.Slow(0)
			}},
		{name: "eviction storm at maxmemory", checks: []func(*outcome) check{noErrors, capKept, fresh},
			setting: setting{args: []string{"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"}}, every: 10 * time.Millisecond, again: flood},
		{name: "200 clients connect anew at once", checks: []func(*outcome) check{noErrors, connectAnew(600), capKept, fresh}, setting: setting{idle: 198},
			strike: func(w *world) { w.all(dropConnections) }},
		{name: "the database is slow", setting: sourceSetting, before: 12 * time.Second, lasts: 10 * time.Second, after: 10 * time.Second,
			checks: []func(*outcome) check{onlyOverload, hotAnswered, capKept, fresh},
			strike: func(w *world) { w.db.Slow(slowSource) },
			heal:   func(w *world) { w.db.Slow(0) }},
		{name: "the database fails", quick: true, setting: sourceSetting, before: 12 * time.Second, lasts: 15 * time.Second, after: 10 * time.Second,
			checks: []func(*outcome) check{hotAnswered, hotStale, capKept, noHerd(2), fresh},
			strike: func(w *world) {
				w.endWrites()
				w.db.Fail(errors.New("the database refuses connections"))
			},
			heal: func(w *world) { w.db.Fail(nil) }},
		{name: "the database is dead for 30 s", setting: sourceSetting, before: 12 * time.Second, lasts: 30 * time.Second, after: 15 * time.Second,
			checks: []func(*outcome) check{hotAnswered, hotStale, capKept, noHerd(2), hitsBack(15 * time.Second), fresh},
			strike: func(w *world) {
				w.endWrites()
				w.db.Hang(true)
			},
			heal: func(w *world) { w.db.Hang(false) }},
	}
}

const (
	slowShare, slowBy = 0.1, 50 * time.Millisecond
	// allDeadSlower is by how much a query is slower while every read is one: then 5,000 reads a second are more than the cap lets through.
	allDeadSlower = 45 * time.Millisecond
	slowSource    = 95 * time.Millisecond
	backLimit     = 30 * time.Second
	resetShare    = 0.2
	lastLoads     = 3 * time.Second  // at 2,000 reads a second the last of the hottest keys comes every half a second
	failoverTime  = 12 * time.Second // Sentinel needs some 2 s
)

// sharedCap is one cap for the fleet, of which each process takes its share by the number of processes that it knows of, also when no node tells any more. The short
// queue is for those who want to know at once that there is no room, rather than wait.
func sharedCap(c *client.Config) { c.LoadQueue, c.MaxLoads, c.FleetLoads = 40, loadCap, loadCap }

// sourceSetting is for drills of the database: entries that end within the fault, and may be served for a minute more.
var sourceSetting = setting{ttl: 8 * time.Second, stale: time.Minute}

// preferPrimary reads from replicas while the primary does not answer.
func preferPrimary(c *client.Config) { c.ReadFrom = client.ReadPrimaryPreferred }

func readReplicas(c *client.Config) { c.ReadFrom = client.ReadReplica }

func (w *world) all(do func(*redistest.Server)) {
	for _, s := range w.servers {
		do(s)
	}
}

// endWrites ends the writes before the database does: a program whose database is gone begins none. What the last ones have invalidated is loaded again by then; it could not
// be served, however old it may be.
func (w *world) endWrites() {
	w.stopWriting()
	time.Sleep(lastLoads)
}

// throughProxies does something to every process's way to a node.
func (w *world) throughProxies(node int, do func(*redistest.Proxy)) {
	for _, proxies := range w.proxies {
		do(proxies[node])
	}
}

// ofProcess does it to a process's ways to all nodes.
func (w *world) ofProcess(n int, do func(*redistest.Proxy)) {
	for _, p := range w.proxies[n] {
		do(p)
	}
}

// resetSome resets connections at random, a fifth of them.
func resetSome(w *world) {
	for _, proxies := range w.proxies {
		for _, p := range proxies {
			p.Only(func(*redistest.ProxyConn) bool { return rand.Float64() < resetShare }).Reset()
		}
	}
}

// flood stores what nobody reads: 100 times a second, 100 values of 1 KiB on each node. A node is full within a second, and again two seconds later.
func flood(w *world) {
	value := make([]byte, 1024)
	for _, s := range w.servers {
		_, _ = s.Client().Pipelined(context.Background(), func(p redis.Pipeliner) error { // whether all of them were stored does not matter
			for range 100 {
				p.Set(context.Background(), "flood:"+strconv.FormatUint(rand.Uint64(), 36), value, 0)
			}
			return nil
		})
	}
}

// dropConnections makes a server close all its connections, but for the one that says so.
func dropConnections(s *redistest.Server) {
	for _, kind := range []string{"normal", "pubsub"} {
		_, _ = s.Do(context.Background(), "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes") // the figures show whether it did
	}
}
