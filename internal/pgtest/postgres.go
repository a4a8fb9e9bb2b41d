// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

// Postgres is a running server with an empty database named postgres, whose
// superuser is postgres. Its methods are safe for concurrent use.
type Postgres struct {
	bin  string // the directory of the programs
	dir  string
	user *proc.User
	port *proc.Port
	proc *proc.Process // nil until started

	closing  sync.Once
	closeErr error
}

const (
	// launchTimeout bounds the whole start. It takes some two seconds, nearly all
	// of it initdb; the rest is for a machine that is busy with other tests.
	launchTimeout = time.Minute
	// portTries is how many ports are tried when others keep taking them.
	portTries = 5
	pollEvery = 5 * time.Millisecond
	// stopGrace is how long each kind of shutdown may take. The fast one waits for
	// replication clients, and one that a test has abandoned may not answer.
	stopGrace = 5 * time.Second
)

var errPortTaken = errors.New("another program took the port")

// settings of the server: everything a change stream needs, and nothing that
// makes a throw-away database slow. Commits stay synchronous: without fsync that
// costs nothing, and asynchronous ones reach a change stream up to 0.6 s late,
// after queries have seen them.
var settings = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=", // none: loopback is the one way in
	"wal_level=logical",
	"max_wal_senders=10",
	"max_replication_slots=10",
	"fsync=off",
	"full_page_writes=off",
	"shared_buffers=16MB",
	"max_connections=50",
	"lc_messages=C",
	// A client that connects during the shutdown and says nothing holds it up for
	// this long: the server does not signal a session that it means to refuse.
	"authentication_timeout=3",
	"logging_collector=off",
}

// Start runs a server for the test, and shuts it down when the test ends; if the
// test failed by then, the end of the server's log is shown. Without PostgreSQL
// on the machine the test is skipped, or fails where CI=true.
func Start(tb testing.TB) *Postgres {
	tb.Helper()
	_, err := Find()
	proc.Require(tb, err)
	pg, err := Launch(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("postgres %s wrote last:\n%s", pg.port.Addr(), lastLines(pg.Log(), 15))
		}
		if err := pg.Close(); err != nil {
			tb.Error(err)
		}
	})
	return pg
}

// Launch is [Start] without a test, for programs. The context bounds the start
// only (a minute at most); the server lives until [Postgres.Close], or until
// this process ends.
func Launch(ctx context.Context) (*Postgres, error) {
	return launch(ctx, proc.ReservePort)
}

func launch(ctx context.Context, reserve func() (*proc.Port, error)) (*Postgres, error) {
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	who, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(who)
	if err != nil {
		return nil, err
	}
	pg := &Postgres{bin: bin, dir: dir, user: who}
	if err := pg.initdb(ctx); err != nil {
		return nil, errors.Join(err, pg.Close())
	}
	// A program that makes no reservation may take the port between the look at
	// it and the server's bind: the next one, then.
	for try := 1; ; try++ {
		err := pg.start(ctx, reserve)
		if err == nil {
			return pg, nil
		}
		if try == portTries || !errors.Is(err, errPortTaken) {
			return nil, errors.Join(err, pg.Close())
		}
	}
}

func (pg *Postgres) data() string { return filepath.Join(pg.dir, "data") }

// command prepares one of the server's programs, as the server's user, with
// messages in English. SIGQUIT is PostgreSQL's immediate shutdown: should this
// process die, the server still ends its children and frees its shared memory.
func (pg *Postgres) command(name string, args ...string) proc.Command {
	return proc.Command{
		Path: filepath.Join(pg.bin, name), Args: args,
		Env: []string{"LC_ALL=C"}, Dir: pg.dir, User: pg.user,
		DeathSignal: syscall.SIGQUIT,
	}
}

func (pg *Postgres) initdb(ctx context.Context) error {
	p, err := proc.Start(pg.command("initdb", "-D", pg.data(), "-U", "postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"))
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		return fmt.Errorf("pgtest: initdb: %w", errors.Join(ctx.Err(), p.Kill()))
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w; it wrote:\n%s", err, lastLines(p.Output(), 10))
	}
	return nil
}

// start runs the server on a port of its own and waits until it accepts
// connections.
func (pg *Postgres) start(ctx context.Context, reserve func() (*proc.Port, error)) error {
	port, err := reserve()
	if err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	args := []string{"-D", pg.data(), "-p", strconv.Itoa(port.Number())}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	p, err := proc.Start(pg.command("postgres", args...))
	if err != nil {
		return errors.Join(fmt.Errorf("pgtest: %w", err), port.Release())
	}
	pg.proc, pg.port = p, port
	if err := pg.awaitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("pgtest: start at %s: %w", port.Addr(), err), p.Kill(), port.Release())
	}
	return nil
}

func (pg *Postgres) awaitReady(ctx context.Context) error {
	for {
		err := probe(ctx, pg.port.Addr())
		if err == nil && pg.ready() {
			return nil
		}
		select {
		case <-pg.proc.Done():
			if strings.Contains(pg.Log(), "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("it ended (%w) and wrote:\n%s", errors.Join(pg.proc.Err(), errors.New("exit")), lastLines(pg.Log(), 10))
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w; it wrote:\n%s", ctx.Err(), errors.Join(err, errors.New("not ready")), lastLines(pg.Log(), 10))
		case <-time.After(pollEvery):
		}
	}
}

// ready reports whether this server says that it is ready, in the last line of
// its postmaster.pid. Who answers at the address may be another server, whose
// port this one has not failed to bind yet.
func (pg *Postgres) ready() bool {
	text, err := os.ReadFile(filepath.Join(pg.data(), "postmaster.pid"))
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(text)), "\nready")
}

// DSN is the connection string for PostgreSQL drivers. Append
// "&replication=database" for a replication connection.
func (pg *Postgres) DSN() string {
	return "postgres://postgres@" + pg.port.Addr() + "/postgres?sslmode=disable"
}

// Pid is the id of the server's first process.
func (pg *Postgres) Pid() int { return pg.proc.Pid() }

// Log is the end of what the server wrote, at most 64 KiB.
func (pg *Postgres) Log() string { return pg.proc.Output() }

// Close ends the server and removes its directory: the fast shutdown (SIGINT),
// which breaks connections off; then, where a client holds that up, the
// immediate one (SIGQUIT); then SIGKILL. Closing again returns the same error.
func (pg *Postgres) Close() error {
	pg.closing.Do(func() {
		var errs []error
		if pg.proc != nil {
			errs = append(errs, pg.proc.End(stopGrace, syscall.SIGINT, syscall.SIGQUIT), pg.port.Release())
		}
		pg.closeErr = errors.Join(append(errs, os.RemoveAll(pg.dir))...)
	})
	return pg.closeErr
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
