// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/proc"
	"github.com/go-shelf/shelf/internal/redistest"
)

// watched is one primary, "shelf", with replicas, watched by three Sentinels.
func watched(tb testing.TB, replicas int) ([]*redistest.Server, *redistest.Sentinels) {
	tb.Helper()
	servers := redistest.StartReplicated(tb, replicas)
	began := time.Now()
	s := redistest.StartSentinels(tb, redistest.SentinelConfig{Primaries: map[string]*redistest.Server{"shelf": servers[0]}})
	tb.Logf("three sentinels were ready after %v", time.Since(began))
	return servers, s
}

func primaryAddr(tb testing.TB, s *redistest.Sentinels, name string) string {
	tb.Helper()
	addr, err := s.PrimaryAddr(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return addr
}

func awaitPrimary(tb testing.TB, s *redistest.Sentinels, name, not string) string {
	tb.Helper()
	began := time.Now()
	addr, err := s.AwaitPrimary(tb.Context(), name, not)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Logf("another primary of %s after %v", name, time.Since(began))
	return addr
}

// role is "master" or "slave", and whose.
func role(s *redistest.Server) string {
	fields, err := s.Info(context.Background(), "replication")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(fields["role"] + " " + fields["master_port"])
}

func TestSentinelsPromoteWhenThePrimaryIsKilled(t *testing.T) {
	servers, s := watched(t, 2)
	old := servers[0]
	set(t, old, "k", "v")
	if _, err := old.Do(t.Context(), "WAIT", 2, 5000); err != nil {
		t.Fatal(err)
	}
	if got := primaryAddr(t, s, "shelf"); got != old.Addr() {
		t.Fatalf("the primary is %s, want %s", got, old.Addr())
	}
	old.Kill()
	addr := awaitPrimary(t, s, "shelf", old.Addr())
	promoted := redistest.ByAddr(servers, addr)
	if promoted == nil || promoted == old {
		t.Fatalf("the primary is %s", addr)
	}
	if got := get(t, promoted, "k"); got != "v" {
		t.Errorf("k = %q", got)
	}
	set(t, promoted, "k", "new")
	if got := primaryAddr(t, s, "shelf"); got != addr {
		t.Errorf("PrimaryAddr = %s, want %s", got, addr)
	}
	// The other replica follows, and so does the old primary when it is back. Whom, the Sentinels say: on a busy machine they may have found the new primary
	// silent for a second, and promoted another one.
	if _, err := promoted.Do(t.Context(), "WAIT", 1, 5000); err != nil {
		t.Fatal(err)
	}
	old.Restart()
	follows := func(other *redistest.Server) bool {
		addr, err := s.PrimaryAddr(t.Context(), "shelf")
		if err != nil {
			return false
		}
		promoted := redistest.ByAddr(servers, addr)
		return other == promoted || role(other) == fmt.Sprintf("slave %d", promoted.Port())
	}
	for _, other := range servers {
		for deadline := time.Now().Add(40 * time.Second); !follows(other); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is %s", other.Addr(), role(other))
			}
		}
	}
	// A driver that knows Sentinel finds it.
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "shelf", SentinelAddrs: s.Addrs()})
	defer c.Close()
	if got, err := c.Get(t.Context(), "k").Result(); err != nil || got != "new" {
		t.Errorf("k = %q, %v", got, err)
	}
}

func TestPlannedFailover(t *testing.T) {
	servers, s := watched(t, 1)
	s.Failover("shelf")
	if got := primaryAddr(t, s, "shelf"); got != servers[1].Addr() || role(servers[1]) != "master" {
		t.Fatalf("the primary is %s, a %s; want %s", got, role(servers[1]), servers[1].Addr())
	}
	// And back, which has to wait until the first one is over.
	s.Failover("shelf")
	if got := primaryAddr(t, s, "shelf"); got != servers[0].Addr() {
		t.Errorf("the primary is %s, want %s", got, servers[0].Addr())
	}
}

func TestSilentSentinels(t *testing.T) {
	servers, s := watched(t, 1)
	s.Stop(0)
	if got := primaryAddr(t, s, "shelf"); got != servers[0].Addr() {
		t.Errorf("with one silent: %s", got)
	}
	servers[0].Kill() // two of three are enough to fail over, too
	addr := awaitPrimary(t, s, "shelf", servers[0].Addr())
	if addr != servers[1].Addr() {
		t.Errorf("the primary is %s", addr)
	}
	s.Kill(1)
	if got, err := s.PrimaryAddr(t.Context(), "shelf"); err == nil || !strings.Contains(err.Error(), `"dead"`) || !strings.Contains(err.Error(), addr) {
		t.Errorf("one of three says %q, %v", got, err)
	}
	s.Restart(1) // it remembers who was promoted
	if got := primaryAddr(t, s, "shelf"); got != addr {
		t.Errorf("after a restart: %s, want %s", got, addr)
	}
	s.Cont(0)
	eventually(t, "the silent one to learn it", func() bool {
		got, err := s.Server(0).Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "shelf")
		return err == nil && strings.HasSuffix(addr, fmt.Sprint(":", got.([]any)[1]))
	})
}

