// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// shards are primaries with replicas under one set of Sentinels.
type shards struct {
	*redistest.Sentinels
	servers map[string][]*redistest.Server // the first primary first
}

func startShards(t testing.TB, replicas int, names ...string) *shards {
	t.Helper()
	s := &shards{servers: make(map[string][]*redistest.Server)}
	primaries := make(map[string]*redistest.Server)
	for _, name := range names {
		s.servers[name] = redistest.StartReplicated(t, replicas)
		primaries[name] = s.servers[name][0]
	}
	s.Sentinels = redistest.StartSentinels(t, redistest.SentinelConfig{Primaries: primaries})
	return s
}

// config is for a client of these shards.
func (s *shards) config(names ...string) client.Config {
	return client.Config{
		OperationTimeout: 500 * time.Millisecond, // the machine that runs tests may be busy
		Sentinel:         &client.SentinelConfig{Addrs: s.Addrs(), Masters: names},
	}
}

// events collects what OnEvent is told about primaries.
type events struct {
	mu  sync.Mutex
	all []client.Event
}

func (e *events) add(x client.Event) {
	if x.Kind != client.EventPrimary {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
}

func (e *events) get() []client.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

func nodeStats(cl *client.Client, id string) client.NodeStats {
	for _, n := range cl.Stats().Nodes {
		if n.ID == id {
			return n
		}
	}
	return client.NodeStats{}
}

// addrsOf are the nodes' addresses, by id.
func addrsOf(cl *client.Client) map[string]string {
	addrs := make(map[string]string)
	for _, n := range cl.Stats().Nodes {
		addrs[n.ID] = n.Addr
	}
	return addrs
}

// TestSentinelFindsShards: by their names, or by what these begin with. Ids are the names, so that keys stay where they are; weights and racks come from Nodes.
func TestSentinelFindsShards(t *testing.T) {
	s := startShards(t, 0, "shelf-a", "shelf-b", "other")
	want := map[string]string{"shelf-a": s.servers["shelf-a"][0].Addr(), "shelf-b": s.servers["shelf-b"][0].Addr()}
	byName := s.config("shelf-a", "shelf-b")
	byPrefix := s.config()
	byPrefix.Sentinel.Prefix = "shelf-"
	byPrefix.Nodes = []ring.Node{{ID: "shelf-b", Weight: 1}}
	var keys []string
	for _, cfg := range []client.Config{byName, byPrefix} {
		var seen sync.Map
		cfg.Redis = func(n ring.Node, _ *redis.Options) { seen.Store(n.ID, n.Addr) }
		cl := open(t, cfg)
		if got := addrsOf(cl); len(got) != 2 || got["shelf-a"] != want["shelf-a"] || got["shelf-b"] != want["shelf-b"] {
			t.Errorf("the nodes are %v, want %v", got, want)
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
		var where []string
		for i := range 20 {
			key := fmt.Sprint("k", i)
			r, err := c.Lookup(t.Context(), key)
			if err != nil || r.Value != "value of "+key {
				t.Errorf("%+v, %v", r, err)
			}
			where = append(where, r.Node)
		}
		if keys != nil && !slices.Equal(keys, where) {
			t.Errorf("keys are at %v and at %v", keys, where)
		}
		keys = where
		if _, ok := seen.Load("shelf-a"); !ok {
			t.Error("Config.Redis was not called")
		}
	}
	heavy := s.config("shelf-a", "shelf-b")
	heavy.Nodes = []ring.Node{{ID: "shelf-b", Weight: 20}}
	cl := open(t, heavy)
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	there := 0
	for i := range 100 {
		if r, err := c.Lookup(t.Context(), fmt.Sprint("k", i)); err == nil && r.Node == "shelf-b" {
			there++
		}
	}
	if there < 80 {
		t.Errorf("%d of 100 keys are on the node of weight 20", there)
	}
}

// TestSentinelConfig: what is wrong is said before anything starts, or as soon as the Sentinels can tell.
func TestSentinelConfig(t *testing.T) {
	s := startShards(t, 0, "shelf-a")
	for name, c := range map[string]struct {
		change func(*client.Config)
		field  string
	}{
		"no Sentinel":      {func(c *client.Config) { c.Sentinel.Addrs = nil }, "Config.Sentinel.Addrs"},
		"no port":          {func(c *client.Config) { c.Sentinel.Addrs[1] = "host" }, "Config.Sentinel.Addrs[1]"},
		"one twice":        {func(c *client.Config) { c.Sentinel.Addrs[2] = c.Sentinel.Addrs[0] }, "Config.Sentinel.Addrs[2]"},
		"neither":          {func(c *client.Config) { c.Sentinel.Masters = nil }, "Config.Sentinel.Masters"},
		"both":             {func(c *client.Config) { c.Sentinel.Prefix = "s" }, "Config.Sentinel.Masters"},
		"an empty name":    {func(c *client.Config) { c.Sentinel.Masters = []string{""} }, "Config.Sentinel.Masters[0]"},
		"a name twice":     {func(c *client.Config) { c.Sentinel.Masters = []string{"a", "a"} }, "Config.Sentinel.Masters[1]"},
		"an address":       {func(c *client.Config) { c.Nodes = []ring.Node{{ID: "shelf-a", Addr: "h:1"}} }, "Config.Nodes[0].Addr"},
		"a replica":        {func(c *client.Config) { c.Nodes = []ring.Node{{ID: "shelf-a", Replicas: []string{"h:1"}}} }, "Config.Nodes[0].Replicas"},
		"a node twice":     {func(c *client.Config) { c.Nodes = []ring.Node{{ID: "shelf-a", Weight: 2}, {ID: "shelf-a"}} }, "Config.Nodes[1].ID"},
		"a foreign node":   {func(c *client.Config) { c.Nodes = []ring.Node{{ID: "b"}} }, "Config.Nodes[0].ID"},
		"an unknown name":  {func(c *client.Config) { c.Sentinel.Masters = []string{"shelf-a", "shelf-c"} }, "Config.Sentinel.Masters"},
		"no such prefix":   {func(c *client.Config) { c.Sentinel.Masters, c.Sentinel.Prefix = nil, "x" }, "Config.Sentinel.Prefix"},
		"a wrong ReadFrom": {func(c *client.Config) { c.ReadFrom = 7 }, "Config.ReadFrom"},
		"a short lag":      {func(c *client.Config) { c.ReplicaMaxLag = time.Second }, "Config.ReplicaMaxLag"},
	} {
		cfg := s.config("shelf-a")
		cfg.Sentinel.Addrs = slices.Clone(cfg.Sentinel.Addrs)
		c.change(&cfg)
		cl, err := client.New(t.Context(), cfg)
		var wrong *client.ConfigError
		if !errors.As(err, &wrong) || wrong.Field != c.field {
			t.Errorf("%s: %v, want a ConfigError of %s", name, err, c.field)
		}
		if cl != nil {
			_ = cl.Close(t.Context())
		}
	}
}

// liar is a Sentinel that speaks the protocol and says what it is told to say: a man in the middle of a real one's answers.
type liar struct {
	net.Listener
	mu   sync.Mutex
	says map[string]string // name to address
	ears []net.Conn        // of subscribers
}

// publish tells subscribers of another primary.
func (s *liar) publish(name, from, to string) {
	fromHost, fromPort, _ := net.SplitHostPort(from)
	toHost, toPort, _ := net.SplitHostPort(to)
	payload := strings.Join([]string{name, fromHost, fromPort, toHost, toPort}, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says[name] = to
	for _, c := range s.ears {
		_, _ = fmt.Fprintf(c, "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$14\r\n+switch-master\r\n$%d\r\n%s\r\n", len(payload), payload) // a subscriber may have left
	}
}

// startLiar makes one that answers every question for an address.
func startLiar(t *testing.T, says map[string]string) *liar {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &liar{Listener: l, says: says}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				s.serve(c)
			})
		}
	})
	return s
}

