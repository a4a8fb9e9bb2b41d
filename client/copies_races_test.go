// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// cmdGate holds back one process's commands to one node that hold some bytes, from arm on until open; or it loses them.
type cmdGate struct {
	mu      sync.Mutex
	node    string
	pattern []byte
	lose    bool
	arrived chan struct{}
	opened  chan struct{}
}

// through makes a process's connections pass the gate.
func (g *cmdGate) through(cfg client.Config) client.Config {
	hook := cfg.Redis
	cfg.Redis = func(n ring.Node, o *redis.Options) {
		hook(n, o)
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &gatedWrites{c, g, n.ID}, nil
		}
	}
	return cfg
}

// arm begins to hold back.
func (g *cmdGate) arm(node, pattern string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.node, g.pattern = node, []byte(pattern)
	g.arrived, g.opened = make(chan struct{}, 100), make(chan struct{})
}

// open lets everything pass, now and from now on.
func (g *cmdGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pattern = nil
	close(g.opened)
}

type gatedWrites struct {
	net.Conn
	g    *cmdGate
	node string
}

func (c *gatedWrites) Write(b []byte) (int, error) {
	c.g.mu.Lock()
	hold := c.g.pattern != nil && c.node == c.g.node && bytes.Contains(b, c.g.pattern)
	arrived, opened, lose := c.g.arrived, c.g.opened, c.g.lose
	c.g.mu.Unlock()
	if hold && lose {
		return len(b), nil
	}
	if hold {
		arrived <- struct{}{}
		<-opened
	}
	return c.Conn.Write(b)
}

// gatedPair is two processes on three embedded nodes: the writer's commands can be held back; the reader has heard that "k" is on all nodes.
type gatedPair struct {
	nodes          *clienttest.Nodes
	writer, reader *chosen
	gate           *cmdGate
	src            *source
}

func newGatedPair(t *testing.T, edit func(*client.CacheConfig[string])) *gatedPair {
	t.Helper()
	p := &gatedPair{nodes: clienttest.Start(t, 3), gate: new(cmdGate), src: newSource(map[string]string{"k": "1"})}
	cfg := patient(p.nodes)
	cfg.OperationTimeout = 10 * time.Second
	p.reader = newChosen(t, cfg, p.src.load, edit)
	p.writer = newChosen(t, p.gate.through(cfg), p.src.load, edit)
	p.reader.at(t, "k", 0)
	return p
}

// during runs a writer's call, does something while its commands to the owner are held back, and returns the call's error.
func (p *gatedPair) during(t *testing.T, pattern string, call func(ctx context.Context) error, meanwhile func()) error {
	t.Helper()
	owner, _ := p.writer.Where("k")
	p.gate.arm(owner, pattern)
	done := make(chan error, 1)
	go func() { done <- call(context.WithoutCancel(t.Context())) }()
	<-p.gate.arrived
	meanwhile()
	p.gate.open()
	return <-done
}

