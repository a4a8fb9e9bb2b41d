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
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// askTimeout is how long one Sentinel may take to answer; a stopped one never
	// does.
	askTimeout = 500 * time.Millisecond
	// sentinelPoll is the pace at which Sentinels are asked again and again.
	sentinelPoll = 20 * time.Millisecond
)

// PrimaryAddr is the address that more than half of all Sentinels, silent ones
// counted, give for the primary. Without such a majority the error says what each
// of them answered.
//
// It is the address that clients are sent to, alive or not: after a crash it
// changes only when a replica has been promoted.
func (s *Sentinels) PrimaryAddr(ctx context.Context, name string) (string, error) {
	if _, err := s.known(name); err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	answers := make([]string, len(s.nodes))
	var wg sync.WaitGroup
	for i, n := range s.nodes {
		wg.Go(func() { answers[i] = n.primaryAddr(ctx, name) })
	}
	wg.Wait()
	votes := make(map[string]int)
	for _, addr := range answers {
		votes[addr]++
		if _, _, err := net.SplitHostPort(addr); err == nil && votes[addr] >= s.majority() {
			return addr, nil
		}
	}
	return "", errors.Join(ctx.Err(), fmt.Errorf("redistest: no majority for a primary of %s: %q", name, answers))
}

// primaryAddr is the answer of one Sentinel, or the reason why there is none.
func (s *Server) primaryAddr(ctx context.Context, name string) string {
	if !s.process().Running() {
		return "dead" // the driver logs each dial that is refused
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := s.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
	if err != nil {
		return err.Error()
	}
	pair, _ := answer.([]any)
	if len(pair) != 2 {
		return fmt.Sprint(answer)
	}
	return net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1]))
}

// AwaitPrimary waits until [Sentinels.PrimaryAddr] gives another address than
// not, and the server there says itself that it is a primary; it returns that
// address. An empty not means any. Without a deadline in the context it gives up
// after 60 s; the error says what it saw last.
func (s *Sentinels) AwaitPrimary(ctx context.Context, name, not string) (string, error) {
	first, err := s.known(name)
	if err != nil {
		return "", fmt.Errorf("redistest: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var last error
	for {
		addr, err := s.PrimaryAddr(ctx, name)
		switch {
		case err != nil:
		case addr == not:
			err = fmt.Errorf("it is still %s", addr)
		default:
			if err = isPrimary(ctx, addr, first.cfg.Password); err == nil {
				return addr, nil
			}
		}
		// A look that the deadline cut off tells nothing. The driver may notice the
		// deadline before the context does.
		if over := ctx.Err() != nil || !time.Now().Before(deadline); last == nil || !over {
			last = err
		}
		if pause(ctx, sentinelPoll) != nil {
			return "", fmt.Errorf("redistest: await another primary of %s: %w; last: %w", name, ctx.Err(), last)
		}
	}
}

// isPrimary returns nil when the server at the address says that it is one.
func isPrimary(ctx context.Context, addr, password string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr) // the driver logs each refused one
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	client := newClient(addr, password)
	defer client.Close() //nolint:errcheck // nothing was written
	fields, err := info(ctx, client, "replication")
	if err != nil {
		return err
	}
	if fields["role"] != "master" {
		return fmt.Errorf("%s is a %s", addr, fields["role"])
	}
	return nil
}

// Failover asks a Sentinel for a planned failover and returns when a majority
// names the new primary, as [Sentinels.AwaitPrimary] sees it. While an earlier
// failover is not over yet, or no replica is good enough, it asks again.
//
// The old primary is not told first: for some seconds it still takes writes,
// which are lost when it becomes a replica. That is how Sentinel is.
func (s *Sentinels) Failover(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), sentinelTimeout)
	defer cancel()
	err := s.failover(ctx, name)
	if err == nil {
		return
	}
	err = fmt.Errorf("redistest: failover of %s: %w", name, err)
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.report(err)
}

