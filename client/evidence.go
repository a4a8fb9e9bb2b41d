// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

const (
	// namedFor is how long the word of a Sentinel counts: that another server is the primary, while that could not be verified yet, or that the primary is down.
	namedFor = 2 * time.Second
	// silentFor is after how much silence of all Sentinels their word is done without.
	silentFor = 2 * time.Second
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
