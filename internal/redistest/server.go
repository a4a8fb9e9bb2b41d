// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/proc"
)

// Config says what kind of server to run. The zero value is an empty primary
// that writes nothing to disk, without a password, on a port of 127.0.0.1.
type Config struct {
	// Args are further arguments of redis-server, as in "--maxmemory", "10mb".
	// They come last, so they win over those of this package.
	Args []string
	// Env is added to the server's environment, as in "LC_ALL=C".
	Env []string
	// ReplicaOf makes the server a replica of another one. It starts with its
	// primary's password, and is in sync when it is returned.
	ReplicaOf *Server
	// Persist keeps the data directory over a restart: what a SAVE wrote is read
	// again. Nothing is saved without being asked for.
	Persist bool
	// Password is what clients and replicas must present. A replica without one
	// takes its primary's.
	Password string

	// sentinel is the text of a configuration file, which makes the server a
	// Sentinel. It rewrites the file, and remembers by it: see Persist.
	sentinel string
}

// Server is a redis-server process with an address that stays the same while
// the process is killed and restarted. Its methods are safe for concurrent use.
//
// Kill, Stop, Cont and Restart return nothing, so that they can be steps of a
// scenario or a deferred call. Where one fails, the test that owns the server
// fails; without a test, [Server.Err] and [Server.Close] return it.
type Server struct {
	cfg    Config
	binary string
	dir    string
	port   *proc.Port
	report func(error) // called with each failure, without mu

	mu      sync.Mutex
	proc    *proc.Process // the last one started
	client  *redis.Client // of the present process; nil until asked for
	clients []*redis.Client
	closed  bool
	err     error
}

const (
	// startTimeout bounds the start of a server. It takes some 20 ms; the rest is
	// for a machine that is busy with other tests.
	startTimeout = 20 * time.Second
	// portTries is how many ports are tried when others keep taking them.
	portTries = 10
	pollEvery = 2 * time.Millisecond
)

// Start runs a server for the test and returns when it answers. It is killed
// when the test ends; if the test failed by then, the end of its log is shown.
// Without redis-server the test is skipped, or fails where CI=true.
func Start(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	_, err := Find()
	proc.Require(tb, err)
	s, err := Launch(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	s.report = func(err error) { tb.Error(err) }
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(s.lastWords())
		}
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// StartNodes runs n independent servers.
func StartNodes(tb testing.TB, n int) []*Server {
	tb.Helper()
	nodes := make([]*Server, n)
	for i := range nodes {
		nodes[i] = Start(tb, Config{})
	}
	return nodes
}

// StartReplicated runs a primary, which comes first, and replicas of it that are
// in sync.
func StartReplicated(tb testing.TB, replicas int) []*Server {
	tb.Helper()
	servers := []*Server{Start(tb, Config{})}
	for range replicas {
		servers = append(servers, servers[0].Replica(tb, Config{}))
	}
	return servers
}

// ByAddr returns the server of that address, or nil: who a Sentinel's answer is.
func ByAddr(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// Launch is [Start] without a test, for programs. The context bounds the start
// only (20 s at most); the server lives until [Server.Close], or until this
// process ends.
func Launch(ctx context.Context, cfg Config) (*Server, error) {
	return launch(ctx, cfg, proc.ReservePort)
}

// launch retries with the next port when a program that makes no reservation
// takes the port between the look at it and the server's bind.
func launch(ctx context.Context, cfg Config, reserve func() (*proc.Port, error)) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	binary, err := Find()
	if err != nil {
		return nil, err
	}
	if cfg.Password == "" && cfg.ReplicaOf != nil {
		cfg.Password = cfg.ReplicaOf.cfg.Password
	}
	for try := 1; ; try++ {
		s, err := launchOnce(ctx, binary, cfg, reserve)
		if err == nil || try == portTries || !errors.Is(err, errPortTaken) {
			return s, err
		}
	}
}

func launchOnce(ctx context.Context, binary string, cfg Config, reserve func() (*proc.Port, error)) (*Server, error) {
	port, err := reserve()
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	dir, err := os.MkdirTemp("", "shelf-redis-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redistest: %w", err), port.Release())
	}
	s := &Server{cfg: cfg, binary: binary, dir: dir, port: port, report: func(error) {}}
	if cfg.sentinel != "" {
		err = os.WriteFile(s.sentinelFile(), []byte(s.sentinelText()), 0o600)
	}
	if err == nil {
		err = s.start(ctx)
	}
	if err == nil && cfg.ReplicaOf != nil {
		err = s.awaitSync(ctx, cfg.ReplicaOf)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// args is the command line. The configured arguments come last and win.
func (s *Server) args() []string {
	if s.cfg.sentinel != "" {
		return append([]string{s.sentinelFile(), "--sentinel"}, s.cfg.Args...)
	}
	args := []string{
		"--port", strconv.Itoa(s.Port()), "--bind", "127.0.0.1", "--dir", s.dir,
		"--daemonize", "no", "--save", "", "--appendonly", "no",
		// A replica that connects is served at once, not after the five seconds
		// in which others might join it.
		"--repl-diskless-sync-delay", "0",
	}
	if s.cfg.Password != "" {
		args = append(args, "--requirepass", s.cfg.Password)
	}
	if primary := s.cfg.ReplicaOf; primary != nil {
		args = append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(primary.Port()))
		if primary.cfg.Password != "" {
			args = append(args, "--masterauth", primary.cfg.Password)
		}
	} else if s.cfg.Password != "" {
		args = append(args, "--masterauth", s.cfg.Password) // for when it is demoted
	}
	return append(args, s.cfg.Args...)
}

// Addr is the server's address, as in "127.0.0.1:16379". It never changes.
func (s *Server) Addr() string { return s.port.Addr() }

// Port is the server's port. It never changes.
func (s *Server) Port() int { return s.port.Number() }

// Pid is the id of the present process, or of the last one after a Kill.
func (s *Server) Pid() int { return s.process().Pid() }

// Running says whether there is a process, stopped or not: false after a [Server.Kill].
func (s *Server) Running() bool { return s.process().Running() }

// Log is the end of what the present process wrote, at most 64 KiB.
func (s *Server) Log() string { return s.process().Output() }

// Err is the first failure of a step (Kill, Stop, Cont, Restart), or nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Replica runs a replica of s for the test, and returns when its link is up and
// it has all that s had. See [Config.ReplicaOf].
func (s *Server) Replica(tb testing.TB, cfg Config) *Server {
	tb.Helper()
	cfg.ReplicaOf = s
	return Start(tb, cfg)
}

// Close kills the server, running, stopped or dead, closes the clients, and
// removes its directory. It returns the first failure of an earlier step too.
// Closing a closed server does nothing more.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.err
	}
	s.closed = true
	errs := []error{s.err}
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	if s.proc != nil {
		errs = append(errs, s.proc.Kill())
	}
	errs = append(errs, os.RemoveAll(s.dir), s.port.Release())
	return errors.Join(errs...)
}

// lastWords is the end of the log, for a test that failed.
func (s *Server) lastWords() string {
	return fmt.Sprintf("redis-server %s wrote last:\n%s", s.Addr(), lastLines(s.Log(), 15))
}

func (s *Server) process() *proc.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// clear empties the server's directory.
func (s *Server) clear() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