// TestCopiesGoAfterTheOwner: an invalidation is on its way to the owner while another process copies the old entry. What was voided before the owner would be there again.
func TestCopiesGoAfterTheOwner(t *testing.T) {
	p := newGatedPair(t, nil)
	p.src.set("k", "2")
	err := p.during(t, "x:k:v0", func(ctx context.Context) error { return p.writer.Invalidate(ctx, "k") }, func() {
		time.Sleep(50 * time.Millisecond) // a walk in the other order would be there by now
		p.reader.spread(t, "k", 3)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.reader.noneReads(t, "after the invalidation", "k", "2", 3)
}

// TestClearWalksTwice: a Clear has come to the other nodes while the owner still has its entries. What a reader copies meanwhile, under the new generation there, goes as well. The same
// for a tag, and for a clearing that gets through to the owner late.
func TestClearWalksTwice(t *testing.T) {
	tagged := func(c *client.CacheConfig[string]) { c.Tags = func(string) []string { return []string{"t"} } }
	for name, call := range map[string]func(ctx context.Context, c *chosen) error{
		"Clear":         func(ctx context.Context, c *chosen) error { return c.Clear(ctx) },
		"InvalidateTag": func(ctx context.Context, c *chosen) error { return c.InvalidateTag(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newGatedPair(t, tagged)
			p.reader.spread(t, "k", 3)
			p.src.set("k", "2")
			err := p.during(t, "~g:x:v0", func(ctx context.Context) error { return call(ctx, p.writer) }, func() {
				for i := 1; i < 3; i++ {
					node, _ := p.reader.CopyAt("k", i)
					eventually(t, node+" is cleared", func() bool { p.reader.split(3, "k"); return p.reader.at(t, "k", i).Node != node })
					eventually(t, "and has a copy again", func() bool { p.reader.split(3, "k"); return p.reader.at(t, "k", i).Node == node })
				}
				eventually(t, "nothing more is copied", func() bool { return p.reader.Copying() == 0 })
			})
			if err != nil {
				t.Fatal(err)
			}
			p.reader.noneReads(t, "after the clearing", "k", "2", 3)
		})
		t.Run(name+", late", func(t *testing.T) {
			p := newGatedPair(t, tagged)
			owner, _ := p.reader.Where("k")
			var cut atomic.Bool
			cfg := patient(p.nodes)
			hook := cfg.Redis
			cfg.Redis = func(n ring.Node, o *redis.Options) {
				if hook(n, o); n.ID == owner {
					o.Limiter = gateOf{&cut}
				}
			}
			w := newChosen(t, cfg, p.src.load, tagged)
			cut.Store(true)
			p.src.set("k", "2")
			if err := call(t.Context(), w); !client.NodesOnly(err) {
				t.Fatalf("a clearing that does not reach the owner says %v", err)
			}
			p.reader.spread(t, "k", 3) // it cannot know better
			if r := p.reader.at(t, "k", 1); r.Value != "1" {
				t.Fatalf("the scene is not set: %+v", r)
			}
			w.noneReads(t, "the process that owes it", "k", "2", 3)
			cut.Store(false)
			paid(t, w.cl)
			p.reader.noneReads(t, "once it got through", "k", "2", 3)
		})
	}
}

// TestCopyUnderWay: a copy is being made when its key is invalidated: it has read the owner, and has not been stored. It is not stored any more.
func TestCopyUnderWay(t *testing.T) {
	for name, invalidate := range map[string]func(ctx context.Context, c *client.Cache[string]) error{
		"Invalidate": func(ctx context.Context, c *client.Cache[string]) error { return c.Invalidate(ctx, "k") },
		"InvalidateMany": func(ctx context.Context, c *client.Cache[string]) error {
			return c.InvalidateMany(ctx, []string{"k", "l"})
		},
		"Clear": func(ctx context.Context, c *client.Cache[string]) error { return c.Clear(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			nodes := clienttest.Start(t, 3)
			src := newSource(map[string]string{"k": "1"})
			var hold atomic.Pointer[chan struct{}]
			r := newChosen(t, patient(nodes), src.load, func(c *client.CacheConfig[string]) { c.Codec = heldCodec{&hold} })
			w := newChosen(t, patient(nodes), src.load, func(c *client.CacheConfig[string]) { c.Codec = heldCodec{new(atomic.Pointer[chan struct{}])} })
			r.at(t, "k", 0)
			free := make(chan struct{})
			hold.Store(&free)
			r.split(3, "k")
			var reads sync.WaitGroup
			for i := 1; i < 3; i++ {
				r.index.Store(int64(i))
				running := r.Copying()
				reads.Go(func() { _, _ = r.Get(t.Context(), "k") })
				eventually(t, "a copy is being made", func() bool { return r.Copying() > running })
				node, _ := r.CopyAt("k", i)
				eventually(t, "it has its lease, and then its record", func() bool {
					_, leased := nodes.ByID(node).Get("~cl:x:k:v0")
					_, noted := nodes.ByID(ownerOf(r.Cache, "k")).Get(r.SplitRecord("k"))
					return leased && noted
				})
			}
			src.set("k", "2")
			if err := invalidate(t.Context(), w.Cache); err != nil {
				t.Fatal(err)
			}
			hold.Store(nil)
			close(free)
			reads.Wait()
			eventually(t, "nothing is copied any more", func() bool { return r.Copying() == 0 })
			r.noneReads(t, "after the invalidation", "k", "2", 3)
			w.noneReads(t, "after the invalidation, the writer", "k", "2", 3)
		})
	}
}

// TestWritesVoidCopies: whatever replaces or removes a row at the owner voids its copies before it returns.
func TestWritesVoidCopies(t *testing.T) {
	ctx := t.Context()
	for name, write := range map[string]func(c *chosen, src *source) error{
		"InvalidateVersion": func(c *chosen, src *source) error { src.set("k", "2"); return c.InvalidateVersion(ctx, "k", 2) },
		"Write": func(c *chosen, src *source) error {
			return c.Write(ctx, "k", func(context.Context) error { src.set("k", "2"); return nil })
		},
		"WriteThrough": func(c *chosen, src *source) error {
			_, err := c.WriteThrough(ctx, "k", func(context.Context) (string, error) { src.set("k", "2"); return "2", nil })
			return err
		},
		"Refresh": func(c *chosen, src *source) error {
			src.set("k", "2")
			_, err := c.GetWith(ctx, "k", nil, client.GetOptions{Refresh: true})
			return err
		},
	} {
		for _, versions := range []bool{false, true} {
			if name == "InvalidateVersion" && !versions {
				continue // it is for caches with versions
			}
			t.Run(fmt.Sprint(name, ", versions=", versions), func(t *testing.T) {
				nodes := clienttest.Start(t, 3)
				src := newSource(map[string]string{"k": "1"})
				edit := func(c *client.CacheConfig[string]) {
					if versions {
						c.Version = func(v string) uint64 { n, _ := strconv.ParseUint(v, 10, 64); return n }
					}
				}
				c, other := newChosen(t, patient(nodes), src.load, edit), newChosen(t, patient(nodes), src.load, edit)
				c.spread(t, "k", 3)
				other.spread(t, "k", 3)
				c.split(0, "k")
				if err := write(c, src); err != nil {
					t.Fatal(err)
				}
				other.noneReads(t, "the other process", "k", "2", 3)
				c.noneReads(t, "the writer", "k", "2", 3)
			})
		}
	}
}

// TestSecondDeleteVoidsCopies: what a lagging loader has stored after the first delete may have been copied by the time of the second.
func TestSecondDeleteVoidsCopies(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	src := newSource(map[string]string{"k": "1"})
	edit := func(c *client.CacheConfig[string]) { c.SecondDelete = 5 * time.Second }
	c, other := newChosen(t, patient(nodes), src.load, edit), newChosen(t, patient(nodes), src.load, edit)
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	other.spread(t, "k", 3) // the replica that is asked does not know of the write yet
	src.set("k", "2")
	eventually(t, "the second delete has come", func() bool { return c.Stats().SecondDeletes == 1 && c.cl.Stats().SecondDeletes == 0 })
	eventually(t, "and is through", func() bool { return c.Stats().SecondRemoved == 1 })
	for i := 1; i < 3; i++ {
		eventually(t, "no copy is left", func() bool {
			node, name := other.CopyAt("k", i)
			_, there := nodes.ByID(node).Get(name)
			return !there
		})
	}
	other.noneReads(t, "after the second delete", "k", "2", 3)
}

// TestCopyOfAForgottenRun: the owner comes back empty, and with it goes the note of where copies are. Nobody who has met it believes a copy from before.
func TestCopyOfAForgottenRun(t *testing.T) {
	cfg := client.Config{OperationTimeout: time.Second, TrustSnapshots: true}
	servers := make(map[string]*redistest.Server)
	for i, server := range redistest.StartNodes(t, 3) {
		id := fmt.Sprint("node-", i)
		servers[id] = server
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: id, Addr: server.Addr()})
	}
	src := newSource(map[string]string{"k": "1"})
	c, other := newChosen(t, cfg, src.load, nil), newChosen(t, cfg, src.load, nil)
	other.spread(t, "k", 3)
	owner, _ := c.Where("k")
	other.split(1, "k") // else it copies the new run's entry while it does not find the owner well
	servers[owner].Restart()
	for _, process := range []*chosen{c, other} {
		eventually(t, "the process has met the owner's new run", func() bool {
			r := process.at(t, "k", 0)
			return r.Layer == client.LayerL2 && r.Node == owner
		})
	}
	src.set("k", "2")
	if err := c.Invalidate(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		node, name := c.CopyAt("k", i)
		if n, _ := mustDo(t, servers[node], "EXISTS", name).(int64); n == 0 {
			t.Errorf("the scene is not set: copy %d was voided, and nothing is to be disbelieved", i)
		}
	}
	other.noneReads(t, "the other process", "k", "2", 3)
	eventually(t, "copies are made anew, from the new run", func() bool {
		other.split(3, "k")
		node, _ := other.CopyAt("k", 1)
		return other.at(t, "k", 1).Node == node
	})
}

