// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/ring"
)

// TestWhoMayBePrimary is the rule, case by case: what a server that says that it is a primary needs beside that.
func TestWhoMayBePrimary(t *testing.T) {
	for name, c := range map[string]struct {
		evidence
		want bool
	}{
		"most Sentinels name it":                                               {evidence{majority: true, named: true, known: true}, true},
		"nobody speaks for it":                                                 {evidence{known: true, sick: true, down: true}, false},
		"one Sentinel names it":                                                {evidence{named: true, known: true}, false},
		"one names it, while ours is down":                                     {evidence{named: true, known: true, sick: true, down: true}, false},
		"one names it, all were asked":                                         {evidence{named: true, minority: true, known: true, sick: true, down: true}, false},
		"it was our primary's replica, and ours is well":                       {evidence{descends: true, known: true}, false},
		"it was our primary's replica, and ours is silent to us alone":         {evidence{descends: true, known: true, sick: true}, false},
		"it was our primary's replica, and only a Sentinel finds ours down":    {evidence{descends: true, known: true, down: true}, false},
		"it was our primary's replica, and ours is down":                       {evidence{descends: true, known: true, sick: true, down: true}, true},
		"it was our primary's replica, and a Sentinel names it (planned)":      {evidence{descends: true, known: true, named: true}, true},
		"we have none, and one names it, but others may yet answer":            {evidence{named: true}, false},
		"we have none, all were asked, no majority answered, and one names it": {evidence{named: true, minority: true}, true},
		"we have none, and nobody names it":                                    {evidence{sick: true, down: true}, false},
	} {
		if got := c.suffices(); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

// bareShard is a shard of a client that talks to nobody.
func bareShard(t *testing.T, sentinels ...string) *shard {
	t.Helper()
	n, err := redisnode.New(redisnode.Config{ID: "a", Addr: serverA})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	c := &Client{nodes: []*redisnode.Node{n}, ids: []string{"a"}}
	c.cfg.Sentinel = &SentinelConfig{Addrs: sentinels}
	c.cfg.ReplicaMaxLag, c.cfg.Logger = DefaultReplicaMaxLag, slog.New(slog.DiscardHandler)
	return c.newShard(0, ring.Node{ID: "a"})
}

// claims is a channel of what Sentinels say.
func claims(all ...redisnode.Claim) <-chan redisnode.Claim {
	ch := make(chan redisnode.Claim, len(all))
	for _, c := range all {
		ch <- c
	}
	close(ch)
	return ch
}

const (
	serverA = "127.0.0.1:1"
	serverB = "127.0.0.1:2"
	serverC = "127.0.0.1:3"
)

// TestVotes: a majority is one of all Sentinels, those counted that are silent.
func TestVotes(t *testing.T) {
	sh := bareShard(t, "s1", "s2", "s3")
	primary := redisnode.Replication{Role: redisnode.RolePrimary, ID: "foreign"}
	silent := redisnode.Claim{Err: ErrClosed}
	named := func(addr string) redisnode.Claim { return redisnode.Claim{Addr: addr, Epoch: 1} }
	for name, c := range map[string]struct {
		claims []redisnode.Claim
		want   string // who may be the primary, of B and C; "" is none
	}{
		"all of one mind": {[]redisnode.Claim{named(serverB), named(serverB), named(serverB)}, serverB},
		"one is silent":   {[]redisnode.Claim{silent, named(serverB), named(serverB)}, serverB},
		"one is behind":   {[]redisnode.Claim{named(serverC), named(serverB), named(serverB)}, serverB},
		"two are silent":  {[]redisnode.Claim{silent, silent, named(serverB)}, ""},
		"no two agree":    {[]redisnode.Claim{named(serverA), named(serverB), named(serverC)}, ""},
	} {
		sh.primarySaid(redisnode.Replication{At: time.Now(), Role: redisnode.RolePrimary, ID: "ours"})
		sh.count(claims(c.claims...))
		for _, addr := range []string{serverB, serverC} {
			if got := sh.speaksFor(addr, primary, time.Now()).suffices(); got != (addr == c.want) {
				t.Errorf("%s: %s may be the primary: %t", name, addr, got)
			}
		}
	}
}

// TestNotBackToTheOldPrimary: a promotion was followed before its announcement, the Sentinels still name the old primary, and it is restarted: a primary, as it says.
func TestNotBackToTheOldPrimary(t *testing.T) {
	sh := bareShard(t, "s1", "s2", "s3")
	now := time.Now()
	ours := redisnode.Replication{At: now, Role: redisnode.RolePrimary, ID: "of A"}
	sh.primarySaid(ours)
	sh.count(claims(redisnode.Claim{Addr: serverA, Epoch: 3}, redisnode.Claim{Addr: serverA, Epoch: 3}))
	sh.moveTo(t.Context(), serverB, redisnode.Replication{Role: redisnode.RolePrimary, ID: "of B", Continues: "of A"}, "")
	restarted := redisnode.Replication{Role: redisnode.RolePrimary, ID: "new of A", Continues: "of A"}
	may := func(epoch int64, at time.Time) bool {
		sh.count(claims(redisnode.Claim{Addr: serverA, Epoch: epoch}, redisnode.Claim{Addr: serverA, Epoch: epoch}))
		return sh.speaksFor(serverA, restarted, at).suffices()
	}
	if may(3, time.Now()) {
		t.Error("back to the primary that the Sentinels knew before the promotion")
	}
	if !may(3, time.Now().Add(notBack)) {
		t.Error("they have meant it for half a minute")
	}
	if !may(5, time.Now()) {
		t.Error("they have failed over to it since")
	}
}

// TestProvenLag: what a replica is known to have is what its primary had at a reading that the replica has reached, in the same history, and in one run of its server.
func TestProvenLag(t *testing.T) {
	sh := bareShard(t, "s1")
	began := time.Now()
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	primary := func(s float64, id string, offset int64) {
		sh.primarySaid(redisnode.Replication{At: at(s), Role: redisnode.RolePrimary, ID: id, Offset: offset})
	}
	p := &replica{shard: sh}
	says := func(r redisnode.Replication) { r.Role = redisnode.RoleReplica; p.said(r) }
	known := func(what string, want time.Time) {
		t.Helper()
		if got := p.standing.Load().asOf; !got.Equal(want) {
			t.Errorf("%s: known to have what there was at %v, want %v", what, got.Sub(began), want.Sub(began))
		}
	}
	primary(0, "x", 100)
	says(redisnode.Replication{RunID: "1", ID: "x", Offset: 99})
	known("it is behind", time.Time{})
	says(redisnode.Replication{RunID: "1", ID: "y", Offset: 200})
	known("the replica of another primary", time.Time{})
	says(redisnode.Replication{RunID: "1", ID: "x", Offset: 100})
	known("it has caught up", at(0))
	primary(1, "x", 200)
	primary(2, "x", 300)
	says(redisnode.Replication{RunID: "1", ID: "x", Offset: 250})
	known("it is a second behind", at(1))
	if !p.readable(at(1).Add(DefaultReplicaMaxLag)) || p.readable(at(1).Add(DefaultReplicaMaxLag+1)) {
		t.Error("it may be read for ReplicaMaxLag, and no longer")
	}
	says(redisnode.Replication{RunID: "2", ID: "x", Offset: 50})
	known("it was restarted and is behind", time.Time{})
	says(redisnode.Replication{RunID: "2", ID: "x", Offset: 300})
	known("it has caught up again", at(2))
	p.said(redisnode.Replication{RunID: "2", ID: "z", Role: redisnode.RolePrimary, Offset: 400})
	if p.readable(at(2)) {
		t.Error("it says that it is a primary")
	}
	primary(2.1, "x", 310) // too close to the last to be kept
	if len(sh.heard) != 3 {
		t.Errorf("%d readings are kept", len(sh.heard))
	}
	for i := range 3 * positions {
		primary(3+float64(i), "x", 400)
	}
	if len(sh.heard) != positions {
		t.Errorf("%d readings are kept", len(sh.heard))
	}
}
