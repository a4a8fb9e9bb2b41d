// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// The errors that a caller of a cache can meet, besides the loader's own error and its own context's. All are possibly
// wrapped: use errors.Is. A node that fails is none of them on a read: a read that cannot use the cache goes to the loader. (But where
// there is no loader, in a cache that is itself the truth, it is a *NodeError.)
var (
	// ErrNotFound says that the source has no such row. A loader returns it (wrapped or not) to say so, and then it is
	// remembered for the negative TTL; any other error is never remembered. Callers always get this very error, without what the
	// loader had wrapped around it: also those for whom it was loaded.
	ErrNotFound = errors.New("shelf: not found")

	// ErrInvalidKey is returned, before any I/O, for a key that is empty or longer than MaxKeyBytes; and by the raw operations of a Client for a
	// name that belongs to the caches.
	ErrInvalidKey = errors.New("shelf: invalid key")

	// ErrInvalidTTL is returned for a time to live below 1 ms or above MaxTTL.
	ErrInvalidTTL = errors.New("shelf: invalid TTL")

	// ErrInvalidTag is returned for a tag that is empty or longer than MaxTagBytes, and by InvalidateTag on a cache without tags.
	ErrInvalidTag = errors.New("shelf: invalid tag")

	// ErrUnencodable is returned by Set for a value that the codec cannot encode; it wraps the codec's error. A *loaded* value is
	// returned to the caller and just not stored.
	ErrUnencodable = errors.New("shelf: value cannot be encoded")

	// ErrTooLarge is returned by Set for a value that encodes to more than MaxValueBytes (512 MiB in Client.Set). A *loaded* value of that size is
	// returned to the caller and just not stored.
	ErrTooLarge = errors.New("shelf: value too large")

	// ErrNotTruth is returned by Set on a cache that stands before a source: such a write could overtake another one and
	// stay. Use Write or WriteThrough there.
	ErrNotTruth = errors.New("shelf: Set on a cache with a source")

	// ErrOutboxFull is in the error of an invalidation that failed and is not repeated, because as many as Config.OutboxSize are waiting already.
	ErrOutboxFull = invalidation.ErrOutboxFull

	// ErrSecondDeletesFull is in the error of an invalidation that was done, but will not be followed by its second delete, because as many as
	// Config.SecondDeleteQueue are waiting already.
	ErrSecondDeletesFull = invalidation.ErrLaterFull

	// ErrClosed is returned by every call after Close.
	ErrClosed = stampede.ErrClosed

	// ErrOverloaded is returned when the queue before the loader is full, or the wait in it was too long.
	ErrOverloaded = stampede.ErrOverloaded

	// ErrSourceDown is returned for a key that would have to be loaded while the breaker on the cache's loader is open (CacheConfig.NoSourceBreaker). It
	// wraps the loader's latest error.
	ErrSourceDown = errors.New("shelf: the source is failing")

	// ErrRecursiveLoad is returned when a loader asks the cache for the key that it is loading.
	ErrRecursiveLoad = stampede.ErrRecursiveLoad

	// ErrLoadTimeout is returned when the loader took longer than LoadTimeout; it wraps context.DeadlineExceeded.
	ErrLoadTimeout = stampede.ErrLoadTimeout

	// ErrGoexit is returned when the loader ended its goroutine (runtime.Goexit, or FailNow of a test) instead of returning.
	ErrGoexit = stampede.ErrGoexit

	// ErrClusterMode is returned by New for a node that runs in Redis Cluster mode: there the server decides where a key
	// lives, here the client does.
	ErrClusterMode = redisnode.ErrClusterMode
)

// PanicError is the error that callers get when a loader panicked. It carries the value and the stack.
type PanicError = stampede.PanicError

// ConfigError says which field of a configuration is wrong, what it holds, and the rule that it breaks.
type ConfigError struct {
	Field string // as written in Go, for example "CacheConfig.TTL" or "Config.Nodes[2].Weight"
	Value any
	Rule  string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("shelf: %s is %v: %s", e.Field, e.Value, e.Rule)
}

// cacheError says of which cache an error is; a *ConfigError says by itself what is wrong.
func cacheError(cache string, err error) error {
	var ce *ConfigError
	if err == nil || errors.As(err, &ce) {
		return err
	}
	return fmt.Errorf("shelf: cache %s: %w", cache, err)
}