// serve answers commands: arrays of bulk strings.
func (s *liar) serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // a test's
	buf, text := make([]byte, 4096), ""
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		text += string(buf[:n])
		for {
			args, rest, ok := cutCommand(text)
			if !ok {
				break
			}
			text = rest
			if strings.EqualFold(args[0], "psubscribe") {
				s.mu.Lock()
				s.ears = append(s.ears, c)
				s.mu.Unlock()
			}
			if _, err := c.Write([]byte(s.answer(args))); err != nil {
				return
			}
		}
	}
}

// cutCommand takes a command off a stream.
func cutCommand(text string) (args []string, rest string, ok bool) {
	line, rest, ok := strings.Cut(text, "\r\n")
	var count, size int
	if !ok {
		return nil, text, false
	}
	if _, err := fmt.Sscanf(line, "*%d", &count); err != nil {
		return nil, text, false
	}
	for range count {
		line, rest, ok = strings.Cut(rest, "\r\n")
		if _, err := fmt.Sscanf(line, "$%d", &size); !ok || err != nil || len(rest) < size+2 {
			return nil, text, false
		}
		args, rest = append(args, rest[:size]), rest[size+2:]
	}
	return args, rest, true
}

func (s *liar) answer(args []string) string {
	bulk := func(words ...string) string {
		b := fmt.Sprintf("*%d\r\n", len(words))
		for _, w := range words {
			b += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch command := strings.ToUpper(strings.Join(args[:min(2, len(args))], " ")); {
	case command == "SENTINEL GET-MASTER-ADDR-BY-NAME":
		host, port, _ := net.SplitHostPort(s.says[args[2]])
		return bulk(host, port)
	case command == "SENTINEL MASTER":
		return bulk("name", args[2], "config-epoch", "1000000", "flags", "master,s_down,o_down")
	case strings.HasPrefix(command, "HELLO"):
		return "-ERR unknown command 'HELLO'\r\n"
	case strings.HasPrefix(command, "PSUBSCRIBE"):
		return "*3\r\n$10\r\npsubscribe\r\n$1\r\n*\r\n:1\r\n"
	case strings.HasPrefix(command, "PING"):
		return "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
	}
	return "+OK\r\n"
}

// TestSentinelTrouble: that no majority of the Sentinels answers, and why, is seen in the stats and in the log, once; it goes when they answer again.
func TestSentinelTrouble(t *testing.T) {
	s := startShards(t, 1, "a")
	lines := make(chan string, 100)
	cfg := s.config("a")
	cfg.Logger = slog.New(slog.NewTextHandler(lineWriter(lines), nil))
	cl := open(t, cfg)
	if err := cl.Stats().Nodes[0].SentinelError; err != nil {
		t.Errorf("all is well, and Stats say %v", err)
	}
	s.Kill(0)
	s.Kill(1)
	eventuallyIn(t, 30*time.Second, "the stats say that two Sentinels are dead", func() bool {
		err := cl.Stats().Nodes[0].SentinelError
		return err != nil && strings.Contains(err.Error(), "2 of 3 Sentinels do not answer") && strings.Contains(err.Error(), s.Addrs()[0])
	})
	text, err := json.Marshal(cl.Stats().Nodes[0])
	if err != nil || !strings.Contains(string(text), "SentinelError\":\"2 of 3") {
		t.Errorf("as JSON: %s, %v", text, err)
	}
	s.Restart(0)
	s.Restart(1)
	eventuallyIn(t, 30*time.Second, "the stats say that they are back", func() bool { return cl.Stats().Nodes[0].SentinelError == nil })
	said := 0
	for len(lines) > 0 {
		if strings.Contains(<-lines, "no majority of the Sentinels") {
			said++
		}
	}
	if said != 1 {
		t.Errorf("the log says it %d times", said)
	}

	bad := client.Config{Sentinel: &client.SentinelConfig{Addrs: []string{s.servers["a"][0].Addr()}, Masters: []string{"a"}}}
	if err := open(t, bad).Stats().Nodes[0].SentinelError; err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Errorf("a Redis in the place of a Sentinel: %v", err)
	}
}

// lineWriter hands on what is written, as long as there is room.
type lineWriter chan string

func (w lineWriter) Write(b []byte) (int, error) {
	select {
	case w <- string(b):
	default:
	}
	return len(b), nil
}

// TestReportedRB31 is about one bad Sentinel of three.
//
// (a) One that swallows everything, or accepts and is silent: the primary is found through the others, and nobody pays for it later.
// (b) One that names the old primary, which is a replica now: it is not believed.
func TestReportedRB31(t *testing.T) {
	s := startShards(t, 1, "shelf-a")
	for name, bad := range map[string]func(p *redistest.Proxy){
		"a swallows":           func(p *redistest.Proxy) { p.BlackHole() },
		"a accepts, is silent": func(p *redistest.Proxy) { p.ToClient().BlackHole() },
		"a refuses":            func(p *redistest.Proxy) { p.Refuse() },
	} {
		t.Run(name, func(t *testing.T) {
			p := redistest.StartProxy(t, s.Addrs()[0])
			bad(p)
			cfg := s.config("shelf-a")
			cfg.Sentinel.Addrs = append([]string{p.Addr()}, s.Addrs()[1:]...)
			began := time.Now()
			cl := open(t, cfg)
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
			if err := c.Invalidate(t.Context(), "k"); err != nil { // it has reached the primary
				t.Error(err)
			}
			if took := time.Since(began); took > 800*time.Millisecond { // a dial of 500 ms, and 300 ms
				t.Errorf("found after %v", took)
			}
			for range 20 {
				began = time.Now()
				if err := c.Invalidate(t.Context(), "k"); err != nil || time.Since(began) > 300*time.Millisecond {
					t.Errorf("later: %v after %v", err, time.Since(began))
				}
			}
		})
	}
	t.Run("b names the old primary", func(t *testing.T) {
		primary, replica := s.servers["shelf-a"][0], s.servers["shelf-a"][1]
		l := startLiar(t, map[string]string{"shelf-a": replica.Addr()}) // a replica, for the lack of an old primary
		cfg := s.config("shelf-a")
		cfg.Sentinel.Addrs = append([]string{l.Addr().String()}, s.Addrs()[1:]...)
		cl := open(t, cfg)
		if got := addrsOf(cl)["shelf-a"]; got != primary.Addr() {
			t.Errorf("the primary is %s, want %s", got, primary.Addr())
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
		if err := c.Invalidate(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}

// stays checks for a while that a node stays where it is.
func stays(t *testing.T, cl *client.Client, id, addr string, d time.Duration) {
	t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if got := addrsOf(cl)[id]; got != addr {
			t.Fatalf("%s has gone to %s, from %s", id, got, addr)
		}
	}
}

// TestLyingSentinel: one of three names another shard's primary, and publishes that it has switched there. And later the old primary, which has come back as one.
func TestLyingSentinel(t *testing.T) {
	s := startShards(t, 1, "shelf-a", "shelf-b")
	a, b := s.servers["shelf-a"], s.servers["shelf-b"]
	l := startLiar(t, map[string]string{"shelf-a": b[0].Addr(), "shelf-b": b[0].Addr()})
	cfg := s.config("shelf-a", "shelf-b")
	cfg.Sentinel.Addrs = append([]string{l.Addr().String()}, s.Addrs()[1:]...)
	cl := open(t, cfg)
	eventually(t, "it listens to the liar", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.ears) > 0 })
	l.publish("shelf-a", a[0].Addr(), b[0].Addr())
	stays(t, cl, "shelf-a", a[0].Addr(), time.Second)
	l.publish("shelf-a", a[0].Addr(), a[1].Addr()) // its replica, which says that it is one
	stays(t, cl, "shelf-a", a[0].Addr(), time.Second)

	a[0].Kill()
	eventuallyIn(t, 30*time.Second, "the promotion is followed", func() bool { return addrsOf(cl)["shelf-a"] == a[1].Addr() })
	for i := range 3 { // they would make a replica of it before anybody could lie
		s.Kill(i)
	}
	a[0].Restart()
	if !roleIs(t.Context(), a[0], "master") {
		t.Fatal("the old primary has come back as something else")
	}
	for range 5 {
		l.publish("shelf-a", a[1].Addr(), a[0].Addr())
		stays(t, cl, "shelf-a", a[1].Addr(), 200*time.Millisecond)
	}
	if got := addrsOf(cl)["shelf-b"]; got != b[0].Addr() {
		t.Errorf("shelf-b is at %s", got)
	}
}

// TestNoTwoNodesAtOneServer: a Sentinel that is the only one to answer mixes two names up.
func TestNoTwoNodesAtOneServer(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	l := startLiar(t, map[string]string{"shelf-a": primary.Addr(), "shelf-b": primary.Addr()})
	dead := redistest.Start(t, redistest.Config{})
	dead.Kill()
	other := redistest.Start(t, redistest.Config{})
	other.Kill()
	cl := open(t, client.Config{Sentinel: &client.SentinelConfig{Addrs: []string{l.Addr().String(), dead.Addr(), other.Addr()}, Masters: []string{"shelf-a", "shelf-b"}}})
	eventually(t, "one of them is found", func() bool {
		addrs := addrsOf(cl)
		return addrs["shelf-a"] != "" || addrs["shelf-b"] != ""
	})
	for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if addrs := addrsOf(cl); addrs["shelf-a"] == addrs["shelf-b"] {
			t.Fatalf("two nodes at one server: %v", addrs)
		}
	}
}

// TestReportedRB31AllSentinelsDead: with names, New succeeds and the cache is one of which all nodes are down, until a Sentinel is back; with a prefix nobody knows the nodes, and it is an error
// that comes when the context ends.
func TestReportedRB31AllSentinelsDead(t *testing.T) {
	s := startShards(t, 0, "shelf-a")
	for i := range s.Addrs() {
		s.Kill(i)
	}
	prefix := s.config()
	prefix.Sentinel.Prefix = "shelf-"
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.New(ctx, prefix); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "0 of 3") {
		t.Errorf("New with a prefix: %v", err)
	}
	cl := open(t, s.config("shelf-a"))
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	began := time.Now()
	r, err := c.Lookup(t.Context(), "k")
	if err != nil || r.Layer != client.LayerSource || time.Since(began) > 300*time.Millisecond {
		t.Errorf("%+v, %v after %v", r, err, time.Since(began))
	}
	if err := c.Invalidate(t.Context(), "k"); !client.NodesOnly(err) {
		t.Errorf("an invalidation on a node that nobody knows: %v", err)
	}
	s.Restart(0) // one of three is enough where we have none
	eventuallyIn(t, 20*time.Second, "found", func() bool { return addrsOf(cl)["shelf-a"] == s.servers["shelf-a"][0].Addr() })
	eventually(t, "what was owed is done", func() bool { return cl.Stats().Owed == 0 })
	want(t, c, "k", "value of k", client.LayerSource)
	eventually(t, "stored", func() bool { r, err := c.Lookup(t.Context(), "k"); return err == nil && r.Layer != client.LayerSource })
}

