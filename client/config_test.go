// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/ring"
)

// TestConfigRefused: every wrong client configuration is an error that names the field, the value and the rule, before anything starts.
func TestConfigRefused(t *testing.T) {
	node := func(n ring.Node) []ring.Node { return []ring.Node{{ID: "a", Addr: "127.0.0.1:1"}, n} }
	for _, tc := range []struct {
		name string
		cfg  client.Config
		want []string // parts of the message: field, value, rule
	}{
		{"no nodes", client.Config{}, []string{"Config.Nodes", "at least one"}},
		{"duplicate id", client.Config{Nodes: node(ring.Node{ID: "a", Addr: "127.0.0.1:2"})}, []string{"Nodes[1].ID", `"a"`}},
		{"empty id", client.Config{Nodes: node(ring.Node{Addr: "127.0.0.1:2"})}, []string{"Nodes[1].ID"}},
		{"empty address", client.Config{Nodes: node(ring.Node{ID: "b"})}, []string{"Nodes[1].Addr", "must be given"}},
		{"address without a port", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "localhost"})}, []string{"Nodes[1].Addr", `"localhost"`, "host:port"}},
		{"address as a URL", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "redis://localhost:6379"})}, []string{"Nodes[1].Addr", "host:port"}},
		{"timeout without a unit", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), OperationTimeout: 50}, []string{"Config.OperationTimeout", "50ns", "0 (meaning 50ms) or at least 1ms", "without a unit"}},
		{"queue time without a unit", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), LoadQueueTimeout: 3}, []string{"Config.LoadQueueTimeout", "3ns", "0 (meaning 1s) or at least 1ms", "without a unit"}},
		{"port 0", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:0"})}, []string{"Nodes[1].Addr", `"127.0.0.1:0"`, "from 1 to 65535"}},
		{"port above 65535", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:65536"})}, []string{"Nodes[1].Addr", `"127.0.0.1:65536"`, "from 1 to 65535"}},
		{"port by name", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:redis"})}, []string{"Nodes[1].Addr", `"127.0.0.1:redis"`, "from 1 to 65535"}},
		{"points", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), RingPoints: 1 << 30}, []string{"Config.RingPoints", "1073741824"}},
		{"one server twice", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:1"})}, []string{"Nodes[1].Addr", "127.0.0.1:1", "Nodes[0]"}},
		{"negative weight", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2", Weight: -1})}, []string{"Nodes[1].Weight", "-1"}},
		{"weight NaN", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2", Weight: math.NaN()})}, []string{"Nodes[1].Weight", "NaN"}},
		{"namespace", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), Namespace: "a/b"}, []string{"Config.Namespace", "a/b"}},
		{"negative timeout", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), OperationTimeout: -1}, []string{"Config.OperationTimeout", "-1ns"}},
		{"overflowing timeout", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), OperationTimeout: math.MaxInt64}, []string{"Config.OperationTimeout"}},
		{"negative pool", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), PoolSize: -1}, []string{"Config.PoolSize", "-1"}},
		{"negative loads", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), MaxLoads: -1}, []string{"Config.MaxLoads", "-1"}},
		{"negative queue", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), LoadQueue: -1}, []string{"Config.LoadQueue", "-1"}},
		{"negative queue time", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), LoadQueueTimeout: -1}, []string{"Config.LoadQueueTimeout", "-1ns"}},
		{"negative points", client.Config{Nodes: node(ring.Node{ID: "b", Addr: "127.0.0.1:2"}), RingPoints: -1}, []string{"Config.RingPoints", "-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cl, err := client.New(t.Context(), tc.cfg)
			if err == nil {
				_ = cl.Close(t.Context())
				t.Fatal("accepted")
			}
			var ce *client.ConfigError
			if !errors.As(err, &ce) {
				t.Errorf("%T is not a *ConfigError", err)
			}
			mentions(t, err, tc.want)
		})
	}
}

func mentions(t *testing.T, err error, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not mention %q", err, part)
		}
	}
}

