// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one script call. Arguments are strings, byte slices and integers.
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
	reply, err := s.client.EvalSha(ctx, c.Script.SHA1, c.Keys, c.Args...).Result()
	if noScript(err) {
		reply, err = s.client.Eval(ctx, c.Script.Source, c.Keys, c.Args...).Result()
	}
	switch {
	case errors.Is(err, redis.Nil):
		s.answered()
		return nil, nil
	case err != nil:
		return nil, s.failure(ctx, c.op(), err)
	}
	s.answered()
	return reply, nil
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
	s.pipeline(ctx, cs, results, redis.Pipeliner.EvalSha, func(c Call) string { return c.Script.SHA1 })
	again, at := pickCalls(cs, results, noScript)
	if len(again) > 0 {
		second := make([]Result, len(again))
		s.pipeline(ctx, again, second, redis.Pipeliner.Eval, func(c Call) string { return c.Script.Source })
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

// evalFunc is EvalSha or Eval.
type evalFunc = func(p redis.Pipeliner, ctx context.Context, script string, keys []string, args ...any) *redis.Cmd

func (s *Session) pipeline(ctx context.Context, cs []Call, into []Result, eval evalFunc, script func(Call) string) {
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(cs))
	for i, c := range cs {
		cmds[i] = eval(pipe, ctx, script(c), c.Keys, c.Args...)
	}
	_, failed := pipe.Exec(ctx) // the first error of the commands, or why there was no connection for them
	s.take(ctx, cmds, into, failed, func(i int) string { return cs[i].op() })
}

// take reads the outcome of a pipeline. What failed all of its commands failed once: it counts once, and they share the error.
func (s *Session) take(ctx context.Context, cmds []*redis.Cmd, into []Result, failed error, op func(i int) string) {
	answered := false
	var before, shared error
	for i, cmd := range cmds {
		reply, err := cmd.Result()
		if reply == nil && err == nil {
			err = failed // a connection that was refused (a wrong password, say) leaves no trace in the commands
		}
		switch {
		case err == nil:
			into[i], answered = Result{Reply: reply}, true
		case errors.Is(err, redis.Nil):
			into[i], answered = Result{}, true
		default:
			if shared == nil || !sameFailure(err, before) {
				before, shared = err, s.failure(ctx, op(i), err)
			}
			into[i] = Result{Err: shared}
		}
	}
	if answered {
		s.answered()
	}
}

// sameFailure reports whether two commands of a pipeline failed by one cause: error replies are each command's own.
func sameFailure(a, b error) bool {
	reply := redis.Error(nil)
	return !errors.As(a, &reply) && a.Error() == b.Error()
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

func noScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

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
