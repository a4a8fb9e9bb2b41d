// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Command is one command: its name, a string, and its arguments: strings, byte slices and integers. It is not for commands that change
// the state of a connection or take it over (SELECT, MULTI, SUBSCRIBE, BLPOP, CLIENT TRACKING): the connections are shared.
type Command []any

// op is the command's name, for errors.
func (c Command) op() string {
	if name, ok := c[0].(string); ok {
		return name
	}
	return fmt.Sprint(c[0])
}

//go:embed incr.lua
var incrSource string

var incrScript = NewScript("incr", incrSource)

// Do sends one command. A nil reply is nil without an error. It is sent once; after a timeout it may still be carried out later.
func (s *Session) Do(ctx context.Context, c Command) (any, error) {
	r := s.DoMany(ctx, []Command{c})[0]
	return r.Reply, r.Err
}

// DoMany sends several commands in one round trip, in order, but not as one unit: others may come in between, and each succeeds or fails by
// itself. The timeout is that of one write and one reply each, so the caller bounds how much it sends. No commands, no round trip.
func (s *Session) DoMany(ctx context.Context, cs []Command) []Result {
	results := make([]Result, len(cs))
	if len(cs) == 0 {
		return results
	}
	if err := s.begin(ctx, cs[0].op()); err != nil {
		return allFailed(results, err)
	}
	defer s.leave()
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(cs))
	for i, c := range cs {
		cmds[i] = pipe.Do(ctx, c...)
	}
	_, failed := pipe.Exec(ctx) // the first error of the commands, or why there was no connection for them
	s.take(ctx, cmds, results, failed, func(i int) string { return cs[i].op() })
	return results
}

// Do is [Session.Do] on the present session, and on the next one if the server's run changed, which is found out before the command is sent.
// It is for writes: on a connection that turns out to be dead nobody knows whether the command was carried out, so it is not repeated.
func (n *Node) Do(ctx context.Context, c Command) (any, error) {
	reply, err := n.Session().Do(ctx, c)
	if runChanged(err) {
		reply, err = n.Session().Do(ctx, c)
	}
	return reply, err
}

// DoInt is Do for a command whose reply is an integer.
func (n *Node) DoInt(ctx context.Context, c Command) (int64, error) {
	return n.integer(c)(n.Do(ctx, c))
}

// AskInt is DoInt for a command that only reads: on a dead connection it is sent again (readAgain).
func (n *Node) AskInt(ctx context.Context, c Command) (int64, error) {
	reply, err := n.Session().Do(ctx, c)
	for tries := 1; readAgain(err, tries); tries++ {
		reply, err = n.Session().Do(ctx, c)
	}
	return n.integer(c)(reply, err)
}

func (n *Node) integer(c Command) func(reply any, err error) (int64, error) {
	return func(reply any, err error) (int64, error) {
		count, ok := reply.(int64)
		if err == nil && !ok {
			err = n.nonsense(c.op(), reply)
		}
		return count, err
	}
}

// DoMany is [Session.DoMany] on the present session; commands that were not sent because the server's run changed go to the next one.
func (n *Node) DoMany(ctx context.Context, cs []Command) []Result {
	results := n.Session().DoMany(ctx, cs)
	var again []Command
	var at []int
	for i, r := range results {
		if runChanged(r.Err) {
			again, at = append(again, cs[i]), append(at, i)
		}
	}
	for i, r := range n.Session().DoMany(ctx, again) {
		results[at[i]] = r
	}
	return results
}

// Incr adds by to a counter and returns what it is then. A counter that is made by it lives for ttl, counted in whole milliseconds, at least
// one; one that is there keeps its own. Like every write it is sent once. One script call.
func (n *Node) Incr(ctx context.Context, key string, by int64, ttl time.Duration) (int64, error) {
	reply, err := n.Eval(ctx, Call{Script: incrScript, Keys: []string{key}, Args: []any{by, ttl.Milliseconds()}})
	if err != nil {
		return 0, withoutScript(err)
	}
	text, _ := reply.(string)
	count, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, n.nonsense("EVALSHA incr", reply)
	}
	return count, nil
}

// withoutScript takes off an error reply what the engine says of the script in which a command failed: its hash, its line. The caller has sent no
// script. Since Redis 7 that comes behind the command's own error, before it came in front, of an embedded node on both sides.
func withoutScript(err error) error {
	var e *Error
	reply := redis.Error(nil)
	if !errors.As(err, &e) || !errors.As(e.Err, &reply) {
		return err
	}
	text, _, _ := strings.Cut(reply.Error(), " script: ")
	if strings.HasPrefix(text, "ERR Error ") {
		text, _, _ = strings.Cut(text, "stack traceback:") // miniredis
		text = strings.TrimSpace(strings.TrimPrefix(text[strings.LastIndex(text, ": ")+2:], "-"))
	}
	return &Error{Node: e.Node, Op: e.Op, Err: plainReply(text)}
}

// plainReply is an error reply, as the driver's are.
type plainReply string

func (r plainReply) Error() string { return string(r) }
func (plainReply) RedisError()     {}

// IsNoInteger reports whether err says that a counter is to be changed where no 64-bit integer is.
func IsNoInteger(err error) bool {
	return IsRefusal(err) && strings.Contains(err.Error(), "ERR value is not an integer")
}

// nonsense is the error for a reply that the command cannot have.
func (n *Node) nonsense(op string, reply any) error {
	return &Error{Node: n.cfg.ID, Op: op, Err: fmt.Errorf("an unexpected reply: %#v", reply)}
}

// IsRefusal reports whether err is an error reply about the command or its key (WRONGTYPE, "value is not an integer"), not about the node: the
// node is well and has not done what was asked, and asking again changes nothing.
func IsRefusal(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	reply := redis.Error(nil)
	return errors.As(e.Err, &reply) && !IsTrouble(err)
}
