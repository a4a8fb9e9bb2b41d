// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

//go:embed beat.lua
var beatSource string

var beatScript = redisnode.NewScript("beat", beatSource)

const (
	beatEvery = 2 * time.Second
	// beatHolds is after how long without a beat a process counts as gone: several beats, so that a slow node or a pause of the process costs nothing.
	beatHolds = 10 * time.Second
	// beatNodes is on how many nodes processes meet. Five, so that no failure of a few leaves them without one; not all, so that the cost does not grow with both numbers.
	beatNodes = 5
)

// fleet is how a process knows of the others (Config.FleetLoads). What it counts is the largest number that one of the nodes says: a node that some
// processes cannot reach, or that has just come back empty, says too few, and none says too many for longer than a beat holds.
type fleet struct {
	id, about string
	loads     int
	keys      []string
	nodes     []*redisnode.Node

	mu   sync.Mutex
	head headcount
}

// joinFleet registers the process and counts the others before its first load: a fleet that is started at once would load, each process, as if it were alone.
func (c *Client) joinFleet(ctx context.Context) {
	if c.cfg.FleetLoads == 0 {
		return
	}
	c.fleet = &fleet{
		id: rand.Text(), about: fmt.Sprintf("1 %d", time.Now().UnixMilli()), loads: c.cfg.FleetLoads,
		keys: []string{fleetPrefix + c.cfg.Namespace, aboutPrefix + c.cfg.Namespace}, nodes: c.beatNodes(),
	}
	c.limiter.SetMost(1)
	c.beat(ctx)
}

// beatNodes are the nodes with the smallest ids: the same in all processes.
func (c *Client) beatNodes() []*redisnode.Node {
	nodes := slices.Clone(c.nodes)
	slices.SortFunc(nodes, func(a, b *redisnode.Node) int { return cmp.Compare(a.ID(), b.ID()) })
	return nodes[:min(len(nodes), beatNodes)]
}

// fleetLoop beats until ctx ends. A random part is taken off each pause, so that processes that were started together do not stay together.
func (c *Client) fleetLoop(ctx context.Context) {
	for c.fleet != nil && ctx.Err() == nil {
		sleep(ctx, beatEvery-time.Duration(mrand.Float64()*float64(beatEvery)/10))
		c.beat(ctx)
	}
}

// beat is one beat on all the nodes at the same time. When none answers, what was known last stays.
func (c *Client) beat(ctx context.Context) {
	f := c.fleet
	counted := f.send(ctx, beatHolds)
	if counted == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head.take(counted, time.Now())
	c.limiter.SetMost(f.share())
}

// leaveFleet says goodbye, as far as nodes answer.
func (c *Client) leaveFleet(ctx context.Context) {
	if c.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.OperationTimeout) // also when ctx has ended: it costs no more than this
	defer cancel()
	c.fleet.send(ctx, 0)
}

// send beats, or with holds 0 leaves, and returns the largest count; 0 if no node has answered.
func (f *fleet) send(ctx context.Context, holds time.Duration) (most int) {
	counts := make([]int64, len(f.nodes))
	var wg sync.WaitGroup
	for i, n := range f.nodes {
		wg.Go(func() {
			reply, err := n.Eval(ctx, redisnode.Call{Script: beatScript, Keys: f.keys, Args: []any{f.id, holds.Milliseconds(), f.about}})
			if err == nil {
				counts[i], _ = reply.(int64)
			}
		})
	}
	wg.Wait()
	return int(slices.Max(counts))
}

// share is this process's part of the cap. f.mu is held.
func (f *fleet) share() int {
	if f.head.live == 0 {
		return 1
	}
	return max(1, f.loads/f.head.live)
}

// figures are the numbers of Stats.
func (f *fleet) figures() (live, share int) {
	if f == nil {
		return 0, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head.live, f.share()
}
