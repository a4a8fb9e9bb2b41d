// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// clients gives the fields of the server's connections with a name.
func clients(tb testing.TB, s *redistest.Server, name string) []map[string]string {
	tb.Helper()
	var found []map[string]string
	for l := range strings.Lines(do(tb, s, "CLIENT", "LIST").(string)) {
		fields := map[string]string{}
		for f := range strings.FieldsSeq(l) {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		if fields["name"] == name {
			found = append(found, fields)
		}
	}
	return found
}

// wantOver checks that old is over for good, that Push(nil) came after that, and that another Tracking follows.
func wantOver(tb testing.TB, n *redisnode.Node, h *heard, old *redisnode.Tracking) {
	tb.Helper()
	eventually(tb, "the Tracking is over", old.Over)
	if old.Fresh(time.Now()) || old.Fresh(time.Now().Add(-time.Hour)) {
		tb.Error("a Tracking that is over is fresh")
	}
	_, _, err := old.Get(tb.Context(), "k", "")
	if !errors.Is(err, redisnode.ErrTrackingOver) || redisnode.IsTrouble(err) {
		tb.Errorf("a read through it: %v", err)
	}
	if _, err = old.MGet(tb.Context(), []string{"k"}); !errors.Is(err, redisnode.ErrTrackingOver) {
		tb.Errorf("a read through it: %v", err)
	}
	eventually(tb, "Push(nil)", func() bool { return h.has("*") })
	if next := tracked(tb, n); next == old || old.Fresh(time.Now()) || !old.Over() {
		tb.Error("a Tracking came back")
	}
	if got := h.take(); len(got) != 1 {
		tb.Errorf("pushed %q", got)
	}
	if err := n.Info().TrackingError; err != nil {
		tb.Errorf("TrackingError is %v although there is one", err)
	}
}

// The loss of any of the three connections ends the Tracking.
func TestLossOfAConnection(t *testing.T) {
	s, n, h := startTracked(t, nil)
	for _, c := range []struct {
		name  string
		which int
	}{{"shelf-listener", 0}, {"shelf-fill", 0}, {"shelf-fill", 1}} {
		tr := tracked(t, n)
		mustGet(t, tr, "k", "")
		h.onNil(func() {
			if !tr.Over() {
				t.Errorf("%s: Push(nil) came before the end", c.name)
			}
		})
		there := clients(t, s, c.name)
		if len(there) <= c.which {
			t.Fatalf("%s: connections %v", c.name, there)
		}
		do(t, s, "CLIENT", "KILL", "ID", there[c.which]["id"])
		wantOver(t, n, h, tr)
		mustGet(t, tracked(t, n), "k", "")
		do(t, s, "SET", "k", c.name)
		eventually(t, "the new one hears", func() bool { return h.has("k") })
		h.take()
	}
	if got := n.TrackingStats(); got.ListenerLost != 1 || got.FillLost != 2 || got.Begun != 4 {
		t.Errorf("stats %+v", got)
	}
}

// A flush of everything ends the Tracking: the server does not say which keys were there.
func TestFlushEndsTheTracking(t *testing.T) {
	s, n, h := startTracked(t, nil)
	tr := tracked(t, n)
	do(t, s, "SET", "k", "1")
	mustGet(t, tr, "k", "")
	do(t, s, "FLUSHALL")
	wantOver(t, n, h, tr)
	if got := n.TrackingStats(); got.Flushed != 1 || got.Flushes == 0 {
		t.Errorf("stats %+v", got)
	}
}

func TestTrackingAfterARestart(t *testing.T) {
	s, n, h := startTracked(t, nil)
	tr, before := tracked(t, n), n.Info().RunID
	do(t, s, "SET", "k", "1")
	mustGet(t, tr, "k", "")
	s.Kill()
	eventually(t, "the Tracking is over", tr.Over)
	eventually(t, "it is said why", func() bool { return n.Info().TrackingError != nil })
	s.Restart()
	wantOver(t, n, h, tr)
	if n.Info().RunID == before || n.Info().RunID != n.Session().RunID() {
		t.Errorf("run %q after %q", n.Info().RunID, before)
	}
	if v, _ := mustGet(t, tracked(t, n), "k", ""); v != nil {
		t.Errorf("read %q from an empty server", v)
	}
}

// A server that only pauses loses nothing. Nothing is fresh a second after the last answer; when it goes on, the same
// Tracking is fresh again, and what was written in the dark is pushed. Reads time out meanwhile, and their late replies
// are nobody else's.
func TestPause(t *testing.T) {
	const timeout = 100 * time.Millisecond
	s, n, h := startTracked(t, func(c *redisnode.Config) { c.Timeout = timeout })
	tr := tracked(t, n)
	for i := range 20 {
		do(t, s, "SET", fmt.Sprint("k", i), fmt.Sprint(i))
	}
	mustGet(t, tr, "k0", "")
	writer := s.Client()
	s.Stop()
	stopped := time.Now()
	if !tr.Fresh(stopped) || tr.Fresh(stopped.Add(time.Second)) {
		t.Error("fresh a second after the last answer")
	}
	written := make(chan error, 1)
	go func() { written <- writer.Set(t.Context(), "k0", "new", 0).Err() }()
	for i := 1; tr.Fresh(time.Now()) || i < 8; i++ {
		within(t, timeout, "a read", func() {
			_, _, err := tr.Get(t.Context(), fmt.Sprint("k", i%10), "")
			if wantTrouble(t, err); !redisnode.IsDown(err) && (!redisnode.IsTimeout(err) || redisnode.IsPoolTimeout(err)) {
				t.Errorf("read while it is stopped: %v", err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, _, err := tr.Get(ctx, "k1", ""); !redisnode.IsDown(err) && (!errors.Is(err, context.DeadlineExceeded) || redisnode.IsTrouble(err)) {
			t.Errorf("the caller's own deadline: %v", err)
		}
		cancel()
	}
	s.Cont()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is up again", func() bool { return n.State() == redisnode.Up })
	eventually(t, "fresh again", func() bool { return tr.Fresh(time.Now()) })
	eventually(t, "what was written is pushed", func() bool { return h.has("k0") })
	for i := range 20 {
		want := fmt.Sprint(i)
		if i == 0 {
			want = "new"
		}
		if v, _ := mustGet(t, tr, fmt.Sprint("k", i), ""); string(v) != want {
			t.Errorf("k%d is %q, want %q", i, v, want)
		}
	}
	if tr.Over() || n.Tracking() != tr || h.has("*") || n.TrackingStats().Begun != 1 {
		t.Errorf("the Tracking ended (%v): %+v", n.Info().TrackingError, n.TrackingStats())
	}
}

// After a longer silence it is given up.
func TestLongSilence(t *testing.T) {
	s, n, h := startTracked(t, nil)
	tr := tracked(t, n)
	mustGet(t, tr, "k", "")
	s.Stop()
	stopped := time.Now()
	eventually(t, "it is given up", tr.Over)
	if took := time.Since(stopped); took < 2*time.Second {
		t.Errorf("given up after %v", took)
	}
	s.Cont()
	wantOver(t, n, h, tr)
	if got := n.TrackingStats(); got.Silent != 1 {
		t.Errorf("stats %+v", got)
	}
}

// muted is a connection that can be made to swallow what comes.
type muted struct {
	net.Conn
	silent atomic.Bool
}

func (c *muted) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// Each of the connections is watched: one that swallows everything takes the others along.
func TestSilenceOfOneConnection(t *testing.T) {
	for _, c := range []struct {
		name  string
		which int
	}{{"shelf-listener", 0}, {"shelf-fill", 0}, {"shelf-fill", 1}} {
		t.Run(fmt.Sprint(c.name, c.which), func(t *testing.T) {
			t.Parallel()
			var conns sync.Map // by local address
			s, n, h := startTracked(t, func(cfg *redisnode.Config) {
				cfg.Options = func(o *redis.Options) {
					o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
						if err != nil {
							return nil, err
						}
						m := &muted{Conn: conn}
						conns.Store(conn.LocalAddr().String(), m)
						return m, nil
					}
				}
			})
			tr := tracked(t, n)
			m, _ := conns.Load(clients(t, s, c.name)[c.which]["addr"])
			m.(*muted).silent.Store(true)
			since := time.Now()
			eventually(t, "not fresh", func() bool {
				if tr.Fresh(since.Add(time.Second)) {
					t.Fatal("fresh a second after the last answer")
				}
				return !tr.Fresh(time.Now())
			})
			if took := time.Since(since); took > 2*time.Second || tr.Over() {
				t.Errorf("not fresh after %v, over: %t", took, tr.Over())
			}
			wantOver(t, n, h, tr)
			if got := n.TrackingStats(); got.Silent != 1 {
				t.Errorf("stats %+v", got)
			}
		})
	}
}

// A Tracking and the session that judges what is read through it always stand at the same run of the server.
func TestTrackingAndSessionMeetOneRun(t *testing.T) {
	servers := redistest.StartNodes(t, 2)
	var g gate
	g.to(servers[0].Addr())
	h := new(heard)
	n := newNode(t, "cache-a.example:6379", func(c *redisnode.Config) {
		c.Push, c.PoolSize = h.push, 1 // a second connection of the session would find out about the move
		c.Options = func(o *redis.Options) { o.Dialer = g.dial }
	})
	run(t, n)
	tr := tracked(t, n)
	hangUp := func(s *redistest.Server, name string) {
		me := do(t, s, "CLIENT", "ID").(int64)
		for _, c := range clients(t, s, name) {
			if c["id"] != fmt.Sprint(me) {
				do(t, s, "CLIENT", "KILL", "ID", c["id"])
			}
		}
	}
	// The address moves, and the session finds out: the Tracking is over although its own connections live.
	g.to(servers[1].Addr())
	hangUp(servers[0], "")
	wantOver(t, n, h, tr)
	if got := n.TrackingStats(); got.RunChanged != 1 || n.Info().RunID != n.Session().RunID() {
		t.Errorf("stats %+v", got)
	}
	// The other way round: the Tracking would go to the new place while the session is still at the old one.
	tr = tracked(t, n)
	g.to(servers[0].Addr())
	failed := n.TrackingStats().Failed
	hangUp(servers[1], "shelf-listener")
	eventually(t, "attempts fail", func() bool { return n.TrackingStats().Failed > failed+1 })
	if n.Tracking() != nil {
		t.Error("a Tracking of another run than the session's")
	}
	if err := n.Info().TrackingError; !errors.Is(err, redisnode.ErrRunChanged) {
		t.Errorf("TrackingError: %v", err)
	}
	hangUp(servers[1], "")
	wantOver(t, n, h, tr)
}

// Behind one address, the fill connections reach another server than the listener, where the listener's id is somebody
// else's. Nobody would hear of a change.
func TestFillConnectionsMeetTheListenersServer(t *testing.T) {
	servers := redistest.StartNodes(t, 2)
	for range 50 { // so that the id is there
		c, err := net.Dial("tcp", servers[1].Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	var dials atomic.Int64
	n := newNode(t, "cache-a.example:6379", func(c *redisnode.Config) {
		c.Push = func([]string) {}
		c.Options = func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
				to := servers[0]
				if dials.Add(1) > 2 { // the session's, and the listener's
					to = servers[1]
				}
				return (&net.Dialer{}).DialContext(ctx, network, to.Addr())
			}
		}
	})
	mustProbe(t, n)
	run(t, n)
	eventually(t, "an attempt fails", func() bool { return n.TrackingStats().Failed > 0 })
	if err := n.Info().TrackingError; !errors.Is(err, redisnode.ErrRunChanged) || n.TrackingStats().Begun != 0 {
		t.Errorf("%v, %+v", err, n.TrackingStats())
	}
}

// A server that is busy with a script answers pings with an error: that proves nothing, and ends nothing.
func TestBusyServer(t *testing.T) {
	h := new(heard)
	s := redistest.Start(t, redistest.Config{Args: []string{"--lua-time-limit", "20"}})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Push = h.push })
	run(t, n)
	tr := tracked(t, n)
	mustGet(t, tr, "k", "")
	killer := s.Client() // has its connection already
	done := make(chan error, 1)
	go func() { done <- redisEval(t.Context(), s.Addr(), "while true do end") }()
	eventually(t, "not fresh", func() bool { return !tr.Fresh(time.Now()) })
	if tr.Over() {
		t.Errorf("over: %v", n.Info().TrackingError)
	}
	if err := killer.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the script was not killed")
	}
	eventually(t, "fresh again", func() bool { return tr.Fresh(time.Now()) })
	if n.TrackingStats().Begun != 1 || h.has("*") {
		t.Errorf("the Tracking ended: %+v", n.TrackingStats())
	}
}

func redisEval(ctx context.Context, addr, script string) error {
	c := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: -1, MaxRetries: -1, DisableIdentity: true})
	defer func() { _ = c.Close() }()
	return c.Eval(ctx, script, nil).Err()
}

