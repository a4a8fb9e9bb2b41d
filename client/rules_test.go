// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// What is kept, what is shared, and what is said, at the edges.

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestWhatCannotBeStoredIsNotInL1Either: oversized values, and absences that are not to be remembered.
func TestWhatCannotBeStoredIsNotInL1Either(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	src := newSource(map[string]string{"big": strings.Repeat("x", 100)})
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, MaxValueBytes: 10, NoNegative: true, L1: client.L1All})
	for range 3 {
		want(t, c, "big", src.rows["big"], client.LayerSource)
		if _, err := c.Get(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if m, err := c.GetMany(t.Context(), []string{"big", "none"}); err != nil || len(m) != 1 {
			t.Errorf("GetMany: %v, %v", m, err)
		}
	}
	if s := c.Stats(); s.L1Entries != 0 || src.count("big") != 6 || src.count("none") != 6 {
		t.Errorf("%d entries in L1, %d and %d loads; want none, and 6 each", s.L1Entries, src.count("big"), src.count("none"))
	}
}

// TestSetWithVersion: the version given at the call is the entry's.
func TestSetWithVersion(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Truth: true, L1: client.L1Off})
	for _, v := range []uint64{2, 1} {
		if err := c.SetWith(t.Context(), "k", map[uint64]string{1: "one", 2: "two"}[v], client.SetOptions{Version: v}); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := c.Lookup(t.Context(), "k"); err != nil || r.Value != "two" || r.Version != 2 {
		t.Errorf("%+v, %v; want the larger version", r, err)
	}
}

// TestClone: it is called for values, and only for those.
func TestClone(t *testing.T) {
	type box struct{ N int }
	failed := errors.New("failed")
	load := func(_ context.Context, key string) (*box, error) {
		switch key {
		case "none":
			return nil, client.ErrNotFound
		case "fails":
			return nil, failed
		}
		return &box{7}, nil
	}
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[*box]{Name: "x", TTL: time.Minute, L1: client.L1All, Load: load,
		Clone: func(b *box) *box { copied := *b; return &copied }})
	many := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[*box]{Name: "x", TTL: time.Minute, L1: client.L1All,
		Clone: func(b *box) *box { copied := *b; return &copied },
		LoadMany: func(ctx context.Context, keys []string) (map[string]*box, error) {
			m := make(map[string]*box)
			for _, k := range keys {
				b, err := load(ctx, k)
				if errors.Is(err, failed) {
					return nil, err
				}
				if err == nil {
					m[k] = b
				}
			}
			return m, nil
		}})
	for range 3 {
		for _, cache := range []*client.Cache[*box]{c, many} {
			if b, err := cache.Get(t.Context(), "k"); err != nil || b.N != 7 {
				t.Errorf("%v, %v", b, err)
			} else {
				b.N = 0 // mine alone
			}
			if _, err := cache.Get(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) {
				t.Errorf("none: %v", err)
			}
			if _, err := cache.Get(t.Context(), "fails"); !errors.Is(err, failed) {
				t.Errorf("fails: %v", err)
			}
			m, err := cache.GetMany(t.Context(), []string{"k", "none"})
			if err != nil || len(m) != 1 || m["k"].N != 7 {
				t.Errorf("GetMany: %v, %v", m, err)
			}
			if m, err := cache.GetMany(t.Context(), []string{"fails"}); !errors.Is(err, failed) || len(m) != 0 {
				t.Errorf("GetMany of what fails: %v, %v", m, err)
			}
		}
	}
}

// TestNoFillSeesOwnWrites: a read without storing does not join one that began before the write.
func TestNoFillSeesOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := newGated(map[string]string{"k": "old"})
		c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load})
		old := make(chan string)
		go func() {
			v, _ := c.GetWith(context.Background(), "k", nil, client.GetOptions{NoFill: true})
			old <- v
		}()
		<-src.held
		if err := c.Write(t.Context(), "k", func(context.Context) error { src.set("k", "new"); return nil }); err != nil {
			t.Fatal(err)
		}
		if v, err := c.GetWith(t.Context(), "k", nil, client.GetOptions{NoFill: true}); err != nil || v != "new" {
			t.Errorf("after the write: %q, %v", v, err)
		}
		close(src.release)
		if v := <-old; v != "old" {
			t.Errorf("the slow reader: %q", v)
		}
	})
}

