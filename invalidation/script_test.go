// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// versions are those at which a comparison that is not exact goes wrong: doubles stop at 2^53,
// locales disagree about 'a' and 'B', signed bytes about 0x7f and 0x80.
var versions = []uint64{
	0, 1, 2, 255, 256, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1,
	0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x0a, 0x0d, 'A', 'B', 'a', 'b', 'A' << 56, 'a' << 56, 'B'<<56 | 1, 0x7f << 56, 0x80 << 56,
}

// names are key names that some layer might want to cut or to interpret.
var names = []string{"plain", "{brace}d", "a{", "}b", "nul\x00nul", "cr\r\nlf", " ", "\xff\xfe", "ключ", "*$3\r\n"}

func keysOf(name string) invalidation.Keys {
	return invalidation.Keys{Data: "d:" + name, Lease: "l:" + name, Mark: "m:" + name}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

const minute = int64(60_000)

// randomShelf draws a state; about half of the keys are missing or not what they should be.
func randomShelf(r *rand.Rand) shelf {
	v := pick(r, versions)
	s := shelf{}
	s.data = pick(r, []cell{
		{}, {val: "foreign"}, {val: "\xf5\x53"}, {val: "\xf5\x53\x01 only 23 bytes long."}, {alien: true},
		{val: "\xf5\x53\x00" + entryOf(v, "format zero")[3:]}, {val: "\xf5\x54" + entryOf(v, "other magic")[2:]}, {val: "\xf4\x53" + entryOf(v, "other magic")[2:]},
		{val: entryOf(v, "")}, {val: entryOf(v, "payload")}, {val: entryOf(v, "\x00\r\n")}, {val: entryOf(0, "unversioned")},
		{val: "\xf5\x53\x09" + entryOf(v, "format nine")[3:]},
	})
	s.lease = pick(r, []cell{{}, {}, {val: "tA"}, {val: "tA"}, {val: "tB"}, {val: "n"}, {val: "tn"}, {val: "t"}})
	s.mark = pick(r, []cell{{}, {}, {val: "short"}, {val: be(max(1, v))}, {val: be(max(1, v-1))}, {val: be(max(1, pick(r, versions)))}, {val: be(max(1, v)) + "more"}})
	for _, c := range []*cell{&s.data, &s.lease, &s.mark} {
		if c.val != "" || c.alien {
			c.ttl = pick(r, []int64{3 * minute, 20 * minute})
		}
	}
	return s
}

// step is one script call and what the twin makes of it.
type step struct {
	call  invalidation.Call
	parse func(any) (any, error)
	want  any
}

func parsing[T any](parse func(any) (T, error)) func(any) (any, error) {
	return func(reply any) (any, error) { return parse(reply) }
}

// randomStep draws a call and applies it to the twin.
func randomStep(r *rand.Rand, k invalidation.Keys, s *shelf) step {
	token := pick(r, []string{"A", "A", "B", "n", ""})
	mode := pick(r, []invalidation.LeaseMode{invalidation.LeaseMiss, invalidation.LeaseRefresh, invalidation.LeaseForce})
	version, ttl := pick(r, versions), pick(r, []int64{minute, 10 * minute, 30 * minute})
	if f := s.mark.floor(); f > 0 && r.IntN(3) == 0 {
		version = f - 1 + uint64(r.IntN(3)) // around the mark; may wrap round, which is fine
	}
	if f, ok := s.data.entry(); ok && r.IntN(3) == 0 {
		version = f
	}
	value, life, epoch := entryOf(version, pick(r, []string{"", "x", "\x00\xff\r\n"})), time.Duration(ttl)*time.Millisecond, r.Uint64()
	switch r.IntN(8) {
	case 0, 1:
		return step{invalidation.Lease(k, token, mode, life), parsing(invalidation.ParseLease), s.takeLease(token, mode, ttl)}
	case 2, 3, 4:
		negative, replace := r.IntN(5) == 0, r.IntN(4) == 0
		return step{invalidation.Fill(k, invalidation.Filling{Token: token, Value: []byte(value), TTL: life, Version: version, Negative: negative, Replace: replace, Epoch: epoch}), parsing(invalidation.ParseFill),
			s.fill(token, value, ttl, version, negative, replace, guards{})}
	case 5:
		noStore := pick(r, []int64{0, ttl})
		return step{invalidation.Release(k, token, time.Duration(noStore)*time.Millisecond), parsing(invalidation.ParseRelease), s.release(token, noStore, guards{})}
	case 6:
		return step{invalidation.Invalidate(k, version, life, epoch), parsing(invalidation.ParseInvalidate), s.invalidate(version, ttl, guards{})}
	default:
		return step{invalidation.Set(k, []byte(value), life, version, epoch), parsing(invalidation.ParseSet), s.set(value, ttl, version)}
	}
}

// put makes the node hold the state.
func put(ctx context.Context, p redis.Pipeliner, k invalidation.Keys, s shelf) {
	p.Del(ctx, k.Data, k.Lease, k.Mark)
	for i, c := range []cell{s.data, s.lease, s.mark} {
		key := []string{k.Data, k.Lease, k.Mark}[i]
		switch life := time.Duration(c.ttl) * time.Millisecond; {
		case c.alien:
			p.RPush(ctx, key, "a list")
			p.PExpire(ctx, key, life)
		case c.val != "":
			p.Set(ctx, key, c.val, life)
		}
	}
}

// look reads the state of the node; the result is there after the pipeline ran. It says how the
// state differs from the twin's, "" for not at all. Lifetimes may have run down by a minute.
func look(ctx context.Context, p redis.Pipeliner, k invalidation.Keys) func(want shelf) string {
	var vals [3]*redis.StringCmd
	var ttls [3]*redis.DurationCmd
	for i, key := range []string{k.Data, k.Lease, k.Mark} {
		vals[i], ttls[i] = p.Get(ctx, key), p.PTTL(ctx, key)
	}
	return func(want shelf) string {
		for i, c := range []cell{want.data, want.lease, want.mark} {
			got, err := vals[i].Result()
			if alien := redis.HasErrorPrefix(err, "WRONGTYPE"); alien != c.alien || got != c.val {
				return fmt.Sprintf("key %d is %q (%v), twin has %q", i, got, err, c.val)
			}
			ttl := ttls[i].Val().Milliseconds()
			if there := c.val != "" || c.alien; there && (ttl > c.ttl || ttl <= c.ttl-minute) {
				return fmt.Sprintf("key %d lives for %d ms, twin says %d", i, ttl, c.ttl)
			}
		}
		return ""
	}
}

// diff runs n random calls, each on a random state, on the node and on the twin, and describes
// the first difference. rewrite may change a script's text first.
func diff(ctx context.Context, b backend, n int, rewrite func(invalidation.Script) string) error {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		k, before := keysOf(pick(r, names)), randomShelf(r)
		after := before
		st := randomStep(r, k, &after)

		p := b.Pipeline()
		put(ctx, p, k, before)
		cmd := p.Eval(ctx, rewrite(st.call.Script), st.call.Keys, st.call.Args...)
		differs := look(ctx, p, k)
		_, _ = p.Exec(ctx) // the errors of missing keys and of broken scripts are in the commands

		what := fmt.Sprintf("case %d: %s%q on %s", i, st.call.Script.Name, st.call.Args, before)
		reply, err := cmd.Result()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		got, err := st.parse(reply)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !reflect.DeepEqual(got, st.want) {
			return fmt.Errorf("%s: answered %+v, twin %+v", what, got, st.want)
		}
		if d := differs(after); d != "" {
			return fmt.Errorf("%s: %s", what, d)
		}
	}
	return nil
}

