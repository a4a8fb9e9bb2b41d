// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/ring"
)

// namesPatience bounds how long New asks for the names that begin with SentinelConfig.Prefix, and namesEvery is the pause between two tries.
const (
	namesPatience = 5 * time.Second
	namesEvery    = 100 * time.Millisecond
)

// SentinelConfig says that the nodes are the primaries that Redis Sentinels watch (https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/): any number of
// them, under one set of Sentinels. A primary's name there is the node's id, and so decides which keys it holds; its address is learnt, and followed
// when a replica is promoted.
//
// All Sentinels are asked and listened to at the same time, so that one that is silent delays nothing, and none is believed by itself: a server becomes a
// node's primary only if it says itself that it is a primary, and a majority of the Sentinels names it or it has gone on with the history of writes of the one that was. While a primary does not
// answer, its replicas are asked every 40 ms what they are, so that a promotion is followed before it is announced. A Config.OnEvent hears of each (EventPrimary).
// While no Sentinel answers, that server must have been away for two seconds. Only a client that has not met the primary yet, as at the start, takes it from fewer than a majority, when all were
// asked and no majority answers.
//
// The addresses that Sentinels and primaries tell are dialled from here: where they are others than this process can reach (containers, NAT), let the servers announce what it can
// (replica-announce-ip), or set a Dialer in Config.Redis. Sentinels that do not answer, or refuse the password, are no error of New, but where Prefix needs them: a node that nobody
// has named has an empty NodeStats.Addr, and NodeStats.SentinelError says what each of them answered.
//
// A Redis user that may do no more needs +role beside what the caches need (else replicas are asked by INFO); one of the Sentinels, if they have ACLs, +sentinel +psubscribe +ping.
type SentinelConfig struct {
	// Addrs are the addresses of the Sentinels, host:port: all of them, since a majority is one of this list. At least one.
	Addrs []string

	// Masters are the names of the primaries. Then New succeeds without the Sentinels too: a node that is not found is down until it is. A name that most of the
	// Sentinels answer not to know is an error.
	Masters []string

	// Prefix, where there are no Masters: all primaries whose names begin with it, in the eyes of a majority of the Sentinels at the time of New. If no majority answers within 5 s, or before
	// the context of New ends, or there are none, it is an error. All clients of the same nodes must find the same.
	Prefix string

	// Username and Password are those of the Sentinels; Config.Redis sets those of the nodes.
	Username, Password string

	// Redis, when not nil, is called with the driver's options for each Sentinel, to set TLSConfig or Dialer.
	Redis func(o *redis.Options)
}

// checkSentinel checks what can be checked before anybody is asked. Config.Nodes give weights and racks, and no addresses.
func (c *Config) checkSentinel() error {
	s := c.Sentinel
	if len(s.Addrs) == 0 {
		return &ConfigError{"Config.Sentinel.Addrs", "empty", "at least one Sentinel must be given"}
	}
	for i, addr := range s.Addrs {
		field := fmt.Sprintf("Config.Sentinel.Addrs[%d]", i)
		if err := checkAddr(field, addr); err != nil {
			return err
		}
		if j := slices.Index(s.Addrs, addr); j < i {
			return &ConfigError{field, strconv.Quote(addr), fmt.Sprintf("is Addrs[%d] too: a Sentinel has one vote", j)}
		}
	}
	if (len(s.Masters) == 0) == (s.Prefix == "") {
		return &ConfigError{"Config.Sentinel.Masters", fmt.Sprintf("%q, and Prefix is %q", s.Masters, s.Prefix), "either Masters or Prefix must be given, and not both"}
	}
	for i, name := range s.Masters {
		field := fmt.Sprintf("Config.Sentinel.Masters[%d]", i)
		if name == "" {
			return &ConfigError{field, `""`, "must be the name of a primary"}
		}
		if j := slices.Index(s.Masters, name); j < i {
			return &ConfigError{field, strconv.Quote(name), fmt.Sprintf("is Masters[%d] too", j)}
		}
	}
	return c.checkGiven()
}

// checkGiven checks the nodes that are given beside Sentinels.
func (c *Config) checkGiven() error {
	for i, n := range c.Nodes {
		field := fmt.Sprintf("Config.Nodes[%d]", i)
		if n.Addr != "" {
			return &ConfigError{field + ".Addr", strconv.Quote(n.Addr), "must be empty: with Config.Sentinel the addresses are learnt"}
		}
		if len(n.Replicas) > 0 {
			return &ConfigError{field + ".Replicas", fmt.Sprintf("%q", n.Replicas), "must be empty: with Config.Sentinel the addresses are learnt"}
		}
		if j := slices.IndexFunc(c.Nodes, func(m ring.Node) bool { return m.ID == n.ID }); j < i {
			return &ConfigError{field + ".ID", strconv.Quote(n.ID), fmt.Sprintf("is that of Nodes[%d] too", j)}
		}
	}
	return nil
}

