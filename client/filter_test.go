// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
	"github.com/go-shelf/shelf/stampede"
)

// table is a source that knows its keys.
type table struct {
	*source
	scans int
}

func newTable(rows int) *table {
	m := make(map[string]string, rows)
	for i := range rows {
		m[fmt.Sprint("row", i)] = "v"
	}
	return &table{source: newSource(m)}
}

func (s *table) keys(_ context.Context, yield func(string) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scans++
	for key := range s.rows {
		if !yield(key) {
			return nil
		}
	}
	return nil
}

func (s *table) all() (loads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.loads {
		loads += n
	}
	return loads
}

// filtered makes a cache with a filter.
func (s *table) filtered(t *testing.T, cl *client.Client, f client.FilterConfig) *client.Cache[string] {
	f.ExpectedKeys, f.FalsePositives = 1000, 1e-6
	if f.Keys == nil {
		f.Keys = s.keys
	}
	return newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: s.load, L1: client.L1Off, NoEarlyRefresh: true, Filter: &f})
}

// complete waits until a cache's filter is consulted, or not.
func complete(t *testing.T, c *client.Cache[string], want bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.Stats().Filter.Complete != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("complete: %t for a minute: %+v", !want, c.Stats().Filter)
		}
	}
}

// soon waits, for no longer than FilterTrust (and for what a busy machine needs), until a key is found.
func soon(t *testing.T, c *client.Cache[string], key string) {
	t.Helper()
	for end := time.Now().Add(stampede.FilterTrust + 5*time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := c.Get(t.Context(), key)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("Get(%s): %v; %+v", key, err, c.Stats().Filter)
		}
	}
}

func wantAbsent(t *testing.T, c *client.Cache[string], key string) {
	t.Helper()
	complete(t, c, true) // it is not for a moment where the machine is so busy that the feed was not read for 2 s
	if r, err := c.Lookup(t.Context(), key); !errors.Is(err, client.ErrNotFound) || r.Layer != client.LayerNone {
		t.Errorf("Lookup(%s) = %+v, %v; want ErrNotFound of the filter", key, r, err)
	}
}

// TestFilterInTheReadPath: a key that is certainly absent is loaded by nobody, one by one or in a batch; a row that is written is found at once by who wrote it, and by another process
// FilterTrust later; a second process takes over the first one's build.
func TestFilterInTheReadPath(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		s := newTable(100)
		c := s.filtered(t, open(t, cfg), client.FilterConfig{})
		complete(t, c, true)
		wantAbsent(t, c, "nobody")
		want(t, c, "row7", "v", client.LayerSource)
		want(t, c, "row7", "v", client.LayerL2)
		got, err := c.GetMany(t.Context(), []string{"nobody", "row7", "row8", "no one"})
		if err != nil || len(got) != 2 || got["row8"] != "v" {
			t.Errorf("GetMany: %v, %v", got, err)
		}
		if n := s.all(); n != 2 {
			t.Errorf("%d loads, want those of row7 and row8", n)
		}
		eventually(t, "stored for others", func() bool { return c.Stats().Filter.Saves > 0 })
		other := s.filtered(t, open(t, cfg), client.FilterConfig{})
		complete(t, other, true)
		if st := other.Stats().Filter; st.Loads != 1 || st.Keys != 100 || s.scans != 1 {
			t.Errorf("the second process: %+v; %d scans", st, s.scans)
		}
		for name, write := range map[string]func(key string) error{
			"Write": func(key string) error {
				return c.Write(t.Context(), key, func(context.Context) error { s.set(key, "new"); return nil })
			},
			"WriteThrough": func(key string) error {
				_, err := c.WriteThrough(t.Context(), key, func(context.Context) (string, error) { s.set(key, "new"); return "new", nil })
				return err
			},
			"Invalidate":        func(key string) error { s.set(key, "new"); return c.Invalidate(t.Context(), key) },
			"InvalidateMany":    func(key string) error { s.set(key, "new"); return c.InvalidateMany(t.Context(), []string{"row1", key}) },
			"InvalidateVersion": func(key string) error { s.set(key, "new"); return c.InvalidateVersion(t.Context(), key, 1) },
			"Known":             func(key string) error { s.set(key, "new"); return c.Known(t.Context(), key) },
		} {
			for _, c := range []*client.Cache[string]{c, other} {
				wantAbsent(t, c, name)
			}
			if err := write(name); err != nil {
				t.Error(err)
			}
			if v, err := c.Get(t.Context(), name); err != nil || v != "new" {
				t.Errorf("%s: read after write: %q, %v", name, v, err)
			}
			soon(t, other, name)
		}
		if st := c.Stats().Filter; st.Absents < 8 || st.Lookups <= st.Absents || st.Why != "" {
			t.Errorf("%+v", st)
		}
	})
}