func TestScriptsDoWhatTheTwinDoes(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		unchanged := func(s invalidation.Script) string { return s.Source }
		if err := diff(t.Context(), b, 1500, unchanged); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEveryGuardIsNeeded breaks the scripts one line at a time: a guard whose loss the comparison
// with the twin does not notice is either not tested or not needed.
func TestEveryGuardIsNeeded(t *testing.T) {
	b := backend{"redis", connect(t, redistest.Start(t, redistest.Config{}).Addr())} // faster than miniredis
	for _, m := range []struct{ script, old, broken string }{
		{"lease", "mode == 'miss' and data", "mode == 'miss' and false"},
		{"lease", "mode == 'miss' and data", "data"},
		{"lease", "mode ~= 'force'", "mode == 'miss'"},
		{"lease", "mode ~= 'force'", "true"},
		{"lease", "holder == 'n'", "holder == 'x'"},
		{"lease", "elseif holder then", "elseif false then"},
		{"lease", "'PX', ARGV[3]", "'PX', 1"},
		{"lease", "return { 'granted', data, mark, now }", "return { 'granted', data, false, now }"},
		{"lease", "return { 'held', data, mark, now }", "return { 'held', false, mark, now }"},
		{"fill", "~= ARGV[1] then", "== 'x' then"},
		{"fill", "redis.call('GET', KEYS[2]) ~= ARGV[1]", "redis.call('EXISTS', KEYS[2]) == 0"},
		{"fill", "if mark and (negative", "if false and (negative"},
		{"fill", "(negative or", "("},
		{"fill", "older(version, mark))", "older(mark, version))"},
		{"fill", "or older(version, mark))", ")"},
		{"fill", "if stored and ARGV[7]", "if false and ARGV[7]"},
		{"fill", "ARGV[7] ~= '1' and", ""},
		{"fill", "ARGV[7] ~= '1' and", "false and"},
		{"fill", "string.sub(stored, 9, 16)", "string.sub(stored, 17, 24)"},
		{"fill", "'PX', ARGV[3])\nredis.call('UNLINK', KEYS[2])", "'PX', ARGV[3])"},
		{"fill", "redis.call('UNLINK', KEYS[2])\n  return refused('below-mark')", "return refused('below-mark')"},
		{"fill", "redis.call('UNLINK', KEYS[2])\n  return refused('older", "return refused('older"},
		{"release", "~= ARGV[1] then", "== 'x' then"},
		{"release", "ARGV[3] ~= '0'", "false"},
		{"release", "redis.call('UNLINK', KEYS[1])", ""},
		{"invalidate", "redis.call('UNLINK', KEYS[1])", "0"},
		{"invalidate", "redis.call('UNLINK', KEYS[2])", ""},
		{"invalidate", "older(new, old)", "false"},
		{"invalidate", "older(new, old)", "true"},
		{"invalidate", "new == none", "false"},
		{"invalidate", "left > tonumber(ttl)", "false"},
		{"invalidate", "'SET', KEYS[3], new", "'SET', KEYS[3], ARGV[1]"},
		{"set", "if version ~= none then", "if true then"},
		{"set", "if mark and", "if false and"},
		{"set", "if stored and", "if false and"},
		{"set", "redis.call('UNLINK', KEYS[2])", ""},
		// The helpers, in each script that has them.
		{"", "if x ~= y then return x < y end", "if x ~= y then return x > y end"},
		{"", "for i = 1, 8 do", "for i = 1, 7 do"},
		{"", "for i = 1, 8 do", "for i = 2, 8 do"},
		{"", "#v < 24", "#v < 23"},
		{"", "a ~= 0xF5 or", ""},
		{"", "b ~= 0x53 or", ""},
		{"", "or format < 1", ""},
		{"lease", "string.sub(m, 1, 8)", "m"}, {"invalidate", "string.sub(m, 1, 8)", "m"}, // in lease and invalidate; older() stops at 8 bytes by itself
		{"", "or #m < 8", ""},
	} {
		for _, s := range invalidation.Scripts() {
			if m.script == "" && !strings.Contains(s.Source, m.old) || m.script != "" && m.script != s.Name {
				continue
			}
			if n := strings.Count(s.Source, m.old); n != 1 {
				t.Errorf("%s.lua has %q %d times: this test is out of date", s.Name, m.old, n)
				continue
			}
			err := diff(t.Context(), b, 4000, func(x invalidation.Script) string {
				if x.Name == s.Name {
					return strings.Replace(x.Source, m.old, m.broken, 1)
				}
				return x.Source
			})
			if err == nil {
				t.Errorf("%s.lua with %q instead of %q: nobody noticed", s.Name, m.broken, m.old)
			}
		}
	}
}

// TestLocaleMatters shows that the foreign locale of the other tests is one in which comparing
// versions with "<" goes wrong, so that they would notice.
func TestLocaleMatters(t *testing.T) {
	env, _ := foreignLocale()
	if env[0] == "LC_ALL=C.UTF-8" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no localedef, or no sources of en_US, on this machine: apt-get install locales")
		}
		t.Skip("no localedef, or no sources of en_US, on this machine (apt-get install locales)")
	}
	b := backend{"locale", connect(t, redistest.Start(t, redistest.Config{Env: env}).Addr())}
	err := diff(t.Context(), b, 4000, func(s invalidation.Script) string {
		return strings.Replace(s.Source, "for i = 1, 8 do", "do return a < b end\n  for i = 1, 8 do", 1)
	})
	if err == nil {
		t.Error("comparing versions with < makes no difference under", env)
	}
}

// TestComparisonIsExact compares every two of the awkward versions through fill and set.
func TestComparisonIsExact(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("exact")
		for _, stored := range versions {
			for _, v := range versions {
				p := b.Pipeline()
				put(t.Context(), p, k, shelf{data: cell{val: entryOf(stored, "old"), ttl: minute}, lease: cell{val: "tA", ttl: minute}})
				if _, err := p.Exec(t.Context()); err != nil {
					t.Fatal(err)
				}
				want := invalidation.Stored
				if v < stored {
					want = invalidation.OlderThanStored
				}
				if got := must(t, b, invalidation.Fill(k, invalidation.Filling{Token: "A", Value: []byte(entryOf(v, "new")), TTL: time.Minute, Version: v}), invalidation.ParseFill); got != want {
					t.Errorf("fill of version %#x over %#x: %v, want %v", v, stored, got, want)
				}
			}
		}
	})
}
