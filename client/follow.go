// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	// namedFor is how long the word of a Sentinel counts: that another server is the primary, while that could not be verified yet, or that the primary is down.
	namedFor = 2 * time.Second
	// silentFor is after how much silence of all Sentinels their word is done without.
	silentFor = 2 * time.Second
	// moveDue is how long after a server was found to be a replica commands wait for the move to the new primary.
	moveDue = time.Second
	// maxTried bounds the memory of who was asked.
	maxTried = 64
	// maxAsked is how many servers are asked in one look: a Sentinel that names a thousand which are not there must not keep the look from the right one.
	maxAsked = 8
	// notBack is how long a majority must be newer than a move to undo it.
	notBack = 30 * time.Second
)

// following is what a shard knows about who is, and who may be, its primary. Under the shard's mu.
//
// Sentinels may be silent, partitioned and late, or lie; a server that was the primary may come back as one. So what a Sentinel says is never enough. Another server becomes
// a node's primary only if
//
//   - it says itself, when it is asked now, that it is a primary, and it is the primary of no other node of this client, and
//   - one of these speaks for it:
//
// A majority of all Sentinels names it. That is who decides (Redis Sentinel promotes by a majority), and no minority can.
//
// Or it has gone on with the history of writes of the primary that we have, and a Sentinel names it. That is what a replica does that was promoted: it keeps the id of the history that it
// comes from (master_replid2 of INFO replication). A server of another shard has another one, and so has an old primary that comes back: it begins a history, or goes on with
// its own. So this needs no Sentinel to be honest; what the one that names it adds is that the promotion was meant: it might be a copy that somebody has cut
// loose to look at, while the primary is well.
//
// Or it has gone on with that history, and our primary does not answer us (or says that it is a replica), and a Sentinel finds it down too, or none answers. That is the promotion before
// it is announced: Sentinel publishes it when it sees the new role, up to a second after that. Two witnesses, since a copy may be cut loose at the moment of a hiccup of ours.
//
// Or we have never met the primary, all Sentinels were asked, no majority has answered, and one of them names it. A service must start while most of the Sentinels are dead.
//
// One thing more: after a promotion that was followed before its announcement, the Sentinels still name the old primary for a second. If it is restarted just then, it is a primary, and the
// majority's. So a majority brings nobody back to where it came from unless it has seen a failover since (its epoch is higher), or 30 s later.
type following struct {
	history  string    // id of the history of the primary that we have; "": we have met none
	demoted  bool      // it says that it is a replica
	since    time.Time // when it first said so
	sick     time.Time
	named    map[string]time.Time // by a Sentinel, and when
	majority string               // whom most Sentinels named when they were asked last
	epoch    int64                // the highest of theirs
	minority map[string]int64     // where none was: who was named, with the epoch
	down     time.Time            // when a Sentinel last said that the primary is down
	answered time.Time            // when a Sentinel last said anything
	promoted map[string]bool      // replicas that say that they are primaries
	tried    map[string]time.Time // who was asked whether it is a primary, and when

	silence error // why no majority said so when it was asked last

	asking bool // the Sentinels are being asked
	asked  time.Time

	left      string // where the primary was before
	leftAt    time.Time
	leftEpoch int64
	moved     chan struct{} // closed by the next move
}

// evidence is what speaks for a server that says that it is a primary, see following.
type evidence struct {
	majority, named, minority bool // of all Sentinels; by one at least; by one, when all were asked and no majority answered
	descends                  bool // it has gone on with the history of our primary
	known                     bool // we have one
	sick, down                bool // it does not answer us; a Sentinel finds it down too, or none answers
}

func (e evidence) suffices() bool {
	switch {
	case e.majority:
		return true
	case e.known:
		return e.descends && (e.named || e.sick && e.down)
	default:
		return e.minority
	}
}

// speaksFor collects the evidence. r is what the server has said just now.
func (sh *shard) speaksFor(addr string, r redisnode.Replication, now time.Time) evidence {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	back := addr == sh.left && now.Sub(sh.leftAt) < notBack && sh.epoch <= sh.leftEpoch
	_, named := sh.named[addr]
	_, minority := sh.minority[addr]
	silent := now.Sub(sh.answered) > silentFor && now.Sub(sh.sick) > silentFor
	return evidence{
		majority: addr == sh.majority && !back,
		named:    named, minority: minority,
		descends: sh.history != "" && (r.Continues == sh.history || r.ID == sh.history),
		known:    sh.history != "",
		sick:     !sh.sick.IsZero(),
		down:     sh.demoted || now.Sub(sh.down) < namedFor || silent,
	}
}

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

// count takes in what the Sentinels claim, until a majority agrees or all have spoken. unknown is how many say that they know no such primary.
func (sh *shard) count(claims <-chan redisnode.Claim) (unknown int) {
	votes, epochs := make(map[string]int), make(map[string]int64)
	most := len(sh.c.cfg.Sentinel.Addrs)/2 + 1
	majority := ""
	var failed []error
	for claim := range claims {
		if claim.Err != nil {
			failed = append(failed, claim.Err)
			continue
		}
		sh.heardOf(redisnode.News{Sentinel: claim.Sentinel, Name: sh.conf.ID, Addr: claim.Addr, Down: claim.Down}, time.Now())
		if claim.Addr == "" {
			unknown++
			continue
		}
		votes[claim.Addr]++
		epochs[claim.Addr] = max(epochs[claim.Addr], claim.Epoch)
		if votes[claim.Addr] >= most {
			majority = claim.Addr
			break
		}
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.asking, sh.majority, sh.minority = false, majority, nil
	if majority == "" {
		sh.minority = epochs
	}
	sh.epoch = max(sh.epoch, epochs[majority])
	sh.undecided(failed, majority != "")
	return unknown
}

// undecided notes why the Sentinels could not say who is the primary, and tells the log when that begins. The caller holds mu.
func (sh *shard) undecided(failed []error, decided bool) {
	was := sh.silence
	switch {
	case decided:
		sh.silence = nil
	case len(failed) > 0:
		sh.silence = fmt.Errorf("%d of %d Sentinels do not answer: %w", len(failed), len(sh.c.cfg.Sentinel.Addrs), errors.Join(failed...))
	default:
		sh.silence = errors.New("the Sentinels do not agree on a primary")
	}
	if was == nil && sh.silence != nil {
		sh.c.cfg.Logger.Warn("shelf: no majority of the Sentinels says who is the primary", "node", sh.conf.ID, "error", sh.silence)
	}
}

// sentinelError is why no majority of the Sentinels says who is the primary; nil while one does.
func (sh *shard) sentinelError() error {
	if sh == nil {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.silence
}

// heardOf takes in what a Sentinel says.
func (sh *shard) heardOf(n redisnode.News, now time.Time) {
	at := sh.c.nodes[sh.node].Addr()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.answered = now
	if n.Name == "" {
		sh.asked = time.Time{} // what it has said meanwhile was missed: ask
	}
	if n.Down {
		sh.down = now
	}
	if n.Addr != "" && n.Addr != at {
		if sh.named == nil || len(sh.named) > maxTried {
			sh.named = make(map[string]time.Time)
		}
		sh.named[n.Addr] = now
	}
	if n.Addr != "" && n.Addr != at || n.Down || n.Name == "" {
		signal(sh.news)
	}
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