// TestFilterOfRowsThatNobodyTold: a row that was inserted without a word stays absent until the next build; or until somebody loads it all the same.
func TestFilterOfRowsThatNobodyTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(10)
		c := s.filtered(t, open(t, clienttest.Start(t, 1).Config()), client.FilterConfig{RebuildEvery: time.Minute})
		complete(t, c, true)
		s.set("silent", "v")
		s.set("refreshed", "v")
		wantAbsent(t, c, "silent")
		wantAbsent(t, c, "refreshed")
		if v, err := c.GetWith(t.Context(), "refreshed", nil, client.GetOptions{Refresh: true}); err != nil || v != "v" {
			t.Errorf("a Refresh that the filter must not answer: %q, %v", v, err)
		}
		want(t, c, "refreshed", "v", client.LayerL2)
		time.Sleep(time.Minute + time.Second)
		want(t, c, "silent", "v", client.LayerSource)
	})
}

// TestFilterClear: after a Clear everything may be there again, in all processes.
func TestFilterClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(10)
		cfg := clienttest.Start(t, 2).Config()
		c, other := s.filtered(t, open(t, cfg), client.FilterConfig{}), s.filtered(t, open(t, cfg), client.FilterConfig{})
		complete(t, c, true)
		complete(t, other, true)
		s.set("bulk", "v")
		if err := c.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, c, "bulk", "v", client.LayerSource)
		if why := c.Stats().Filter.Why; !strings.HasPrefix(why, "the cache was cleared") {
			t.Errorf("who cleared says %q", why)
		}
		time.Sleep(time.Second)
		want(t, other, "bulk", "v", client.LayerL2)
		complete(t, c, true)
		complete(t, other, true)
		wantAbsent(t, other, "nobody")
	})
}

// TestFilterAnnounceOnly: such a process tells of its rows, asks nothing of a filter and scans nothing.
func TestFilterAnnounceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(10)
		cfg := clienttest.Start(t, 2).Config()
		c := s.filtered(t, open(t, cfg), client.FilterConfig{})
		teller := newCache(t, open(t, cfg), client.CacheConfig[string]{Name: "x", Schema: 2, TTL: time.Hour, Load: s.load, Filter: &client.FilterConfig{ExpectedKeys: 1, AnnounceOnly: true}})
		complete(t, c, true)
		wantAbsent(t, c, "new")
		if err := teller.Write(t.Context(), "new", func(context.Context) error { s.set("new", "v"); return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stampede.FilterTrust)
		want(t, c, "new", "v", client.LayerSource) // of another schema, but the same rows
		for range 3 {
			if _, err := teller.Get(t.Context(), "nobody"); !errors.Is(err, client.ErrNotFound) {
				t.Error(err)
			}
		}
		if st := teller.Stats().Filter; st.Complete || st.Why != "AnnounceOnly: no filter is built here" || st.Lookups > 0 || s.count("nobody") != 1 {
			t.Errorf("%+v; %d loads", st, s.count("nobody"))
		}
	})
}