// TestCopiesWhileTheOwnerIsDown: an invalidation that does not reach the owner voids the copies all the same, is owed to the owner, and goes on to the copies once more when it
// gets through: what another process, which does reach the owner, has copied meanwhile goes too.
func TestCopiesWhileTheOwnerIsDown(t *testing.T) {
	p := newGatedPair(t, nil)
	owner, _ := p.reader.Where("k")
	var cut atomic.Bool
	cfg := patient(p.nodes)
	hook := cfg.Redis
	cfg.Redis = func(n ring.Node, o *redis.Options) {
		if hook(n, o); n.ID == owner {
			o.Limiter = gateOf{&cut}
		}
	}
	w := newChosen(t, cfg, p.src.load, nil)
	p.reader.spread(t, "k", 3)
	cut.Store(true)
	p.src.set("k", "2")
	err := w.Invalidate(t.Context(), "k")
	var of *client.NodeError
	if !client.NodesOnly(err) || !errors.As(err, &of) || of.Node != owner || of.Op != "invalidate" {
		t.Fatalf("the invalidation says %v, want the owner, %s", err, owner)
	}
	for i := 1; i < 3; i++ {
		node, name := p.reader.CopyAt("k", i)
		if _, there := p.nodes.ByID(node).Get(name); there {
			t.Errorf("copy %d is there after an invalidation that did not reach the owner", i)
		}
	}
	w.noneReads(t, "the writer, past what is stored", "k", "2", 3)
	p.reader.spread(t, "k", 3)
	if r := p.reader.at(t, "k", 1); r.Value != "1" {
		t.Fatalf("the scene is not set: %+v", r)
	}
	w.noneReads(t, "the writer, past the new copies", "k", "2", 3)
	cut.Store(false)
	paid(t, w.cl)
	p.reader.noneReads(t, "once it got through", "k", "2", 3)
	w.noneReads(t, "the writer, once it got through", "k", "2", 3)
}

