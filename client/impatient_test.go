// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// late is how much later some replies of a limping node are: not quite the timeout.
const late = 45 * time.Millisecond

// limper is a link that holds back commands of its choice, or their replies.
type limper struct {
	every   atomic.Int64 // each so many commands has a late reply; 0: none
	sent    atomic.Int64
	command atomic.Pointer[string] // the next command that has these bytes is held back, once
	reply   atomic.Pointer[string] // or its reply
}

func (l *limper) edit(cfg *client.Config) {
	dialer := cfg.Redis
	cfg.Redis = func(n ring.Node, o *redis.Options) {
		dialer(n, o)
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &limpingConn{Conn: conn, l: l}, err
		}
	}
}

// limpingConn is a connection over the link.
type limpingConn struct {
	net.Conn
	l    *limper
	hold atomic.Bool // the next reply
}

func hits(p *atomic.Pointer[string], b []byte) bool {
	word := p.Load()
	return word != nil && bytes.Contains(b, []byte(*word)) && p.CompareAndSwap(word, nil)
}

func (c *limpingConn) Write(b []byte) (int, error) {
	if n, every := c.l.sent.Add(1), c.l.every.Load(); every > 0 && n%every == 0 || hits(&c.l.reply, b) {
		c.hold.Store(true)
	}
	if hits(&c.l.command, b) {
		time.Sleep(late)
	}
	return c.Conn.Write(b)
}

func (c *limpingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.hold.Swap(false) {
		time.Sleep(late)
	}
	return n, err
}

// TestLimpingNodeHoldsUpNoLoad: of a node of which a few replies are late, a lease and a fill are waited for no longer than reads are. For the lease another request is sent, so that it is one
// load, and stored; what is late leaves no lease behind, for which the next readers would wait.
func TestLimpingNodeHoldsUpNoLoad(t *testing.T) {
	lease, fill := "~l:x", "the value"
	command, reply := func(l *limper) *atomic.Pointer[string] { return &l.command }, func(l *limper) *atomic.Pointer[string] { return &l.reply }
	for _, tt := range []struct {
		what       string
		at         func(l *limper) *atomic.Pointer[string]
		word       *string
		invalidate bool // when the value has come, and before what is late arrives
		stored     bool
	}{
		{"the lease's command", command, &lease, false, true},
		{"the lease's command, which an invalidation overtakes,", command, &lease, true, false},
		{"the lease's reply", reply, &lease, false, true},
		{"the fill's command", command, &fill, false, false},
		{"the fill's reply", reply, &fill, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			nodes, link := clienttest.Start(t, 1), new(limper)
			link.every.Store(5)
			cfg := nodes.Config()
			link.edit(&cfg)
			var loads atomic.Int32
			c := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
				Load: func(context.Context, string) (string, error) { loads.Add(1); return fill, nil }})
			for range 300 {
				if _, err := c.Get(t.Context(), "warm"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second) // some heartbeats, at which the node's pace is taken
			link.every.Store(0)
			at := tt.at(link)
			at.Store(tt.word)
			start := time.Now()
			v, err := c.Get(t.Context(), "k")
			if took := time.Since(start); v != fill || err != nil || took > late/2 {
				t.Errorf("%s is late: %q, %v after %v", tt.what, v, err, took)
			}
			if at.Load() != nil {
				t.Fatalf("%s was never sent", tt.what)
			}
			if n := loads.Load(); n != 2 {
				t.Errorf("%s is late: %d loads of two keys", tt.what, n)
			}
			if tt.invalidate {
				if err := c.Invalidate(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(2 * late)
			if names := nodes.Node(0).Keys(); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, lease) }) {
				t.Errorf("%s is late: a lease is left: %q", tt.what, names)
			}
			before := loads.Load()
			r, err := c.Lookup(t.Context(), "k")
			if stored := r.Layer == client.LayerL2; r.Value != fill || err != nil || stored != tt.stored {
				t.Errorf("%s is late: then %+v, %v, want it stored: %v", tt.what, r, err, tt.stored)
			}
			if n := loads.Load() - before; n > 1 {
				t.Errorf("%s is late: then %d loads", tt.what, n)
			}
		})
	}
}