// TestFilterNodeDown: while the node that keeps the additions does not answer, a write says so, and everything may be there, FilterTrust later at the latest; when it is back, the filter is up to date again.
func TestFilterNodeDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(10)
		nodes := clienttest.Start(t, 3)
		cfg := nodes.Config()
		c, other := s.filtered(t, open(t, cfg), client.FilterConfig{}), s.filtered(t, open(t, cfg), client.FilterConfig{})
		complete(t, c, true)
		complete(t, other, true)
		feed := ""
		for i := range 3 {
			id := fmt.Sprint("node-", i)
			if n := nodes.ByID(id); n != nil && strings.Contains(strings.Join(n.Keys(), " "), "~k:x") {
				feed = id
			}
		}
		key := ""
		for i := 0; key == "" || ownerOf(c, key) == feed; i++ {
			key = fmt.Sprint("new", i)
		}
		wantAbsent(t, other, key)
		nodes.ByID(feed).Down()
		err := c.Write(t.Context(), key, func(context.Context) error { s.set(key, "v"); return nil })
		var ne *client.NodeError
		if !errors.As(err, &ne) || ne.Op != "filter" || ne.Node != feed || !client.NodesOnly(err) || strings.Join(ne.Keys, "") != key {
			t.Errorf("Write: %v", err)
		}
		if v, err := c.Get(t.Context(), key); err != nil || v != "v" {
			t.Errorf("read after write: %q, %v", v, err)
		}
		time.Sleep(stampede.FilterTrust)
		if v, err := other.Get(t.Context(), key); err != nil || v != "v" {
			t.Errorf("the other process: %q, %v; %+v", v, err, other.Stats().Filter)
		}
		if st := c.Stats().Filter; st.Complete || st.Owed != 1 || st.Why == "" {
			t.Errorf("while the node is down: %+v", st)
		}
		nodes.ByID(feed).Up()
		complete(t, c, true)
		complete(t, other, true)
		time.Sleep(stampede.FilterTrust)
		if st := c.Stats().Filter; st.Owed != 0 || st.Gaps != 0 {
			t.Errorf("when the node is back: %+v", st)
		}
		wantAbsent(t, other, "nobody")
	})
}

// TestFilterClosesWithWhatItOwes: Close says that others do not know of a row.
func TestFilterClosesWithWhatItOwes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(1)
		nodes := clienttest.Start(t, 1)
		cl, err := client.New(t.Context(), nodes.Config())
		if err != nil {
			t.Fatal(err)
		}
		c := s.filtered(t, cl, client.FilterConfig{})
		complete(t, c, true)
		nodes.ByID("node-0").Down()
		if err := c.Known(t.Context(), "row"); err == nil {
			t.Error("Known without a node is no error")
		}
		if err := cl.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "1 additions") {
			t.Errorf("Close: %v", err)
		}
		if err := c.Known(t.Context(), "row"); !errors.Is(err, client.ErrClosed) {
			t.Errorf("Known of a closed client: %v", err)
		}
	})
}

// TestFilterKeysHang: Close waits for Keys no longer than its context.
func TestFilterKeysHang(t *testing.T) {
	s := newTable(1)
	cl, err := client.New(t.Context(), clienttest.Start(t, 1).Config())
	if err != nil {
		t.Fatal(err)
	}
	scans, end := make(chan bool, 1), make(chan bool)
	c := s.filtered(t, cl, client.FilterConfig{Keys: func(context.Context, func(string) bool) error { scans <- true; <-end; return nil }})
	<-scans
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := cl.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Keys of cache x") {
		t.Errorf("Close: %v", err)
	}
	close(end)
	_ = c
}

