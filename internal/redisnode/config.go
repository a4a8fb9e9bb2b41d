// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name under which Redis files a script, not a secret
	"encoding/hex"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	defaultTimeout  = 50 * time.Millisecond
	defaultPoolSize = 16
	// Two buffers of this size a connection, where the driver has 32 KiB. A larger value is read
	// past the buffer, straight into its own memory.
	bufferSize = 16 << 10
	// An idle connection costs the server some 20 KiB; a process that has become quiet gives
	// them back.
	maxIdle = 5 * time.Minute
)

// Script is a Lua script: its name, for errors; its text; and the hex SHA-1 of the text, by which
// EVALSHA calls it.
type Script struct {
	Name, Source, SHA1 string
}

// NewScript is the script with that name and text.
func NewScript(name, source string) Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return Script{Name: name, Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// Config says which node to talk to, and how.
type Config struct {
	// ID names the node in errors. It must be given.
	ID string
	// Addr is where the node listens, host:port. It must be given.
	Addr string
	// Timeout bounds each wait of an operation: for a place in the pool, for a dial (twice that
	// with TLS), for a write and for a reply. 0 means 50 ms. An operation on a node that hangs
	// ends after one Timeout, after two if it had to wait for a connection first. A node that
	// answers each step just in time can take five, place, dial, HELLO, INFO, the command, and a read six: PING before the command.
	//
	// Get and GetBeside, and those of a [Tracking], wait for less, once fifty replies are known and while Run runs: for four times the 99th percentile of late, at least two fifths of Timeout. The
	// command goes on to Timeout, and only what becomes of it then counts for or against the node.
	//
	// Get and GetBeside ask anew where, of late, at least one of a hundred replies, and three of them, took more than six times the median, and more than 3 ms: after four
	// times the median, at least 1 ms, over another connection, after as long again, and then after twice as long each time, in all no longer than they would wait.
	Timeout time.Duration
	// PoolSize is the largest number of connections (but there are two at least), and so of operations under way at once;
	// pipelines count as one. 0 means 16. Half of them are for reads alone, which share commands and
	// seldom need more than 4. Bodies ([Node.GetBody]) have up to LargeConns more.
	PoolSize int
	// Options may change the driver's options: TLSConfig, Username and Password or a provider of
	// them, Dialer, DB, ClientName, OnConnect (called after the package's own), Limiter. It is
	// called once, by [New]. What the package needs is set afterwards, whatever Options did:
	// Addr, Protocol (3), the timeouts and pool sizes, ContextTimeoutEnabled, no retries and one
	// dial, no client-side cache, no maintenance notifications, no CLIENT SETINFO.
	Options func(*redis.Options)
	// Scripts are loaded into the node on every connect.
	Scripts []Script
	// OnRun is called when the node is seen in a run of the server for the first time; prev is
	// the zero Info at the first connection. It runs inside the operation that found out, before any connection to the new run carries a command: it must
	// return quickly and must not use the Node. Nil means nobody wants to know.
	OnRun func(prev, cur Info)
	// OnReplication is called with what the server says about its replication: on every connect, before the connection carries a command, and by
	// Run each second. It is never called twice at once, each time with a reading that was sent after the last one's answer (or is of another
	// stream), must return quickly and must not use the Node. Servers without INFO say nothing. Nil means nobody wants to know.
	OnReplication func(Replication)
	// OnState is called with each change of the node's [State], in their order and never twice at once, by whoever has brought it about. It must
	// return quickly and must not send anything to the Node. Nil means nobody wants to know.
	OnState func(StateChange)
	// WriteCheck is a name under which nothing is ever stored: Run removes it once a second to see whether the node takes writes. A node that is read
	// and takes none must not be believed, since no invalidation reaches it. "" means no such check, as for a replica. An ACL user needs +unlink for the name; without it the check says nothing.
	WriteCheck string
	// OnRefusal is called with a command that the server has answered with an error that speaks against the node ([IsTrouble]), or with not knowing
	// the command: at most once a minute, by the goroutine whose command it was. Health checks are not meant. It must return quickly. Nil means nobody wants to know.
	OnRefusal func(*Error)
	// Push is called with the names of keys that have changed since they were read through a [Tracking], in the order of
	// the changes, and with nil when a Tracking has ended: any may have changed. It is never called twice at once. It must
	// return quickly, since pushes and the answers that keep the Tracking fresh wait behind it, and must not use the Node.
	// Nil means that no Tracking is built.
	Push func(names []string)
}

func (c *Config) validate() error {
	switch {
	case c.ID == "":
		return fmt.Errorf("redisnode: ID is empty: every node must have one")
	case c.Addr == "":
		return fmt.Errorf("redisnode: Addr of node %q is empty: must be host:port", c.ID)
	case c.Timeout < 0:
		return fmt.Errorf("redisnode: Timeout of node %q is %v: must not be negative", c.ID, c.Timeout)
	case c.PoolSize < 0:
		return fmt.Errorf("redisnode: PoolSize of node %q is %d: must not be negative", c.ID, c.PoolSize)
	}
	for i, s := range c.Scripts {
		if s.SHA1 != NewScript(s.Name, s.Source).SHA1 {
			return fmt.Errorf("redisnode: Scripts[%d].SHA1 of node %q is %q: must be the SHA-1 of %q in lower-case hex", i, c.ID, s.SHA1, s.Name)
		}
	}
	return nil
}

// options is the driver's configuration: preset, then the user's hook, then what must hold.
func (c *Config) options() *redis.Options {
	o := &redis.Options{Addr: c.Addr, ConnMaxIdleTime: maxIdle, ReadBufferSize: bufferSize, WriteBufferSize: bufferSize}
	if c.Options != nil {
		c.Options(o)
	}
	o.Addr = c.Addr
	o.Protocol = 3
	o.DialTimeout = c.Timeout
	if o.TLSConfig != nil {
		o.DialTimeout = 2 * c.Timeout // a second round trip, and cryptography on both sides
	}
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = c.Timeout, c.Timeout, c.Timeout
	o.ContextTimeoutEnabled = true // off by default: a caller's deadline would be ignored
	o.MaxRetries = -1              // a lease token is sent once
	o.DialerRetries = 1            // five by default, 100 ms apart
	o.PoolSize = c.PoolSize
	o.PipelinePoolSize = -1 // pipelines share the pool; by default they have ten connections more
	o.MaxActiveConns, o.MinIdleConns, o.MaxIdleConns = 0, 0, 0
	o.DisableIdentity = true // an error reply for each connection to a Redis below 7.2
	// The default, "auto", looks the host name up inside NewClient, for up to 2 s.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.Limiter != nil {
		o.Limiter = limiter{o.Limiter}
	}
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil // stale for milliseconds after a write
	if o.Dialer == nil {
		dialer := *o // NewDialer keeps what it is given
		o.Dialer = redis.NewDialer(&dialer)
	}
	return o
}

// wires is how many connections a session has for reads.
func (c *Config) wires() int { return max(1, c.PoolSize/2) }

// dialFunc is the type of redis.Options.Dialer.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)
