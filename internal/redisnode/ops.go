// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one script call. Arguments are strings, byte slices and numbers.
type Call struct {
	Script Script
	Keys   []string
	Args   []any
}

// Result is the outcome of one call of several.
type Result struct {
	Reply any
	Err   error
}

// Get reads one value. A missing key is nil and false; an empty value is not nil. The bytes are
// the caller's. One round trip.
func (s *Session) Get(ctx context.Context, key string) ([]byte, bool, error) {
	l, err := s.open(ctx, "GET", s.node.cfg.Timeout)
	if err != nil {
		return nil, false, err
	}
	var v []byte
	if err = l.send("GET", key); err == nil {
		v, err = l.value(largest)
	}
	return v, v != nil, s.done(ctx, l, "GET", err)
}

// getTwo reads two values by one command.
func (s *Session) getTwo(ctx context.Context, key, beside string) (v, b []byte, err error) {
	l, err := s.open(ctx, "MGET", s.node.cfg.Timeout)
	if err != nil {
		return nil, nil, err
	}
	var both [2][]byte
	if err = l.send("MGET", key, beside); err == nil {
		err = l.values(both[:])
	}
	if err = s.done(ctx, l, "MGET", err); err != nil {
		return nil, nil, err
	}
	return both[0], both[1], nil
}

// MGet reads several values in one round trip, in the order of keys: nil for a key that is missing
// or not a string, an empty slice for an empty value. The bytes are the caller's. No keys, no
// round trip. The timeout is that of the whole reply, so the caller bounds how many keys it asks for.
func (s *Session) MGet(ctx context.Context, keys []string) ([][]byte, error) {
	return s.mget(ctx, s.node.cfg.Timeout, keys)
}

func (s *Session) mget(ctx context.Context, limit time.Duration, keys []string) ([][]byte, error) {
	if len(keys) == 0 {
		return [][]byte{}, nil
	}
	values := make([][]byte, len(keys))
	if err := s.mgetInto(ctx, limit, keys, values); err != nil {
		return nil, err
	}
	return values, nil
}

// mgetInto is mget with the memory for the values given: one for each key.
func (s *Session) mgetInto(ctx context.Context, limit time.Duration, keys []string, values [][]byte) error {
	l, err := s.open(ctx, "MGET", limit)
	if err != nil {
		return err
	}
	if err = l.sendTo("MGET", keys); err == nil {
		err = l.values(values)
	}
	return s.done(ctx, l, "MGET", err)
}

// Eval runs a script: EVALSHA, and EVAL if the server does not know the script (any more). A nil
// reply is nil without an error. It is sent once (NOSCRIPT means that it was not run); after a
// timeout it may still be carried out later.
func (s *Session) Eval(ctx context.Context, c Call) (any, error) {
	if err := s.begin(ctx, "EVALSHA"); err != nil {
		return nil, err
	}
	defer s.leave()
	reply, err := s.eval(ctx, "EVALSHA", c.Script.SHA1, &c)
	if noScript(err) {
		reply, err = s.eval(ctx, "EVAL", c.Script.Source, &c)
	}
	if err != nil {
		return nil, s.failure(ctx, c.op(), err)
	}
	s.answered()
	return reply, nil
}

func (s *Session) eval(ctx context.Context, command, script string, c *Call) (any, error) {
	l, err := s.prepare(ctx, s.node.options.ReadTimeout, s.wires.others)
	if err != nil {
		return nil, err
	}
	l.putCall(command, script, c)
	return s.roundTrip(ctx, l)
}

// roundTrip sends the one command that was put to l, reads its reply, and gives the wire back.
func (s *Session) roundTrip(ctx context.Context, l *wire) (reply any, err error) {
	if err = s.flush(ctx, l); err == nil {
		reply, err = l.answer()
	}
	s.settle(l, s.wires.others, err)
	return reply, err
}

// flush sends what was put to l. What is long may take one timeout to be sent, and its answer another.
func (s *Session) flush(ctx context.Context, l *wire) error {
	isLong := len(l.long) > 0 || len(l.w) > bufferSize
	err := l.flush()
	if err == nil && isLong {
		err = l.conn.SetReadDeadline(deadline(ctx, time.Now(), s.node.options.ReadTimeout))
	}
	return err
}

