// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// TestRawValues: what is stored comes back, byte by byte; missing and empty are two things; and it lives where Client.Node says.
func TestRawValues(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		cl, ctx := open(t, cfg), t.Context()
		for i, name := range append(oddKeys(), "plain", strings.Repeat("n", client.MaxKeyBytes)) {
			if name[0] == '~' {
				continue // the caches' own
			}
			value := fmt.Appendf(nil, "value\x00\r\n%d", i)
			if _, found, err := cl.Get(ctx, name); found || err != nil {
				t.Errorf("%.20q is there before it is set: %v", name, err)
			}
			if err := cl.Set(ctx, name, value, time.Minute); err != nil {
				t.Errorf("Set(%.20q): %v", name, err)
			}
			if got, found, err := cl.Get(ctx, name); !bytes.Equal(got, value) || !found || err != nil {
				t.Errorf("Get(%.20q) = %q, %t, %v", name, got, found, err)
			}
			if got, err := cl.Node(name).Get(ctx, name).Bytes(); !bytes.Equal(got, value) {
				t.Errorf("the node of %.20q has %q, %v", name, got, err)
			}
			if n, err := cl.Delete(ctx, name, name); n != 1 || err != nil {
				t.Errorf("Delete(%.20q twice) = %d, %v", name, n, err)
			}
			if n, err := cl.Delete(ctx, name); n != 0 || err != nil {
				t.Errorf("Delete(%.20q) again = %d, %v", name, n, err)
			}
		}
		for _, empty := range [][]byte{nil, {}} {
			if err := cl.Set(ctx, "empty", empty, time.Minute); err != nil {
				t.Fatal(err)
			}
			if got, found, err := cl.Get(ctx, "empty"); got == nil || len(got) > 0 || !found || err != nil {
				t.Errorf("an empty value is %#v, %t, %v", got, found, err)
			}
		}
		if got, found, err := cl.Get(ctx, "missing"); got != nil || found || err != nil {
			t.Errorf("a missing value is %#v, %t, %v", got, found, err)
		}
	})
}

// TestRawTimes: RB-08 for raw names. One rule in every call; no expiry only where it is asked for by name; a refusal changes nothing.
func TestRawTimes(t *testing.T) {
	onBackends(t, 1, func(t *testing.T, cfg client.Config) {
		cl, ctx := open(t, cfg), t.Context()
		if err := cl.Set(ctx, "old", []byte("7"), time.Hour); err != nil {
			t.Fatal(err)
		}
		for _, ttl := range []time.Duration{0, -1, -time.Second, 1, 999 * time.Microsecond, client.MaxTTL + 1, math.MaxInt64, math.MinInt64, time.Until(time.Time{})} {
			_, nx := cl.SetNX(ctx, "new", []byte("v"), ttl)
			_, incr := cl.Incr(ctx, "old", 1, ttl)
			_, expire := cl.Expire(ctx, "old", ttl)
			for i, err := range []error{cl.Set(ctx, "old", []byte("v"), ttl), cl.MSet(ctx, map[string][]byte{"old": {'v'}}, ttl), nx, incr, expire} {
				if !errors.Is(err, client.ErrInvalidTTL) || !strings.Contains(err.Error(), ttl.String()) {
					t.Errorf("TTL %v, call %d: %v, want ErrInvalidTTL that says the value", ttl, i, err)
				}
			}
		}
		if _, err := cl.Expire(ctx, "old", client.NoExpiry); !errors.Is(err, client.ErrInvalidTTL) {
			t.Errorf("Expire with NoExpiry: %v", err)
		}
		if left, found, err := cl.TTL(ctx, "old"); left > time.Hour || left < 59*time.Minute || !found || err != nil {
			t.Errorf("after refused calls %v is left, %t, %v", left, found, err)
		}
		if v, _, err := cl.Get(ctx, "old"); string(v) != "7" {
			t.Errorf("refused calls left %q, %v", v, err)
		}
		for i, ttl := range []time.Duration{time.Minute, 90*time.Second + 500*time.Microsecond, client.MaxTTL, client.NoExpiry} {
			set, many, nx, counter := fmt.Sprint("s", i), fmt.Sprint("m", i), fmt.Sprint("n", i), fmt.Sprint("c", i)
			stored, e1 := cl.SetNX(ctx, nx, []byte("v"), ttl)
			count, e2 := cl.Incr(ctx, counter, 1, ttl)
			err := errors.Join(cl.Set(ctx, set, []byte("v"), ttl), cl.MSet(ctx, map[string][]byte{many: {'v'}}, ttl), e1, e2)
			if err != nil || !stored || count != 1 {
				t.Fatalf("TTL %v: %v, %t, %d", ttl, err, stored, count)
			}
			for _, name := range []string{set, many, nx, counter} {
				left, found, err := cl.TTL(ctx, name)
				if exact := ttl == client.NoExpiry; !found || err != nil || exact != (left == client.NoExpiry) || !exact && (left > ttl || left < ttl-30*time.Second) {
					t.Errorf("TTL %v of %s: %v is left, %t, %v", ttl, name, left, found, err)
				}
			}
		}
		if found, err := cl.Expire(ctx, "s3", time.Minute); !found || err != nil {
			t.Errorf("Expire: %t, %v", found, err)
		}
		if left, _, _ := cl.TTL(ctx, "s3"); left > time.Minute || left < 30*time.Second {
			t.Errorf("after Expire %v is left", left)
		}
		if found, err := cl.Expire(ctx, "missing", time.Minute); found || err != nil {
			t.Errorf("Expire of what is missing: %t, %v", found, err)
		}
		if left, found, err := cl.TTL(ctx, "missing"); left != 0 || found || err != nil {
			t.Errorf("TTL of what is missing: %v, %t, %v", left, found, err)
		}
	})
}