// TestCacheConfigRefused is the same for caches.
func TestCacheConfigRefused(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	for _, tc := range []struct {
		name string
		edit func(*client.CacheConfig[string])
		want []string
	}{
		{"no name", func(c *client.CacheConfig[string]) { c.Name = "" }, []string{"CacheConfig.Name", "must be given"}},
		{"name with a colon", func(c *client.CacheConfig[string]) { c.Name = "a:b" }, []string{"CacheConfig.Name", "a:b"}},
		{"negative schema", func(c *client.CacheConfig[string]) { c.Schema = -1 }, []string{"CacheConfig.Schema", "-1"}},
		{"no TTL", func(c *client.CacheConfig[string]) { c.TTL = 0 }, []string{"CacheConfig.TTL", "must be given"}},
		{"negative TTL", func(c *client.CacheConfig[string]) { c.TTL = -time.Second }, []string{"CacheConfig.TTL", "-1s"}},
		{"overflowing TTL", func(c *client.CacheConfig[string]) { c.TTL = math.MaxInt64 }, []string{"CacheConfig.TTL"}},
		{"negative soft TTL", func(c *client.CacheConfig[string]) { c.SoftTTL = -1 }, []string{"CacheConfig.SoftTTL", "-1ns"}},
		{"soft above hard", func(c *client.CacheConfig[string]) { c.SoftTTL = 2 * time.Minute }, []string{"CacheConfig.SoftTTL", "2m0s", "TTL (1m0s)"}},
		{"negative jitter", func(c *client.CacheConfig[string]) { c.Jitter = -0.1 }, []string{"CacheConfig.Jitter", "-0.1"}},
		{"jitter above 100 %", func(c *client.CacheConfig[string]) { c.Jitter = 1.01 }, []string{"CacheConfig.Jitter", "1.01", "100 %"}},
		{"jitter NaN", func(c *client.CacheConfig[string]) { c.Jitter = math.NaN() }, []string{"CacheConfig.Jitter", "NaN"}},
		{"jitter and none", func(c *client.CacheConfig[string]) { c.Jitter, c.NoJitter = 0.1, true }, []string{"CacheConfig.Jitter", "NoJitter"}},
		{"negative beta", func(c *client.CacheConfig[string]) { c.Beta = -1 }, []string{"CacheConfig.Beta", "-1"}},
		{"infinite beta", func(c *client.CacheConfig[string]) { c.Beta = math.Inf(1) }, []string{"CacheConfig.Beta", "Inf"}},
		{"negative negative TTL", func(c *client.CacheConfig[string]) { c.NegativeTTL = -1 }, []string{"CacheConfig.NegativeTTL", "-1ns"}},
		{"no loader", func(c *client.CacheConfig[string]) { c.Load = nil }, []string{"CacheConfig.Load", "nil", "must be given"}},
		{"loader of a truth", func(c *client.CacheConfig[string]) { c.Truth = true }, []string{"CacheConfig.Load", "Truth"}},
		{"negative load timeout", func(c *client.CacheConfig[string]) { c.LoadTimeout = -1 }, []string{"CacheConfig.LoadTimeout", "-1ns"}},
		{"lease too short", func(c *client.CacheConfig[string]) { c.LoadTimeout, c.LeaseTTL = 3*time.Second, 3500*time.Millisecond },
			[]string{"CacheConfig.LeaseTTL", "3.5s", "1s longer than LoadTimeout (3s)"}},
		{"negative wait", func(c *client.CacheConfig[string]) { c.WaitTimeout = -1 }, []string{"CacheConfig.WaitTimeout", "-1ns"}},
		{"negative value size", func(c *client.CacheConfig[string]) { c.MaxValueBytes = -1 }, []string{"CacheConfig.MaxValueBytes", "-1"}},
		{"negative batch", func(c *client.CacheConfig[string]) { c.MaxLoadKeys = -1 }, []string{"CacheConfig.MaxLoadKeys", "-1"}},
		{"unknown codec", func(c *client.CacheConfig[string]) { c.Codec = upper{id: 7} }, []string{"CacheConfig.Codec", "id 7", "unknown codec"}},
		{"unknown L1 mode", func(c *client.CacheConfig[string]) { c.L1 = 9 }, []string{"CacheConfig.L1", "9"}},
		{"negative L1 TTL", func(c *client.CacheConfig[string]) { c.L1TTL = -1 }, []string{"CacheConfig.L1TTL", "-1ns"}},
		{"negative TTL above TTL", func(c *client.CacheConfig[string]) { c.NegativeTTL = 5 * time.Minute }, []string{"CacheConfig.NegativeTTL", "5m0s", "TTL (1m0s)"}},
		{"tiny L1", func(c *client.CacheConfig[string]) { c.L1MaxBytes = 1 }, []string{"CacheConfig.L1MaxBytes", "4096"}},
		{"enormous values", func(c *client.CacheConfig[string]) { c.MaxValueBytes = 1 << 40 }, []string{"CacheConfig.MaxValueBytes", "536870912"}},
		{"negative L1 bytes", func(c *client.CacheConfig[string]) { c.L1MaxBytes = -1 }, []string{"CacheConfig.L1MaxBytes", "-1"}},
		{"load timeout without a unit", func(c *client.CacheConfig[string]) { c.LoadTimeout = 3 }, []string{"CacheConfig.LoadTimeout", "3ns", "0 (meaning 3s) or at least 1ms", "without a unit"}},
		{"lease without a unit", func(c *client.CacheConfig[string]) { c.LeaseTTL = 5 }, []string{"CacheConfig.LeaseTTL", "5ns", "0 (meaning 5s) or at least 1ms"}},
		{"wait without a unit", func(c *client.CacheConfig[string]) { c.WaitTimeout = 5 }, []string{"CacheConfig.WaitTimeout", "5ns", "0 (meaning 5s) or at least 1ms"}},
		{"wait beyond all bounds", func(c *client.CacheConfig[string]) { c.WaitTimeout = client.MaxTTL + 1 }, []string{"CacheConfig.WaitTimeout", "0 (meaning 5s) or at most 87600h"}},
		{"L1 TTL without a unit", func(c *client.CacheConfig[string]) { c.L1TTL = 60 }, []string{"CacheConfig.L1TTL", "60ns", "0 (meaning 1m0s) or at least 1ms"}},
		{"blind TTL without a unit", func(c *client.CacheConfig[string]) { c.L1BlindTTL = 2 }, []string{"CacheConfig.L1BlindTTL", "2ns", "0 (meaning 2s) or at least 1ms"}},
		{"blind TTL above L1 TTL", func(c *client.CacheConfig[string]) { c.L1TTL, c.L1BlindTTL = time.Second, 2*time.Second }, []string{"CacheConfig.L1BlindTTL", "2s", "L1TTL (1s)"}},
		{"blind TTL above the default L1 TTL", func(c *client.CacheConfig[string]) { c.L1BlindTTL = time.Hour }, []string{"CacheConfig.L1BlindTTL", "1h0m0s", "L1TTL (1m0s)"}},
		{"negative hot rate", func(c *client.CacheConfig[string]) { c.HotRate = -1 }, []string{"CacheConfig.HotRate", "-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo}
			tc.edit(&cfg)
			_, err := client.NewCache(cl, cfg)
			var ce *client.ConfigError
			if !errors.As(err, &ce) {
				t.Fatalf("got %v, want a *ConfigError", err)
			}
			mentions(t, err, tc.want)
		})
	}
}

