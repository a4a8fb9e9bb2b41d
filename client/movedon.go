// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"slices"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// moveDue is how long after a server was found to be a replica commands wait for the move to the new primary.
const moveDue = time.Second

// demote notes that the server says that it is a replica. The caller holds mu.
func (sh *shard) demote(now time.Time) {
	if !sh.demoted {
		sh.demoted, sh.since = true, now
	}
	signal(sh.news)
}

// movedOn is for commands that a node has refused because its server is a replica now, or that were not sent to it because that is known: it waits for the move that is due, for
// two operation timeouts at the most, and says whether they are worth another try. from is where they were sent. If no move comes for a second, nobody waits for it any more.
func (c *Client) movedOn(node int, from string, results []redisnode.Result) bool {
	sh := c.shards[node]
	if c.sentinels == nil || sh == nil || !slices.ContainsFunc(results, func(r redisnode.Result) bool { return redisnode.IsReadOnly(r.Err) || redisnode.IsDown(r.Err) }) {
		return false
	}
	readOnly := slices.ContainsFunc(results, func(r redisnode.Result) bool { return redisnode.IsReadOnly(r.Err) })
	sh.mu.Lock()
	if c.nodes[node].Addr() != from {
		sh.mu.Unlock()
		return true // meanwhile
	}
	if readOnly {
		sh.demote(time.Now())
		sh.asked = time.Time{}
	}
	moved, due := sh.moved, sh.demoted && time.Since(sh.since) < moveDue
	sh.mu.Unlock()
	if !due {
		return false
	}
	signal(sh.news)
	timer := time.NewTimer(2 * c.cfg.OperationTimeout)
	defer timer.Stop()
	select {
	case <-moved:
		return true
	case <-timer.C:
		return false
	}
}
