// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// TestPlainAgainstLook: what plain takes, look takes as well, and makes the same of it; and what is in order plain does take. Entries are drawn, most of them with one thing or two that are not
// in order: of their own, of their node, or of the cache.
func TestPlainAgainstLook(t *testing.T) {
	t.Run("text", func(t *testing.T) { plainAgainstLook(t, String{}) })
	t.Run("bytes", func(t *testing.T) { plainAgainstLook(t, Bytes{}) })
	t.Run("JSON", func(t *testing.T) { plainAgainstLook(t, JSON[map[string]int]{}) })
}

func plainAgainstLook[V any](t *testing.T, codec Codec[V]) {
	cl := copier(t, 1, nil).client
	c, err := NewCache(cl, CacheConfig[V]{Name: "plain", TTL: time.Hour, Codec: codec, Truth: true})
	if err != nil {
		t.Fatal(err)
	}
	node, err := redisnode.New(redisnode.Config{ID: "n", Addr: "127.0.0.1:1"}) // never asked: its clock is this one, and does not change
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	rng := rand.New(rand.NewPCG(1, uint64(codec.ID())))
	log := cl.debts.logs[0]
	taken, ordered := 0, 0
	for range 50_000 {
		d := drawPlain(rng, c, node)
		c.cfg.Truth, c.cfg.NoEarlyRefresh, c.cfg.StaleIfError = d.truth, d.noEarly, d.lapse
		luck := rng.Float64()
		c.draw = func() float64 { return luck }
		log.started.Store(d.started)
		log.missed.Store(d.missed)
		at := slot[V]{c: c, node: node, now: d.now, losses: log.losses.Load()}
		if d.lost {
			at.losses++
		}
		p := newPlain(&at, d.gen, [][]byte{d.data, nil})
		got, ok := p.judge(d.data)
		ordered += d.ordered
		if !ok {
			if d.ordered > 0 {
				t.Fatalf("%s: not taken, and everything is in order", d.what)
			}
			continue
		}
		taken++
		var want entry[V]
		f, err := at.look(t.Context(), bytes.Clone(d.data), d.gen, &want)
		if err != nil || f != fresh && f != softened || (f == softened) != got.softened || !reflect.DeepEqual(got.value, want.value) || got.size != want.size || !got.created.Equal(want.created) {
			t.Fatalf("%s: taken as %+v; look says %v, %v, %+v", d.what, got, f, err, want)
		}
	}
	if taken < 1000 || ordered < 1000 || ordered == 50_000 {
		t.Errorf("%d were taken, %d in order: the draw is poor", taken, ordered)
	}
}

// drawn is an entry with what it is judged by.
type drawn struct {
	what           string
	data           []byte
	gen            invalidation.Generation
	now            time.Time
	started        int64
	missed         *time.Time
	lost           bool
	truth, noEarly bool
	lapse          time.Duration
	ordered        int // 1: nothing is out of order
}