// TestContradictionsRefused: a setting that another one makes idle is refused, and names that one; without the other one it is accepted, and the
// zero of every field is accepted beside every switch.
func TestContradictionsRefused(t *testing.T) {
	type cfg = client.CacheConfig[string]
	many := func(context.Context, []string) (map[string]string, error) { return nil, nil }
	truth := func(c *cfg) { c.Load, c.Truth = nil, true }
	off := func(c *cfg) { c.L1 = client.L1Off }
	none := func(*cfg) {}
	cl := open(t, clienttest.Start(t, 1).Config())
	schema := 0
	made := func(edits ...func(*cfg)) error {
		schema++
		c := cfg{Name: "x", Schema: schema, TTL: time.Minute, Load: echo}
		for _, edit := range edits {
			edit(&c)
		}
		_, err := client.NewCache(cl, c)
		return err
	}
	for _, tc := range []struct {
		field, names  string // the field that is refused, and the switch that its message names
		set           func(*cfg)
		switched, not func(*cfg)
	}{
		{"NegativeTTL", "NoNegative", func(c *cfg) { c.NegativeTTL = time.Second }, func(c *cfg) { c.NoNegative = true }, none},
		{"Beta", "NoEarlyRefresh", func(c *cfg) { c.Beta = 2 }, func(c *cfg) { c.NoEarlyRefresh = true }, none},
		{"Beta", "Truth", func(c *cfg) { c.Beta = 2 }, truth, none},
		{"SoftTTL", "Truth", func(c *cfg) { c.SoftTTL = time.Second }, truth, none},
		{"MaxLoadKeys", "LoadMany", func(c *cfg) { c.MaxLoadKeys = 10 }, none, func(c *cfg) { c.LoadMany = many }},
		{"HotRate", "L1Off", func(c *cfg) { c.HotRate = 10 }, off, none},
		{"HotRate", "L1All", func(c *cfg) { c.HotRate = 10 }, func(c *cfg) { c.L1 = client.L1All }, none},
		{"HotRate", "HotCopies", func(c *cfg) { c.HotRate = 10 }, func(c *cfg) { c.L1, c.HotCopies = client.L1Off, 1 }, func(c *cfg) { c.L1, c.HotCopies = client.L1Off, 2 }},
		{"HotRate", "HotCopies", func(c *cfg) { c.HotRate = 10 }, func(c *cfg) { c.L1, c.HotCopies = client.L1All, 1 }, func(c *cfg) { c.L1, c.HotCopies = client.L1All, 2 }},
		{"L1TTL", "L1Off", func(c *cfg) { c.L1TTL = time.Minute }, off, none},
		{"L1BlindTTL", "L1Off", func(c *cfg) { c.L1BlindTTL = time.Second }, off, none},
		{"L1MaxBytes", "L1Off", func(c *cfg) { c.L1MaxBytes = 1 << 20 }, off, none},
	} {
		t.Run(tc.field+" with "+tc.names, func(t *testing.T) {
			err := made(tc.set, tc.switched)
			var ce *client.ConfigError
			if !errors.As(err, &ce) {
				t.Fatalf("got %v, want a *ConfigError", err)
			}
			mentions(t, err, []string{"CacheConfig." + tc.field + " is", "must be 0", tc.names})
			if err := made(tc.set, tc.not); err != nil {
				t.Errorf("without the other: %v", err)
			}
			if err := made(tc.switched); err != nil {
				t.Errorf("the other alone: %v", err)
			}
		})
	}
}

