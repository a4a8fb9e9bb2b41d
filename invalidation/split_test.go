// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// splitKeys are the names of one key that may be copied.
func splitKeys() invalidation.Keys {
	k := grouped()
	k.Body, k.Split = "b:k", "s:k"
	return k
}

const recordLife = 30 * time.Second

// records: what a split leaves of a record that is there. Times are in seconds from now; the record is "k bound until" and lives for left.
func (x *trial) records() {
	for _, c := range []struct {
		was               string
		until, left       int
		k                 int
		bound, boundUntil int
	}{
		{"", 0, 0, 3, 3, 30},
		{"foreign", 0, 20, 3, 3, 30},
		{"3 3", 20, 20, 3, 3, 30},       // renewed
		{"3 3", 20, 20, 5, 5, 30},       // grows at once
		{"5 5", 20, 20, 2, 5, 20},       // shrinks: what was made under 5 may be there for as long as the record would have lived
		{"2 5", 12, 25, 2, 5, 12},       // renewed: that is not put off
		{"2 5", 12, 25, 3, 5, 12},       // nor by growing a little
		{"2 5", 12, 25, 5, 5, 30},       // as wide as before
		{"3 5", 12, 25, 2, 5, 25},       // shrinks again
		{"3 5", -1, 25, 2, 3, 25},       // what was made under 5 is gone
		{"3 5", -1, 25, 3, 3, 30},       // the same
		{"3 5", -1, 25, 4, 4, 30},       // the same
		{"100 100", 20, 20, 1, 100, 20}, // numbers, not texts
	} {
		x.begin("100 50", nil)
		now := int(x.micros() / 1e6)
		if c.was != "" {
			record := c.was
			if strings.Contains(record, " ") {
				record += " " + strconv.Itoa((now+c.until)*1000)
			}
			x.Set(x.ctx, "s:k", record, time.Duration(c.left)*time.Second)
		}
		r, err := invalidation.ParseSplit(x.send(invalidation.Split(splitKeys(), c.k, recordLife)))
		what := fmt.Sprintf("record %q until %d s, living %d s, split to %d", c.was, c.until, c.left, c.k)
		x.is(what, err, nil)
		x.is(what+": noted", r.Noted, true)
		var k, bound, until int
		_, err = fmt.Sscanf(x.Get(x.ctx, "s:k").Val(), "%d %d %d", &k, &bound, &until)
		x.is(what, []any{k, bound, err}, []any{c.k, c.bound, nil})
		if off := until - (now+c.boundUntil)*1000; off < 0 || off > 2500 {
			x.is(what+": until", fmt.Sprint((until/1000)-now, " s"), fmt.Sprint(c.boundUntil, " s"))
		}
		if left := x.PTTL(x.ctx, "s:k").Val(); left > recordLife || left < recordLife-2*time.Second {
			x.is(what+": the record lives", left, recordLife)
		}
		got, err := invalidation.ParseInvalidate(x.send(invalidation.Invalidate(splitKeys(), 0, time.Second, 0)))
		x.is(what+": an invalidation covers", []any{got.Copies, err}, []any{max(c.k, c.bound), nil})
	}
}

// looks: entry and generation come with the record, whatever lies there.
func (x *trial) looks() {
	for _, gen := range []string{"", "100 50"} {
		x.begin(gen, nil)
		x.Set(x.ctx, splitKeys().Data, "bytes", 0)
		r, err := invalidation.ParseSplit(x.send(invalidation.Split(splitKeys(), 2, recordLife)))
		x.is("look", []any{string(r.Data), err}, []any{"bytes", nil})
		x.is("its generation", r.Generation, invalidation.ParseGeneration([]byte(gen)))
		x.is("the generation is not made", x.Get(x.ctx, group.Generation).Val(), gen)
	}
	x.begin("100 50", nil)
	x.LPush(x.ctx, splitKeys().Data, "a list")
	x.LPush(x.ctx, "s:k", "a list")
	r, err := invalidation.ParseSplit(x.send(invalidation.Split(splitKeys(), 2, recordLife)))
	x.is("a list", []any{r.Data == nil, r.Noted, err}, []any{true, true, nil}) // SET replaces it
	x.begin("100 50", nil)
	got, err := invalidation.ParseInvalidate(x.send(invalidation.Invalidate(splitKeys(), 0, time.Second, 0)))
	x.is("never split", []any{got.Copies, err}, []any{0, nil})
	x.LPush(x.ctx, "s:k", "a list")
	got, err = invalidation.ParseInvalidate(x.send(invalidation.Invalidate(splitKeys(), 0, time.Second, 0)))
	x.is("a list for a record", []any{got.Copies, err}, []any{0, nil})
}