// EvalMany runs several scripts in one round trip, in order, but not as one unit: others may come
// in between, and each call succeeds or fails by itself. Those which the server answers with
// NOSCRIPT go out again as EVAL, in one more round trip, and so behind the others.
func (s *Session) EvalMany(ctx context.Context, cs []Call) []Result {
	results := make([]Result, len(cs))
	if len(cs) == 0 {
		return results
	}
	if err := s.begin(ctx, "EVALSHA"); err != nil {
		return allFailed(results, err)
	}
	defer s.leave()
	s.pipeline(ctx, results, func(i int) string { return cs[i].op() }, func(l *wire, i int) { l.putCall("EVALSHA", cs[i].Script.SHA1, &cs[i]) })
	again, at := pickCalls(cs, results, noScript)
	if len(again) > 0 {
		second := make([]Result, len(again))
		s.pipeline(ctx, second, func(i int) string { return again[i].op() }, func(l *wire, i int) { l.putCall("EVAL", again[i].Script.Source, &again[i]) })
		for i, r := range second {
			results[at[i]] = r
		}
	}
	return results
}

// op is the command's name, for errors.
func (c Call) op() string { return "EVALSHA " + c.Script.Name }

// allFailed is the outcome of a pipeline that was not sent.
func allFailed(results []Result, err error) []Result {
	for i := range results {
		results[i].Err = err
	}
	return results
}

// pipeline sends as many commands as there is room for results, in one round trip: put puts one to a wire, op is its name for errors. What fails all of them, or all from
// one on, failed once: it counts once, and they share the error. An error reply is its own command's.
func (s *Session) pipeline(ctx context.Context, into []Result, op func(i int) string, put func(l *wire, i int)) {
	l, err := s.prepare(ctx, s.node.options.ReadTimeout, s.wires.others)
	if err != nil {
		allFailed(into, s.failure(ctx, op(0), err))
		return
	}
	for i := range into {
		put(l, i)
	}
	err = s.flush(ctx, l)
	var lost error // why the wire is of no use, although it goes on
	n := 0
	for err == nil && n < len(into) {
		into[n].Reply, into[n].Err = l.answer()
		switch refused := into[n].Err; {
		case refused == nil, replied(refused):
			n++
		case errors.As(refused, new(replyError)):
			lost = refused
			n++
		default:
			err = refused
		}
	}
	s.settle(l, s.wires.others, cmp.Or(err, lost, into[0].Err))
	answered := false
	for i := range into[:n] {
		if answered = answered || into[i].Err == nil; into[i].Err != nil {
			into[i].Err = s.failure(ctx, op(i), into[i].Err)
		}
	}
	if n < len(into) {
		allFailed(into[n:], s.failure(ctx, op(n), err))
	}
	if answered {
		s.answered()
	}
}

// pickCalls gives the calls whose results failed in a certain way, and where they were.
func pickCalls(cs []Call, results []Result, failed func(error) bool) (calls []Call, at []int) {
	for i, r := range results {
		if failed(r.Err) {
			calls, at = append(calls, cs[i]), append(at, i)
		}
	}
	return calls, at
}

func noScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

func runChanged(err error) bool { return errors.Is(err, ErrRunChanged) }

// MGet is [Session.MGet] on the present session; again on the next one if the server's run changed, or if the
// connection turned out to be dead (readAgain).
func (n *Node) MGet(ctx context.Context, keys []string) ([][]byte, error) {
	if len(keys) == 0 {
		return [][]byte{}, nil
	}
	values := make([][]byte, len(keys))
	if err := n.mgetInto(ctx, n.cfg.Timeout, keys, values); err != nil {
		return nil, err
	}
	return values, nil
}

func (n *Node) mgetInto(ctx context.Context, limit time.Duration, keys []string, values [][]byte) error {
	err := n.Session().mgetInto(ctx, limit, keys, values)
	for tries := 1; readAgain(err, tries); tries++ {
		err = n.Session().mgetInto(ctx, limit, keys, values)
	}
	if err == nil {
		n.reads.learn(values)
	}
	return err
}

// Eval is [Session.Eval] on the present session, and on the next one if the server's run changed,
// which is found out before the call is sent. It is not for a fill: that belongs to the session
// which was granted its lease.
func (n *Node) Eval(ctx context.Context, c Call) (any, error) {
	reply, err := n.Session().Eval(ctx, c)
	if runChanged(err) {
		reply, err = n.Session().Eval(ctx, c)
	}
	return reply, err
}

// EvalMany is [Session.EvalMany] on the present session; calls that were not sent because the
// server's run changed go to the next one. Like Eval it is not for fills.
func (n *Node) EvalMany(ctx context.Context, cs []Call) []Result {
	results := n.Session().EvalMany(ctx, cs)
	again, at := pickCalls(cs, results, runChanged)
	if len(again) > 0 {
		for i, r := range n.Session().EvalMany(ctx, again) {
			results[at[i]] = r
		}
	}
	return results
}