// TestTruthRemembersAbsences: NegativeTTL is not idle in a cache that is itself the truth: it is how long the absence that a loader of the call tells
// is believed.
func TestTruthRemembersAbsences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Hour, NegativeTTL: 10 * time.Second, Truth: true, L1: client.L1Off})
		loads := 0
		ask := func() {
			t.Helper()
			_, err := c.GetWith(t.Context(), "k", func(context.Context, string) (string, error) { loads++; return "", client.ErrNotFound }, client.GetOptions{})
			if !errors.Is(err, client.ErrNotFound) {
				t.Error(err)
			}
		}
		ask()
		ask()
		if loads != 1 {
			t.Errorf("%d loads, want 1: the absence is remembered", loads)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if ask(); loads != 2 {
			t.Errorf("%d loads past NegativeTTL, want 2", loads)
		}
	})
}

// TestNoClient: nothing panics on a wrong argument.
func TestNoClient(t *testing.T) {
	_, err := client.NewCache(nil, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	var ce *client.ConfigError
	if !errors.As(err, &ce) {
		t.Errorf("got %v, want a *ConfigError", err)
	}
}

// TestCacheNamesAreUnique: two caches of one name and schema would be each other's entries, but not each other's L1.
func TestCacheNamesAreUnique(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	cfg := client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo}
	newCache(t, cl, cfg)
	if _, err := client.NewCache(cl, cfg); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a second cache of the same name: %v", err)
	}
	cfg.Schema = 2
	newCache(t, cl, cfg)
}

// TestNewStartsWithoutNodes: a service must start while its cache is down.
func TestNewStartsWithoutNodes(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	nodes.Node(0).Down()
	nodes.Node(1).Hang()
	cl := open(t, nodes.Config())
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if v, err := c.Get(t.Context(), key); err != nil || v != "value of "+key {
			t.Errorf("Get(%q) = %q, %v", key, v, err)
		}
	}
	for _, n := range cl.Stats().Nodes {
		if n.LastError == nil {
			t.Errorf("node %s has no LastError", n.ID)
		}
	}
}

// upper is a codec from outside.
type upper struct{ id uint8 }

func (u upper) ID() uint8 { return u.id }
func (u upper) Append(dst []byte, v string) ([]byte, error) {
	return append(dst, strings.ToUpper(v)...), nil
}
func (u upper) Decode(b []byte) (string, error) { return string(b), nil }

// echo is a loader whose value tells its key.
func echo(_ context.Context, key string) (string, error) { return "value of " + key, nil }

// open makes a client that ends with the test.
func open(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	cl, err := client.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patience := 10 * time.Second
		if cl.Stats().Owed > 0 { // to a node that the test has killed
			patience = 100 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := cl.Close(ctx); err != nil && !client.NodesOnly(err) {
			t.Errorf("Close: %v", err)
		}
	})
	return cl
}

func newCache[V any](t testing.TB, cl *client.Client, cfg client.CacheConfig[V]) *client.Cache[V] {
	t.Helper()
	c, err := client.NewCache(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