// TestPlannedFailover: the old primary is well all the time, and takes writes for a while yet that nobody will ever see. Nobody meets an error, and nobody reads an old row after its own
// write; when the Sentinels announce it, the node is at the new primary.
func TestPlannedFailover(t *testing.T) {
	s := startShards(t, 1, "shelf-a")
	var told events
	cfg := s.config("shelf-a")
	cfg.OnEvent = told.add
	cl := open(t, cfg)
	var rows sync.Map
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1All, Load: func(_ context.Context, key string) (string, error) {
		v, _ := rows.Load(key)
		return fmt.Sprint(v), nil
	}})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprint("k", w, n%5)
				if err := c.Write(context.Background(), key, func(context.Context) error { rows.Store(key, n); return nil }); err != nil {
					t.Errorf("a write: %v", err)
				}
				for range 3 {
					if v, err := c.Get(context.Background(), key); err != nil || v != fmt.Sprint(n) {
						t.Errorf("read %q, %v after writing %d", v, err, n)
					}
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	from, to := s.servers["shelf-a"][0], s.servers["shelf-a"][1]
	s.Failover("shelf-a")
	eventually(t, "re-pointed", func() bool { return addrsOf(cl)["shelf-a"] == to.Addr() })
	eventuallyIn(t, 30*time.Second, "the old primary is a replica", func() bool { return roleIs(t.Context(), from, "slave") })
	stop()
	all.Wait()
	if got := told.get(); len(got) != 1 || got[0].Node != "shelf-a" || got[0].From != from.Addr() || got[0].To != to.Addr() {
		t.Errorf("the events are %+v", got)
	}
	eventuallyIn(t, 20*time.Second, "the old primary is known as a replica", func() bool {
		n := nodeStats(cl, "shelf-a")
		return len(n.Replicas) == 1 && n.Replicas[0].Addr == from.Addr() && n.Replicas[0].Lag > 0
	})
}

