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

// keysFor are the names of a key that is of a group, where the shelf says so.
func keysFor(name string, s shelf) invalidation.Keys {
	k := keysOf(name)
	if s.Grouped {
		k.Of = invalidation.Group{Generation: "g:" + name, Tags: "t:" + name}
	}
	return k
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

const minute = int64(60_000)

// farAhead is a generation's number beyond any clock, so that the next one is known. (What a script makes of a missing
// generation is the server's time, which TestGenerations looks at.)
const farAhead = 1 << 52

// randomShelf draws a state; about half of the keys are missing or not what they should be.
func randomShelf(r *rand.Rand) shelf {
	v := pick(r, versions)
	s := shelf{}
	s.Data = pick(r, []cell{
		{}, {Val: "foreign"}, {Val: "\xf5\x53"}, {Val: "\xf5\x53\x01 only 23 bytes long."}, {Alien: true},
		{Val: "\xf5\x53\x00" + entryOf(v, "format zero")[3:]}, {Val: "\xf5\x54" + entryOf(v, "other magic")[2:]}, {Val: "\xf4\x53" + entryOf(v, "other magic")[2:]},
		{Val: entryOf(v, "")}, {Val: entryOf(v, "payload")}, {Val: entryOf(v, "\x00\r\n")}, {Val: entryOf(0, "unversioned")},
		{Val: "\xf5\x53\x09" + entryOf(v, "format nine")[3:]},
	})
	s.Lease = pick(r, []cell{{}, {}, {Val: "tA"}, {Val: "tA"}, {Val: "tB"}, {Val: "n"}, {Val: "tn"}, {Val: "t"}})
	s.Mark = pick(r, []cell{{}, {}, {Val: "short"}, {Val: be(max(1, v))}, {Val: be(max(1, v-1))}, {Val: be(max(1, pick(r, versions)))}, {Val: be(max(1, v)) + "more"}})
	for _, c := range []*cell{&s.Data, &s.Lease, &s.Mark} {
		if c.Val != "" || c.Alien {
			c.TTL = pick(r, []int64{3 * minute, 20 * minute})
		}
	}
	if s.Grouped = r.IntN(3) == 0; s.Grouped && r.IntN(5) > 0 {
		s.Gen = invalidation.Generation{Seq: farAhead + uint64(r.IntN(9)), Cleared: farAhead - uint64(r.IntN(9))}
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
	if f := s.Mark.Floor(); f > 0 && r.IntN(3) == 0 {
		version = f - 1 + uint64(r.IntN(3)) // around the mark; may wrap round, which is fine
	}
	if f, ok := s.Data.Entry(); ok && r.IntN(3) == 0 {
		version = f
	}
	value, life, epoch := entryOf(version, pick(r, []string{"", "x", "\x00\xff\r\n"})), time.Duration(ttl)*time.Millisecond, r.Uint64()
	negative, replace, stamp := r.IntN(5) == 0, r.IntN(4) == 0, uint64(farAhead-12+r.IntN(24))
	op := r.IntN(8)
	if s.Grouped && op == 7 || s.Grouped && op < 2 && s.Gen.Seq == 0 {
		op = 2 // a set's stamp, and a generation that is made, are not the twin's business
	}
	switch op {
	case 0, 1:
		earlier := pick(r, [][]string{nil, nil, {"A"}, {"x", "B"}, {"A", "n"}})
		return step{invalidation.Lease(k, token, mode, life, earlier...), parsing(invalidation.ParseLease), s.TakeLease(token, mode, ttl, 0, earlier...)}
	case 2, 3, 4:
		f := invalidation.Filling{Token: token, Value: []byte(value), TTL: life, Version: version, Negative: negative, Replace: replace, Epoch: epoch, Generation: stamp, Mark: pick(r, []time.Duration{0, 0, life, 3 * life})}
		return step{invalidation.Fill(k, f), parsing(invalidation.ParseFill), s.Fill(f, guards{})}
	case 5:
		if s.Gen.Seq > 0 && r.IntN(2) == 0 {
			return step{invalidation.Clear(k.Of), parsing(invalidation.ParseClear), s.Clear(0)}
		}
		noStore := pick(r, []int64{0, ttl})
		return step{invalidation.Release(k, token, time.Duration(noStore)*time.Millisecond), parsing(invalidation.ParseRelease), s.Release(token, noStore, guards{})}
	case 6:
		return step{invalidation.Invalidate(k, version, life, epoch), parsing(invalidation.ParseInvalidate), s.Invalidate(version, ttl, guards{})}
	default:
		return step{invalidation.Set(k, []byte(value), life, version, epoch), parsing(invalidation.ParseSet), s.Set(value, ttl, version)}
	}
}

// put makes the node hold the state.
func put(ctx context.Context, p redis.Pipeliner, k invalidation.Keys, s shelf) {
	p.Del(ctx, k.Data, k.Lease, k.Mark)
	if s.Grouped {
		p.Del(ctx, k.Of.Generation)
	}
	if s.Gen.Seq > 0 {
		p.Set(ctx, k.Of.Generation, fmt.Sprint(s.Gen.Seq, " ", s.Gen.Cleared), 0)
	}
	for i, c := range []cell{s.Data, s.Lease, s.Mark} {
		key := []string{k.Data, k.Lease, k.Mark}[i]
		switch life := time.Duration(c.TTL) * time.Millisecond; {
		case c.Alien:
			p.RPush(ctx, key, "a list")
			p.PExpire(ctx, key, life)
		case c.Val != "":
			p.Set(ctx, key, c.Val, life)
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
	gen := p.Get(ctx, k.Of.Generation)
	return func(want shelf) string {
		if g := invalidation.ParseGeneration([]byte(gen.Val())); want.Grouped && g != want.Gen {
			return fmt.Sprintf("the generation is %v, twin has %v", g, want.Gen)
		}
		for i, c := range []cell{want.Data, want.Lease, want.Mark} {
			got, err := vals[i].Result()
			if alien := redis.HasErrorPrefix(err, "WRONGTYPE"); alien != c.Alien || got != c.Val {
				return fmt.Sprintf("key %d is %q (%v), twin has %q", i, got, err, c.Val)
			}
			ttl := ttls[i].Val().Milliseconds()
			if there := c.Val != "" || c.Alien; there && (ttl > c.TTL || ttl <= c.TTL-minute) {
				return fmt.Sprintf("key %d lives for %d ms, twin says %d", i, ttl, c.TTL)
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
		before := randomShelf(r)
		k, after := keysFor(pick(r, names), before), before
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
		{"lease", "elseif holder and not mine(holder) then", "elseif false then"},
		{"lease", "and not mine(holder)", ""},
		{"lease", "holder == ARGV[i]", "true"},
		{"lease", "for i = 4", "for i = 5"},
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
		{"fill", "if KEYS[4] and outdated()", "if false and outdated()"},
		{"fill", "or own < cleared or", "or"},
		{"fill", "or own > seq then", "then"},
		{"clear", "(seq or 0) + 1", "(seq or 0) + 2"},
		{"fill", "'PX', ARGV[3])\nredis.call('UNLINK', KEYS[2])", "'PX', ARGV[3])"},
		{"fill", "redis.call('UNLINK', KEYS[2])\n  return refused('below-mark')", "return refused('below-mark')"},
		{"fill", "redis.call('UNLINK', KEYS[2])\n  return refused('older", "return refused('older"},
		{"release", "~= ARGV[1] then", "== 'x' then"},
		{"release", "ARGV[3] ~= '0'", "false"},
		{"release", "redis.call('UNLINK', KEYS[1])", ""},
		{"invalidate", "redis.call('UNLINK', KEYS[1])", "0"},
		{"invalidate", "redis.call('UNLINK', KEYS[2])", ""},
		{"fill", "if ARGV[8] ~= '0' then", "if false then"},
		{"fill", "if ARGV[8] ~= '0' then", "if true then"},
		{"invalidate", "older(new, old)", "false"}, // in fill nothing older gets so far
		{"", "older(new, old)", "true"},
		{"invalidate", "new == string.rep('\\0', 8)", "false"}, // in fill: TestWriterLeavesAMark
		{"", "left > tonumber(ttl)", "false"},
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
				put(t.Context(), p, k, shelf{Data: cell{Val: entryOf(stored, "old"), TTL: minute}, Lease: cell{Val: "tA", TTL: minute}})
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