// TestLateTrackedReadIsNotKept: where the connections through which this process's copies are watched are slow, reads do not wait for them. What was read beside them
// is not watched, so it is not kept.
func TestLateTrackedReadIsNotKept(t *testing.T) {
	p := redistest.StartProxy(t, redistest.Start(t, redistest.Config{}).Addr())
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: p.Addr()}}, OperationTimeout: 500 * time.Millisecond})
	load := func(context.Context, string) (string, error) { return "v", nil }
	plain := newCache(t, cl, client.CacheConfig[string]{Name: "plain", TTL: time.Minute, L1: client.L1Off, Load: load})
	local := newCache(t, cl, client.CacheConfig[string]{Name: "local", TTL: time.Minute, L1: client.L1All, Load: load})

	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	for i := range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				_, _ = plain.Get(ctx, fmt.Sprint("k", i))
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	poll := func(what string, ready func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ready(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("never: " + what)
			}
		}
	}
	poll("a copy is watched", func() bool { r, _ := local.Lookup(ctx, "k"); return r.Layer == client.LayerL1 })

	p.ToClient().DelaySome(0.1, 80*time.Millisecond)
	p.Only(isFill).ToClient().Delay(80*time.Millisecond, 0)
	// Until the node is known to limp its reads wait for the watched ones, and are kept.
	n := 0
	poll("reads leave what is late", func() bool {
		n++
		key, start := fmt.Sprint("late", n), time.Now()
		if _, err := local.Get(ctx, key); err != nil { // a miss
			t.Fatal(err)
		}
		_, _ = local.Lookup(ctx, key)
		return time.Since(start) < 60*time.Millisecond
	})
	kept := 0
	for i := range 40 {
		r, err := local.Lookup(ctx, fmt.Sprint("late", n))
		if err != nil {
			t.Fatal(i, err)
		}
		if r.Layer == client.LayerL1 {
			kept++
		}
	}
	if kept > 0 {
		t.Errorf("%d of 40 reads were answered from a copy that was not read through the watch", kept)
	}
	p.Heal()
	poll("copies are watched again", func() bool { r, _ := local.Lookup(ctx, fmt.Sprint("late", n)); return r.Layer == client.LayerL1 })
	if err := cl.Close(context.Background()); err != nil && !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

// deafConn is a connection on which the first request for a lease is carried out and not answered, and the others are lost.
type deafConn struct {
	net.Conn
	asked      *atomic.Int32 // requests; negative: let them through
	mute, lost atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("~l:x:k")) && bytes.Contains(b, []byte("\r\nmiss\r\n")) && c.asked.Load() >= 0 {
		c.mute.Store(true)
		c.lost.Store(c.asked.Add(1) > 1)
	}
	if c.lost.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for err == nil && c.mute.Load() {
		n, err = c.Conn.Read(b) // until the deadline
	}
	return n, err
}

// TestUnansweredLeaseIsGivenBack: of a limping node a load asks for its lease several times, and gets no answer. One of the requests, not the last, was carried out: what that was granted is given
// back as well, or the next readers would wait for somebody who does not load.
func TestUnansweredLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, link, asked := clienttest.Start(t, 1), new(limper), new(atomic.Int32)
		asked.Store(-1)
		link.every.Store(5)
		cfg := nodes.Config()
		link.edit(&cfg)
		limping := cfg.Redis
		cfg.Redis = func(n ring.Node, o *redis.Options) {
			limping(n, o)
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &deafConn{Conn: conn, asked: asked}, err
			}
		}
		cc := client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, NoEarlyRefresh: true,
			Load: func(context.Context, string) (string, error) { return "v", nil }}
		c, other := newCache(t, open(t, cfg), cc), newCache(t, open(t, nodes.Config()), cc)
		for range 300 {
			if _, err := c.Get(t.Context(), "warm"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // some heartbeats, at which the node's pace is taken
		link.every.Store(0)
		asked.Store(0)
		if v, err := c.Get(t.Context(), "k"); v != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if n := asked.Load(); n < 2 {
			t.Fatalf("%d requests for the lease: the node is not known to limp", n)
		}
		time.Sleep(cfg.OperationTimeout) // for what is given back
		if names := nodes.Node(0).Keys(); slices.Contains(names, "~l:x:k:v0") {
			t.Errorf("a lease is left: %q", names)
		}
		start := time.Now()
		if v, err := other.Get(t.Context(), "k"); v != "v" || err != nil || time.Since(start) > time.Second {
			t.Errorf("another process's read: %q, %v after %v", v, err, time.Since(start))
		}
	})
}