// TestLoadManyDoesNotSayAllAbsent: an ErrNotFound from a batch loader is a mistake in it, not the absence of every row.
func TestLoadManyDoesNotSayAllAbsent(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, LoadMany: func(context.Context, []string) (map[string]string, error) {
		return map[string]string{"a": "1"}, client.ErrNotFound
	}})
	if m, err := c.GetMany(t.Context(), []string{"a", "b"}); err == nil || errors.Is(err, client.ErrNotFound) || len(m) != 0 {
		t.Errorf("GetMany: %v, %v; want an error of its own", m, err)
	}
	if _, err := c.Get(t.Context(), "a"); err == nil || errors.Is(err, client.ErrNotFound) || !strings.Contains(err.Error(), "leave out") {
		t.Errorf("Get: %v; want an error that says what LoadMany must do", err)
	}
}

// TestTruthIsNeverGuessed: what the owner has is the answer, also to a forced read; when it cannot be asked that is the error, with its cause.
func TestTruthIsNeverGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "session", TTL: time.Hour, Truth: true, L1: client.L1Off})
		if err := c.SetWith(t.Context(), "k", "v", client.SetOptions{TTL: 30 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Minute - time.Millisecond) // exactly as long as it was told to live
		for _, o := range []client.GetOptions{{}, {Refresh: true}, {NoFill: true}, {BypassL1: true}} {
			if r, err := c.LookupWith(t.Context(), "k", nil, o); err != nil || r.Value != "v" || r.Stale {
				t.Errorf("%+v: %+v, %v", o, r, err)
			}
		}
		time.Sleep(time.Millisecond)
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("past its TTL: %v", err)
		}
		nodes.Node(0).Down()
		_, one := c.Get(t.Context(), "k")
		_, many := c.GetMany(t.Context(), []string{"k"})
		for _, err := range []error{one, many} {
			var ne *client.NodeError
			if !errors.As(err, &ne) || ne.Op != "get" || !client.Unavailable(err) || errors.Is(err, client.ErrNotFound) {
				t.Errorf("while its node is down: %v", err)
			}
		}
	})
}

// TestKeysOfOtherTypes: a list, a hash, a set that some other program keeps under the name is missing, and overwritten by the reload.
func TestKeysOfOtherTypes(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		cl := open(t, cfg)
		src := newSource(map[string]string{"list": "1", "hash": "2", "set": "3"})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: src.load, L1: client.L1Off})
		raw := cl.Node("any")
		if err := errors.Join(raw.RPush(t.Context(), "x:list:v0", "a").Err(), raw.HSet(t.Context(), "x:hash:v0", "a", "b").Err(), raw.SAdd(t.Context(), "x:set:v0", "a").Err()); err != nil {
			t.Fatal(err)
		}
		for key, v := range src.rows {
			want(t, c, key, v, client.LayerSource)
			want(t, c, key, v, client.LayerL2)
		}
		if s := c.Stats(); s.NodeErrors != 0 {
			t.Errorf("NodeErrors %d", s.NodeErrors)
		}
	})
}

// broken is a codec that panics.
type broken struct{ upper }

func (broken) Decode([]byte) (string, error) { panic("cannot read this") }

// TestPanickingCodec: bytes that the codec panics on are foreign bytes, on every path.
func TestPanickingCodec(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo, L1: client.L1Off, Codec: broken{upper{200}}})
	for range 2 {
		if v, err := c.Get(t.Context(), "k"); err != nil || v != "value of k" {
			t.Errorf("%q, %v", v, err)
		}
		if m, err := c.GetMany(t.Context(), []string{"k"}); err != nil || m["k"] != "value of k" {
			t.Errorf("%v, %v", m, err)
		}
	}
}

// TestUnencodable: the caller of Set hears why; a loaded value is returned.
func TestUnencodable(t *testing.T) {
	cl := open(t, clienttest.Start(t, 1).Config())
	truth := newCache(t, cl, client.CacheConfig[float64]{Name: "t", TTL: time.Minute, Truth: true})
	var cause *json.UnsupportedValueError
	if err := truth.Set(t.Context(), "k", math.NaN()); !errors.Is(err, client.ErrUnencodable) || !errors.As(err, &cause) || errors.Is(err, client.ErrTooLarge) {
		t.Errorf("Set(NaN): %v", err)
	}
	c := newCache(t, cl, client.CacheConfig[float64]{Name: "x", TTL: time.Minute, Load: func(context.Context, string) (float64, error) { return math.Inf(1), nil }})
	if v, err := c.Get(t.Context(), "k"); err != nil || !math.IsInf(v, 1) {
		t.Errorf("%v, %v", v, err)
	}
	if s := c.Stats(); s.Unencodable != 1 {
		t.Errorf("Unencodable is %d", s.Unencodable)
	}
}

