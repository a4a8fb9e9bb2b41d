// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

func quick(context.Context, *stampede.Run) (string, error) { return "v", nil }

func BenchmarkDo(b *testing.B) {
	b.Run("uncontended", func(b *testing.B) {
		var f flight
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.Do(b.Context(), "k", quick); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("own keys, parallel", func(b *testing.B) {
		var f flight
		var n atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			key := strconv.FormatInt(n.Add(1), 10)
			for pb.Next() {
				if _, err := f.Do(b.Context(), key, quick); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("one key, parallel", func(b *testing.B) {
		var f flight
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := f.Do(b.Context(), "k", quick); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

func BenchmarkLead(b *testing.B) {
	var f flight
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		batch, _, err := f.Lead(b.Context(), keys)
		if err != nil {
			b.Fatal(err)
		}
		for _, key := range keys {
			batch.Finish(key, "v", nil)
		}
		batch.Close()
	}
}

func BenchmarkCall(b *testing.B) {
	var g stampede.Guard
	b.ReportAllocs()
	for b.Loop() {
		_, _ = stampede.Call(b.Context(), &g, time.Second, func(context.Context) (string, error) { return "v", nil }, func() {})
	}
}

func BenchmarkLimiter(b *testing.B) {
	l := newLimiter(b, stampede.LimiterConfig{})
	b.Run("free", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p, err := l.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			p.Release()
		}
	})
	b.Run("reuse", func(b *testing.B) {
		p := acquire(b, l, b.Context())
		ctx := p.With(b.Context())
		b.ReportAllocs()
		for b.Loop() {
			p, err := l.Acquire(ctx)
			if err != nil {
				b.Fatal(err)
			}
			p.Release()
		}
		p.Release()
	})
	b.Run("refused", func(b *testing.B) {
		l := newLimiter(b, stampede.LimiterConfig{Max: 1, Queue: 1, QueueTimeout: time.Hour})
		p := acquire(b, l, b.Context())
		ctx, leave := context.WithCancel(b.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			l.Acquire(ctx)
		}()
		for l.Stats().Queued == 0 {
			time.Sleep(time.Millisecond)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Acquire(b.Context()); err == nil {
				b.Fatal("not refused")
			}
		}
		leave()
		<-left
		p.Release()
	})
	b.Run("queue, parallel", func(b *testing.B) {
		l := newLimiter(b, stampede.LimiterConfig{Max: 2, QueueTimeout: time.Minute})
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				p, err := l.Acquire(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				p.Release()
			}
		})
	})
}

func BenchmarkEarly(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		stampede.Early(59*time.Second, time.Minute, 100*time.Millisecond, 1, 0.3)
	}
}
