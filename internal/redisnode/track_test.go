// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/proc"
	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// heard collects what Push is called with.
type heard struct {
	mu    sync.Mutex
	names []string // in order; "*" for nil
	atNil func()
}

// onNil has f called with each Push(nil).
func (h *heard) onNil(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.atNil = f
}

func (h *heard) push(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if names == nil {
		names = []string{"*"}
		if h.atNil != nil {
			h.atNil()
		}
	}
	h.names = append(h.names, names...)
}

// take returns what was heard since the last time.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := h.names
	h.names = nil
	return names
}

func (h *heard) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.names, name)
}

// run runs the node's loop until the test ends.
func run(tb testing.TB, n *redisnode.Node) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.Run(ctx) })
	tb.Cleanup(func() { cancel(); wg.Wait() })
}

// startTracked runs a server, and a node that tracks it.
func startTracked(tb testing.TB, change func(*redisnode.Config)) (*redistest.Server, *redisnode.Node, *heard) {
	tb.Helper()
	h := new(heard)
	s, n := startNode(tb, func(c *redisnode.Config) {
		c.Push = h.push
		if change != nil {
			change(c)
		}
	})
	run(tb, n)
	tracked(tb, n)
	return s, n, h
}

// tracked waits for a Tracking that is fresh.
func tracked(tb testing.TB, n *redisnode.Node) *redisnode.Tracking {
	tb.Helper()
	var t *redisnode.Tracking
	eventually(tb, "a Tracking that is fresh", func() bool {
		t = n.Tracking()
		return t != nil && t.Fresh(time.Now())
	})
	return t
}

func do(tb testing.TB, s *redistest.Server, args ...any) any {
	tb.Helper()
	v, err := s.Do(tb.Context(), args...)
	if err != nil {
		tb.Fatal(args, err)
	}
	return v
}

func mustGet(tb testing.TB, t *redisnode.Tracking, key, beside string) (value, besideValue []byte) {
	tb.Helper()
	v, b, err := t.Get(tb.Context(), key, beside)
	if err != nil {
		tb.Fatalf("tracked Get(%q, %q): %v", key, beside, err)
	}
	return v, b
}

// Whatever happens to a key that was read is pushed, once; keys that were not read are not.
func TestPushes(t *testing.T) {
	s, n, h := startTracked(t, nil)
	for what, step := range map[string]struct {
		before []any // nil: the key is missing
		change []any // nil: none by us
	}{
		"set":     {[]any{"SET", "k", "1"}, []any{"SET", "k", "2"}},
		"delete":  {[]any{"SET", "k", "1"}, []any{"DEL", "k"}},
		"expire":  {[]any{"SET", "k", "1"}, []any{"EXPIRE", "k", "100"}},
		"expiry":  {[]any{"SET", "k", "1", "PX", "2000"}, nil},
		"appears": {nil, []any{"SET", "k", "1"}},
	} {
		tr := tracked(t, n)
		do(t, s, "DEL", "k", "never read")
		if step.before != nil {
			do(t, s, step.before...)
		}
		_ = h.take() // the DEL and the SET may have been pushed still
		v, b := mustGet(t, tr, "k", "beside")
		if step.before == nil && v != nil || step.before != nil && string(v) != "1" || b != nil {
			t.Fatalf("%s: read %q and %q", what, v, b)
		}
		do(t, s, "SET", "never read", "x")
		if step.change != nil {
			do(t, s, step.change...)
		}
		eventually(t, what+" is pushed", func() bool { return h.has("k") })
		do(t, s, "SET", "beside", what)
		eventually(t, what+": the change of what was read beside is pushed", func() bool { return h.has("beside") })
		if got := h.take(); !slices.Equal(got, []string{"k", "beside"}) {
			t.Errorf("%s: pushed %q", what, got)
		}
		do(t, s, "DEL", "beside")
	}
	if got := n.TrackingStats(); got.Begun != 1 || got.Failed != 0 || got.Pushes < 10 || n.Info().TrackingError != nil {
		t.Errorf("stats %+v, error %v", got, n.Info().TrackingError)
	}
}

// A key that the server evicts to make room is pushed.
func TestPushOnEviction(t *testing.T) {
	h := new(heard)
	s := redistest.Start(t, redistest.Config{Args: []string{"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-random"}})
	n := newNode(t, s.Addr(), func(c *redisnode.Config) { c.Push = h.push })
	run(t, n)
	tr := tracked(t, n)
	do(t, s, "SET", "k", "1")
	mustGet(t, tr, "k", "")
	filler := string(make([]byte, 100<<10))
	for i := 0; do(t, s, "EXISTS", "k") == int64(1); i++ {
		do(t, s, "SET", i, filler)
	}
	eventually(t, "the evicted key is pushed", func() bool { return h.has("k") })
}

