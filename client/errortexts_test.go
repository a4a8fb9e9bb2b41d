// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// says: the error is (errors.Is) what it must be, and its text is this one, or begins with it where it ends in "...".
func says(t *testing.T, what string, err, is error, text string) {
	t.Helper()
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%s: %v is not %v", what, err, is)
	}
	switch begin, open := strings.CutSuffix(text, "..."); {
	case err == nil:
		t.Errorf("%s: no error, want %s", what, text)
	case err.Error() != text && !(open && strings.HasPrefix(err.Error(), begin)):
		t.Errorf("%s: %s\nwant %s", what, err, text)
	}
}

// TestLoadErrorTexts: a load that does not return says whose it was, in Get and in GetMany, and is what it was for errors.Is and As.
func TestLoadErrorTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := open(t, clienttest.Start(t, 1).Config())
		boom := errors.New("boom")
		end := map[string]func(context.Context){
			"panic": func(context.Context) { panic(boom) },
			"a":     func(context.Context) { panic(boom) },
			"b":     func(context.Context) { panic(boom) },
			"exit":  func(context.Context) { runtime.Goexit() },
			"hang":  func(ctx context.Context) { <-ctx.Done() },
		}
		one := newCache(t, cl, client.CacheConfig[string]{Name: "item", TTL: time.Minute, LoadTimeout: 2 * time.Second, L1: client.L1Off,
			Load: func(ctx context.Context, key string) (string, error) { end[key](ctx); return "", ctx.Err() }})
		many := newCache(t, cl, client.CacheConfig[string]{Name: "items", TTL: time.Minute, L1: client.L1Off,
			LoadMany: func(ctx context.Context, keys []string) (map[string]string, error) {
				end[keys[0]](ctx)
				return nil, ctx.Err()
			}})
		for key, want := range map[string]struct {
			is   error
			text string
		}{
			"panic": {boom, "the loader panicked: boom"},
			"exit":  {client.ErrGoexit, "the loader called runtime.Goexit"},
			"hang":  {client.ErrLoadTimeout, "the load took too long (CacheConfig.LoadTimeout %s)"},
		} {
			text := func(limit string) string { return strings.ReplaceAll(want.text, "%s", limit) }
			_, err := one.Get(t.Context(), key)
			says(t, key, err, want.is, fmt.Sprintf("shelf: cache item, key %q: %s", key, text("2s")))
			var panicked *client.PanicError
			if got := errors.As(err, &panicked); got != (key == "panic") || got && (panicked.Value != any(boom) || len(panicked.Stack) == 0) {
				t.Errorf("%s: a *PanicError: %t, %+v", key, got, panicked)
			}
			_, err = many.GetMany(t.Context(), []string{key})
			says(t, key+" in a batch", err, want.is, fmt.Sprintf("shelf: key %q: shelf: cache items, key %[1]q: %s", key, text("3s")))
		}
		_, err := many.GetMany(t.Context(), []string{"a", "b"})
		if text := fmt.Sprint(err); strings.Count(text, "shelf: cache items, 2 keys: the loader panicked: boom") != 2 {
			t.Errorf("a batch of two: %s", text)
		}
	})
}

// TestNestedLoadErrorText: what a loader passes on of another cache names that cache, and not its own as well.
func TestNestedLoadErrorText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := open(t, clienttest.Start(t, 1).Config())
		inner := newCache(t, cl, client.CacheConfig[string]{Name: "inner", TTL: time.Minute, LoadTimeout: time.Second, L1: client.L1Off,
			Load: func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }})
		outer := newCache(t, cl, client.CacheConfig[string]{Name: "outer", TTL: time.Minute, L1: client.L1Off, Load: func(ctx context.Context, key string) (string, error) {
			v, err := inner.Get(ctx, key)
			if err != nil {
				err = fmt.Errorf("outer's own words: %w", err)
			}
			return v, err
		}})
		_, err := outer.Get(t.Context(), "k")
		says(t, "nested", err, client.ErrLoadTimeout, `outer's own words: shelf: cache inner, key "k": the load took too long (CacheConfig.LoadTimeout 1s)`)
	})
}

