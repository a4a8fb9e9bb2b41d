// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// group is the cache that the keys of these tests are of.
var group = invalidation.Group{Generation: "g", Tags: "t"}

// grouped are the names of one key of the group.
func grouped() invalidation.Keys {
	k := keysOf("k")
	k.Of = group
	return k
}

// entryAt is an entry that was stored under a generation's number.
func entryAt(version, stamp uint64, payload string) string {
	return entryOf(version, strings.Repeat("\x00", 32)+"\x01\x00\x08"+be(stamp)+payload)
}

// trial is one node, and the scripts as a mutation may have changed them.
type trial struct {
	backend
	ctx     context.Context //nolint:containedctx // of one test
	rewrite func(invalidation.Script) string
	bad     []string
}

func (x *trial) send(c invalidation.Call) any {
	reply, err := x.Eval(x.ctx, x.rewrite(c.Script), c.Keys, c.Args...).Result()
	if err != nil {
		return err
	}
	return reply
}

// is notes what is not as it must be.
func (x *trial) is(what string, got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.bad = append(x.bad, fmt.Sprintf("%s: %v, want %v", what, got, want))
	}
}

// begin empties the node; gen "" is none.
func (x *trial) begin(gen string, tags map[string]float64) {
	x.FlushAll(x.ctx)
	if gen != "" {
		x.Set(x.ctx, group.Generation, gen, 0)
	}
	for tag, n := range tags {
		x.ZAdd(x.ctx, group.Tags, redis.Z{Score: n, Member: tag})
	}
}

func (x *trial) generation() invalidation.Generation {
	b, _ := x.Get(x.ctx, group.Generation).Bytes()
	return invalidation.ParseGeneration(b)
}

func (x *trial) micros() uint64 { return uint64(x.Time(x.ctx).Val().UnixMicro()) }

// leases: a generation is told as it is, and made at the server's time where there is none or only something else.
func (x *trial) leases() {
	for i, gen := range []string{"", "foreign", "1 2 3", "100 50"} {
		x.begin(gen, nil)
		before := x.micros()
		r, err := invalidation.ParseLease(x.send(invalidation.Lease(grouped(), "A", invalidation.LeaseMiss, time.Minute)))
		x.is("lease's error", err, nil)
		x.is("the generation told and the one there", r.Generation, x.generation())
		if i == 3 {
			x.is("lease", r.Generation, invalidation.Generation{Seq: 100, Cleared: 50})
			continue
		}
		made := r.Generation.Seq >= before && r.Generation.Seq <= x.micros() && r.Generation.Cleared == r.Generation.Seq
		x.is(fmt.Sprintf("made at the server's time instead of %q", gen), made, true)
	}
}

// fills: a lease of a generation that was cleared, or whose tags were invalidated, is lost.
func (x *trial) fills() {
	red := map[string]float64{"red": 80}
	for _, c := range []struct {
		gen   string
		log   map[string]float64
		stamp uint64
		tags  []string
		want  invalidation.Outcome
	}{
		{"100 50", red, 49, nil, invalidation.LeaseLost},
		{"100 50", red, 50, nil, invalidation.Stored},
		{"100 50", red, 100, nil, invalidation.Stored},
		{"100 50", red, 101, nil, invalidation.LeaseLost},
		{"", nil, 100, nil, invalidation.LeaseLost},
		{"100 50", red, 79, []string{"red"}, invalidation.LeaseLost},
		{"100 50", red, 80, []string{"red"}, invalidation.Stored},
		{"100 50", red, 79, []string{"blue"}, invalidation.Stored},
		{"100 50", red, 79, []string{"blue", "red"}, invalidation.LeaseLost},
		{"100 50", nil, 79, []string{"blue"}, invalidation.LeaseLost}, // the log was evicted
		{"100 50", nil, 100, []string{"blue"}, invalidation.Stored},
		{"100 50", nil, 79, nil, invalidation.Stored},
	} {
		x.begin(c.gen, c.log)
		k := grouped()
		x.Set(x.ctx, k.Lease, "tA", time.Minute)
		got, err := invalidation.ParseFill(x.send(invalidation.Fill(k, invalidation.Filling{
			Token: "A", Value: []byte(entryAt(1, c.stamp, "payload")), TTL: time.Minute, Version: 1, Generation: c.stamp, Tags: c.tags,
		})))
		what := fmt.Sprintf("fill of %d %q under %q, log %v", c.stamp, c.tags, c.gen, c.log)
		x.is(what, got, c.want)
		x.is(what+", error", err, nil)
		x.is(what+", the lease and the entry", x.Exists(x.ctx, k.Lease, k.Data).Val(), map[bool]int{true: 1}[c.want == invalidation.Stored])
		x.is(what+", the generation", x.Exists(x.ctx, group.Generation).Val(), min(1, len(c.gen)))
	}
}