// drawPlain draws one. Each way to be out of order comes up in one of twenty.
func drawPlain[V any](rng *rand.Rand, c *Cache[V], n *redisnode.Node) (d drawn) {
	d = drawn{now: time.Now(), gen: invalidation.Generation{Seq: 200, Cleared: 100}, truth: rng.IntN(4) == 0, noEarly: rng.IntN(2) == 0, ordered: 1}
	node := n.Now(d.now)
	h := header{
		codec: c.cfg.Codec.ID(), version: rng.Uint64(), epoch: rng.Uint64(), stamp: 150, cost: time.Second,
		created: node.Add(-time.Duration(rng.IntN(50)) * time.Minute), soft: 50 * time.Minute, hard: time.Hour,
	}
	payload, err := c.cfg.Codec.Append(nil, *new(V))
	if err != nil {
		panic(err)
	}
	size := []int{0, 1, 100, roomValues, roomValues + 1, 5000}[rng.IntN(6)]
	if _, isText := any(c.cfg.Codec).(JSON[V]); !isText {
		payload = []byte(strings.Repeat("x", size))
	}
	odd := func(what string, change func()) {
		if rng.IntN(20) == 0 {
			d.what, d.ordered = d.what+what+"; ", 0
			change()
		}
	}
	odd("another codec", func() { h.codec++ })
	odd("negative", func() { h.negative, payload = true, nil })
	odd("a tag", func() { h.tags = []string{"t"} })
	odd("compressed", func() { h.packed = packing{CompressS2, 100} })
	odd("a copy", func() { h.copied = node })
	odd("of the future", func() { h.created = node.Add(time.Duration(rng.IntN(10)) * time.Second) })
	odd("soft", func() { h.created = node.Add(-55 * time.Minute) })
	odd("over", func() { h.created = node.Add(-time.Hour - time.Duration(rng.IntN(3))*time.Millisecond) })
	odd("long over", func() { h.created = time.UnixMilli(int64(rng.Uint64() >> rng.IntN(40))) })
	odd("may lapse", func() { d.lapse = time.Hour })
	odd("soft at once", func() { h.soft = 0 })
	odd("costly", func() { h.cost = time.Hour })
	odd("a stamp", func() { h.stamp = []uint64{0, 99, 100, 200, 201}[rng.IntN(5)] })
	odd("no generation", func() { d.gen = invalidation.Generation{} })
	against := func(what string, change func()) { // a cache that is itself the truth does not mind
		before := d.ordered
		if odd(what, change); d.truth {
			d.ordered = before
		}
	}
	against("a restart", func() { d.started = h.created.UnixNano() + int64(rng.IntN(3)-1)*int64(time.Millisecond) })
	against("an absence", func() {
		at := d.now.Add(-time.Duration(rng.IntN(60)) * time.Minute)
		d.missed = &at
	})
	against("a loss", func() { d.lost = true })
	d.data = appendEnvelope(nil, h, payload)
	odd("a flag", func() { d.data[4+rng.IntN(2)] |= 1 << rng.IntN(8) })
	odd("a byte", func() { d.data[rng.IntN(len(d.data))] ^= byte(1 + rng.IntN(255)) })
	odd("a TTL", func() { d.data[32+rng.IntN(16)] ^= byte(1 + rng.IntN(255)) })
	odd("cut", func() { d.data = d.data[:rng.IntN(len(d.data))] })
	odd("longer", func() { d.data = append(d.data, 0) })
	d.what += fmt.Sprintf("payload of %d, created %v ago", size, node.Sub(h.created))
	return d
}

// TestPlainCopies: values that share a piece of memory do not share a byte, nothing can be appended into another's, and an empty one is not nil.
func TestPlainCopies(t *testing.T) {
	p := plain[[]byte]{left: 10 * 100}
	var kept [][]byte
	for i := range 30 { // more than was expected
		v := p.copy(bytes.Repeat([]byte{byte(i)}, 100))
		kept = append(kept, v, append(v, 255), p.copy(nil))
	}
	for i := range 30 {
		v, longer, empty := kept[3*i], kept[3*i+1], kept[3*i+2]
		if want := bytes.Repeat([]byte{byte(i)}, 100); !bytes.Equal(v, want) || !bytes.Equal(longer[:100], want) || cap(v) != 100 {
			t.Errorf("value %d is %v with room for %d", i, v, cap(v))
		}
		if empty == nil || len(empty) != 0 {
			t.Errorf("an empty value is %v", empty)
		}
	}
	if allocs := testing.AllocsPerRun(100, func() {
		p = plain[[]byte]{left: 40 * 100}
		for range 40 {
			p.copy(kept[0])
		}
	}); allocs != 1 {
		t.Errorf("%v allocations of 40 values of 100 bytes, want 1", allocs)
	}
	p = plain[[]byte]{left: 1 << 20}
	if p.copy(kept[0]); len(p.room)+100 != roomBytes {
		t.Errorf("a piece of %d bytes, want %d", len(p.room)+100, roomBytes)
	}
	if p.copy(make([]byte, roomValues+1)); len(p.room)+100 != roomBytes {
		t.Error("a large value has taken of the small ones' room")
	}
}