// checkAddr is the rule for what is to be dialled.
func checkAddr(field, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return &ConfigError{field, strconv.Quote(addr), "must be given as host:port"}
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return &ConfigError{field, strconv.Quote(addr), "the port must be a number from 1 to 65535"}
	}
	return nil
}

// discover finds out which nodes there are, where Sentinels know it. The addresses come later, see locate.
func (c *Config) discover(ctx context.Context) (*redisnode.Sentinels, error) {
	cfg := c.Sentinel
	if cfg == nil {
		return nil, nil //nolint:nilnil // a nil *Sentinels is none
	}
	s := redisnode.NewSentinels(redisnode.SentinelConfig{Addrs: cfg.Addrs, Username: cfg.Username, Password: cfg.Password, Options: cfg.Redis})
	names, err := cfg.Masters, error(nil)
	if cfg.Prefix != "" {
		names, err = cfg.namesWith(ctx, s)
	}
	if err == nil {
		err = c.nodesOf(names)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// nodesOf makes the primaries of these names the nodes, with the weights and racks that are given.
func (c *Config) nodesOf(names []string) error {
	given := make(map[string]ring.Node, len(c.Nodes))
	for i, n := range c.Nodes {
		if !slices.Contains(names, n.ID) {
			return &ConfigError{fmt.Sprintf("Config.Nodes[%d].ID", i), strconv.Quote(n.ID), fmt.Sprintf("must be the name of one of the primaries %q", names)}
		}
		given[n.ID] = n
	}
	c.Nodes = nil
	for _, name := range names {
		n := given[name]
		n.ID = name
		c.Nodes = append(c.Nodes, n)
	}
	return nil
}

// namesWith asks the Sentinels until a majority has answered, and returns the names with that prefix which a majority knows. A minority must not decide: what it adds or
// leaves out would move keys.
func (s *SentinelConfig) namesWith(ctx context.Context, sentinels *redisnode.Sentinels) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	most := len(s.Addrs)/2 + 1
	for {
		var failed []error
		votes := make(map[string]int)
		for answer := range sentinels.Names(ctx) {
			if answer.Err != nil {
				failed = append(failed, answer.Err)
			}
			for _, name := range answer.Names {
				votes[name]++
			}
		}
		answered := len(s.Addrs) - len(failed)
		maps.DeleteFunc(votes, func(name string, n int) bool { return n < most || !strings.HasPrefix(name, s.Prefix) })
		switch {
		case len(votes) > 0:
			return slices.Sorted(maps.Keys(votes)), nil
		case answered >= most:
			return nil, &ConfigError{"Config.Sentinel.Prefix", strconv.Quote(s.Prefix), "must begin the name of a primary that most of the Sentinels know"}
		}
		if sleep(ctx, namesEvery); ctx.Err() != nil {
			return nil, fmt.Errorf("shelf: New: Config.Sentinel: %d of %d Sentinels have answered, which is no majority: %w", answered, len(s.Addrs), errors.Join(append(failed, ctx.Err())...))
		}
	}
}

// locate looks for all primaries at the same time: what a majority names is enough, else all Sentinels are waited for, some 1 s.
func (c *Client) locate(ctx context.Context) error {
	if c.sentinels == nil {
		return nil
	}
	errs := make([]error, len(c.shards))
	var all sync.WaitGroup
	for i, sh := range c.shards {
		all.Go(func() { errs[i] = sh.locate(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (sh *shard) locate(ctx context.Context) error {
	sh.mu.Lock()
	sh.asking, sh.asked = true, time.Now()
	sh.mu.Unlock()
	unknown := sh.count(sh.c.sentinels.Ask(ctx, sh.conf.ID))
	if unknown > len(sh.c.cfg.Sentinel.Addrs)/2 {
		return &ConfigError{"Config.Sentinel.Masters", strconv.Quote(sh.conf.ID), "most of the Sentinels know no primary of this name"}
	}
	for _, addr := range sh.candidates(time.Now()) {
		if sh.consider(ctx, addr) {
			break
		}
	}
	return nil // it is looked for on and on
}

// startShards starts what tends the shards, and listens to the Sentinels.
func (c *Client) startShards(ctx context.Context) {
	for _, sh := range c.shards {
		if sh != nil {
			c.loops.Go(func() { sh.run(ctx) })
		}
	}
	if c.sentinels != nil {
		c.loops.Go(func() { c.sentinels.Run(ctx, c.sentinelSaid) })
	}
}

// sentinelSaid hands on what a Sentinel has published.
func (c *Client) sentinelSaid(n redisnode.News) {
	for _, sh := range c.shards {
		if n.Name == "" || n.Name == sh.conf.ID {
			sh.heardOf(n, time.Now())
		}
	}
}

// highestFirst are the addresses, those with the highest epoch first.
func highestFirst(epochs map[string]int64) []string {
	addrs := slices.Sorted(maps.Keys(epochs))
	slices.SortStableFunc(addrs, func(a, b string) int { return cmp.Compare(epochs[b], epochs[a]) })
	return addrs
}
