// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// benchNames are physical names of a usual length.
func benchNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("product:%08d:v3", i)
	}
	return names
}

// The reads' question must cost no garbage, in an outage either.
func TestHasAllocatesNothing(t *testing.T) {
	o, r := newOutbox(t, invalidation.OutboxConfig{}), newReplay(t, invalidation.ReplayConfig{})
	names := benchNames(100)
	for _, name := range names[:50] {
		putFailed(t, o, name, 0, 0, at(0))
		r.Add(sentBy("R", name, 0, 0))
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		if o.Has(names[i%100]) != (i%100 < 50) || r.Has(names[i%100]) != (i%100 < 50) {
			t.Error(names[i%100])
		}
		i++
	}); n != 0 {
		t.Errorf("%v allocations for two questions", n)
	}
}

// Has is on the path of every read: nearly always of an empty outbox, in an outage of a full one.
func BenchmarkOutboxHas(b *testing.B) {
	names := benchNames(16_384)
	for _, depth := range []int{0, 8192} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			o := newOutbox(b, invalidation.OutboxConfig{})
			for i := range depth {
				putFailed(b, o, names[2*i], 0, 0, at(0))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				o.Has(names[i&(1<<14-1)])
				i++
			}
		})
	}
	b.Run("8192/parallel", func(b *testing.B) {
		o := newOutbox(b, invalidation.OutboxConfig{})
		for i := range 8192 {
			putFailed(b, o, names[2*i], 0, 0, at(0))
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				o.Has(names[i%len(names)])
			}
		})
	})
}

// A key's way through the outbox, in batches of 64, and a Put that merges.
func BenchmarkOutboxPut(b *testing.B) {
	names := benchNames(8192)
	b.Run("through", func(b *testing.B) {
		b.ReportAllocs()
		o := newOutbox(b, invalidation.OutboxConfig{})
		i, now := 0, at(0)
		for b.Loop() {
			putFailed(b, o, names[i%len(names)], 0, 0, now)
			if i++; i%64 == 0 {
				now = now.Add(time.Second)
				for batch := o.Due(now, 64); batch != nil; batch = o.Due(now, 64) {
					for _, p := range batch {
						o.Done(p)
					}
				}
			}
		}
	})
	b.Run("merge", func(b *testing.B) {
		b.ReportAllocs()
		o := newOutbox(b, invalidation.OutboxConfig{})
		i := 0
		for b.Loop() {
			putFailed(b, o, names[i%len(names)], 0, 0, at(0))
			i++
		}
	})
}

// A key's way through the schedule with 50,000 others in it.
func BenchmarkLater(b *testing.B) {
	names := benchNames(65_536)
	l, now := newLater(b, 0), at(0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		now = now.Add(10 * time.Microsecond)
		addLater(b, l, names[i%len(names)], 0, now.Add(500*time.Millisecond))
		l.Due(now, 64)
		i++
	}
}

// A key's way through the log: 10,000 invalidations a second, a reading each second.
func BenchmarkReplayAdd(b *testing.B) {
	names := benchNames(262_144)
	r := newReplay(b, invalidation.ReplayConfig{Max: 300_000})
	r.Read(readAt(0, "R", 0, 0))
	b.ReportAllocs()
	i, now := 0, at(1)
	for b.Loop() {
		now = now.Add(100 * time.Microsecond)
		r.Add(invalidation.Sent{Name: names[i%len(names)], Run: "R", Began: now, At: now})
		if i++; i%10_000 == 0 {
			r.Read(invalidation.Position{At: now, Run: "R", Offset: int64(i), Replicas: map[string]int64{"a": int64(i)}})
		}
	}
}

// Has in the usual state: keys of the last ten seconds are in it.
func BenchmarkReplayHas(b *testing.B) {
	names := benchNames(16_384)
	r := newReplay(b, invalidation.ReplayConfig{})
	for i := range 8192 {
		r.Add(sentBy("R", names[2*i], 0, 10))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.Has(names[i%len(names)])
		i++
	}
}
