// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// What a node forgets in more roundabout ways than those of nodelog_test.go.

import (
	"context"
	"strconv"
	"testing"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
)

// mustDo runs a command on a server.
func mustDo(t *testing.T, s *redistest.Server, args ...any) any {
	t.Helper()
	v, err := s.Do(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// holds waits until a server has the entry of "k".
func holds(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, "the entry is there", func() bool {
		v, err := s.Do(t.Context(), "EXISTS", "x:k:v0")
		return err == nil && v == int64(1)
	})
}

// older waits until a server has run for longer than what is stored from now on can be doubted: its start is known to a second.
func older(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, "older than the entry", func() bool {
		info, err := s.Info(t.Context(), "server")
		up, err2 := strconv.Atoi(info["uptime_in_seconds"])
		return err == nil && err2 == nil && up >= 2
	})
}

// TestDemotedPrimary: a primary becomes the replica of one that has not heard of this process's invalidation, and takes over what that one has. Its process is
// the same, and so are the connections to it. From the next look at its role on, the old row is not read from it; when it can be written again, it goes.
func TestDemotedPrimary(t *testing.T) {
	servers := redistest.StartReplicated(t, 1)
	st := newStand(servers[0])
	src := newSource(map[string]string{"k": "1"})
	cl := open(t, st.config())
	c := product(t, cl, src)
	want(t, c, "k", "1", client.LayerSource)
	holds(t, servers[1])
	mustDo(t, servers[1], "REPLICAOF", "NO", "ONE") // it hears nothing from here
	if err := c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "2"); return nil }); err != nil {
		t.Fatal(err)
	}
	mustDo(t, servers[0], "REPLICAOF", "127.0.0.1", strconv.Itoa(servers[1].Port()))
	holds(t, servers[0])
	eventually(t, "noticed", func() bool { return cl.Stats().Owed > 0 })
	reads(t, c, "k", "2")
	mustDo(t, servers[0], "CONFIG", "RESETSTAT")
	mustDo(t, servers[0], "REPLICAOF", "NO", "ONE")
	paid(t, cl)
	if calls, _ := commandStats(t, servers[0], "evalsha"); calls > 30 {
		t.Errorf("%d scripts to repeat one invalidation", calls)
	}
	reads(t, c, "k", "2")
	reads(t, product(t, open(t, st.config()), src), "k", "2")
}

// TestLostClearingAfterARestart: what a primary brought back from a snapshot is made unreadable by those who saw it restart; but its replica, which has been sent the
// snapshot, is promoted and has not heard of that. It has run for longer than the entry is there. Who saw the restart does not trust the entry for a moment, and clears
// again, for those who see nothing but an old primary with its own entries.
func TestLostClearingAfterARestart(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{Persist: true})
	replica := primary.Replica(t, redistest.Config{})
	gone := redistest.Start(t, redistest.Config{})
	gone.Kill()
	older(t, replica)
	st := newStand(primary)
	src := newSource(map[string]string{"k": "1"})
	cl := open(t, st.config())
	c := product(t, cl, src)
	want(t, c, "k", "1", client.LayerSource)
	mustDo(t, primary, "SAVE")
	src.set("k", "2")
	mustDo(t, primary, "DEL", "x:k:v0") // by somebody whose log we do not have
	st.server.Store(gone)
	primary.Restart()
	holds(t, primary)
	eventually(t, "the replica has been sent the snapshot", func() bool {
		info, err := replica.Info(t.Context(), "replication")
		v, err2 := replica.Do(t.Context(), "EXISTS", "x:k:v0")
		return err == nil && err2 == nil && info["master_link_status"] == "up" && v == int64(1)
	})
	mustDo(t, replica, "REPLICAOF", "NO", "ONE") // it hears nothing of what follows
	before := mustDo(t, primary, "GET", "~g:x:v0")
	st.server.Store(primary)
	eventually(t, "noticed, and cleared", func() bool {
		_, _ = c.Get(t.Context(), "other")
		v, err := primary.Do(t.Context(), "GET", "~g:x:v0")
		return err == nil && v != before && cl.Stats().Owed == 0
	})
	holds(t, replica)
	mustDo(t, replica, "CONFIG", "SET", "min-replicas-to-write", "1") // no clearing gets through
	st.server.Store(replica)
	primary.Kill()
	reads(t, c, "k", "2")
	mustDo(t, replica, "CONFIG", "SET", "min-replicas-to-write", "0")
	paid(t, cl)
	reads(t, product(t, open(t, st.config()), src), "k", "2")
	reads(t, c, "k", "2")
}

// TestOwedTagPaidDuringARead: the invalidation of a tag has failed, and gets through between the moment at which the node answers a read and that at which the
// reader looks at the answer. The entry is as old as if it were still owed.
func TestOwedTagPaidDuringARead(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	st := newStand(server)
	src := newSource(map[string]string{"k": "1"})
	cfg := st.config()
	cfg.NoPush = true
	cl := open(t, cfg)
	c := product(t, cl, src)
	want(t, c, "k", "1", client.LayerSource)
	mustDo(t, server, "CONFIG", "SET", "min-replicas-to-write", "1")
	src.set("k", "2")
	if err := c.InvalidateTag(t.Context(), "t"); !client.NodesOnly(err) || cl.Stats().Owed != 1 {
		t.Fatalf("%v, and %d owed", err, cl.Stats().Owed)
	}
	st.holdReplies("$6\r\nx:k:v0") // of the read, not of a script
	got := make(chan string, 1)
	go func() {
		v, err := c.Get(context.Background(), "k")
		if err != nil {
			v = err.Error()
		}
		got <- v
	}()
	eventually(t, "read, and its reply held back", func() bool { return st.kept.Load() == 1 || len(got) > 0 })
	mustDo(t, server, "CONFIG", "SET", "min-replicas-to-write", "0")
	paid(t, cl)
	close(st.free)
	if v := <-got; v != "2" {
		t.Errorf("the read gives %q", v)
	}
}