// TestOverloadTexts: both ways not to get a place name cache, key and the settings.
func TestOverloadTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads, cfg.LoadQueue, cfg.LoadQueueTimeout = 1, 1, 200*time.Millisecond
		cl := open(t, cfg)
		slow := func(ctx context.Context, key string) (string, error) { time.Sleep(time.Second); return echo(ctx, key) }
		c := newCache(t, cl, client.CacheConfig[string]{Name: "item", TTL: time.Minute, Load: slow})
		many := newCache(t, cl, client.CacheConfig[string]{Name: "items", TTL: time.Minute,
			LoadMany: func(context.Context, []string) (map[string]string, error) { return nil, nil }})
		first := inBackground(t, c, "1")
		synctest.Wait()
		second := inBackground(t, c, "2")
		synctest.Wait()
		_, err := c.Get(t.Context(), "3")
		says(t, "a full queue", err, client.ErrOverloaded, `shelf: cache item, key "3": overloaded: 1 loads are running (Config.MaxLoads) and 1 waiting (Config.LoadQueue)`)
		_, err = many.GetMany(t.Context(), []string{"4"})
		says(t, "a full queue, in a batch", err, client.ErrOverloaded,
			`shelf: key "4": shelf: cache items, key "4": overloaded: 1 loads are running (Config.MaxLoads) and 1 waiting (Config.LoadQueue)`)
		_, err = second()
		says(t, "a long wait", err, client.ErrOverloaded, `shelf: cache item, key "2": overloaded: no place within 200ms (Config.LoadQueueTimeout)`)
		if _, err := first(); err != nil {
			t.Error(err)
		}
	})
}

// TestNodeErrorsNameTheCache: of every operation of a cache whose node is gone.
func TestNodeErrorsNameTheCache(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cl := open(t, nodes.Config())
	c := newCache(t, cl, client.CacheConfig[string]{Name: "item", TTL: time.Minute, Load: echo, Tags: func(string) []string { return nil }})
	truth := newCache(t, cl, client.CacheConfig[string]{Name: "session", TTL: time.Minute, Truth: true})
	nodes.Node(0).Down()
	ctx := t.Context()
	id := cl.Stats().Nodes[0].ID
	_, e1 := truth.Get(ctx, "5")
	_, e2 := truth.GetMany(ctx, []string{"5"})
	_, e3 := c.Warm(ctx, slices.Values([]string{"5"}), client.WarmOptions{})
	_, _, e4 := cl.Get(ctx, "raw")
	for text, err := range map[string]error{
		`shelf: invalidate on node N failed for "5" of cache item: ...`:                                                       c.Invalidate(ctx, "5"),
		`shelf: invalidate on node N failed for "5" "6" of cache item: ...`:                                                   c.InvalidateMany(ctx, []string{"5", "6"}),
		`shelf: clear of cache item on node N failed: ...`:                                                                    c.Clear(ctx),
		`shelf: invalidate tag "x" of cache item on node N failed: ...`:                                                       c.InvalidateTag(ctx, "x"),
		`shelf: set on node N failed for "5" of cache session: ...`:                                                           truth.Set(ctx, "5", "v"),
		`shelf: get on node N failed for "5" of cache session: ...`:                                                           e1,
		`shelf: key "5": shelf: get on node N failed for "5" of cache session: ...`:                                           e2,
		`shelf: Warm: 1 of 1 keys failed, the first: shelf: key "5": shelf: warm on node N failed for "5" of cache item: ...`: e3,
		`shelf: get on node N failed for "raw": ...`:                                                                          e4,
	} {
		text = strings.Replace(text, "node N", "node "+id, 1)
		says(t, text, err, nil, text)
		var e *client.NodeError
		if !errors.As(err, &e) || (e.Cache == "") != strings.Contains(text, "raw") || (e.Tag == "x") != strings.Contains(text, "tag") {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

// TestArgumentErrorTexts: a wrong argument is named, with its operation.
func TestArgumentErrorTexts(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	c := newCache(t, cl, client.CacheConfig[string]{Name: "item", TTL: time.Minute, Load: func(ctx context.Context, key string) (string, error) {
		return "", client.SetTTL(ctx, key, 3)
	}})
	truth := newCache(t, cl, client.CacheConfig[string]{Name: "session", TTL: time.Minute, Truth: true})
	ctx := t.Context()
	_, e1 := c.Get(ctx, "k")
	_, e2 := cl.SetNX(ctx, "k", nil, 3)
	_, e3 := cl.Incr(ctx, "k", 1, 0)
	_, e4 := cl.Expire(ctx, "k", -1)
	_, e5 := cl.Expire(ctx, "k", client.NoExpiry)
	const range1, range2 = "must be from 1ms to 87600h0m0s", "must be from 1ms to 87600h0m0s, or NoExpiry"
	ttl, key := client.ErrInvalidTTL, client.ErrInvalidKey
	says(t, "SetTTL", e1, ttl, `shelf: invalid TTL: SetTTL of key "k": ttl is 3ns: `+range1)
	says(t, "Set", cl.Set(ctx, "k", nil, 3), ttl, `shelf: invalid TTL: set of "k": it is 3ns: `+range2)
	says(t, "SetNX", e2, ttl, `shelf: invalid TTL: setnx of "k": it is 3ns: `+range2)
	says(t, "MSet", cl.MSet(ctx, map[string][]byte{"k": nil}, 3), ttl, `shelf: invalid TTL: mset: it is 3ns: `+range2)
	says(t, "Incr", e3, ttl, `shelf: invalid TTL: incr of "k": it is 0s: `+range2)
	says(t, "Expire", e4, ttl, `shelf: invalid TTL: expire of "k": it is -1ns: `+range1)
	says(t, "Expire", e5, ttl, `shelf: invalid TTL: expire of "k": it is NoExpiry: `+range1+`; to take an expiry away: Client.Node(name).Persist`)
	says(t, "SetWith", truth.SetWith(ctx, "k", "v", client.SetOptions{TTL: 3}), ttl, `shelf: invalid TTL: SetOptions.TTL is 3ns: `+range1)
	says(t, "InvalidateMany", c.InvalidateMany(ctx, []string{"a", ""}), key, "shelf: keys[1]: shelf: invalid key: it is empty")
	says(t, "SetMany", truth.SetMany(ctx, map[string]string{"a": "v", "": "v"}), key, `shelf: key "": shelf: invalid key: it is empty`)
}

// TestWriteCutByClose: a write whose connection Close has cut, because its ctx had ended, says ErrClosed, and its node.
func TestWriteCutByClose(t *testing.T) {
	writes := map[string]func(c, truth *client.Cache[string]) error{
		"Invalidate":    func(c, _ *client.Cache[string]) error { return c.Invalidate(context.Background(), "k") },
		"Clear":         func(c, _ *client.Cache[string]) error { return c.Clear(context.Background()) },
		"InvalidateTag": func(c, _ *client.Cache[string]) error { return c.InvalidateTag(context.Background(), "t") },
		"Write": func(c, _ *client.Cache[string]) error {
			return c.Write(context.Background(), "k", func(context.Context) error { return nil })
		},
		"Set": func(_, truth *client.Cache[string]) error { return truth.Set(context.Background(), "k", "v") },
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { cutWrite(t, write) })
		})
	}
}

