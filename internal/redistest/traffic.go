// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"fmt"
	"slices"
	"time"
)

// Direction is one of the two ways through a [Proxy].
type Direction int

// The directions.
const (
	ToServer Direction = iota // what the client sends
	ToClient                  // what the server sends
)

// String is "to server" or "to client".
func (d Direction) String() string { return [...]string{"to server", "to client"}[d] }

// directions is a set, one bit for each.
type directions uint8

const bothDirections directions = 1<<ToServer | 1<<ToClient

func (s directions) has(d Direction) bool { return s&(1<<d) != 0 }

// Traffic is a part of what goes through a [Proxy]: some connections, present and
// future, in one direction or both. Its methods set a fault for that part, at any
// time, and return when it holds.
//
// A fault lasts until it is set anew for the same connections (the latest one
// that covers a connection wins, kind by kind) or healed. It also takes hold of a
// connection that comes to belong to the part later, from the bytes on that made
// it belong: what [Traffic.Only] picked by a command is hit from that command on.
// A negative argument is a failed step and changes nothing.
type Traffic struct {
	proxy *Proxy
	pick  func(*ProxyConn) bool // nil: every connection
	dirs  directions
}

// Only narrows the traffic to the connections for which pick returns true. It is
// asked when a connection is accepted, with each of its first 4 KiB sent by the
// client, and whenever a fault changes. It may call the methods of the
// [ProxyConn], and must not call those of the proxy.
func (t Traffic) Only(pick func(c *ProxyConn) bool) Traffic {
	if outer := t.pick; outer != nil {
		t.pick = func(c *ProxyConn) bool { return outer(c) && pick(c) }
	} else {
		t.pick = pick
	}
	return t
}

// Existing narrows the traffic to the connections accepted before this call.
func (t Traffic) Existing() Traffic {
	next := t.proxy.Accepted()
	return t.Only(func(c *ProxyConn) bool { return c.Index() < next })
}

// New narrows the traffic to the connections accepted after this call.
func (t Traffic) New() Traffic {
	next := t.proxy.Accepted()
	return t.Only(func(c *ProxyConn) bool { return c.Index() >= next })
}

// ToServer narrows the traffic to what clients send.
func (t Traffic) ToServer() Traffic {
	t.dirs &= 1 << ToServer
	return t
}

// ToClient narrows the traffic to what the server sends.
func (t Traffic) ToClient() Traffic {
	t.dirs &= 1 << ToClient
	return t
}

// Delay passes each piece on d after it came in, plus a random part of jitter;
// for both directions a round trip so takes twice that longer. Bytes keep their
// order, and what comes in meanwhile waits at the same time, not in turn, so
// throughput stays (up to 4 MiB in flight). Timers are good to about 1 ms.
// Delay(0, 0) ends it.
func (t Traffic) Delay(d, jitter time.Duration) {
	t.set("delay", min(int64(d), int64(jitter)), rule{kind: delayRule, delay: d, jitter: jitter})
}

// DelaySome passes a share of the pieces, drawn at random, on d later than they would be, as a network does that loses a packet now and then. Bytes
// keep their order, so what comes behind such a piece on the same connection waits for it. The share is from 0 to 1; DelaySome(0, 0) ends it.
func (t Traffic) DelaySome(share float64, d time.Duration) {
	least := int64(d)
	if !(share >= 0 && share <= 1) { // NaN too
		least = -1
	}
	t.set("delay some", least, rule{kind: someRule, share: share, delay: d})
}

// Bandwidth passes at most so many bytes a second, for each connection and
// direction by itself. Bandwidth(0) ends the limit.
func (t Traffic) Bandwidth(bytesPerSecond int) {
	t.set("bandwidth", int64(bytesPerSecond), rule{kind: rateRule, n: int64(bytesPerSecond)})
}

// CutAfter closes each connection, both ends of it, when n more bytes have passed
// in a direction: exactly these arrive, then the end of the stream. It counts
// from the moment at which the fault takes hold of the connection. CutAfter(0)
// hangs up at once, on a new connection right after its accept.
func (t Traffic) CutAfter(n int) {
	t.set("cut after", int64(n), rule{kind: cutRule, n: int64(n)})
}

// BlackHole lets nothing pass: connections stay open, new ones are accepted, and
// all is silent, an end of stream too. The server does not see new ones.
//
// It behaves as TCP does over a network that drops packets: nothing is lost. When
// the fault is healed what was sent meanwhile arrives, late: commands are
// executed although their senders gave up long ago. Where that is not wanted,
// call [Traffic.Reset] before Heal.
func (t Traffic) BlackHole() {
	t.set("black hole", 0, rule{kind: holeRule})
}

// Heal ends every fault for this traffic. What was held back passes at once.
func (t Traffic) Heal() {
	t.set("heal", 0, rule{kind: healRule})
}

// Reset ends the present connections with a TCP reset to both sides, whatever the
// direction, and returns when they are gone. What was on its way is lost. New
// connections are not touched.
func (t Traffic) Reset() {
	var hit []*ProxyConn
	for _, c := range t.proxy.Conns() {
		if t.pick == nil || t.pick(c) {
			hit = append(hit, c)
			c.end(true)
		}
	}
	for _, c := range hit {
		<-c.done
	}
}

// set adds a rule for this traffic. The least argument must not be negative.
func (t Traffic) set(what string, least int64, r rule) {
	r.pick, r.dirs = t.pick, t.dirs
	p := t.proxy
	p.step(what, func() error {
		if least < 0 {
			return fmt.Errorf("argument %d: must not be negative", least)
		}
		p.ruled++
		r.id = p.ruled
		p.rules = append(slices.DeleteFunc(p.rules, r.supersedes), r)
		if r.kind == healRule && r.pick == nil && r.dirs == bothDirections {
			p.rules = nil
		}
		for _, c := range p.conns {
			c.refresh(p.rules)
		}
		return nil
	})
}

// The kinds of rules. A connection's faults are the rules that cover it, the
// latest of each kind, after the latest that heals it.
type ruleKind int

const (
	delayRule ruleKind = iota
	someRule
	rateRule
	cutRule
	holeRule
	healRule
)

type rule struct {
	id            int
	kind          ruleKind
	pick          func(*ProxyConn) bool
	dirs          directions
	delay, jitter time.Duration
	share         float64 // of the pieces
	n             int64
}

// supersedes reports whether nothing of the older rule can show behind r.
func (r rule) supersedes(older rule) bool {
	return r.pick == nil && older.dirs&^r.dirs == 0 && (older.kind == r.kind || r.kind == healRule)
}
