// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// bodyCases are what the scripts do with bodies. Before each, the entry of version 5 is there with the body "old", reader A has the lease, and what
// is in the case is staged or changed.
var bodyCases = []struct {
	name    string
	call    func(k invalidation.Keys) invalidation.Call
	staged  bool
	mark    uint64
	cleared int    // the generation below which all is gone; the lease is of generation 5
	reply   string // "" for an error
	body    string // afterwards
}{
	{"fill", fillBody("A", 6), true, 0, 0, "stored", "new"},
	{"fill without its lease", fillBody("B", 6), true, 0, 0, "lease-lost", "old"},
	{"fill into a cache that was cleared", fillBody("A", 6), true, 0, 7, "lease-lost", "old"},
	{"fill below the mark", fillBody("A", 6), true, 9, 0, "below-mark", "old"},
	{"fill of an older row", fillBody("A", 4), true, 0, 0, "older-than-stored", "old"},
	{"fill whose body is gone", fillBody("A", 6), false, 0, 0, "", "old"},
	{"set", setBody(6), true, 0, 0, "stored", "new"},
	{"set below the mark", setBody(6), true, 9, 0, "below-mark", "old"},
	{"set of an older row", setBody(4), true, 0, 0, "older-than-stored", "old"},
	{"set whose body is gone", setBody(6), false, 0, 0, "", "old"},
	{"invalidate", func(k invalidation.Keys) invalidation.Call {
		k.Staged = ""
		return invalidation.Invalidate(k, 0, time.Minute, 0)
	}, false, 0, 0, "invalidated", ""},
}

// stampedEntry is an entry of generation 8.
func stampedEntry(version uint64, payload string) string {
	return entryAt(version, 8, payload)
}

func fillBody(token string, version uint64) func(invalidation.Keys) invalidation.Call {
	return func(k invalidation.Keys) invalidation.Call {
		return invalidation.Fill(k, invalidation.Filling{Token: token, Value: []byte(stampedEntry(version, "new")), TTL: time.Hour, Version: version, Generation: 5})
	}
}

func setBody(version uint64) func(invalidation.Keys) invalidation.Call {
	return func(k invalidation.Keys) invalidation.Call {
		return invalidation.Set(k, []byte(stampedEntry(version, "new")), time.Hour, version, 0)
	}
}

// bodies runs the cases with scripts that edit may have changed; the error is the first thing that is not as it should be.
func bodies(ctx context.Context, b backend, edit func(invalidation.Script) string) error {
	k := keysOf("large")
	k.Of = invalidation.Group{Generation: "g:large", Tags: "t:large"}
	k.Body, k.Staged = "b:large", "b:large~1"
	for _, tc := range bodyCases {
		p := b.Pipeline()
		put(ctx, p, k, shelf{Data: cell{Val: stampedEntry(5, "old"), TTL: minute}, Lease: cell{Val: "tA", TTL: minute}})
		p.Set(ctx, k.Body, "old", time.Minute)
		p.Del(ctx, k.Staged)
		p.Set(ctx, k.Of.Generation, fmt.Sprintf("9 %d", tc.cleared), 0)
		if tc.staged {
			p.Set(ctx, k.Staged, "new", 10*time.Second)
		}
		if tc.mark > 0 {
			p.Set(ctx, k.Mark, be(tc.mark), time.Minute)
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
		call := tc.call(k)
		reply, err := b.Eval(ctx, edit(call.Script), call.Keys, call.Args...).Result()
		switch {
		case tc.reply == "" && err == nil, tc.reply != "" && err != nil:
			return fmt.Errorf("%s: answered %v, %w", tc.name, reply, err)
		case tc.reply != "" && tc.reply != "invalidated" && reply != tc.reply:
			return fmt.Errorf("%s: answered %v, want %s", tc.name, reply, tc.reply)
		}
		if body, err := b.Get(ctx, k.Body).Result(); body != tc.body || (err != nil && !errors.Is(err, redis.Nil)) {
			return fmt.Errorf("%s: the body is %q, want %q", tc.name, body, tc.body)
		}
		if n := b.Exists(ctx, k.Staged).Val(); n != 0 {
			return fmt.Errorf("%s: what was staged is still there", tc.name)
		}
		entry, body := b.PTTL(ctx, k.Data).Val(), b.PTTL(ctx, k.Body).Val()
		if tc.body == "new" && (body < entry-5*time.Millisecond || body > entry+time.Second) {
			return fmt.Errorf("%s: the entry lives %v, its body %v", tc.name, entry, body)
		}
		if stored := b.Get(ctx, k.Data).Val(); strings.HasSuffix(stored, "new") != (tc.body == "new") {
			return fmt.Errorf("%s: the entry is %q beside the body %q", tc.name, stored, tc.body)
		}
	}
	return nil
}

// TestBodies: entry and body change together or not at all, and no staged body is left behind.
func TestBodies(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		if err := bodies(t.Context(), b, func(s invalidation.Script) string { return s.Source }); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEveryBodyGuardIsNeeded breaks the scripts one line at a time.
func TestEveryBodyGuardIsNeeded(t *testing.T) {
	b := backend{"redis", connect(t, redistest.Start(t, redistest.Config{}).Addr())}
	for _, m := range []struct{ script, old, broken string }{
		{"fill", "return KEYS[7] and redis.call('EXISTS', KEYS[7]) == 0", "return false"},
		{"set", "return KEYS[7] and redis.call('EXISTS', KEYS[7]) == 0", "return false"},
		{"fill", "redis.call('RENAME', KEYS[7], KEYS[6])", ""},
		{"set", "redis.call('RENAME', KEYS[7], KEYS[6])", ""},
		{"fill", "redis.call('PEXPIRE'", "tostring('PEXPIRE'"},
		{"fill", "settle(ARGV[3])", ""},
		{"set", "settle(ARGV[2])", ""},
		{"fill", "redis.call('UNLINK', KEYS[2])\n  return refused('lease-lost')", "redis.call('UNLINK', KEYS[2])\n  return 'lease-lost'"},
		{"fill", "~= ARGV[1] then\n  return refused('lease-lost')", "~= ARGV[1] then\n  return 'lease-lost'"},
		{"fill", "return refused('below-mark')", "return 'below-mark'"},
		{"fill", "return refused('older-than-stored')", "return 'older-than-stored'"},
		{"set", "return refused('below-mark')", "return 'below-mark'"},
		{"set", "return refused('older-than-stored')", "return 'older-than-stored'"},
		{"invalidate", "redis.pcall('UNLINK', KEYS[4])", ""},
	} {
		err := bodies(t.Context(), b, func(s invalidation.Script) string {
			if s.Name != m.script {
				return s.Source
			}
			if n := strings.Count(s.Source, m.old); n != 1 {
				t.Errorf("%s.lua has %q %d times: this test is out of date", s.Name, m.old, n)
			}
			return strings.Replace(s.Source, m.old, m.broken, 1)
		})
		if err == nil {
			t.Errorf("%s.lua with %q instead of %q: nobody noticed", m.script, m.broken, m.old)
		}
	}
}
