// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// stand is one node whose address leads to the one server and then to the other, as that of a primary does that fails over.
type stand struct {
	server atomic.Pointer[redistest.Server]

	mu   sync.Mutex
	hold []byte        // the replies to commands that hold these bytes are kept back
	free chan struct{} // until this is closed
	kept atomic.Int64
}

func newStand(s *redistest.Server) *stand {
	st := &stand{free: make(chan struct{})}
	st.server.Store(s)
	return st
}

func (st *stand) config() client.Config {
	return client.Config{
		Nodes: []ring.Node{{ID: "a", Addr: "10.0.0.1:6379"}}, OperationTimeout: 5 * time.Second,
		Redis: func(_ ring.Node, o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, st.server.Load().Addr())
				return &standConn{Conn: c, st: st}, err
			}
		},
	}
}

func (st *stand) holdReplies(to string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.hold = []byte(to)
}

// standConn is a connection of a stand.
type standConn struct {
	net.Conn
	st   *stand
	held atomic.Bool
}

func (c *standConn) Write(b []byte) (int, error) {
	c.st.mu.Lock()
	if c.st.hold != nil && bytes.Contains(b, c.st.hold) {
		c.st.hold = nil // one
		c.held.Store(true)
	}
	c.st.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *standConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.held.CompareAndSwap(true, false) {
		c.st.kept.Add(1)
		<-c.st.free
	}
	return n, err
}

// product is the cache of these tests.
func product(t *testing.T, cl *client.Client, src *source) *client.Cache[string] {
	t.Helper()
	return newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: src.load, L1: client.L1Off, NoEarlyRefresh: true, Tags: func(string) []string { return []string{"t"} }})
}

// reads reads until the connections to the server that is gone have been used up: an error of the node is a load.
func reads(t *testing.T, c *client.Cache[string], key, v string) {
	t.Helper()
	for range 20 {
		if got, err := c.Get(t.Context(), key); err != nil || got != v {
			t.Fatalf("Get(%q) = %q, %v; want %q", key, got, err, v)
		}
	}
}

// TestRestartFromSnapshot: a node that comes back from a snapshot has what was invalidated since. Nobody believes it: not who knew the node, nor who
// meets it for the first time. A cache that is itself the truth does.
func TestRestartFromSnapshot(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Persist: true})
	cfg := client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second}
	src := newSource(map[string]string{"k": "1"})
	cl := open(t, cfg)
	c, other := product(t, cl, src), product(t, open(t, cfg), src)
	truth := newCache(t, cl, client.CacheConfig[string]{Name: "s", TTL: time.Hour, Truth: true, L1: client.L1Off})
	if err := truth.Set(t.Context(), "k", "1"); err != nil {
		t.Fatal(err)
	}
	want(t, c, "k", "1", client.LayerSource)
	want(t, other, "k", "1", client.LayerL2)
	if _, err := server.Do(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "2"); return nil }); err != nil {
		t.Fatal(err)
	}
	server.Restart()
	if v, err := server.Do(t.Context(), "EXISTS", "x:k:v0"); err != nil || v != int64(1) {
		t.Fatalf("the snapshot does not have the old row: %v, %v", v, err)
	}
	reads(t, other, "k", "2") // it owes nothing to this node
	reads(t, c, "k", "2")
	reads(t, product(t, open(t, cfg), src), "k", "2")
	reads(t, truth, "k", "1")
	if st := other.Stats(); st.Distrusted+st.Cleared == 0 { // the second where a heartbeat was quicker than the reads
		t.Errorf("none counted: %+v", st)
	}
}

// TestTrustedSnapshot: with TrustSnapshots what the node had is served again; but what this process has invalidated since it does again.
func TestTrustedSnapshot(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Persist: true})
	cfg := client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second, TrustSnapshots: true}
	src := newSource(map[string]string{"k": "1", "l": "1"})
	cl := open(t, cfg)
	c := product(t, cl, src)
	mustGetMany(t, c, []string{"k", "l"}, "1")
	if _, err := server.Do(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "2"); return nil }); err != nil {
		t.Fatal(err)
	}
	if n := cl.Stats().Nodes[0].Unconfirmed; n != 1 {
		t.Errorf("%d unconfirmed, want 1", n)
	}
	server.Restart()
	reads(t, c, "k", "2")
	want(t, c, "l", "1", client.LayerL2)
	paid(t, cl)
	reads(t, product(t, open(t, cfg), src), "k", "2") // stored again, perhaps, by a read of c since
}