func cutWrite(t *testing.T, write func(c, truth *client.Cache[string]) error) {
	nodes := clienttest.Start(t, 1)
	cfg := nodes.Config()
	cfg.OperationTimeout = time.Minute
	cl, err := client.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cl, client.CacheConfig[string]{Name: "item", TTL: time.Minute, Load: echo, Tags: func(string) []string { return nil }})
	truth := newCache(t, cl, client.CacheConfig[string]{Name: "session", TTL: time.Minute, Truth: true})
	if err := errors.Join(c.Invalidate(t.Context(), "k"), truth.Set(t.Context(), "k", "v")); err != nil { // it is connected
		t.Fatal(err)
	}
	synctest.Wait() // the health check is through: Close would wait for its timeout
	nodes.Node(0).Hang()
	written := make(chan error, 1)
	go func() { written <- write(c, truth) }()
	synctest.Wait() // it waits for the node
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := cl.Close(ended); err == nil {
		t.Error("Close: no error, want what was left")
	}
	err = <-written
	var e *client.NodeError
	if !errors.Is(err, client.ErrClosed) || !errors.As(err, &e) {
		t.Errorf("%v, want ErrClosed in a *NodeError", err)
	}
}

// TestIncrOfNoNumber names what is wrong with the counter, and not our script.
func TestIncrOfNoNumber(t *testing.T) {
	cl := open(t, realNodes(t, 1))
	if err := cl.Set(t.Context(), "k", []byte("five"), time.Minute); err != nil {
		t.Fatal(err)
	}
	for name, ttl := range map[string]time.Duration{"with a script": time.Minute, "without": client.NoExpiry} {
		_, err := cl.Incr(t.Context(), "k", 1, ttl)
		says(t, name, err, nil, `shelf: key "k": incr: it does not hold a 64-bit integer: redisnode: ...`)
		var e *client.KeyError
		if !errors.As(err, &e) || strings.Contains(err.Error(), "script:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWarmSaysWhyItIsNotStored: a node that answers reads and takes no writes is not one that did not answer.
func TestWarmSaysWhyItIsNotStored(t *testing.T) {
	many := func(_ context.Context, keys []string) (map[string]string, error) {
		return map[string]string{keys[0]: "v"}, nil
	}
	cl := open(t, realNodes(t, 1))
	c := newCache(t, cl, client.CacheConfig[string]{Name: "item", TTL: time.Minute, LoadMany: many})
	node := cl.Node("any")
	if err := errors.Join(node.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(), node.ConfigSet(t.Context(), "maxmemory", "1").Err()); err != nil {
		t.Fatal(err)
	}
	_, err := c.Warm(t.Context(), slices.Values([]string{"k"}), client.WarmOptions{})
	says(t, "Warm", err, nil, `shelf: Warm: 1 of 1 keys failed, the first: shelf: key "k": shelf: warm on node node-0 failed for "k" of cache item: redisnode: node-0: ...`)
	if !strings.Contains(fmt.Sprint(err), "OOM") || !client.Unavailable(err) {
		t.Errorf("%v, want the node's OOM", err)
	}
}