// sets: a value is stamped by the node, and only what can be read is compared.
func (x *trial) sets() {
	const far = 1<<52 + 0x0102030405
	for _, c := range []struct {
		stored string
		want   invalidation.Outcome
	}{
		{"", invalidation.Stored},
		{entryAt(7, far-1, "payload"), invalidation.OlderThanStored},
		{entryAt(7, far, "payload"), invalidation.OlderThanStored},
		{entryAt(7, far-50, "payload"), invalidation.OlderThanStored},
		{entryAt(7, far-51, "payload"), invalidation.Stored},
		{entryAt(7, far+1, "payload"), invalidation.Stored},
		{entryOf(7, "without a stamp, but long enough for one and the rest of it"), invalidation.Stored},
	} {
		x.begin(fmt.Sprint(far, " ", far-50), nil)
		k := grouped()
		if c.stored != "" {
			x.Set(x.ctx, k.Data, c.stored, time.Minute)
		}
		got, err := invalidation.ParseSet(x.send(invalidation.Set(k, []byte(entryAt(3, 9, "payload")), time.Minute, 3, 0)))
		x.is(fmt.Sprintf("set over %q", c.stored), got, c.want)
		x.is("set's error", err, nil)
		if c.want == invalidation.Stored {
			x.is("what set stored", fmt.Sprintf("%q", x.Get(x.ctx, k.Data).Val()), fmt.Sprintf("%q", entryAt(3, far, "payload")))
		}
	}
	x.begin("", nil)
	x.send(invalidation.Set(grouped(), []byte(entryAt(3, 9, "payload")), time.Minute, 3, 0))
	b, _ := x.Get(x.ctx, grouped().Data).Bytes()
	if len(b) > 67 {
		x.is("the stamp of a set that made the generation", binary.BigEndian.Uint64(b[59:]), x.generation().Seq)
	}
	x.is("set made a generation", x.generation().Seq > 0, true)
}

// clears: the number grows, at least to the server's time, and never falls behind itself.
func (x *trial) clears() {
	const far = 1 << 52
	for gen, want := range map[string]uint64{"": 0, "100 50": 0, fmt.Sprint(uint64(far), " 50"): far + 1} {
		x.begin(gen, map[string]float64{"red": 80})
		before := x.micros()
		got, err := invalidation.ParseClear(x.send(invalidation.Clear(group)))
		x.is("clear's error", err, nil)
		x.is("cleared", got.Cleared, got.Seq)
		x.is("the generation told and the one there", got, x.generation())
		x.is("the log", x.Exists(x.ctx, group.Tags).Val(), 0)
		if want > 0 {
			x.is("clear of a generation ahead of the clock", got.Seq, want)
		} else {
			x.is("cleared at the server's time", got.Seq >= before && got.Seq <= x.micros(), true)
		}
	}
}

// clearsBefore: only what was not cleared since then.
func (x *trial) clearsBefore() {
	for _, c := range []struct {
		gen    string
		before uint64
		clears bool
	}{
		{"100 50", 51, true}, {"100 50", 50, false}, {"100 50", 49, false}, {"100 50", 100, true}, {"100 50", 101, true},
		{"", 51, true}, {"rubbish", 51, true}, {"100 50", 0, true},
	} {
		x.begin(c.gen, map[string]float64{"red": 80})
		got, err := invalidation.ParseClear(x.send(invalidation.ClearBefore(group, c.before)))
		what := fmt.Sprintf("clear of %q before %d", c.gen, c.before)
		x.is(what+", error", err, nil)
		x.is(what+", told and there", got, x.generation())
		x.is(what, got.Seq > 1<<50, c.clears)
		x.is(what+", log", x.Exists(x.ctx, group.Tags).Val() == 0, c.clears)
	}
}