// TestRawLockAndCounter: SetNX keeps what is there; a counter keeps the end that it was made with, however often it is incremented.
func TestRawLockAndCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, err := client.New(t.Context(), clienttest.Start(t, 2).Config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close(context.Background()) }()
		ctx := t.Context()
		for _, token := range []string{"a", "b"} {
			if stored, err := cl.SetNX(ctx, "lock", []byte(token), time.Minute); stored != (token == "a") || err != nil {
				t.Errorf("SetNX by %s: %t, %v", token, stored, err)
			}
		}
		if v, _, _ := cl.Get(ctx, "lock"); string(v) != "a" {
			t.Errorf("the lock is %q's", v)
		}
		for i := range int64(6) { // every 15 s: at 0, 15, 30, 45; then a new minute: 60, 75
			if n, err := cl.Incr(ctx, "hits", 1, time.Minute); n != i%4+1 || err != nil {
				t.Errorf("after %d s: %d, %v", 15*i, n, err)
			}
			time.Sleep(15 * time.Second)
		}
		if stored, err := cl.SetNX(ctx, "lock", []byte("b"), time.Minute); !stored || err != nil {
			t.Errorf("SetNX after the lock's end: %t, %v", stored, err)
		}
		if n, err := cl.Incr(ctx, "total", math.MaxInt64, client.NoExpiry); n != math.MaxInt64 || err != nil {
			t.Errorf("Incr: %d, %v", n, err)
		}
		if n, err := cl.Incr(ctx, "total", -2, client.NoExpiry); n != math.MaxInt64-2 || err != nil {
			t.Errorf("Incr: %d, %v", n, err)
		}
		for name, ttl := range map[string]time.Duration{"lock": time.Minute, "total": client.NoExpiry} {
			_, err := cl.Incr(ctx, name, 10, ttl) // no number; an overflow
			var refused *client.KeyError
			if !errors.As(err, &refused) || refused.Key != name || client.Unavailable(err) || client.NodesOnly(err) {
				t.Errorf("Incr(%s): %v, want a *KeyError", name, err)
			}
		}
	})
}

// TestRawNamesOfTheCaches: no raw call reaches what belongs to a cache, in every operation, before any I/O.
func TestRawNamesOfTheCaches(t *testing.T) {
	nodes := clienttest.Start(t, 2)
	cfg := nodes.Config()
	cfg.Namespace = "shop"
	cl, ctx := open(t, cfg), t.Context()
	newCache(t, cl, client.CacheConfig[string]{Name: "product", Schema: 3, TTL: time.Minute, Load: echo})
	calls := func(name string) []error {
		_, _, get := cl.Get(ctx, name)
		_, nx := cl.SetNX(ctx, name, nil, time.Minute)
		_, mget := cl.MGet(ctx, []string{"fine", name})
		_, del := cl.Delete(ctx, "fine", name)
		_, expire := cl.Expire(ctx, name, time.Minute)
		_, _, ttl := cl.TTL(ctx, name)
		_, incr := cl.Incr(ctx, name, 1, time.Minute)
		mset := cl.MSet(ctx, map[string][]byte{"fine": nil, name: nil}, time.Minute)
		return []error{get, cl.Set(ctx, name, nil, time.Minute), nx, mget, del, expire, ttl, incr, mset}
	}
	for _, name := range []string{"", strings.Repeat("n", client.MaxKeyBytes+1), "~", "~l:shop/product:1:v3", "~mine", "shop/product:1:v3", "shop/product:1:v2", "shop/product:"} {
		for i, err := range calls(name) {
			if !errors.Is(err, client.ErrInvalidKey) {
				t.Errorf("call %d on %.30q: %v, want ErrInvalidKey", i, name, err)
			}
		}
	}
	if _, err := cl.MGet(ctx, []string{"fine", "~x"}); err == nil || !strings.Contains(err.Error(), "names[1]") {
		t.Errorf("MGet: %v does not say which name", err)
	}
	for i := range nodes.Len() {
		if keys := nodes.Node(i).Keys(); len(keys) > 0 {
			t.Errorf("refused calls left %q", keys)
		}
	}
	for _, name := range []string{"product:1:v3", "shop/product", "shop/products:1", "shop/produc:1", "x~", "shop/", ":"} {
		if err := cl.Set(ctx, name, nil, time.Minute); err != nil {
			t.Errorf("Set(%q): %v, which belongs to nobody", name, err)
		}
	}
	if err := cl.Set(ctx, "shop/late:1", nil, time.Minute); err != nil {
		t.Error(err)
	}
	newCache(t, cl, client.CacheConfig[string]{Name: "late", TTL: time.Minute, Load: echo})
	if err := cl.Set(ctx, "shop/late:1", nil, time.Minute); !errors.Is(err, client.ErrInvalidKey) {
		t.Errorf("once the cache is there: %v", err)
	}
}

