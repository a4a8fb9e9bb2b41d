// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package clienttest is for the tests of programs that use Shelf: cache nodes inside the test process, with switches for what goes wrong.
//
//	nodes := clienttest.Start(t, 3)
//	cl, err := client.New(ctx, nodes.Config())
//	...
//	nodes.Node(0).Down() // what does my service do now?
//
// The nodes are miniredis servers that are reached through in-memory pipes: nothing listens on a port, nothing must be installed, and they work
// inside a testing/synctest bubble, where TTLs, leases and timeouts pass on the bubble's clock (start them inside it). They are faithful in what a
// cache does; they have no client tracking, no memory limit and no replicas. They are meant for tests and demonstrations, not for service.
//
// Many keys do not make them slow, but scripts are: a node runs some 3,000 a second, a tenth of that under the race detector or on a busy
// machine, and a miss takes two. Who warms thousands of keys there raises Config.OperationTimeout or lowers WarmOptions.Rate. Outside of a bubble,
// a node with very many keys is up to 50 ms early or late with their expiry.
package clienttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/ring"
)

// Nodes are embedded cache nodes. All methods are safe for concurrent use.
type Nodes struct {
	nodes []*Node
}

// New starts n embedded nodes with the ids node-0, node-1, ... n below 1 is one. Close ends them.
func New(n int) *Nodes {
	ns := &Nodes{}
	for i := range max(n, 1) {
		ns.nodes = append(ns.nodes, newNode(fmt.Sprintf("node-%d", i)))
	}
	return ns
}

// Start is New for a test: the nodes end with it. Close the client before that, in the test or in a later Cleanup.
func Start(tb testing.TB, n int) *Nodes {
	tb.Helper()
	ns := New(n)
	tb.Cleanup(ns.Close)
	return ns
}

// Config returns a configuration for client.New that reaches the nodes. The other fields are the caller's to set; who sets Redis as well
// must keep the Dialer that this one sets.
//
// OperationTimeout is 500 ms, longer than the client's default, since embedded nodes share the processor with the test and its race detector. PoolSize is set to more than a test will use at once: callers that queue for a connection wait on timers that the driver shares between
// all its clients, and a timer of one synctest bubble must not be met in another.
func (ns *Nodes) Config() client.Config {
	cfg := client.Config{OperationTimeout: 500 * time.Millisecond, PoolSize: 4096}
	for _, n := range ns.nodes {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: n.id, Addr: n.id + ":6379"})
	}
	cfg.Redis = func(node ring.Node, o *redis.Options) {
		for _, n := range ns.nodes {
			if n.id == node.ID {
				o.Dialer = n.dial
			}
		}
	}
	return cfg
}

// Len is the number of nodes.
func (ns *Nodes) Len() int { return len(ns.nodes) }

// Node returns the node with the id node-<i>. It panics when there is none.
func (ns *Nodes) Node(i int) *Node { return ns.nodes[i] }

// ByID returns a node by its id, as client.Result and Cache.Where give it; nil when there is none.
func (ns *Nodes) ByID(id string) *Node {
	for _, n := range ns.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}

// Close ends all nodes and waits for their goroutines.
func (ns *Nodes) Close() {
	for _, n := range ns.nodes {
		n.close()
	}
}