// tagging: the tag gets the next number; a log that is full, or gone, costs what is older.
func (x *trial) tagging() {
	for _, c := range []struct {
		gen  string
		log  map[string]float64
		max  int
		want invalidation.Generation
		left map[string]float64
	}{
		{"100 50", map[string]float64{"red": 80}, 10, invalidation.Generation{Seq: 101, Cleared: 50}, map[string]float64{"red": 101}},
		{"100 50", map[string]float64{"blue": 80}, 2, invalidation.Generation{Seq: 101, Cleared: 50}, map[string]float64{"blue": 80, "red": 101}},
		{"100 50", map[string]float64{"blue": 80, "green": 90}, 2, invalidation.Generation{Seq: 101, Cleared: 80}, map[string]float64{"green": 90, "red": 101}},
		{"100 85", map[string]float64{"blue": 80, "green": 90}, 2, invalidation.Generation{Seq: 101, Cleared: 85}, map[string]float64{"green": 90, "red": 101}},
		{"100 50", map[string]float64{"a": 70, "b": 80, "c": 90}, 2, invalidation.Generation{Seq: 101, Cleared: 80}, map[string]float64{"c": 90, "red": 101}},
		{"100 50", nil, 2, invalidation.Generation{Seq: 101, Cleared: 100}, map[string]float64{"red": 101}},
		{"100 100", nil, 2, invalidation.Generation{Seq: 101, Cleared: 100}, map[string]float64{"red": 101}},
	} {
		x.begin(c.gen, c.log)
		got, err := invalidation.ParseInvalidateTag(x.send(invalidation.InvalidateTag(group, "red", c.max)))
		what := fmt.Sprintf("tag under %q, log %v, at most %d", c.gen, c.log, c.max)
		x.is(what+", error", err, nil)
		x.is(what, got, c.want)
		x.is(what+", there", x.generation(), c.want)
		left := map[string]float64{}
		for _, z := range x.ZRangeWithScores(x.ctx, group.Tags, 0, -1).Val() {
			left[z.Member.(string)] = z.Score
		}
		x.is(what+", log", maps.Equal(left, c.left), true)
	}
	x.begin("", nil)
	got, _ := invalidation.ParseInvalidateTag(x.send(invalidation.InvalidateTag(group, "red", 2)))
	x.is("tag without a generation made one", got.Seq == got.Cleared+1 && got.Cleared > 1<<50, true)
}

// logs: what the log holds beyond a number, or that everything is cleared.
func (x *trial) logs() {
	for _, c := range []struct {
		gen  string
		log  map[string]float64
		want invalidation.TagLog
	}{
		{"100 50", map[string]float64{"a": 79, "b": 80, "c": 81, "d": 100}, invalidation.TagLog{Generation: invalidation.Generation{Seq: 100, Cleared: 50}, Tags: map[string]uint64{"c": 81, "d": 100}}},
		{"100 100", nil, invalidation.TagLog{Generation: invalidation.Generation{Seq: 100, Cleared: 100}, Tags: map[string]uint64{}}},
		{"100 50", nil, invalidation.TagLog{Generation: invalidation.Generation{Seq: 100, Cleared: 100}, Tags: map[string]uint64{}}},
		{"", map[string]float64{"c": 81}, invalidation.TagLog{Tags: map[string]uint64{}}},
	} {
		x.begin(c.gen, c.log)
		got, err := invalidation.ParseTagged(x.send(invalidation.Tagged(group, 80)))
		x.is("tagged's error", err, nil)
		x.is(fmt.Sprintf("the log %v under %q", c.log, c.gen), got, c.want)
	}
}

// try runs everything and returns what was wrong.
func try(ctx context.Context, b backend, rewrite func(invalidation.Script) string) []string {
	x := &trial{backend: b, ctx: ctx, rewrite: rewrite}
	for _, f := range []func(){x.leases, x.fills, x.sets, x.clears, x.clearsBefore, x.tagging, x.logs} {
		f()
	}
	return x.bad
}

func TestGenerations(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		for _, bad := range try(t.Context(), b, func(s invalidation.Script) string { return s.Source }) {
			t.Error(bad)
		}
	})
}