// TestReportedRB31Demoted: the server that was the primary is a replica of another one, and nobody has said so. It answers READONLY, which is no success of a write; whose primary it
// is now is found out, and the write is sent there, within the same call.
func TestReportedRB31Demoted(t *testing.T) {
	invalidate := func(c *client.Cache[string]) error { return c.Invalidate(context.Background(), "k") }
	for name, tc := range map[string]struct {
		say, removes bool
		do           func(*client.Cache[string]) error
	}{
		"the Sentinels know it":    {true, true, invalidate},
		"the Sentinels are behind": {false, true, invalidate},
		"a Clear":                  {true, false, func(c *client.Cache[string]) error { return c.Clear(context.Background()) }},
		"a tag":                    {true, false, func(c *client.Cache[string]) error { return c.InvalidateTag(context.Background(), "t") }},
	} {
		t.Run(name, func(t *testing.T) {
			servers := redistest.StartReplicated(t, 1)
			var liars []*liar
			cfg := client.Config{OperationTimeout: 500 * time.Millisecond, Sentinel: &client.SentinelConfig{Masters: []string{"shelf-a"}}}
			for range 3 {
				l := startLiar(t, map[string]string{"shelf-a": servers[0].Addr()})
				liars = append(liars, l)
				cfg.Sentinel.Addrs = append(cfg.Sentinel.Addrs, l.Addr().String())
			}
			cl := open(t, cfg)
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, Load: echo, Tags: func(string) []string { return []string{"t"} }})
			eventually(t, "the replica is known", func() bool { n := nodeStats(cl, "shelf-a"); return len(n.Replicas) == 1 && n.Replicas[0].Lag > 0 })
			want(t, c, "k", "value of k", client.LayerSource)
			mustDo(t, servers[1], "REPLICAOF", "NO", "ONE")
			if tc.say {
				for _, l := range liars {
					l.mu.Lock()
					l.says["shelf-a"] = servers[1].Addr()
					l.mu.Unlock()
				}
			}
			mustDo(t, servers[0], "REPLICAOF", "127.0.0.1", strconv.Itoa(servers[1].Port()))
			if err := tc.do(c); err != nil {
				t.Errorf("an invalidation: %v", err)
			}
			if got := addrsOf(cl)["shelf-a"]; got != servers[1].Addr() {
				t.Errorf("it is at %s, want %s", got, servers[1].Addr())
			}
			if tc.removes {
				if v := mustDo(t, servers[1], "EXISTS", "x:k:v0"); v != int64(0) {
					t.Error("the new primary has the entry yet")
				}
			}
			want(t, c, "k", "value of k", client.LayerSource)
		})
	}
}
