// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// sentinelTimeout bounds a question to a Sentinel, and before that the dial: they are few, far apart, and asked seldom.
	sentinelTimeout = 500 * time.Millisecond
	sentinelPool    = 4
)

// SentinelConfig says which Sentinels there are.
type SentinelConfig struct {
	// Addrs are all of them, host:port.
	Addrs []string
	// Username and Password are what the Sentinels ask for; "" is none.
	Username, Password string
	// Options may change the driver's options, for each Sentinel: TLSConfig, Dialer. Nil changes nothing.
	Options func(*redis.Options)
}

// News is something that a Sentinel has published about a primary.
type News struct {
	Sentinel string // its address
	Name     string // the primary's; "": the subscription has begun (again), and anything may have been missed
	Addr     string // of another server that it calls the primary now; "": the news is something else
	Down     bool   // it finds the primary down, or a failover has begun
}

// Claim is what one Sentinel answers about one primary. It is believed by nobody: see the client.
type Claim struct {
	Sentinel string
	Addr     string // where it says that the primary is; "": it knows none of that name
	Epoch    int64  // of its configuration of that primary: grows with each failover
	Down     bool   // it finds the primary down, or a failover is under way
	Err      error  // it did not answer: the rest is zero
}

// Names are the primaries that one Sentinel watches.
type Names struct {
	Sentinel string
	Names    []string
	Err      error
}

// Sentinels are Redis Sentinels that watch the same primaries (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/). All are asked at
// the same time, so that a silent one delays nobody. Safe for concurrent use.
type Sentinels struct {
	cfg     SentinelConfig
	clients []*redis.Client
	ctx     context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup // questions under way
}

// NewSentinels makes the clients. It does not connect.
func NewSentinels(cfg SentinelConfig) *Sentinels {
	s := &Sentinels{cfg: cfg}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, addr := range cfg.Addrs {
		o := s.options(addr)
		o.Dialer = s.quiet(o.Dialer)
		s.clients = append(s.clients, redis.NewClient(o))
	}
	return s
}

// options are the driver's options for one Sentinel: RESP2, in which its answers are flat lists in every version.
func (s *Sentinels) options(addr string) *redis.Options {
	o := &redis.Options{Addr: addr, Username: s.cfg.Username, Password: s.cfg.Password, ConnMaxIdleTime: maxIdle}
	if s.cfg.Options != nil {
		s.cfg.Options(o)
	}
	o.Addr, o.Protocol, o.DB = addr, 2, 0
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = sentinelTimeout, sentinelTimeout, sentinelTimeout, sentinelTimeout
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries = -1, 1
	o.PoolSize, o.PipelinePoolSize, o.MaxActiveConns, o.MinIdleConns, o.MaxIdleConns = sentinelPool, -1, 0, 0, 0
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	if o.Dialer == nil {
		dialer := *o // NewDialer keeps what it is given
		o.Dialer = redis.NewDialer(&dialer)
	}
	return o
}

// quiet is a dialer that never fails, as [Session.dial], and that ends with s.
func (s *Sentinels) quiet(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(s.ctx, cancel) //nolint:contextcheck // two contexts end a dial: the driver's and the Sentinels'
		defer stop()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return noConn{&connectError{"connecting", err}}, nil
		}
		return conn, nil
	}
}

// Ask asks all Sentinels where a primary is. The channel brings one Claim of each, as they come, and is closed behind the last; whoever has
// enough need not read on. A Sentinel that is silent has an Err after some 1 s.
func (s *Sentinels) Ask(ctx context.Context, name string) <-chan Claim {
	return askAll(s, func(i int) Claim { return s.claim(ctx, i, name) })
}

// Names asks all Sentinels which primaries they watch. It is like Ask.
func (s *Sentinels) Names(ctx context.Context) <-chan Names {
	return askAll(s, func(i int) Names {
		reply, err := s.clients[i].Do(ctx, "SENTINEL", "MASTERS").Slice()
		n := Names{Sentinel: s.cfg.Addrs[i]}
		if err != nil {
			n.Err = fmt.Errorf("sentinel %s: %w", n.Sentinel, err)
		}
		for _, one := range reply {
			if name := pairs(one)["name"]; name != "" {
				n.Names = append(n.Names, name)
			}
		}
		return n
	})
}

func askAll[T any](s *Sentinels, ask func(i int) T) <-chan T {
	answers := make(chan T, len(s.clients))
	var left sync.WaitGroup
	for i := range s.clients {
		left.Add(1)
		s.workers.Go(func() {
			defer left.Done()
			answers <- ask(i)
		})
	}
	s.workers.Go(func() {
		left.Wait()
		close(answers)
	})
	return answers
}

// claim asks one Sentinel for the address that it gives to clients, which during a failover that it leads is the new primary's a moment before its
// own record is; and for that record.
func (s *Sentinels) claim(ctx context.Context, i int, name string) Claim {
	pipe := s.clients[i].Pipeline()
	addr := pipe.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
	master := pipe.Do(ctx, "SENTINEL", "MASTER", name)
	_, failed := pipe.Exec(ctx)
	c := Claim{Sentinel: s.cfg.Addrs[i]}
	pair, err := addr.Slice()
	switch {
	case errors.Is(err, redis.Nil):
		return c
	case err != nil:
		c.Err = fmt.Errorf("sentinel %s: %w", c.Sentinel, err)
		return c
	case len(pair) != 2:
		if failed == nil {
			failed = fmt.Errorf("the reply is not an address: %q", pair)
		} // else there was no connection, and the commands do not know it
		c.Err = fmt.Errorf("sentinel %s: %w", c.Sentinel, failed)
		return c
	}
	c.Addr = net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1]))
	record := pairs(master.Val())
	c.Epoch, _ = strconv.ParseInt(record["config-epoch"], 10, 64)
	c.Down = saysDown(record["flags"])
	return c
}

// saysDown reads the flags of a primary's record: s_down (it finds it down), o_down (enough of them do), failover_in_progress.
func saysDown(flags string) bool {
	for flag := range strings.SplitSeq(flags, ",") {
		if flag == "s_down" || flag == "o_down" || flag == "failover_in_progress" {
			return true
		}
	}
	return false
}

// pairs reads a list of names and values, or a map of them.
func pairs(reply any) map[string]string {
	fields := make(map[string]string)
	switch reply := reply.(type) {
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			fields[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	case map[any]any:
		for k, v := range reply {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	}
	return fields
}

// Close closes the connections and waits for questions that are under way. It ends Run, but does not wait for it. Closing again, or a nil one, does nothing.
func (s *Sentinels) Close() {
	if s == nil {
		return
	}
	s.cancel()
	for _, c := range s.clients {
		_ = c.Close() // closes sockets that are in use, which may complain about it
	}
	s.workers.Wait()
}