// TestFilterRefused: a wrong filter configuration names field, value and rule.
func TestFilterRefused(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	keys := func(context.Context, func(string) bool) error { return nil }
	for name, tc := range map[string]struct {
		cfg  client.CacheConfig[string]
		want []string
	}{
		"no keys expected":    {client.CacheConfig[string]{Filter: &client.FilterConfig{Keys: keys}}, []string{"CacheConfig.Filter.ExpectedKeys", "0", "from 1"}},
		"a rate above a half": {client.CacheConfig[string]{Filter: &client.FilterConfig{Keys: keys, ExpectedKeys: 1, FalsePositives: 0.7}}, []string{"CacheConfig.Filter.FalsePositives", "0.7"}},
		"a negative time":     {client.CacheConfig[string]{Filter: &client.FilterConfig{Keys: keys, ExpectedKeys: 1, RebuildEvery: -1}}, []string{"CacheConfig.Filter.RebuildEvery", "-1ns"}},
		"no Keys":             {client.CacheConfig[string]{Filter: &client.FilterConfig{ExpectedKeys: 1}}, []string{"CacheConfig.Filter.Keys", "nil", "AnnounceOnly"}},
		"of a truth":          {client.CacheConfig[string]{Truth: true, Filter: &client.FilterConfig{ExpectedKeys: 1, Keys: keys}}, []string{"CacheConfig.Filter", "Truth"}},
		"a negative rate":     {client.CacheConfig[string]{NegativeRate: -1}, []string{"CacheConfig.NegativeRate", "-1"}},
		"less than one":       {client.CacheConfig[string]{NegativeRate: 0.5}, []string{"CacheConfig.NegativeRate", "0.5", "at least 1"}},
		"an idle rate":        {client.CacheConfig[string]{NegativeRate: 5, NoNegative: true}, []string{"CacheConfig.NegativeRate", "NoNegative"}},
	} {
		cfg := tc.cfg
		if cfg.Name, cfg.TTL = "x", time.Minute; !cfg.Truth {
			cfg.Load = newTable(0).load
		}
		_, err := client.NewCache(cl, cfg)
		var ce *client.ConfigError
		if !errors.As(err, &ce) {
			t.Errorf("%s: %v is no *ConfigError", name, err)
			continue
		}
		if n := strings.Count(err.Error(), "shelf: "); n != 1 {
			t.Errorf("%s: %q says %d times whose it is", name, err, n)
		}
		mentions(t, err, tc.want)
	}
}

// TestFilterFeedNodeKilled: kill -9 of the real node that keeps the additions makes everything possible, also after it is back, empty, until the filter has been built anew; and no key that was
// told is absent at any time.
func TestFilterFeedNodeKilled(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cfg := client.Config{OperationTimeout: time.Second, Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}}
	s := newTable(100)
	c, other := s.filtered(t, open(t, cfg), client.FilterConfig{}), s.filtered(t, open(t, cfg), client.FilterConfig{})
	complete(t, c, true)
	complete(t, other, true)
	told := func(key string) {
		t.Helper()
		s.set(key, "v")
		if err := c.Known(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	told("before")
	soon(t, other, "before")
	told("lost") // perhaps before the other has read it
	at := time.Now()
	server.Kill()
	complete(t, other, false)
	complete(t, c, false)
	if d := time.Since(at); d > stampede.FilterTrust+5*time.Second {
		t.Errorf("the filter was consulted for %v after its node's death", d)
	}
	for _, c := range []*client.Cache[string]{c, other} {
		if v, err := c.Get(t.Context(), "lost"); v != "v" || err != nil {
			t.Errorf("while the node is down: %q, %v", v, err)
		}
	}
	server.Restart()
	complete(t, c, true)
	complete(t, other, true)
	for _, c := range []*client.Cache[string]{c, other} {
		for _, key := range []string{"lost", "before", "row1"} {
			if v, err := c.Get(t.Context(), key); v != "v" || err != nil {
				t.Errorf("when it is back: %s is %q, %v; %+v", key, v, err, c.Stats().Filter)
			}
		}
		wantAbsent(t, c, "nobody")
	}
	if st := other.Stats().Filter; st.Gaps == 0 {
		t.Errorf("nobody has noticed the restart: %+v", st)
	}
	told("after")
	soon(t, other, "after")
}

// TestFilterUnderWrites: two processes insert on real nodes while filters are built every second: who has written finds it at once, the other FilterTrust later.
func TestFilterUnderWrites(t *testing.T) {
	cfg := client.Config{OperationTimeout: 5 * time.Second}
	for i, n := range redistest.StartNodes(t, 3) {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: fmt.Sprint(i), Addr: n.Addr()})
	}
	s := newTable(1000)
	caches := []*client.Cache[string]{s.filtered(t, open(t, cfg), client.FilterConfig{RebuildEvery: time.Second}), s.filtered(t, open(t, cfg), client.FilterConfig{RebuildEvery: time.Second})}
	for _, c := range caches {
		complete(t, c, true)
	}
	type written struct {
		key string
		at  time.Time
	}
	var wg sync.WaitGroup
	for i, c := range caches {
		other, told := caches[1-i], make(chan written, 1000)
		wg.Go(func() {
			defer close(told)
			for n := range 200 {
				key := fmt.Sprintf("%d/%d", i, n)
				if err := c.Write(t.Context(), key, func(context.Context) error { s.set(key, "v"); return nil }); err != nil {
					t.Error(err)
				}
				told <- written{key, time.Now()}
				if v, err := c.Get(t.Context(), key); v != "v" || err != nil {
					t.Errorf("read after write of %s: %q, %v", key, v, err)
				}
				time.Sleep(15 * time.Millisecond)
			}
		})
		wg.Go(func() {
			for w := range told {
				time.Sleep(time.Until(w.at.Add(stampede.FilterTrust)))
				if v, err := other.Get(t.Context(), w.key); v != "v" || err != nil {
					t.Errorf("%s is not found by the other process: %q, %v; %+v", w.key, v, err, other.Stats().Filter)
				}
			}
		})
	}
	wg.Wait()
	for _, c := range caches {
		if st := c.Stats().Filter; st.Builds+st.Loads < 3 {
			t.Errorf("too few builds for this to be a test: %+v", st)
		}
	}
}