func (s *Sentinels) failover(ctx context.Context, name string) error {
	old, err := s.PrimaryAddr(ctx, name)
	if err != nil {
		return err
	}
	for {
		err := s.begin(ctx, name)
		if err == nil {
			_, err = s.AwaitPrimary(ctx, name, old)
			return err
		}
		if !redis.HasErrorPrefix(err, "INPROG") && !redis.HasErrorPrefix(err, "NOGOODSLAVE") {
			return err
		}
		if pause(ctx, sentinelPoll) != nil {
			return err
		}
	}
}

// begin asks the first Sentinel that answers.
func (s *Sentinels) begin(ctx context.Context, name string) error {
	err := errors.New("no sentinel runs")
	for _, n := range s.nodes {
		if !n.process().Running() {
			continue
		}
		one, cancel := context.WithTimeout(ctx, askTimeout)
		_, err = n.Do(one, "SENTINEL", "FAILOVER", name)
		cancel()
		var answer redis.Error
		if err == nil || errors.As(err, &answer) {
			return err
		}
	}
	return err
}

// The periods of a Sentinel's own questions and announcements, in milliseconds.
// Left at their normal length a start takes 3 s and more.
var (
	hasty  = []any{"INFO-PERIOD", 100, "PUBLISH-PERIOD", 100}
	normal = []any{"INFO-PERIOD", 10_000, "PUBLISH-PERIOD", 2000}
)

// awaitReady waits until each Sentinel sees everybody. Meanwhile they are hasty,
// where they know how to (SENTINEL DEBUG, Redis 7.0).
func (s *Sentinels) awaitReady(ctx context.Context) error {
	replicas := make(map[string]int)
	for name, server := range s.cfg.Primaries {
		fields, err := server.Info(ctx, "replication")
		if err != nil {
			return fmt.Errorf("primary %s at %s: %w", name, server.Addr(), err)
		}
		if fields["role"] != "master" {
			return fmt.Errorf("primary %s at %s is a %s", name, server.Addr(), fields["role"])
		}
		replicas[name], _ = strconv.Atoi(fields["connected_slaves"])
	}
	var inHaste []*Server
	for _, n := range s.nodes {
		if n.debug(ctx, hasty) == nil {
			inHaste = append(inHaste, n)
		}
	}
	for _, n := range s.nodes {
		for name, count := range replicas {
			if err := poll(ctx, n.process(), func() error { return n.seesAll(ctx, name, len(s.nodes), count) }); err != nil {
				return fmt.Errorf("sentinel %s, primary %s: %w", n.Addr(), name, err)
			}
		}
	}
	for _, n := range inHaste {
		if err := n.debug(ctx, normal); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) debug(ctx context.Context, settings []any) error {
	_, err := s.Do(ctx, append([]any{"SENTINEL", "DEBUG"}, settings...)...)
	return err
}

// seesAll returns nil when the Sentinel could lead a failover of the primary now.
func (s *Server) seesAll(ctx context.Context, name string, sentinels, replicas int) error {
	primary, err := s.Do(ctx, "SENTINEL", "MASTER", name)
	if err != nil {
		return err
	}
	fields := pairs(primary)
	if fields["flags"] != "master" || fields["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
		return fmt.Errorf("it is %q, and %s other sentinels are known", fields["flags"], fields["num-other-sentinels"])
	}
	if _, err := s.Do(ctx, "SENTINEL", "CKQUORUM", name); err != nil {
		return err
	}
	list, err := s.Do(ctx, "SENTINEL", "SLAVES", name) // REPLICAS is of Redis 5.0, and an alias
	if err != nil {
		return err
	}
	entries, _ := list.([]any)
	good := 0
	for _, entry := range entries {
		if fields := pairs(entry); fields["flags"] == "slave" && fields["master-link-status"] == "ok" {
			good++
		}
	}
	if good != replicas {
		return fmt.Errorf("%d of %d replicas are good: %v", good, replicas, strings.TrimSpace(fmt.Sprint(entries...)))
	}
	return nil
}

// pairs reads names and values, which alternate.
func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	fields := make(map[string]string)
	for i := 1; i < len(list); i += 2 {
		fields[fmt.Sprint(list[i-1])] = fmt.Sprint(list[i])
	}
	return fields
}

// pause waits, and returns the context's error if it ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
