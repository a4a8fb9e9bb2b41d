// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrRunChanged says that the server was restarted (or replaced) since the session began. The
	// command was not sent. It is not trouble: the new process may be perfectly well.
	ErrRunChanged = errors.New("the server process changed: this session ended with the old one")
	// ErrClusterMode says that the node runs with cluster-enabled yes. The error it comes in
	// names node, address and rule.
	ErrClusterMode = errors.New("the node runs in cluster mode")
	// ErrClosed says that the Node was closed.
	ErrClosed = errors.New("the node was closed")
)

// Error is what an operation returns if it failed for any other reason than the end of the
// caller's own context (which is returned as it is). Err is the driver's error or one of this
// package's; an error reply of the server is a redis.Error.
type Error struct {
	Node string // the node's ID
	Op   string // the command, as in "GET" or "EVALSHA fill"
	Err  error
}

// Error gives all three parts.
func (e *Error) Error() string { return "redisnode: " + e.Node + ": " + e.Op + ": " + e.Err.Error() }

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

// troubleCodes begin error replies which say that the node as a whole is unwell, or of no use to
// this client. A node that can be read but not written is among them: no invalidation reaches it,
// so what it holds must not be believed.
var troubleCodes = []string{
	"READONLY", "MISCONF", "NOREPLICAS", "OOM", "LOADING", "MASTERDOWN", "BUSY", "CLUSTERDOWN", "MOVED", "ASK",
	"NOAUTH", "WRONGPASS", "NOPERM", "ERR max number of clients",
}

// unwritableCodes are those of a node that takes no write at all: one such reply is enough to stop reading there.
var unwritableCodes = []string{"READONLY", "MISCONF", "NOREPLICAS"}

// aliveCodes are those of a node that can still be read and invalidated, though it takes no new entry (OOM: what is deleted is deleted), or refuses
// this user one command (NOPERM). To stop reading there would cost the hits and gain nothing.
var aliveCodes = []string{"OOM", "NOPERM"}

// IsTrouble reports whether err speaks against the node: it could not be reached, did not answer
// in time, closed the connection, talked nonsense, runs in the wrong mode, refuses this client, or
// cannot be written (READONLY, MISCONF, NOREPLICAS, OOM, LOADING, MASTERDOWN and the like). The
// end of a caller's context, [ErrRunChanged], [ErrClosed], [ErrTrackingOver] and ordinary error
// replies such as WRONGTYPE do not. [ErrDown] does. A full pool does (the node is too slow for the load), as a timeout.
func IsTrouble(err error) bool {
	var e *Error
	if !errors.As(err, &e) || errors.Is(err, ErrRunChanged) || errors.Is(err, ErrClosed) || errors.Is(err, ErrTrackingOver) {
		return false
	}
	if reply := redis.Error(nil); errors.As(e.Err, &reply) {
		return troubleReply(reply.Error())
	}
	return true
}

func troubleReply(msg string) bool { return hasCode(msg, troubleCodes) }

// refusesWrites reports whether a reply is that of a node which takes no writes.
func refusesWrites(err error) bool { return err != nil && hasCode(err.Error(), unwritableCodes) }

// hasCode reports whether an error reply begins with one of the codes.
func hasCode(msg string, codes []string) bool {
	for _, code := range codes {
		if strings.HasPrefix(msg, code) {
			return true
		}
		// Redis 6 hides the code of a command that failed inside a script in the middle of the text:
		// "ERR Error running script (call to f_...): @user_script:3: -READONLY You can't write ...".
		if strings.HasPrefix(msg, "ERR Error running script") && strings.Contains(msg, "-"+code+" ") {
			return true
		}
	}
	return false
}

// IsTimeout reports whether the node (or its pool of connections) did not answer within the
// node's own timeout. The caller's own deadline is not meant.
func IsTimeout(err error) bool {
	var e *Error
	return errors.As(err, &e) && timedOut(e.Err)
}

// IsWrongType reports whether err says that the key holds something that is not a string.
func IsWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// IsPoolTimeout reports whether no connection came free within the timeout: the load of this process
// was more than its connections carry. The command was not sent. It is also an [IsTimeout].
func IsPoolTimeout(err error) bool { return errors.Is(err, redis.ErrPoolTimeout) }

func timedOut(err error) bool {
	var t net.Error
	return errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &t) && t.Timeout()
}

// failure turns the driver's error into what the caller of a command gets, and remembers it.
func (s *Session) failure(ctx context.Context, op string, err error) error {
	err = s.blame(ctx, op, err)
	var e *Error
	if errors.As(err, &e) {
		now := time.Now()
		s.node.failures.note(e, now)
		if v := judge(e); v >= bad && !s.node.bodies && s.present() {
			s.node.breaker.failed(now, v, e)
		}
	}
	return err
}