// TestRawManyNames: the answers stand where the names stood, over several nodes and many commands.
func TestRawManyNames(t *testing.T) {
	onBackends(t, 3, func(t *testing.T, cfg client.Config) {
		cl, ctx := open(t, cfg), t.Context()
		names, rows := numbered(2000)
		values := make(map[string][]byte)
		for name, v := range rows {
			values[name] = []byte(v)
		}
		values[names[7]] = nil
		if err := cl.MSet(ctx, values, time.Minute); err != nil {
			t.Fatal(err)
		}
		asked := append([]string{"missing", names[5], "list"}, names...)
		cl.Node("list").RPush(ctx, "list", "x")
		got, err := cl.MGet(ctx, asked)
		if err != nil || len(got) != len(asked) {
			t.Fatalf("MGet: %d answers, %v", len(got), err)
		}
		for i, name := range asked {
			want, found := values[name]
			if !bytes.Equal(got[i].Value, want) || got[i].Found != found || (got[i].Value != nil) != found || got[i].Err != nil {
				t.Errorf("%s is %q, %t, %v; want %q, %t", name, got[i].Value, got[i].Found, got[i].Err, want, found)
			}
		}
		got[1].Value[0] = 'X' // the bytes are the caller's, also where a name is there twice
		if string(got[3+5].Value) != "v"+names[5] {
			t.Errorf("two answers share their bytes: %q", got[3+5].Value)
		}
		if left, found, err := cl.TTL(ctx, names[1999]); left > time.Minute || left < time.Second || !found || err != nil {
			t.Errorf("the last one lives for %v, %t, %v", left, found, err)
		}
		if n, err := cl.Delete(ctx, asked...); n != len(names)+1 || err != nil { // and the list
			t.Errorf("Delete: %d, %v, want %d", n, err, len(names)+1)
		}
		for _, none := range [][]string{nil, {}} {
			m, e1 := cl.MGet(ctx, none)
			n, e2 := cl.Delete(ctx, none...)
			if err := errors.Join(e1, e2, cl.MSet(ctx, nil, time.Minute)); len(m) > 0 || n > 0 || err != nil {
				t.Errorf("no names: %v, %d, %v", m, n, err)
			}
		}
	})
}

// TestRawBoundedCommands: large values are stored and read in pieces that a node answers within its timeout; one command for all of them would
// be 60 MB.
func TestRawBoundedCommands(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second})
	ctx, values := t.Context(), make(map[string][]byte)
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprint("big", i))
		values[names[i]] = bytes.Repeat([]byte{byte(i)}, 1<<20)
	}
	if err := cl.MSet(ctx, values, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.MGet(ctx, names[:1]); err != nil { // now the client knows how large they are
		t.Fatal(err)
	}
	before, _ := commandStats(t, server, "mget")
	got, err := cl.MGet(ctx, names)
	for i, r := range got {
		if !bytes.Equal(r.Value, values[names[i]]) {
			t.Errorf("%s is wrong (%d bytes)", names[i], len(r.Value))
		}
	}
	if n, _ := commandStats(t, server, "mget"); err != nil || n-before < 15 { // 4 MiB each
		t.Errorf("%d commands, %v; want at least 15", n-before, err)
	}
	long := make([]string, 200) // 12 MB of names
	for i := range long {
		long[i] = fmt.Sprint(i, strings.Repeat("n", client.MaxKeyBytes-10))
	}
	before, _ = commandStats(t, server, "unlink")
	if _, err := cl.Delete(ctx, long...); err != nil {
		t.Error(err)
	}
	if n, _ := commandStats(t, server, "unlink"); n-before < 3 {
		t.Errorf("%d commands for 12 MB of names, want at least 3", n-before)
	}
}
