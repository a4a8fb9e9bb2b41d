// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-shelf/shelf/internal/proc"
)

// Client returns a client of this server, to look at it behind the back of what
// is being tested. It speaks RESP2, never retries, and honours the deadline of
// its context. The server closes it. After a [Server.Restart] ask for it anew: a
// client that saw the server dead may refuse to dial for up to a second.
func (s *Server) Client() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client = s.newClient()
		s.clients = append(s.clients, s.client)
	}
	return s.client
}

// Do runs one command through [Server.Client] and returns its RESP2 reply: a
// string, int64, []any, or nil and redis.Nil. Without a deadline in the context
// it gives up after 3 s.
func (s *Server) Do(ctx context.Context, args ...any) (any, error) {
	return s.Client().Do(ctx, args...).Result()
}

// Info returns the fields of one section of INFO.
func (s *Server) Info(ctx context.Context, section string) (map[string]string, error) {
	return info(ctx, s.Client(), section)
}

func (s *Server) newClient() *redis.Client { return newClient(s.Addr(), s.cfg.Password) }

func newClient(addr, password string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Password:                 password,
		Protocol:                 2,
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// answers returns nil when the server at the address executes commands, has read
// its data, and is the process that was started.
//
// The last matters: where another Redis took the port first, it is the one that
// answers, for the moment until the new process has found that it cannot bind.
func (s *Server) answers(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // for a stranger that accepts and is silent
	defer cancel()
	// A bare dial first: the driver logs each refused one.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	client := s.newClient()
	defer client.Close() //nolint:errcheck // nothing was written
	if err := client.Ping(ctx).Err(); err != nil {
		return err
	}
	fields, err := info(ctx, client, "server")
	if err != nil {
		return err
	}
	if fields["process_id"] != strconv.Itoa(pid) {
		return errPortTaken
	}
	return nil
}

// endOf explains why a process ended while it should have started.
func endOf(p *proc.Process) error {
	out := p.Output()
	if strings.Contains(out, "Address already in use") {
		return errPortTaken
	}
	return fmt.Errorf("it ended (%w) and wrote:\n%s", errors.Join(p.Err(), errors.New("exit")), lastLines(out, 10))
}

// awaitSync waits until the link to the primary is up and the replica has all
// that the primary had when the wait began.
func (s *Server) awaitSync(ctx context.Context, primary *Server) error {
	client := primary.newClient()
	defer client.Close() //nolint:errcheck // nothing was written
	fields, err := info(ctx, client, "replication")
	if err != nil {
		return fmt.Errorf("redistest: primary %s: %w", primary.Addr(), err)
	}
	target, _ := strconv.ParseInt(fields["master_repl_offset"], 10, 64)
	err = poll(ctx, s.proc, func() error {
		has, err := s.Info(ctx, "replication")
		if err != nil {
			return err
		}
		offset, _ := strconv.ParseInt(has["slave_repl_offset"], 10, 64)
		if has["master_link_status"] != "up" || has["master_sync_in_progress"] != "0" || offset < target {
			return fmt.Errorf("link %s, at %d of %d", has["master_link_status"], offset, target)
		}
		return listedBy(ctx, client, s.Port())
	})
	if err != nil {
		return fmt.Errorf("redistest: replica %s of %s: %w", s.Addr(), primary.Addr(), err)
	}
	return nil
}

// listedBy returns nil when the primary counts the replica as online: from then
// on it is in its ROLE and in what WAIT counts.
func listedBy(ctx context.Context, primary *redis.Client, port int) error {
	fields, err := info(ctx, primary, "replication")
	if err != nil {
		return err
	}
	for name, line := range fields {
		if strings.HasPrefix(name, "slave") && strings.Contains(line, fmt.Sprintf("port=%d,state=online", port)) {
			return nil
		}
	}
	return errors.New("the primary does not list it as online yet")
}

// info parses a section of INFO, lines of "name:value" and comments.
func info(ctx context.Context, client *redis.Client, section string) (map[string]string, error) {
	text, err := client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
