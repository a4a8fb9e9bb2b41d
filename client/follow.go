// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

const (
	// rolesEvery is how often replicas are asked what they are while the primary is sick, jittered by a quarter; rolesLater after sickFor, when it is no failover that
	// takes place just now.
	rolesEvery = 40 * time.Millisecond
	rolesLater = 250 * time.Millisecond
	sickFor    = time.Minute
	// askSick, askLater and askWell are how often the Sentinels are asked for the primary: while it is sick, after ten seconds of that, and while it is well.
	askSick  = 200 * time.Millisecond
	askLater = time.Second
	askWell  = 10 * time.Second
	// sickLook is how often a shard looks whether its primary is sick: one atomic load.
	sickLook = 50 * time.Millisecond
	// maxTried bounds the memory of who was asked.
	maxTried = 64
	// maxAsked is how many servers are asked in one look: a Sentinel that names a thousand which are not there must not keep the look from the right one.
	maxAsked = 8
)

// isSick says whether the primary is of no use, and keeps since when.
func (sh *shard) isSick(now time.Time) bool {
	n := sh.c.nodes[sh.node]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch sick := n.State() != redisnode.Up || n.Ailing() || sh.demoted || n.Addr() == redisnode.Unknown; {
	case !sick:
		sh.sick = time.Time{}
	case sh.sick.IsZero():
		sh.sick = now
		signal(sh.news)
	}
	return !sh.sick.IsZero()
}

// follow is one look: it asks, and considers whoever may be the primary.
func (sh *shard) follow(ctx context.Context) {
	now := time.Now()
	if sh.isSick(now) {
		sh.askReplicas(ctx)
	}
	if sh.shouldAsk(now) {
		sh.workers.Go(func() {
			sh.count(sh.c.sentinels.Ask(ctx, sh.conf.ID))
			signal(sh.news)
		})
	}
	for _, addr := range sh.candidates(now) {
		if ctx.Err() != nil || sh.consider(ctx, addr) {
			return
		}
	}
}

// askReplicas asks each replica what it is, and does not wait for the answers.
func (sh *shard) askReplicas(ctx context.Context) {
	for _, p := range *sh.replicas.Load() {
		if p.asking.Swap(true) {
			continue // it is silent
		}
		sh.workers.Go(func() {
			defer p.asking.Store(false)
			if role, err := p.node.AskRole(ctx); err == nil && role == redisnode.RolePrimary {
				sh.isPromoted(p.addr)
			}
		})
	}
}

func (sh *shard) isPromoted(addr string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.promoted == nil {
		sh.promoted = make(map[string]bool)
	}
	sh.promoted[addr] = true
	signal(sh.news)
}

// shouldAsk says whether it is time to ask the Sentinels, and notes that it is done.
func (sh *shard) shouldAsk(now time.Time) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	every := askWell
	if !sh.sick.IsZero() {
		every = sh.askEvery(now)
	}
	if sh.asking || now.Sub(sh.asked) < every {
		return false
	}
	sh.asking, sh.asked = true, now
	return true
}

// askEvery is how often somebody is asked who may be dead. The caller holds mu.
func (sh *shard) askEvery(now time.Time) time.Duration {
	if !sh.sick.IsZero() && now.Sub(sh.sick) > askWell {
		return askLater
	}
	return askSick
}

// candidates are the servers to be asked now whether they are the primary, in the order of what speaks for them. One that was asked is asked again as often as the Sentinels are, since
// it may be dead; but not a replica that has just said that it is one.
func (sh *shard) candidates(now time.Time) []string {
	at := sh.c.nodes[sh.node].Addr()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.tried == nil || len(sh.tried) > maxTried {
		sh.tried = make(map[string]time.Time)
	}
	var all []string
	seen := map[string]bool{at: true, "": true}
	add := func(addr string) {
		if !seen[addr] && len(all) < maxAsked && (sh.promoted[addr] || now.Sub(sh.tried[addr]) >= sh.askEvery(now)) {
			seen[addr] = true
			all = append(all, addr)
			sh.tried[addr] = now
		}
	}
	for addr := range sh.promoted {
		add(addr)
	}
	sh.promoted = nil // they are asked again
	add(sh.majority)
	for addr, when := range sh.named {
		if now.Sub(when) > namedFor {
			delete(sh.named, addr)
			continue
		}
		add(addr)
	}
	for _, addr := range highestFirst(sh.minority) {
		add(addr)
	}
	return all
}

