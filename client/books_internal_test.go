// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/ring"
)

// bookkeeper is a client of one node that keeps its books and sends nothing: nobody runs its loops. The node is never asked either.
func bookkeeper(t *testing.T, cfg Config) (*Client, *redisnode.Node) {
	t.Helper()
	cfg.Nodes, cfg.Logger = []ring.Node{{ID: "a", Addr: "10.0.0.1:6379"}}, slog.New(slog.DiscardHandler)
	d, err := newDebts(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n, err := redisnode.New(redisnode.Config{ID: "a", Addr: "10.0.0.1:6379", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return &Client{cfg: cfg, debts: d, ids: []string{"a"}, nodes: []*redisnode.Node{n}}, n
}

// TestStartOfARun: entries from before a primary's start are trusted by nobody; those of a server that is, or has been, a replica are. And what was
// distrusted when that one takes the primary's place still is, by the successor's clock, since it was sent what the primary had brought back.
func TestStartOfARun(t *testing.T) {
	began := time.Now().Truncate(time.Second)
	for name, test := range map[string]struct {
		run    redisnode.Info
		trusts bool
	}{
		"a primary":                {redisnode.Info{RunID: "1", Role: redisnode.RolePrimary, StartedAt: began}, false},
		"one that does not say":    {redisnode.Info{RunID: "1", Role: redisnode.RolePrimary}, true},
		"a replica":                {redisnode.Info{RunID: "1", Role: redisnode.RoleReplica, StartedAt: began}, true},
		"one that was a replica":   {redisnode.Info{RunID: "1", Role: redisnode.RolePrimary, WasReplica: true, StartedAt: began}, true},
		"a server of unknown role": {redisnode.Info{RunID: "1", StartedAt: began}, false},
	} {
		c, n := bookkeeper(t, Config{})
		c.runSeen(0, c.cfg.Nodes[0], redisnode.Info{}, test.run)
		if got := c.debts.logs[0].trusts(began.Add(-1), n); got != test.trusts {
			t.Errorf("%s: trusts what is older: %t", name, got)
		}
		if !c.debts.logs[0].trusts(began, n) {
			t.Errorf("%s: does not trust what is not older", name)
		}
	}

	c, n := bookkeeper(t, Config{})
	primary := redisnode.Info{RunID: "1", Role: redisnode.RolePrimary, StartedAt: began, ClockOffset: time.Hour}
	c.runSeen(0, c.cfg.Nodes[0], redisnode.Info{}, primary)
	c.runSeen(0, c.cfg.Nodes[0], primary, redisnode.Info{RunID: "2", Role: redisnode.RolePrimary, WasReplica: true, StartedAt: began})
	(&Cache[string]{client: c, cfg: CacheConfig[string]{Truth: true}}).restarted(0, 1, false)
	if !c.debts.outbox.Empty() {
		t.Error("a cache that is itself the truth is cleared: it would lose what nobody else has")
	}
	edge := began.Add(-time.Hour).Add(clockMargin) // the successor's clock is ours
	if l := c.debts.logs[0]; l.trusts(edge, n) || !l.trusts(edge.Add(1), n) {
		t.Error("the successor of a primary that had come back from a snapshot: what is older than its start is trusted, or what is younger is not")
	}
}

// TestLostWithoutATrace: what was dropped from the log for want of room cannot be repeated when the node turns out to be another one, and what is void may find
// no room in the outbox: then nothing from before is trusted. While the node is the same nothing is wrong.
func TestLostWithoutATrace(t *testing.T) {
	now := time.Now()
	reading := func(stream string, at time.Time) redisnode.Replication {
		return redisnode.Replication{At: at, RunID: "1", Role: redisnode.RolePrimary, Stream: stream}
	}
	sent := func(i int) invalidation.Sent {
		at := now.Add(time.Duration(i) * time.Second)
		return invalidation.Sent{Name: fmt.Sprint("x:k", i, ":v0"), Run: "1/a", Began: at, At: at}
	}
	t.Run("log", func(t *testing.T) {
		c, n := bookkeeper(t, Config{})
		l := c.debts.logs[0]
		l.sent, _ = invalidation.NewReplay(invalidation.ReplayConfig{Max: 2})
		c.replicationSeen(0, reading("1/a", now))
		for i := 1; i <= 3; i++ {
			l.add(sent(i))
		}
		edge := sent(1).At.Add(clockMargin) // the first was dropped
		c.replicationSeen(0, reading("1/a", now.Add(4*time.Second)))
		if !l.trusts(edge, n) || l.losses.Load() != 0 {
			t.Error("distrusted though the node is the same")
		}
		c.replicationSeen(0, reading("2/b", now.Add(5*time.Second)))
		if l.trusts(edge, n) || !l.trusts(edge.Add(time.Millisecond), n) || l.losses.Load() != 1 {
			t.Error("another node: what the log had no room for is trusted, or what is younger is not")
		}
		if s := c.debts.outbox.Stats(); s.Depth != 2 {
			t.Errorf("%d owed, want the 2 that the log has", s.Depth)
		}
		if !l.sent.Lost().IsZero() {
			t.Error("covered, and still lost")
		}
	})
	t.Run("outbox", func(t *testing.T) {
		c, n := bookkeeper(t, Config{OutboxSize: 1})
		l := c.debts.logs[0]
		c.replicationSeen(0, reading("1/a", now))
		l.add(sent(1))
		l.add(sent(2))
		c.replicationSeen(0, reading("2/b", now.Add(3*time.Second)))
		if edge := sent(2).At.Add(clockMargin); l.trusts(edge, n) || !l.trusts(edge.Add(time.Millisecond), n) {
			t.Error("what found no room is trusted, or what is younger is not")
		}
	})
}

// TestVoidFromTheStart: the reply of a run that is over says nothing about the one that is there: it is owed at once.
func TestVoidFromTheStart(t *testing.T) {
	c, _ := bookkeeper(t, Config{})
	now := time.Now()
	c.replicationSeen(0, redisnode.Replication{At: now, RunID: "2", Role: redisnode.RolePrimary, Stream: "2/b"})
	late := invalidation.Sent{Name: "x:k:v0", Version: 7, Run: "1/a", Began: now.Add(-1), At: now.Add(1)}
	(&Cache[string]{client: c, cfg: CacheConfig[string]{Truth: true}}).confirmed(0, late)
	if c.debts.outbox.Has("x:k:v0") {
		t.Error("a cache that is itself the truth owes")
	}
	(&Cache[string]{client: c}).confirmed(0, late)
	due := c.debts.outbox.Due(now.Add(time.Minute), 10)
	if len(due) != 1 || due[0].Name != "x:k:v0" || due[0].Version != 7 {
		t.Errorf("owed: %+v, want the one, with its version", due)
	}
}

// TestCloseNamesGroups: what Close calls a Clear and a tag's invalidation that are owed. The clearing of a node that was restarted is nobody's loss.
func TestCloseNamesGroups(t *testing.T) {
	c, _ := bookkeeper(t, Config{})
	of := newNaming("ns", "x", 3).of
	for _, name := range []string{newNaming("ns", "x", 3).data("k"), clearDebt(of, 0), restartDebt(of, 0), tagDebt(of, 0, "red")} {
		if err := c.debts.put(name, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, err := range (&finishing{debts: c.debts, c: c}).report().(interface{ Unwrap() []error }).Unwrap() { //nolint:errorlint // the joined errors themselves
		e := err.(*NodeError) //nolint:errorlint // the same
		got = append(got, strings.TrimSpace(strings.Join([]string{e.Op, e.Cache, e.Tag, strings.Join(e.Keys, ",")}, " ")))
	}
	slices.Sort(got)
	want := []string{"clear ns/x:v3", "invalidate   ns/x:k:v3", "invalidate tag ns/x:v3 red"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