// judge says what the end of an operation says about the node. Callers' own cancellations and deadlines say nothing, nor do a full pool, the
// user's own limiter and a new run of the server; a miss and an error reply about the command are answers.
func judge(err error) verdict {
	var e *Error
	var making *connectError
	var hanging *writesHanging
	var held *limited
	reply := redis.Error(nil)
	switch {
	case err == nil:
		return good
	case !errors.As(err, &e), errors.Is(err, ErrRunChanged), errors.Is(err, ErrClosed), errors.Is(err, ErrTrackingOver), IsDown(err), IsPoolTimeout(err), errors.As(e.Err, &held):
		return neutral
	case errors.As(e.Err, &making): // whatever stopped the connection stops all of them
		return bad
	case errors.As(e.Err, &hanging):
		return writesHang
	case !errors.As(e.Err, &reply):
		return bad
	case hasCode(reply.Error(), unwritableCodes):
		return unwritable
	case troubleReply(reply.Error()) && !hasCode(reply.Error(), aliveCodes):
		return bad
	}
	return good
}

// blame is failure for a health check, which Info.LastError tells of.
func (s *Session) blame(ctx context.Context, op string, err error) error {
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		err = authenticating(err, reply.Error())
	case errors.Is(err, ErrRunChanged):
	case s.node.closed():
		err = ErrClosed
	default:
		if ended := callerEnded(ctx, err); ended != nil {
			return ended
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			err = &notTheCallers{err}
		}
	}
	e := &Error{Node: s.node.cfg.ID, Op: op, Err: err}
	if IsTrouble(e) && !IsPoolTimeout(e) && s.present() {
		s.node.ailing.Store(true)
	}
	return e
}

// authenticating says what to do about a node that does not let this client in.
func authenticating(err error, reply string) error {
	switch {
	case strings.HasPrefix(reply, "NOAUTH"):
		return &connectError{"the node wants a password, or a user and a password (Config.Redis)", err}
	case strings.HasPrefix(reply, "WRONGPASS"):
		return &connectError{"the node does not know this user and password (Config.Redis)", err}
	}
	return err
}

// Ailing reports whether the node is not sent anything ([Down], [Recovering]), or the latest command whose outcome is known failed with trouble
// ([IsTrouble]); that our own queue for a connection was too long does not count.
func (n *Node) Ailing() bool { return n.ailing.Load() || n.breaker.barred() != nil }

// answered notes that a command succeeded. It writes only what has changed: it is on every path.
func (n *Node) answered() {
	if n.ailing.Load() {
		n.ailing.Store(false)
	}
	if !n.bodies { // of a node that sends bodies, and nothing else, small operations have nothing
		n.breaker.answered()
	}
}

// answered is Node.answered, unless the answer is that of a server which the node has left.
func (s *Session) answered() {
	if s.present() {
		s.node.answered()
	}
}

// callerEnded gives the context's error if the caller's own context is why the driver gave up.
// The socket's deadline can fire a moment before the context's timer does.
func callerEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if deadline, ok := ctx.Deadline(); ok && timedOut(err) && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// notTheCallers is a timeout of the driver's own making which says that it is a context error,
// such as that of a dial. To the caller it must not look like the end of its own context.
type notTheCallers struct{ err error }

func (e *notTheCallers) Error() string { return e.err.Error() }
func (e *notTheCallers) Timeout() bool {
	return timedOut(e.err) || errors.Is(e.err, context.DeadlineExceeded)
}
func (e *notTheCallers) Temporary() bool { return false }

// connectError is what stopped a connection before it carried a command. It passes errors.Is and
// errors.As on but has no Unwrap method: the driver would take off one layer of what OnConnect
// returns, and with it the text that says what was being done.
type connectError struct {
	doing string
	err   error
}

func (e *connectError) Error() string        { return e.doing + ": " + e.err.Error() }
func (e *connectError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *connectError) As(target any) bool   { return errors.As(e.err, target) }

// modeError refuses a server that is not a plain data node.
type modeError struct{ node, addr, mode string }

func (e *modeError) Error() string {
	return "node " + e.node + " at " + e.addr + " runs in " + e.mode + " mode: must be a plain server (cluster-enabled no), since Shelf itself decides which node holds a key"
}

// Is makes errors.Is(err, ErrClusterMode) true for cluster mode.
func (e *modeError) Is(target error) bool { return target == ErrClusterMode && e.mode == "cluster" }

// IsWrongServer reports whether err says that the server is not a plain data node (it runs in cluster or in sentinel mode), which no
// waiting will cure.
func IsWrongServer(err error) bool {
	var mode *modeError
	return errors.As(err, &mode)
}
