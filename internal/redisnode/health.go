// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// beatEvery is how often something must be heard of a node: an operation that was answered will do, else it is asked.
	beatEvery = 200 * time.Millisecond
	// beatSoon is how soon it is asked again after something has failed, and while it recovers.
	beatSoon = 50 * time.Millisecond
	// checkEvery is how often it is asked for its time and role, and whether it takes writes.
	checkEvery = time.Second
)

// Run is the health loop. Each second it does what Probe does; in between it sends a PING if nothing else was answered for 200 ms. After a failure
// it asks every 50 ms, and a node that is Down five times a second. What comes of it, and of the operations, is the node's [State].
//
// It returns nil when ctx ends or the node is closed; its owner waits for that. Without it the State stays Up, the clock stays what it was at the last
// connect, and a restart of the server is noticed by the next operation. As long as it runs, and Push is set, the Node has a [Tracking] where it can. Call it once.
func (n *Node) Run(ctx context.Context) error {
	defer n.startTracking(ctx)()
	defer n.breaker.run()()
	var h health
	for {
		h.beat(ctx, n)
		if !n.rest(ctx) {
			return nil
		}
	}
}

// rest waits until the next heartbeat is due; false says that there is none.
func (n *Node) rest(ctx context.Context) bool {
	timer := time.NewTimer(n.breaker.pause())
	defer timer.Stop()
	kick := n.breaker.kick
	for {
		select {
		case <-ctx.Done():
			return false
		case <-n.done:
			return false
		case <-timer.C:
			return true
		case <-kick: // an operation has failed
			timer.Reset(beatSoon)
			kick = nil
		}
	}
}

// health is what the loop remembers.
type health struct {
	checked time.Time // when the last check was sent
	failed  bool      // it did
	rolled  time.Time // when the pace was
}

// beat is one turn of the loop.
func (h *health) beat(ctx context.Context, n *Node) {
	if ctx.Err() != nil || n.closed() {
		return
	}
	now, s, addr := time.Now(), n.State(), n.Addr()
	heard := n.breaker.heard.Swap(false)
	if now.Sub(h.rolled) >= beatEvery-beatSoon {
		h.rolled = now
		n.pace.roll()
	}
	var err error
	switch {
	case s == Down, s == Recovering, h.failed, now.Sub(h.checked) >= checkEvery-beatEvery/2:
		h.checked = now
		_, err = n.Probe(ctx) // kept in Info.LastError
		h.failed = err != nil
	case heard:
		n.breaker.tick(now)
		return
	default:
		err = n.Session().ping(ctx)
	}
	if ctx.Err() != nil || n.closed() || n.Addr() != addr { // moved meanwhile: what the old server said, or did not, speaks neither for nor against the new one
		return
	}
	now = time.Now()
	n.breaker.beat(now, judge(err), err)
	n.breaker.tick(now)
}

// ping is the light heartbeat.
func (s *Session) ping(ctx context.Context) error {
	if !s.enter() {
		return s.blame(ctx, "PING", s.gone())
	}
	defer s.leave()
	err := s.client.Ping(ctx).Err()
	if err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		err = s.blame(ctx, "PING", err)
		s.node.mu.Lock()
		s.node.info.LastError = err
		s.node.mu.Unlock()
		return err
	}
	s.answered()
	return nil
}

// ask is the check: PING, which a server that is loading or busy refuses although it answers the rest; the clock; the role; and a write that changes nothing.
func (s *Session) ask(ctx context.Context) error {
	if !s.enter() {
		return s.blame(ctx, "TIME", s.gone())
	}
	defer s.leave()
	s.asking.Add(1)
	defer s.asking.Add(-1)
	pipe := s.client.Pipeline()
	ping := pipe.Ping(ctx)
	clock, info := pipe.Time(ctx), pipe.Info(ctx, "replication")
	var write *redis.IntCmd
	if s.node.cfg.WriteCheck != "" {
		write = pipe.Unlink(ctx, s.node.cfg.WriteCheck)
	}
	sent := time.Now()
	_, err := pipe.Exec(ctx)
	received := time.Now()
	r := parseReplication(info.Val()) // also of a node that takes no writes: it may be somebody's replica now
	r.At = sent
	s.node.mu.Lock()
	if s.present() { // of a server that the node has left nothing is to be known
		if !clock.Val().IsZero() { // zero: there was no connection
			s.node.clock.add(newReading(sent, received, clock.Val()))
		}
		s.node.info.see(r.Role)
	}
	s.node.mu.Unlock()
	s.node.replicated(s, r)
	if err = s.checked(ctx, err, ping, clock, info, write); err == nil {
		s.answered()
	}
	return err
}

// checked is what was wrong with a check of which Exec returned err.
func (s *Session) checked(ctx context.Context, err error, ping *redis.StatusCmd, clock *redis.TimeCmd, info *redis.StringCmd, write *redis.IntCmd) error {
	reply := redis.Error(nil)
	if err != nil && !errors.As(err, &reply) {
		if write != nil && !clock.Val().IsZero() && timedOut(err) {
			return s.blame(ctx, "UNLINK", &writesHanging{err})
		}
		return s.blame(ctx, "TIME", err)
	}
	if err != nil && ping.Err() == nil && clock.Err() == nil && info.Err() == nil && (write == nil || write.Err() == nil) {
		return s.blame(ctx, "TIME", err) // a connection that was refused (a wrong password, say) leaves no trace in the commands
	}
	if err := ping.Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") && troubleReply(err.Error()) {
		return s.blame(ctx, "PING", err)
	}
	for _, cmd := range []redis.Cmder{clock, info} {
		if err := cmd.Err(); err != nil && troubleReply(err.Error()) {
			return s.blame(ctx, "TIME", err)
		}
	}
	if write != nil && refusesWrites(write.Err()) {
		return s.blame(ctx, "UNLINK", write.Err())
	}
	return nil // miniredis has no such section of INFO
}

// writesHanging is the timeout of a check whose reads were answered.
type writesHanging struct{ error }

func (e *writesHanging) Error() string {
	return "reads are answered, and writes are not: " + e.error.Error()
}
func (e *writesHanging) Timeout() bool   { return true }
func (e *writesHanging) Temporary() bool { return false }