// leafError is a *ConfigError of what one of our packages says about a part of the configuration that is handed on to it. They all say it in the
// form "package: Field is value: rule".
func leafError(structure string, err error) error {
	_, text, ok1 := strings.Cut(err.Error(), ": ")
	field, text, ok2 := strings.Cut(text, " is ")
	value, rule, ok3 := strings.Cut(text, ": ")
	if !ok1 || !ok2 || !ok3 {
		return fmt.Errorf("shelf: %s: %w", structure, err)
	}
	return &ConfigError{structure + "." + field, value, rule}
}

// KeyError ties an error to the key that it belongs to: in calls that take many keys, and in raw operations that a node refuses for one name.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("shelf: key %s: %v", shortKey(e.Key), e.Err) }

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// keyErrors joins the errors of single keys. Its text names the first few: that of a call for a hundred thousand keys must fit into a log.
type keyErrors []error

func (e keyErrors) Error() string {
	const most = 8
	var b strings.Builder
	for i, err := range e[:min(len(e), most)] {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(err.Error())
	}
	if n := len(e) - most; n > 0 {
		fmt.Fprintf(&b, "\nand %d more", n)
	}
	return b.String()
}

func (e keyErrors) Unwrap() []error { return e }

// NodeError says that a call could not do its work on a node, and for which keys: a write (an invalidation, a Set), a read of a cache that is itself
// the truth, a raw operation, a key of Warm.
type NodeError struct {
	Node  string   // the node's id
	Cache string   // the cache's name; "" of raw operations, and of entries that Close names
	Op    string   // the method in small letters: "invalidate", "set", "get", "clear", "invalidate tag", "warm", "mget", ...; or "second delete", "filter" (CacheConfig.Filter), "invalidate copy" (HotCopies, Copies)
	Tag   string   // of InvalidateTag
	Keys  []string // the caller's keys that were not reached; none of Clear and InvalidateTag; from Client.Close, the names of entries
	Err   error
}

func (e *NodeError) Error() string {
	var b strings.Builder
	of := ""
	if e.Cache != "" {
		of = " of cache " + e.Cache
	}
	b.WriteString("shelf: " + e.Op)
	if e.Tag != "" {
		b.WriteString(" " + shortKey(e.Tag))
	}
	if len(e.Keys) == 0 {
		b.WriteString(of)
	}
	fmt.Fprintf(&b, " on node %s failed", e.Node)
	for i, k := range e.Keys {
		if i == 3 {
			fmt.Fprintf(&b, " and %d more", len(e.Keys)-i)
			break
		}
		if i == 0 {
			b.WriteString(" for")
		}
		b.WriteString(" " + shortKey(k))
	}
	if len(e.Keys) > 0 {
		b.WriteString(of)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns the cause.
func (e *NodeError) Unwrap() error { return e.Err }

// Unavailable reports whether err says that a node could not be reached or could not do its work just now, so that trying
// again later may help. A node that refuses this client (NOAUTH, WRONGPASS, NOPERM: a password or an ACL rule is missing, here or there) counts as one that cannot
// be reached: reads go to the loader, and it helps again when somebody has set that right.
func Unavailable(err error) bool { return redisnode.IsTrouble(err) }

// NodesOnly reports whether err is not nil and says nothing but that nodes were not reached: every error in it is a *NodeError. After a
// Write it tells "the database has the change, but a node may still have the old row" from "the write itself failed".
func NodesOnly(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself: every branch counts
	case nil:
		return false
	case *NodeError:
		return true
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if !NodesOnly(part) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	default:
		return NodesOnly(errors.Unwrap(err))
	}
}

// UnreachedKeys returns the keys of all *NodeErrors in err. A failed invalidation is repeated by itself; to be invalidated again are keys of ErrOutboxFull, and
// of a cache that is itself the truth. The order is not defined. A Clear or an InvalidateTag that failed has none. From the error of Client.Close they are names of entries (Cache.Where), not keys.
func UnreachedKeys(err error) []string {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself: every branch counts
	case nil:
		return nil
	case *NodeError:
		return e.Keys
	case interface{ Unwrap() []error }:
		var keys []string
		for _, part := range e.Unwrap() {
			keys = append(keys, UnreachedKeys(part)...)
		}
		return keys
	default:
		return UnreachedKeys(errors.Unwrap(err))
	}
}

// shortKey renders a key for a message: quoted, because keys are arbitrary bytes, and cut, because they may be long.
func shortKey(key string) string {
	const most = 64
	if len(key) > most {
		return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%q", key)
}
