// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// NoExpiry is the time to live of what stays until it is deleted (or evicted), in Client.Set, SetNX, MSet and Incr, and what Client.TTL says of it.
// It is a number that no subtraction of times gives by accident.
const NoExpiry time.Duration = math.MinInt64 + 1

// Get returns the bytes under a name; a name without any is nil and false, and no error. An empty value is not nil. The bytes are the caller's.
// One round trip; many concurrent reads of a node share round trips. This is plain Redis data beside the caches: see Set for the rules.
func (c *Client) Get(ctx context.Context, name string) (value []byte, found bool, err error) {
	n, err := c.beginRaw(ctx, name)
	if err != nil {
		return nil, false, err
	}
	defer c.writes.leave()
	value, found, err = n.Get(ctx, name)
	return value, found, c.rawError(n, "get", err, name)
}

// Set stores bytes under a name, whatever was there. nil is stored as an empty value. At most 512 MiB (ErrTooLarge). One round trip.
//
// It is for plain Redis data beside the caches, as are Get, SetNX, MGet, MSet, Delete, Expire, TTL and Incr. A name is used as it is given, without
// the namespace, and lives on the node that the ring gives for it ([Client.Node]). It has 1 to MaxKeyBytes bytes. Names that belong to the
// caches are refused with ErrInvalidKey: those that begin with '~', and those that begin as the entries of a cache of this client do,
// "<namespace>/<cache>:". Caches of other clients on the same nodes are not known here. (A user of the nodes who may see one namespace only needs names
// that begin with "<namespace>/".)
//
// A TTL must be given: 1 ms to MaxTTL, or NoExpiry; zero and all else is ErrInvalidTTL. The node counts whole milliseconds; what is beyond them is
// cut off.
//
// Raw values have no path of their own as a cache's large ones have (CacheConfig.LargeValueBytes): what is not through within OperationTimeout fails, and
// small reads of the node may wait for it.
//
// Nothing stands in for a node that fails: that is a *NodeError with node, operation and names (Unavailable tells whether later may help). When
// it is of a write, the write may have been done, or may be done yet; writes are never repeated by themselves, reads only on a connection that
// turned out to be dead. An answer that refuses this one name (a list is there, no number is there) is a *KeyError. When ctx has ended before the
// call, its error is returned as it is; when it ends meanwhile, the *NodeError wraps it. After Close every call is ErrClosed; Close waits for
// those under way.
func (c *Client) Set(ctx context.Context, name string, value []byte, ttl time.Duration) error {
	if err := firstError(checkRawTTL("set", name, ttl, true), checkRawValue(name, value)); err != nil {
		return err
	}
	n, err := c.beginRaw(ctx, name)
	if err != nil {
		return err
	}
	defer c.writes.leave()
	_, err = n.Do(ctx, setCommand(name, value, ttl))
	return c.rawError(n, "set", err, name)
}

// SetNX is Set where nothing is there yet; stored says whether that was so. It makes a simple lock: the value is a random token and ttl bounds
// how long a holder that died keeps others out. After an error it is not known whether it was stored: read the name and look for the token.
// The name is used as it is given, without the namespace.
func (c *Client) SetNX(ctx context.Context, name string, value []byte, ttl time.Duration) (stored bool, err error) {
	if err := firstError(checkRawTTL("setnx", name, ttl, true), checkRawValue(name, value)); err != nil {
		return false, err
	}
	n, err := c.beginRaw(ctx, name)
	if err != nil {
		return false, err
	}
	defer c.writes.leave()
	reply, err := n.Do(ctx, append(setCommand(name, value, ttl), "NX"))
	return reply != nil, c.rawError(n, "setnx", err, name)
}

// Expire gives what is under a name a new time to live, from now; found says whether something is there. ttl is 1 ms to MaxTTL: neither zero
// nor a negative one deletes, as it would in Redis, and NoExpiry is refused too (Client.Node(name).Persist takes an expiry away). One round trip.
func (c *Client) Expire(ctx context.Context, name string, ttl time.Duration) (found bool, err error) {
	if err := checkRawTTL("expire", name, ttl, false); err != nil {
		return false, err
	}
	n, err := c.beginRaw(ctx, name)
	if err != nil {
		return false, err
	}
	defer c.writes.leave()
	set, err := n.DoInt(ctx, redisnode.Command{"PEXPIRE", name, ttl.Milliseconds()})
	return set == 1, c.rawError(n, "expire", err, name)
}

// TTL returns what is left of the life of what is under a name, in whole milliseconds (so 0 is less than one), or NoExpiry; found says whether
// something is there. Compare with NoExpiry first: it is a negative number, and so below every bound. One round trip.
func (c *Client) TTL(ctx context.Context, name string) (left time.Duration, found bool, err error) {
	n, err := c.beginRaw(ctx, name)
	if err != nil {
		return 0, false, err
	}
	defer c.writes.leave()
	ms, err := n.AskInt(ctx, redisnode.Command{"PTTL", name})
	switch {
	case err != nil:
		return 0, false, c.rawError(n, "ttl", err, name)
	case ms == -1: // https://redis.io/docs/latest/commands/pttl/
		return NoExpiry, true, nil
	case ms < 0:
		return 0, false, nil
	}
	return time.Duration(ms) * time.Millisecond, true, nil
}