// A breaker of the user's does not hold back the pings.
func TestLimiterDoesNotConcernTracking(t *testing.T) {
	var b breaker
	_, n, _ := startTracked(t, func(c *redisnode.Config) { c.Options = func(o *redis.Options) { o.Limiter = &b } })
	tr := tracked(t, n)
	b.open.Store(true)
	opened := time.Now()
	if _, _, err := n.Get(t.Context(), "k"); err == nil {
		t.Fatal("the breaker is not open")
	}
	eventually(t, "fresh by a later answer", func() bool { return tr.Fresh(opened.Add(time.Second)) })
	mustGet(t, tr, "k", "")
}

// breaker lets nothing through while it is open.
type breaker struct{ open atomic.Bool }

func (b *breaker) Allow() error {
	if b.open.Load() {
		return errors.New("the breaker is open")
	}
	return nil
}

func (*breaker) ReportResult(error) {}

// What a node does not permit it is not asked for again and again, and nothing else suffers.
func TestTrackingRefused(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	start := func(user string, rules ...any) *redisnode.Node {
		do(t, s, append([]any{"ACL", "SETUSER", user, "on", ">pw", "~*", "+@all"}, rules...)...)
		n := newNode(t, s.Addr(), func(c *redisnode.Config) {
			c.Push = func([]string) {}
			c.Options = func(o *redis.Options) { o.Username, o.Password = user, "pw" }
		})
		run(t, n)
		return n
	}
	tracked(t, start("nameless", "-client|setname"))

	none, noID := start("none", "-client"), start("noid", "-client|id")
	for what, n := range map[string]*redisnode.Node{"CLIENT": none, "CLIENT ID": noID} {
		eventually(t, what+": it is said", func() bool { return n.Info().TrackingError != nil })
		if err := n.Info().TrackingError; !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "cache-a") {
			t.Errorf("%s: %v", what, err)
		}
		mustSet(t, n, "k", "v")
	}
	time.Sleep(600 * time.Millisecond) // the back-off would have brought two more attempts
	if a, b := none.TrackingStats(), noID.TrackingStats(); a.Failed != 0 || b.Failed != 1 || none.Tracking() != nil || noID.Tracking() != nil {
		t.Errorf("stats %+v and %+v", a, b)
	}
	// Permissions that are given later count from the next connection on.
	do(t, s, "ACL", "SETUSER", "none", "+client")
	do(t, s, "CLIENT", "KILL", "USER", "none")
	tracked(t, none)
}