// TestFilterFeedNodeDemoted: the server keeps its address and its process, but not its history of writes: it became a replica of one that lacks the last addition, and a primary again. Who has not
// read that addition must not go on as if there had been none.
func TestFilterFeedNodeDemoted(t *testing.T) {
	a := redistest.Start(t, redistest.Config{})
	b := a.Replica(t, redistest.Config{})
	do := func(s *redistest.Server, args ...any) string {
		t.Helper()
		reply, err := s.Do(t.Context(), args...)
		if err != nil {
			t.Fatal(args, err)
		}
		return fmt.Sprint(reply)
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	line := redistest.StartProxy(t, a.Addr())
	reach := func(addr string) client.Config {
		return client.Config{OperationTimeout: time.Second, Nodes: []ring.Node{{ID: "a", Addr: addr}}}
	}
	s := newTable(10)
	c, other := s.filtered(t, open(t, reach(a.Addr())), client.FilterConfig{}), s.filtered(t, open(t, reach(line.Addr())), client.FilterConfig{})
	complete(t, c, true)
	complete(t, other, true)
	until("the replica has the feed", func() bool { return do(a, "XLEN", "~k:x") == do(b, "XLEN", "~k:x") })
	line.BlackHole() // the other reads nothing from here on
	do(b, "REPLICAOF", "NO", "ONE")
	s.set("lost", "v")
	if err := c.Known(t.Context(), "lost"); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(b.Addr(), ":")
	do(a, "REPLICAOF", "127.0.0.1", port)
	until("the server is a replica", func() bool { return strings.Contains(do(a, "INFO", "replication"), "master_link_status:up") })
	do(a, "REPLICAOF", "NO", "ONE")
	line.Heal()
	time.Sleep(stampede.FilterTrust) // for which it may be believed absent
	for range 50 {
		if v, err := other.Get(t.Context(), "lost"); v != "v" || err != nil {
			t.Fatalf("the other process: %q, %v; %+v", v, err, other.Stats().Filter)
		}
		time.Sleep(20 * time.Millisecond)
	}
	complete(t, other, true)
	if st := other.Stats().Filter; st.Gaps == 0 {
		t.Errorf("nobody has noticed: %+v", st)
	}
}