// Incr adds by, which may be negative, to a counter and returns what it is then, exactly, as a signed 64-bit number. A counter that is not there
// starts at zero and gets ttl (or NoExpiry); one that is there keeps the life that it has: a limit of n a minute is Incr(ctx, name, 1, time.Minute)
// compared with n. A name that holds no number, or an overflow, is a *KeyError and changes nothing.
//
// The name is used as it is given, without the namespace (see Set). An Incr that failed with a *NodeError may have been done: who repeats it may count twice. One round trip.
func (c *Client) Incr(ctx context.Context, name string, by int64, ttl time.Duration) (int64, error) {
	if err := checkRawTTL("incr", name, ttl, true); err != nil {
		return 0, err
	}
	n, err := c.beginRaw(ctx, name)
	if err != nil {
		return 0, err
	}
	defer c.writes.leave()
	var count int64
	if ttl == NoExpiry {
		count, err = n.DoInt(ctx, redisnode.Command{"INCRBY", name, by})
	} else {
		count, err = n.Incr(ctx, name, by, ttl)
	}
	return count, c.rawError(n, "incr", err, name)
}

// beginRaw is what every raw operation on one name begins with: it checks, passes the gate that Close waits at, and finds the node. Whoever gets
// a node leaves the gate.
func (c *Client) beginRaw(ctx context.Context, name string) (*redisnode.Node, error) {
	if err := c.enterRaw(ctx, name); err != nil {
		return nil, err
	}
	return c.nodes[c.ring.OwnerIndex(name)], nil
}

func (c *Client) enterRaw(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := c.checkRawName(name); err != nil {
			return err
		}
	}
	if err := c.writes.enter(); err != nil { // before ctx's error: what is over is over for everybody
		return err
	}
	if err := ctx.Err(); err != nil {
		c.writes.leave()
		return err
	}
	return nil
}

// checkRawName refuses what belongs to the caches: a raw write there would be foreign bytes under an entry, a lease that nobody gives back, or a
// mark that refuses fills.
func (c *Client) checkRawName(name string) error {
	if err := checkKey(name); err != nil {
		return err
	}
	if name[0] == '~' {
		return fmt.Errorf("%w: %s: names that begin with '~' are the caches' own (leases, marks)", ErrInvalidKey, shortKey(name))
	}
	// A prefix holds one ':', at its end: all of it is before the name's first.
	if i := strings.IndexByte(name, ':'); i >= 0 {
		if _, taken := c.prefixes.Load(name[:i+1]); taken {
			return fmt.Errorf("%w: %s: names that begin with %q are the entries of a cache of this client", ErrInvalidKey, shortKey(name), name[:i+1])
		}
	}
	return nil
}

// checkRawTTL is the rule for the time to live of a raw name; op is the operation, name "" where it has many.
func checkRawTTL(op, name string, ttl time.Duration, orNone bool) error {
	if orNone && ttl == NoExpiry {
		return nil
	}
	if ttl >= time.Millisecond && ttl <= MaxTTL {
		return nil
	}
	if name != "" {
		op += " of " + shortKey(name)
	}
	is, also := ttl.String(), ""
	if orNone {
		also = ", or NoExpiry"
	} else if ttl == NoExpiry {
		is, also = "NoExpiry", "; to take an expiry away: Client.Node(name).Persist"
	}
	return fmt.Errorf("%w: %s: it is %s: must be from 1ms to %v%s", ErrInvalidTTL, op, is, MaxTTL, also)
}

func checkRawValue(name string, value []byte) error {
	if len(value) > maxValueBytes {
		return &KeyError{name, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(value), maxValueBytes)}
	}
	return nil
}

func setCommand(name string, value []byte, ttl time.Duration) redisnode.Command {
	if value == nil {
		value = []byte{}
	}
	if ttl == NoExpiry {
		return redisnode.Command{"SET", name, value}
	}
	return redisnode.Command{"SET", name, value, "PX", ttl.Milliseconds()}
}

// rawError is what the caller of a raw operation on one name gets.
func (c *Client) rawError(n *redisnode.Node, op string, err error, name string) error {
	switch {
	case err == nil:
		return nil
	case redisnode.IsNoInteger(err):
		return &KeyError{name, fmt.Errorf("%s: it does not hold a 64-bit integer: %w", op, err)}
	case redisnode.IsRefusal(err):
		return &KeyError{name, err}
	}
	return &NodeError{Node: n.ID(), Op: op, Keys: []string{name}, Err: closedError(err)}
}

// closedError makes the error of a call whose connection Close has cut, because its own time was over, say ErrClosed.
func closedError(err error) error {
	if errors.Is(err, redisnode.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}