func TestSentinelsWithPasswordsAndSeveralPrimaries(t *testing.T) {
	open := redistest.StartReplicated(t, 1)
	closed := redistest.Start(t, redistest.Config{Password: "correct horse"})
	replica := closed.Replica(t, redistest.Config{})
	s := redistest.StartSentinels(t, redistest.SentinelConfig{
		Primaries: map[string]*redistest.Server{"open": open[0], "closed": closed, "alone": redistest.Start(t, redistest.Config{})},
		N:         5, Quorum: 2, DownAfter: 700 * time.Millisecond, FailoverTimeout: 4 * time.Second, Password: "battery staple",
	})
	fields, err := s.Server(4).Do(t.Context(), "SENTINEL", "MASTER", "closed")
	for _, want := range []string{"quorum 2", "down-after-milliseconds 700", "failover-timeout 4000", "num-other-sentinels 4"} {
		if err != nil || !strings.Contains(fmt.Sprint(fields), want) {
			t.Errorf("%q is not in %v, %v", want, fields, err)
		}
	}
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Addrs()[0], MaxRetries: -1})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("PING without a password: %v", err)
	}
	closed.Kill()
	s.Kill(0)
	s.Kill(1)
	if got := awaitPrimary(t, s, "closed", closed.Addr()); got != replica.Addr() {
		t.Errorf("the primary is %s, want %s", got, replica.Addr())
	}
	if got := primaryAddr(t, s, "open"); got != open[0].Addr() {
		t.Errorf("the other primary is %s", got)
	}
}

func TestSentinelErrors(t *testing.T) {
	_, err := redistest.Find()
	proc.Require(t, err)
	server := redistest.Start(t, redistest.Config{})
	replica := server.Replica(t, redistest.Config{})
	one := map[string]*redistest.Server{"shelf": server}
	for name, c := range map[string]struct {
		cfg  redistest.SentinelConfig
		want string
	}{
		"N":               {redistest.SentinelConfig{Primaries: one, N: -1}, "N -1 must not be negative"},
		"Quorum":          {redistest.SentinelConfig{Primaries: one, Quorum: 4}, "Quorum 4 must be between 0 and N, which is 3"},
		"DownAfter":       {redistest.SentinelConfig{Primaries: one, DownAfter: -1}, "DownAfter -1ns must be"},
		"FailoverTimeout": {redistest.SentinelConfig{Primaries: one, FailoverTimeout: -time.Hour}, "FailoverTimeout -1h0m0s must be"},
		"no primary":      {redistest.SentinelConfig{}, "Primaries must name at least one"},
		"a bad name":      {redistest.SentinelConfig{Primaries: map[string]*redistest.Server{"a b": server}}, `name "a b" must not`},
		"no server":       {redistest.SentinelConfig{Primaries: map[string]*redistest.Server{"a": nil}}, "a has no server"},
		"a replica":       {redistest.SentinelConfig{Primaries: map[string]*redistest.Server{"a": replica}}, "is a slave"},
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := redistest.LaunchSentinels(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("LaunchSentinels = %v, %v; want %q", s, err, c.want)
			}
		})
	}

	s, err := redistest.LaunchSentinels(t.Context(), redistest.SentinelConfig{Primaries: one, N: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.PrimaryAddr(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), `"other" is none of the primaries ["shelf"]`) {
		t.Errorf("PrimaryAddr = %s, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if got, err := s.AwaitPrimary(ctx, "shelf", server.Addr()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "it is still "+server.Addr()) {
		t.Errorf("AwaitPrimary = %s, %v", got, err)
	}
	s.Failover("other")
	if err := s.Err(); err == nil || !strings.HasPrefix(err.Error(), "redistest: failover of other: ") {
		t.Errorf("Err = %v", err)
	}
	if err := s.Close(); err == nil {
		t.Error("Close does not say so")
	}
}

// Whatever state a test leaves its Sentinels in, nothing remains of them.
func TestNothingIsLeftOfSentinels(t *testing.T) {
	var pids []int
	dir := t.TempDir()
	t.Run("inner", func(t *testing.T) {
		t.Setenv("TMPDIR", dir)
		_, s := watched(t, 1)
		for i := range s.Addrs() {
			pids = append(pids, s.Server(i).Pid())
		}
		if entries, err := os.ReadDir(dir); len(entries) != 5 { // else the check below shows nothing
			t.Errorf("%d directories of 5 servers, %v", len(entries), err)
		}
		s.Stop(0)
		s.Kill(1)
	})
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d is alive after its test", pid)
		}
	}
	if entries, err := os.ReadDir(dir); len(entries) != 0 || err != nil || len(pids) != 3 {
		t.Errorf("of %d sentinels these remain: %v, %v", len(pids), entries, err)
	}
}