// Many callers at once share commands, and each gets what it asked for, in bytes of its own.
func TestTrackedReadsShareCommands(t *testing.T) {
	const callers = 200
	s, n, h := startTracked(t, func(c *redisnode.Config) { c.Timeout = 10 * time.Second })
	tr := tracked(t, n)
	for i := range callers {
		do(t, s, "SET", fmt.Sprint("k", i), fmt.Sprint(i))
	}
	do(t, s, "SET", "beside", "b")
	do(t, s, "SET", "empty", "")
	do(t, s, "LPUSH", "list", "x")
	do(t, s, "CONFIG", "RESETSTAT")
	s.Stop()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			key := fmt.Sprint("k", i/2) // two callers a key
			v, b, err := tr.Get(t.Context(), key, "beside")
			if err != nil || string(v) != fmt.Sprint(i/2) || string(b) != "b" {
				t.Errorf("Get(%q) = %q, %q, %v", key, v, b, err)
			}
			clear(v) // the race detector sees it if they are anybody else's
			clear(b)
		})
	}
	wg.Go(func() {
		got, err := tr.MGet(t.Context(), []string{"k1", "missing", "empty", "k1", "list"})
		if err != nil || len(got) != 5 || string(got[0]) != "1" || got[1] != nil || got[2] == nil || len(got[2]) != 0 || string(got[3]) != "1" || got[4] != nil {
			t.Errorf("MGet = %q, %v", got, err)
		}
	})
	eventually(t, "all wait", func() bool { return strings.Count(stacks(), "redisnode.(*Tracking).read(") == callers+1 })
	s.Cont()
	wg.Wait()
	stats, err := s.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	var calls int
	if _, err := fmt.Sscanf(stats["cmdstat_mget"], "calls=%d", &calls); err != nil || calls > 12 {
		t.Errorf("%d commands for %d callers (%v)", calls, callers, err)
	}
	for _, key := range []string{"k0", "k99", "beside", "empty", "missing"} {
		do(t, s, "SET", key, "new")
		eventually(t, key+" is watched", func() bool { return h.has(key) })
	}
	if got, err := tr.MGet(t.Context(), nil); got == nil || len(got) != 0 || err != nil {
		t.Errorf("MGet of nothing: %v, %v", got, err)
	}
}

// Error replies are the caller's, and the Tracking goes on.
func TestTrackedReadRefused(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	do(t, s, "ACL", "SETUSER", "app", "on", ">pw", "~mine:*", "+@all")
	n := newNode(t, s.Addr(), func(c *redisnode.Config) {
		c.Push = func([]string) {}
		c.Options = func(o *redis.Options) { o.Username, o.Password = "app", "pw" }
	})
	run(t, n)
	tr := tracked(t, n)
	_, _, err := tr.Get(t.Context(), "yours", "")
	if wantTrouble(t, err); !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("got %v", err)
	}
	mustGet(t, tr, "mine:k", "")
}

// The user's options hold for these connections too: encryption, and a name of the user's own.
func TestTrackingWithTLS(t *testing.T) {
	cert, key, pool := selfSigned(t)
	port := freePort(t)
	s, err := redistest.Launch(t.Context(), redistest.Config{Args: []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no",
	}})
	if err != nil {
		proc.Require(t, fmt.Errorf("this redis-server seems to be built without TLS: %w", err))
	}
	t.Cleanup(func() { _ = s.Close() })
	h := new(heard)
	n := newNode(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), func(c *redisnode.Config) {
		c.Timeout, c.Push = 5*time.Second, h.push
		c.Options = func(o *redis.Options) { o.TLSConfig, o.ClientName = &tls.Config{RootCAs: pool}, "shop" }
	})
	run(t, n)
	tr := tracked(t, n)
	big := strings.Repeat("v", 1<<20)
	do(t, s, "SET", "k", big)
	if v, _ := mustGet(t, tr, "k", ""); string(v) != big {
		t.Errorf("read %d bytes", len(v))
	}
	do(t, s, "SET", "k", "2")
	eventually(t, "it is pushed", func() bool { return h.has("k") })
	h.take()
	if got := len(clients(t, s, "shop")); got < 4 || len(clients(t, s, "shelf-fill")) != 0 {
		t.Errorf("%d connections have the user's name", got)
	}
	for _, c := range clients(t, s, "shop") {
		do(t, s, "CLIENT", "KILL", "ID", c["id"])
	}
	wantOver(t, n, h, tr)
}

func TestFreshCostsNothing(t *testing.T) {
	_, n, _ := startTracked(t, nil)
	now := time.Now()
	if got := testing.AllocsPerRun(100, func() { _ = n.Tracking().Fresh(now) }); got != 0 {
		t.Errorf("Fresh allocates %v times", got)
	}
}