func TestEmbeddedNodesDoNotTrack(t *testing.T) {
	m := miniredis.RunT(t)
	n := newNode(t, m.Addr(), func(c *redisnode.Config) { c.Push = func([]string) { t.Error("pushed") } })
	run(t, n)
	eventually(t, "it is said", func() bool { return n.Info().TrackingError != nil })
	mustProbe(t, n)
	if n.Tracking() != nil || n.TrackingStats() != (redisnode.TrackingStats{}) {
		t.Errorf("%+v", n.TrackingStats())
	}
}

func TestNobodyWantsPushes(t *testing.T) {
	s, n := startNode(t, nil)
	run(t, n)
	mustProbe(t, n)
	if n.Tracking() != nil || n.Info().TrackingError != nil || len(clients(t, s, "shelf-listener")) != 0 {
		t.Error("a node without Push tracks")
	}
}

// Close and the end of Run leave nothing behind, whatever the node does meanwhile.
func TestEndOfTracking(t *testing.T) {
	var hangs atomic.Bool
	for what, spoil := range map[string]func(*redistest.Server, *redisnode.Node){
		"well":    func(*redistest.Server, *redisnode.Node) {},
		"stopped": func(s *redistest.Server, _ *redisnode.Node) { s.Stop() },
		"killed":  func(s *redistest.Server, _ *redisnode.Node) { s.Kill() },
		"stopped in the handshake": func(s *redistest.Server, n *redisnode.Node) {
			do(t, s, "CLIENT", "KILL", "ID", clients(t, s, "shelf-fill")[0]["id"])
			s.Stop()
			eventually(t, "a handshake is under way", func() bool { return n.Tracking() == nil && strings.Contains(stacks(), "pingListener") })
		},
		"dial hangs": func(s *redistest.Server, n *redisnode.Node) {
			hangs.Store(true)
			do(t, s, "CLIENT", "KILL", "ID", clients(t, s, "shelf-fill")[0]["id"])
			eventually(t, "the dial is under way", func() bool { return strings.Contains(stacks(), "redisnode_test.hang(") })
		},
	} {
		for _, how := range []string{"Close", "Run"} {
			hangs.Store(false)
			h := new(heard)
			s, n := startNode(t, func(c *redisnode.Config) {
				c.Push = h.push
				c.Options = func(o *redis.Options) {
					o.DialTimeout = time.Hour
					o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						if hangs.Load() {
							return hang(ctx)
						}
						return (&net.Dialer{}).DialContext(ctx, network, addr)
					}
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); _ = n.Run(ctx) }()
			tr := tracked(t, n)
			spoil(s, n)
			within(t, 500*time.Millisecond, what+", "+how, func() {
				if how == "Close" {
					_ = n.Close()
				}
				cancel()
				<-ended
			})
			if !tr.Over() || n.Tracking() != nil || !h.has("*") {
				t.Errorf("%s, %s: over %t, present %v, pushed %q", what, how, tr.Over(), n.Tracking(), h.take())
			}
			if _, _, err := tr.Get(t.Context(), "k", ""); how == "Close" && !errors.Is(err, redisnode.ErrClosed) || redisnode.IsTrouble(err) {
				t.Errorf("%s, %s: a read: %v", what, how, err)
			}
			left := "/redisnode.(*Tracking)"
			if how == "Close" {
				left = "/redisnode.("
			}
			// Those that were waited for need a moment to disappear.
			eventually(t, what+", "+how+": no goroutine is left", func() bool { return !strings.Contains(stacks(), left) })
			_ = n.Close()
			s.Kill()
		}
	}
}

// hang is a dial that does not come back by itself.
func hang(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}