// TestLoadFailuresAreCounted: whatever way a load fails.
func TestLoadFailuresAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		cl, err := client.New(t.Context(), clienttest.Start(t, 1).Config())
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: func(ctx context.Context, key string) (string, error) {
			switch key {
			case "panic":
				panic(key)
			case "hang":
				<-hang
			case "slow":
				<-ctx.Done()
				return "", ctx.Err()
			case "none":
				return "", client.ErrNotFound
			}
			return "", errors.New(key)
		}})
		for i, key := range []string{"panic", "hang", "slow", "error"} {
			if _, err := c.Get(t.Context(), key); err == nil {
				t.Errorf("%s: no error", key)
			}
			if n := c.Stats().LoadErrors; n != uint64(i+1) {
				t.Errorf("after %s LoadErrors is %d, want %d", key, n, i+1)
			}
		}
		if _, err := c.Get(t.Context(), "none"); !errors.Is(err, client.ErrNotFound) || c.Stats().LoadErrors != 4 {
			t.Errorf("an absence: %v, LoadErrors %d", err, c.Stats().LoadErrors)
		}
		close(hang)
		if err := cl.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestHungNodeIsWaitedForOnce: an invalidation of many keys does not wait for a dead node once for each part of them.
func TestHungNodeIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
		keys, _ := numbered(1000)
		nodes.Node(0).Hang()
		start := time.Now()
		err := c.InvalidateMany(t.Context(), keys)
		if n := len(client.UnreachedKeys(err)); n != len(keys) {
			t.Errorf("%d keys reported, want all %d", n, len(keys))
		}
		if d := time.Since(start); d > time.Second { // the timeout of these nodes is 500 ms
			t.Errorf("took %v", d)
		}
	})
}

// TestGetManyGivesItsTicketsBack when its caller leaves while the nodes are being asked.
func TestGetManyGivesItsTicketsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo, L1: client.L1All})
		nodes.Node(0).Slow(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		keys, _ := numbered(100)
		if _, err := c.GetMany(ctx, keys); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if n := c.Stats().L1Open; n != 0 {
			t.Errorf("%d tickets are still out", n)
		}
	})
}

// TestCloseTwiceAtOnce: the second call waits for the first.
func TestCloseTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, err := client.New(t.Context(), clienttest.Start(t, 1).Config())
		if err != nil {
			t.Fatal(err)
		}
		var ended atomic.Bool
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: func(ctx context.Context, key string) (string, error) {
			time.Sleep(time.Second)
			ended.Store(true)
			return echo(ctx, key)
		}})
		read := inBackground(t, c, "k")
		synctest.Wait()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := cl.Close(t.Context()); err != nil || !ended.Load() {
					t.Errorf("Close: %v, the load had ended: %v", err, ended.Load())
				}
			})
		}
		wg.Wait()
		if v, err := read(); err != nil || v != "value of k" {
			t.Errorf("%q, %v", v, err)
		}
		if n := c.Stats().Fills; n != 1 {
			t.Errorf("%d fills: the connections were closed under it", n)
		}
	})
}

// TestPanickingClone is its caller's panic, on every path, and not the process's.
func TestPanickingClone(t *testing.T) {
	var armed atomic.Bool
	clone := func(b *int) *int {
		if armed.Load() {
			panic("cannot copy this")
		}
		return b
	}
	one := 1
	nodes := clienttest.Start(t, 2)
	cfg := client.CacheConfig[*int]{Name: "x", TTL: time.Minute, L1: client.L1All, Clone: clone, Load: func(context.Context, string) (*int, error) { return &one, nil }}
	c, other := newCache(t, open(t, nodes.Config()), cfg), newCache(t, open(t, nodes.Config()), cfg)
	keys, _ := numbered(40)
	if _, err := c.GetMany(t.Context(), keys[:20]); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	for name, read := range map[string]func(){
		"Get of what is here":         func() { _, _ = c.Get(t.Context(), keys[0]) },
		"GetMany of what is here":     func() { _, _ = c.GetMany(t.Context(), keys[:20]) },
		"GetMany of what nodes have":  func() { _, _ = other.GetMany(t.Context(), keys[:20]) },
		"GetMany of what is not here": func() { _, _ = c.GetMany(t.Context(), keys) },
	} {
		func() {
			defer func() {
				if p := recover(); p != "cannot copy this" {
					t.Errorf("%s: recovered %v", name, p)
				}
			}()
			read()
		}()
	}
	if _, err := c.GetMany(t.Context(), keys[20:]); err == nil { // there the panic is the load's: an error
		t.Error("a load whose value cannot be copied succeeded")
	}
}