// TestEveryGuardOfGenerationsIsNeeded breaks the scripts one line at a time, as TestEveryGuardIsNeeded does.
func TestEveryGuardOfGenerationsIsNeeded(t *testing.T) {
	b := backend{"redis", connect(t, redistest.Start(t, redistest.Config{}).Addr())}
	for _, m := range []struct{ script, old, broken string }{
		{"lease", "generation(KEYS[4], true)", "generation(KEYS[4], true), 0"},
		{"lease", "setGeneration(key, now, now)", "setGeneration(key, now, 0)"},
		{"lease", "setGeneration(key, now, now)", ""},
		{"lease", "'^(%d+) (%d+)$'", "'^(%d+) (%d+)'"},
		{"fill", "if not seq or own < cleared", "if seq and (own < cleared"},
		{"fill", "or own < cleared or", "or"},
		{"fill", "own < cleared", "own <= cleared"},
		{"fill", "or own > seq then", "then"},
		{"fill", "own > seq", "own >= seq"},
		{"fill", "ARGV[10] and own < seq and", "false and"},
		{"fill", "ARGV[10] and own < seq", "own < seq"},
		{"fill", "ARGV[10] and own < seq", "ARGV[10]"},
		{"fill", "tonumber(n) > own", "tonumber(n) >= own"},
		{"fill", "tonumber(n) > own", "false"},
		{"fill", "for i = 10, #ARGV", "for i = 10, 10"},
		{"fill", "if KEYS[4] and outdated() then\n  redis.call('UNLINK', KEYS[2])", "if KEYS[4] and outdated() then"},
		{"set", "own >= cleared", "own > cleared"},
		{"set", "own >= cleared", "true"},
		{"set", "own <= seq", "own < seq"},
		{"set", "own <= seq", "true"},
		{"set", "readable(stored) and", ""},
		{"set", "value = restamp(value, seq)", ""},
		{"set", "for i = 60, 67", "for i = 60, 66"},
		{"set", "#e >= 67 and string.sub(e, 57, 59)", "string.sub(e, 57, 58)"},
		{"clear", "math.max((seq or 0) + 1, clock())", "(seq or 0) + 1"},
		{"clear", "math.max((seq or 0) + 1, clock())", "clock()"},
		{"clear", "(seq or 0) + 1", "(seq or 0)"},
		{"clear", "redis.call('UNLINK', KEYS[2])", ""},
		{"clear", "before > 0 and ", ""},
		{"clear", "cleared >= before", "cleared > before"},
		{"clear", "cleared >= before", "seq >= before"},
		{"clear", "setGeneration(KEYS[1], seq, seq)", ""},
		{"tag", "generation(KEYS[1], true)", "generation(KEYS[1])"},
		{"tag", "  cleared = seq", "  cleared = cleared"},
		{"tag", "seq = seq + 1", ""},
		{"tag", "if over > 0", "if over > 1"},
		{"tag", "math.max(cleared, tonumber(last[2]))", "tonumber(last[2])"},
		{"tag", "math.max(cleared, tonumber(last[2]))", "cleared"},
		{"tag", "over - 1, over - 1, 'WITH", "0, 0, 'WITH"},
		{"tag", "'ZREMRANGEBYRANK', KEYS[2], 0, over - 1", "'ZREMRANGEBYRANK', KEYS[2], 0, 0"},
		{"tagged", "'(' .. ARGV[1]", "ARGV[1]"},
		{"tagged", "if not seq then return { false } end", "seq = seq or 0 cleared = cleared or 0"},
		{"tagged", "log, cleared = {}, seq", "log = {}"},
	} {
		for _, s := range invalidation.Scripts() {
			if s.Name != m.script {
				continue
			}
			if n := strings.Count(s.Source, m.old); n != 1 {
				t.Errorf("%s.lua has %q %d times: this test is out of date", s.Name, m.old, n)
				continue
			}
			bad := try(t.Context(), b, func(x invalidation.Script) string {
				if x.Name == s.Name {
					return strings.Replace(x.Source, m.old, m.broken, 1)
				}
				return x.Source
			})
			if len(bad) == 0 {
				t.Errorf("%s.lua with %q instead of %q: nobody noticed", s.Name, m.broken, m.old)
			}
		}
	}
}

// TestParseGeneration: what is read is two numbers with a space between them, and nothing else.
func TestParseGeneration(t *testing.T) {
	for text, want := range map[string]invalidation.Generation{
		"7 3":                    {Seq: 7, Cleared: 3},
		"0 0":                    {},
		"18446744073709551615 1": {Seq: 18446744073709551615, Cleared: 1},
		"1 18446744073709551615": {Seq: 1, Cleared: 18446744073709551615},
		"18446744073709551616 1": {},
		"1 99999999999999999999": {},
		"":                       {}, "7": {}, "7 ": {}, " 7": {}, "7  3": {}, "7 3 ": {}, "7 3 1": {}, "-7 3": {}, "+7 3": {}, "7 3x": {}, "x7 3": {}, "7_0 3": {},
	} {
		if got := invalidation.ParseGeneration([]byte(text)); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
	b := []byte("1234567 1234")
	if n := testing.AllocsPerRun(100, func() { _ = invalidation.ParseGeneration(b) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