// consider asks a server what it is, and makes it the node's primary if it may be.
func (sh *shard) consider(ctx context.Context, addr string) bool {
	r, synced, err := sh.question(ctx, addr)
	if err != nil || r.Role != redisnode.RolePrimary || !sh.speaksFor(addr, r, time.Now()).suffices() {
		return false
	}
	return sh.moveTo(ctx, addr, r, synced)
}

// question asks the server at an address about itself. synced is its run id, if it was seen in that run as a replica in sync.
func (sh *shard) question(ctx context.Context, addr string) (r redisnode.Replication, synced string, err error) {
	for _, p := range *sh.replicas.Load() {
		if p.addr == addr {
			if r, err = p.node.AskReplication(ctx); err == nil && p.wasSynced(r.RunID) {
				synced = r.RunID
			}
			return r, synced, err
		}
	}
	n, err := redisnode.New(sh.server(addr))
	if err != nil {
		return r, "", err
	}
	defer n.Close() //nolint:errcheck // always nil
	r, err = n.AskReplication(ctx)
	return r, "", err
}

// moveTo makes the server at an address the node's primary. It is met before anything else is done, so that what the node may have lost is owed from here on.
func (sh *shard) moveTo(ctx context.Context, addr string, r redisnode.Replication, synced string) bool {
	c, n := sh.c, sh.c.nodes[sh.node]
	c.moving.Lock()
	for i, other := range c.nodes {
		if i != sh.node && other.Addr() == addr {
			c.moving.Unlock()
			return false // a Sentinel has mixed them up
		}
	}
	from := n.Addr()
	moved := n.Move(addr, synced)
	c.moving.Unlock()
	if !moved {
		return false
	}
	sh.mu.Lock()
	sh.left, sh.leftAt, sh.leftEpoch = from, time.Now(), sh.epoch
	sh.history, sh.demoted, sh.sick, sh.down = r.ID, false, time.Time{}, time.Time{}
	sh.named, sh.promoted, sh.tried, sh.minority, sh.majority = nil, nil, nil, nil, ""
	close(sh.moved)
	sh.moved = make(chan struct{})
	sh.mu.Unlock()
	_, err := n.Probe(ctx)
	if from == redisnode.Unknown {
		return true // found, not changed
	}
	c.cfg.Logger.Info("shelf: node has another primary", "node", sh.conf.ID, "from", from, "to", addr)
	c.tell(Event{Kind: EventPrimary, Node: sh.conf.ID, From: from, To: addr, Err: err})
	return true
}

// rest waits until it is time for the next look.
func (sh *shard) rest(ctx context.Context) {
	for ctx.Err() == nil {
		now := time.Now()
		pause := sickLook
		sh.mu.Lock()
		sick, pending, asked := sh.sick, len(sh.named) > 0, sh.asked
		sh.mu.Unlock()
		switch {
		case sick.IsZero() && !pending && now.Sub(asked) < askWell: // well
		case sick.IsZero() || now.Sub(sick) > sickFor:
			pause = rolesLater
		default:
			pause = rolesEvery*3/4 + rand.N(rolesEvery/2) //nolint:gosec // a draw, not a secret
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-sh.news:
			timer.Stop()
			return
		case <-timer.C:
		}
		timer.Stop()
		if pause != sickLook || sh.isSick(time.Now()) {
			return
		}
	}
}
