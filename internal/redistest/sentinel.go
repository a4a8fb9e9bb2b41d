// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

// SentinelConfig says what Sentinels to run. Only Primaries has no default.
type SentinelConfig struct {
	// Primaries are the primaries to watch, by the names that clients ask for.
	// They and their replicas must run, the replicas in sync.
	Primaries map[string]*Server
	// N is how many Sentinels there are. Zero means 3.
	N int
	// Quorum is how many must find a primary down before one of them is elected,
	// by a majority of all, to promote a replica. Zero means a majority.
	Quorum int
	// DownAfter is how long a primary must be silent to be down. Zero means 1 s.
	// Less than some 300 ms is too little on a busy machine.
	DownAfter time.Duration
	// FailoverTimeout is Sentinel's failover-timeout: after a failed attempt, an
	// election without a winner for instance, the next one comes twice that
	// later. Zero means 5 s.
	FailoverTimeout time.Duration
	// Password is what clients must present to the Sentinels, and they to each
	// other. What the primaries ask for the Sentinels know.
	Password string
}

// Sentinels are Redis Sentinel processes that watch primaries and promote
// replicas. Methods are safe for concurrent use, and take Sentinels by their
// index. Steps return nothing, as those of a [Server].
type Sentinels struct {
	cfg    SentinelConfig
	nodes  []*Server
	report func(error)

	mu  sync.Mutex
	err error
}

// sentinelTimeout bounds the start, and a planned failover. They take some 1 s
// and 3 s.
const sentinelTimeout = 60 * time.Second

// StartSentinels runs Sentinels for the test. It returns when each of them sees
// all primaries, all replicas and all other Sentinels, so that a failover can
// begin. They are killed when the test ends; if the test failed by then, the end
// of their logs is shown.
func StartSentinels(tb testing.TB, cfg SentinelConfig) *Sentinels {
	tb.Helper()
	_, err := Find()
	proc.Require(tb, err)
	s, err := LaunchSentinels(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.report = func(err error) { tb.Error(err) }
	for _, n := range s.nodes {
		n.report = s.report
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			for _, n := range s.nodes {
				tb.Log("sentinel: " + n.lastWords())
			}
		}
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// LaunchSentinels is [StartSentinels] without a test, for programs. The context
// bounds the start only (60 s at most).
func LaunchSentinels(ctx context.Context, cfg SentinelConfig) (*Sentinels, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("redistest: SentinelConfig: %w", err)
	}
	s := &Sentinels{cfg: cfg, report: func(error) {}}
	for range cfg.N {
		node, err := Launch(ctx, Config{Persist: true, Password: cfg.Password, sentinel: cfg.text()})
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.nodes = append(s.nodes, node)
	}
	if err := s.awaitReady(ctx); err != nil {
		var logs strings.Builder
		for _, n := range s.nodes {
			logs.WriteString("\n" + n.lastWords())
		}
		return nil, errors.Join(fmt.Errorf("redistest: start of sentinels: %w%s", err, logs.String()), s.Close())
	}
	return s, nil
}

// validate checks the configuration and puts the defaults in.
func (c *SentinelConfig) validate() error {
	setDefault(&c.N, 3)
	setDefault(&c.Quorum, c.N/2+1)
	setDefault(&c.DownAfter, time.Second)
	setDefault(&c.FailoverTimeout, 5*time.Second)
	switch {
	case c.N < 0:
		return fmt.Errorf("N %d must not be negative", c.N)
	case c.Quorum < 0 || c.Quorum > c.N:
		return fmt.Errorf("Quorum %d must be between 0 and N, which is %d", c.Quorum, c.N)
	case c.DownAfter < time.Millisecond:
		return fmt.Errorf("DownAfter %v must be 0 or at least 1 ms", c.DownAfter)
	case c.FailoverTimeout < time.Millisecond:
		return fmt.Errorf("FailoverTimeout %v must be 0 or at least 1 ms", c.FailoverTimeout)
	case len(c.Primaries) == 0:
		return errors.New("Primaries must name at least one")
	}
	for name, server := range c.Primaries {
		if name == "" || strings.ContainsAny(name, " \t\r\n\"'") {
			return fmt.Errorf("Primaries: name %q must not be empty, nor have spaces or quotes", name)
		}
		if server == nil {
			return fmt.Errorf("Primaries: %s has no server", name)
		}
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// text is the configuration file but for the address. See
// https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/.
func (c *SentinelConfig) text() string {
	var b strings.Builder
	if c.Password != "" {
		fmt.Fprintf(&b, "requirepass %q\n", c.Password) // they present it to each other
	}
	for _, name := range slices.Sorted(maps.Keys(c.Primaries)) {
		server := c.Primaries[name]
		fmt.Fprintf(&b, "sentinel monitor %s 127.0.0.1 %d %d\n", name, server.Port(), c.Quorum)
		fmt.Fprintf(&b, "sentinel down-after-milliseconds %s %d\n", name, c.DownAfter.Milliseconds())
		fmt.Fprintf(&b, "sentinel failover-timeout %s %d\n", name, c.FailoverTimeout.Milliseconds())
		if server.cfg.Password != "" {
			fmt.Fprintf(&b, "sentinel auth-pass %s %q\n", name, server.cfg.Password)
		}
	}
	return b.String()
}

func (s *Server) sentinelFile() string { return filepath.Join(s.dir, "sentinel.conf") }

// sentinelText is the file that a Sentinel starts with.
func (s *Server) sentinelText() string {
	return fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %q\ndaemonize no\n%s", s.Port(), s.dir, s.cfg.sentinel)
}

// Addrs are the addresses of the Sentinels.
func (s *Sentinels) Addrs() []string {
	addrs := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// Server is the process of a Sentinel, to ask it ([Server.Do]) or to read its log.
func (s *Sentinels) Server(i int) *Server { return s.nodes[i] }

// Kill is [Server.Kill] of one Sentinel.
func (s *Sentinels) Kill(i int) { s.nodes[i].Kill() }

// Stop is [Server.Stop] of one Sentinel: it is silent.
func (s *Sentinels) Stop(i int) { s.nodes[i].Stop() }

// Cont is [Server.Cont] of one Sentinel. After more than 2 s of silence it knows
// that its clock cannot be trusted: for 30 s it answers, with the address that it
// last knew, and takes no part in failovers (TILT).
func (s *Sentinels) Cont(i int) { s.nodes[i].Cont() }

// Restart is [Server.Restart] of one Sentinel. It remembers whom it watched and
// who was the primary.
func (s *Sentinels) Restart(i int) { s.nodes[i].Restart() }

// Err is the first failure of a step, or nil.
func (s *Sentinels) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.err}
	for _, n := range s.nodes {
		errs = append(errs, n.Err())
	}
	return errors.Join(errs...)
}

// Close is [Server.Close] of all Sentinels.
func (s *Sentinels) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.err}
	for _, n := range s.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// majority is how many Sentinels are more than half.
func (s *Sentinels) majority() int { return len(s.nodes)/2 + 1 }

// known returns the primary that was given under a name.
func (s *Sentinels) known(name string) (*Server, error) {
	server := s.cfg.Primaries[name]
	if server == nil {
		return nil, fmt.Errorf("%s is none of the primaries %q", strconv.Quote(name), slices.Sorted(maps.Keys(s.cfg.Primaries)))
	}
	return server, nil
}