// TestOwedCopyIsNotRead: an invalidation does not get through to a copy's node, which answers reads all the same. The process that owes it does not read that copy.
func TestOwedCopyIsNotRead(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	src := newSource(map[string]string{"k": "1"})
	cfg := nodes.Config()
	cfg.OperationTimeout = time.Second
	gate := &cmdGate{lose: true}
	w := newChosen(t, gate.through(cfg), src.load, nil)
	w.spread(t, "k", 3)
	node, name := w.CopyAt("k", 1)
	there := "" // a key of the copy's node
	for i := 0; there == ""; i++ {
		if ownerOf(w.Cache, strconv.Itoa(i)) == node {
			there = strconv.Itoa(i)
			src.set(there, "1")
		}
	}
	gate.arm(node, "~cl:x:k:v0") // which an invalidation has, and a read has not
	defer gate.open()
	src.set("k", "2")
	err := w.Invalidate(t.Context(), "k")
	var of *client.NodeError
	if !client.NodesOnly(err) || !errors.As(err, &of) || of.Node != node || of.Op != "invalidate copy" {
		t.Fatalf("the invalidation says %v, want the copy on %s", err, node)
	}
	for range 50 {
		if _, err := w.Get(t.Context(), there); err != nil { // the node answers: it is not passed over for what has just failed
			t.Fatal(err)
		}
		w.split(3, "k")
		if r := w.at(t, "k", 1); r.Value != "2" || r.Node == node {
			t.Fatalf("read %q from %s, where the invalidation is owed", r.Value, r.Node)
		}
		if m, err := w.GetMany(t.Context(), []string{"k", there}); err != nil || m["k"] != "2" {
			t.Fatal(m, err)
		}
	}
	if _, kept := nodes.ByID(node).Get(name); !kept {
		t.Error("the scene is not set: the copy is gone")
	}
}

// TestCopyOwedAtClose: a copy whose invalidation is owed is reported by Close, with its node.
func TestCopyOwedAtClose(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	src := newSource(map[string]string{"k": "1"})
	c := newChosen(t, patient(nodes), src.load, nil)
	c.spread(t, "k", 3)
	node, _ := c.CopyAt("k", 2)
	nodes.ByID(node).Down()
	if err := c.Invalidate(t.Context(), "k"); !client.NodesOnly(err) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := c.cl.Close(ctx)
	var of *client.NodeError
	if !errors.As(err, &of) || of.Node != node || len(of.Keys) != 1 {
		t.Errorf("Close says %v, want the copy on %s", err, node)
	}
}