// TestFailoverWithoutTheLastWrites: a replica is promoted that has not heard of this process's invalidations. They are repeated, and until then this process
// does not read what came back.
func TestFailoverWithoutTheLastWrites(t *testing.T) {
	for what, write := range map[string]func(ctx context.Context, c *client.Cache[string], fn func(context.Context) error) error{
		"write": func(ctx context.Context, c *client.Cache[string], fn func(context.Context) error) error {
			return c.Write(ctx, "k", fn)
		},
		"write through": func(ctx context.Context, c *client.Cache[string], fn func(context.Context) error) error {
			_, err := c.WriteThrough(ctx, "k", func(ctx context.Context) (string, error) { return "2", fn(ctx) })
			return err
		},
		"clear": func(ctx context.Context, c *client.Cache[string], fn func(context.Context) error) error {
			_ = fn(ctx)
			return c.Clear(ctx)
		},
		"tag": func(ctx context.Context, c *client.Cache[string], fn func(context.Context) error) error {
			_ = fn(ctx)
			return c.InvalidateTag(ctx, "t")
		},
		"version": func(ctx context.Context, c *client.Cache[string], fn func(context.Context) error) error {
			_ = fn(ctx)
			return c.InvalidateVersion(ctx, "k", 7)
		},
	} {
		t.Run(what, func(t *testing.T) {
			servers := redistest.StartReplicated(t, 1)
			st := newStand(servers[0])
			src := newSource(map[string]string{"k": "1"})
			cfg := st.config()
			cfg.TrustSnapshots = true // else nothing on a server is believed that has just started
			cl := open(t, cfg)
			c, other := product(t, cl, src), product(t, open(t, cfg), src)
			want(t, c, "k", "1", client.LayerSource)
			eventually(t, "replicated", func() bool {
				v, err := servers[1].Do(t.Context(), "EXISTS", "x:k:v0")
				return err == nil && v == int64(1)
			})
			if _, err := servers[1].Do(t.Context(), "REPLICAOF", "NO", "ONE"); err != nil { // it hears nothing from here
				t.Fatal(err)
			}
			if err := write(t.Context(), c, func(context.Context) error { src.set("k", "2"); return nil }); err != nil {
				t.Fatal(err)
			}
			st.server.Store(servers[1])
			servers[0].Kill()
			if v, err := servers[1].Do(t.Context(), "EXISTS", "x:k:v0"); err != nil || v != int64(1) {
				t.Fatalf("the new primary does not have the old row: %v, %v", v, err)
			}
			reads(t, c, "k", "2")
			eventually(t, "repeated", func() bool {
				v, err := other.Get(t.Context(), "k")
				return err == nil && v == "2"
			})
			paid(t, cl)
			reads(t, other, "k", "2")
			if what == "version" {
				if mark, err := servers[1].Do(t.Context(), "GET", "~m:x:k:v0"); err != nil || mark != "\x00\x00\x00\x00\x00\x00\x00\x07" {
					t.Errorf("repeated without its version: the mark is %q, %v", mark, err)
				}
			}
		})
	}
}

// TestFailoverDuringARead: a read that asked what is owed before the failover, and was executed by the new primary before the invalidation was repeated, is not
// believed when its reply comes after that.
func TestFailoverDuringARead(t *testing.T) {
	for what, read := range map[string]func(c *client.Cache[string]) (string, error){
		"Get": func(c *client.Cache[string]) (string, error) { return c.Get(context.Background(), "k") },
		"GetMany": func(c *client.Cache[string]) (string, error) {
			m, err := c.GetMany(context.Background(), []string{"k"})
			return m["k"], err
		},
	} {
		t.Run(what, func(t *testing.T) {
			servers := redistest.StartReplicated(t, 1)
			st := newStand(servers[0])
			src := newSource(map[string]string{"k": "1"})
			cfg := st.config()
			cfg.NoPush, cfg.TrustSnapshots = true, true // a server that has just started is not what is distrusted here
			cl := open(t, cfg)
			c := product(t, cl, src)
			want(t, c, "k", "1", client.LayerSource)
			eventually(t, "replicated", func() bool {
				v, err := servers[1].Do(t.Context(), "EXISTS", "x:k:v0")
				return err == nil && v == int64(1)
			})
			if _, err := servers[1].Do(t.Context(), "REPLICAOF", "NO", "ONE"); err != nil {
				t.Fatal(err)
			}
			if err := c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "2"); return nil }); err != nil {
				t.Fatal(err)
			}
			st.server.Store(servers[1])
			servers[0].Kill()
			st.holdReplies("$6\r\nx:k:v0") // of the read, not of a script
			got := make(chan string, 1)
			go func() {
				v, err := read(c)
				if err != nil {
					v = err.Error()
				}
				got <- v
			}()
			eventually(t, "read, and its reply held back", func() bool { return st.kept.Load() == 1 || len(got) > 0 })
			eventually(t, "repeated", func() bool {
				v, err := servers[1].Do(t.Context(), "EXISTS", "x:k:v0")
				return err == nil && v == int64(0)
			})
			paid(t, cl)
			close(st.free)
			if v := <-got; v != "2" {
				t.Errorf("the read gives %q", v)
			}
		})
	}
}

// TestSnapshotThatWasReplicated: a primary comes back from a snapshot, its replica is sent what is in it, and is promoted. Who meets the replica for the
// first time then has no reason to distrust it; so what came back was made unreadable by those who saw the primary restart.
func TestSnapshotThatWasReplicated(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{Persist: true})
	replica := primary.Replica(t, redistest.Config{})
	st := newStand(primary)
	src := newSource(map[string]string{"k": "1"})
	cl := open(t, st.config())
	c := product(t, cl, src)
	want(t, c, "k", "1", client.LayerSource)
	if _, err := primary.Do(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	src.set("k", "2")
	if _, err := primary.Do(t.Context(), "DEL", "x:k:v0"); err != nil { // by somebody whose log we do not have
		t.Fatal(err)
	}
	primary.Restart()
	eventually(t, "noticed, and cleared", func() bool {
		_, _ = c.Get(t.Context(), "other")
		info := cl.Stats()
		return info.Owed == 0 && info.Nodes[0].LastError == nil
	})
	eventually(t, "sent to the replica", func() bool {
		info, err := replica.Info(t.Context(), "replication")
		v, err2 := replica.Do(t.Context(), "EXISTS", "x:k:v0")
		p, err3 := primary.Info(t.Context(), "replication")
		return err == nil && err2 == nil && err3 == nil && info["master_link_status"] == "up" && v == int64(1) && info["slave_repl_offset"] == p["master_repl_offset"]
	})
	if _, err := replica.Do(t.Context(), "REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	st.server.Store(replica)
	primary.Kill()
	newcomer := st.config()
	newcomer.TrustSnapshots = true // else it would distrust whatever is on a server that has just started
	reads(t, product(t, open(t, newcomer), src), "k", "2")
	reads(t, c, "k", "2")
}