func TestSplit(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		x := &trial{backend: b, ctx: t.Context(), rewrite: func(s invalidation.Script) string { return s.Source }}
		x.records()
		x.looks()
		for _, bad := range x.bad {
			t.Error(bad)
		}
	})
}

// TestSplitIsNotIdle: each part of the script is there for something that the test sees.
func TestSplitIsNotIdle(t *testing.T) {
	b := backend{"redis", connect(t, redistest.Start(t, redistest.Config{}).Addr())}
	for _, m := range []struct{ script, old, broken string }{
		{"split", "if not was then return nil end", "if not was then return 0, 0 end was = was or 0"},
		{"split", "left > 0 and left or life", "life"},
		{"split", "if ends <= now then", "if false then"},
		{"split", "if ends <= now then", "if true then"},
		{"split", "bound, ends = was, whole", "return nil"},
		{"split", "elseif k < was then", "elseif true then"},
		{"split", "elseif k < was then", "elseif false then"},
		{"split", "if bound > k then return", "if false then return"},
		{"split", "bound or k, ends or", "k, ends or"},
		{"split", "'PX', ARGV[2]", "'PX', '1000'"},
		{"split", "if type(old) == 'string' then", "if true then"},
		{"split", "type(data) == 'string' and data", "data"},
		{"split", "generation(KEYS[3])", "generation(KEYS[3], true)"},
		{"invalidate", "type(record) == 'string' and record", "record"},
		{"invalidate", "redis.pcall('GET', KEYS[5])", "false"},
	} {
		for _, s := range invalidation.Scripts() {
			if s.Name != m.script {
				continue
			}
			if n := strings.Count(s.Source, m.old); n != 1 {
				t.Errorf("%s.lua has %q %d times: this test is out of date", s.Name, m.old, n)
				continue
			}
			x := &trial{backend: b, ctx: t.Context(), rewrite: func(x invalidation.Script) string {
				if x.Name == s.Name {
					return strings.Replace(x.Source, m.old, m.broken, 1)
				}
				return x.Source
			}}
			x.records()
			x.looks()
			if len(x.bad) == 0 {
				t.Errorf("%s.lua with %q instead of %q: nobody noticed", s.Name, m.broken, m.old)
			}
		}
	}
}

// TestSplitWithoutRecord: where the record cannot be written nothing may be copied: a server without memory, and a replica.
func TestSplitWithoutRecord(t *testing.T) {
	servers := redistest.StartReplicated(t, 1)
	for _, s := range servers {
		b := backend{"redis", connect(t, s.Addr())}
		if s == servers[0] {
			must(t, b, invalidation.Split(splitKeys(), 2, recordLife), invalidation.ParseSplit)
			b.ConfigSet(t.Context(), "maxmemory", "1")
		}
		reply, err := b.run(t.Context(), invalidation.Split(splitKeys(), 3, recordLife))
		if err != nil {
			continue // refused as a whole
		}
		if r, err := invalidation.ParseSplit(reply); err != nil || r.Noted {
			t.Errorf("%s: %+v, %v: want a reply that says that there is no record", s.Addr(), r, err)
		}
	}
}

func TestParseCopies(t *testing.T) {
	for record, want := range map[string]int{
		"": 0, "3": 0, "3 5": 0, "3 5 1700000000000": 5, "5 3 1": 5, "x 5 1": 0, "3 x 1": 0, "3 5 x": 0, "-3 5 1": 0, "99999999999 1 1": 0, "3 5 1 7": 0,
	} {
		if got := invalidation.ParseCopies([]byte(record)); got != want {
			t.Errorf("%q: %d, want %d", record, got, want)
		}
	}
}
