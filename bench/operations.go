// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-shelf/shelf/bench/meter"
	"github.com/go-shelf/shelf/hotkey"
	"github.com/go-shelf/shelf/internal/workload"
	"github.com/go-shelf/shelf/ring"
)

// operation is what a cell does again and again, and every how many calls one is timed.
func (w *worker) operation(c *cell) (newOp func(int) meter.Op, every int, err error) {
	keys := w.keys[c.Size]
	switch c.Kind {
	case kindL1:
		return w.localHits(keys, c.Size), 0, nil
	case kindL2:
		return func(int) meter.Op {
			return func(ctx context.Context, turn *meter.Turn) (int, error) {
				return 1, w.opened.reads(ctx, keys[turn.Next(len(keys))], c.Size)
			}
		}, 16, nil
	case kindMiss:
		return w.misses(c.Size), 1, nil
	case kindMany:
		return w.batches(keys, c), 1, nil
	case kindZipf:
		newOp, err := w.mixed(keys, c)
		return newOp, 16, err
	case kindParts:
		newOp, err := partOf(c.Part)
		return newOp, 0, err
	}
	return nil, 0, fmt.Errorf("bench: there is no work of kind %q", c.Kind)
}

// localHits walks through the keys in their shuffled order, each goroutine from a place of its own; 64 reads are a call, so that what the meter itself costs is spread over them.
func (w *worker) localHits(keys []string, size int) func(int) meter.Op {
	const at = 64
	return func(g int) meter.Op {
		i := g * 7919 % len(keys)
		return func(ctx context.Context, _ *meter.Turn) (int, error) {
			for range at {
				if err := w.opened.reads(ctx, keys[i], size); err != nil {
					return 0, err
				}
				if i++; i == len(keys) {
					i = 0
				}
			}
			return at, nil
		}
	}
}

// misses reads keys that nobody has ever read. For one goroutine.
func (w *worker) misses(size int) func(int) meter.Op {
	return func(int) meter.Op {
		return func(ctx context.Context, _ *meter.Turn) (int, error) {
			return 1, w.opened.reads(ctx, w.fresh(size), size)
		}
	}
}

// fresh is a key that is new in this scene. For one goroutine.
func (w *worker) fresh(size int) string {
	if w.prefix == "" {
		w.prefix = w.scene.key(size, "new-")
	}
	w.read++
	return w.prefix + strconv.Itoa(w.read)
}

// batches reads as many keys at once as the cell says. All must be there, and of the right length.
func (w *worker) batches(keys []string, c *cell) func(int) meter.Op {
	return func(int) meter.Op {
		return func(ctx context.Context, turn *meter.Turn) (int, error) {
			at := turn.Next(len(keys) - c.Batch + 1)
			found := 0
			err := w.opened.many(ctx, keys[at:at+c.Batch], func(_, value string) {
				if len(value) == c.Size {
					found++
				}
			})
			if err == nil && found != c.Batch {
				err = fmt.Errorf("bench: %d of %d keys were found", found, c.Batch)
			}
			return 1, err
		}
	}
}

// writeShare of the operations of kindZipf are writes.
const writeShare = 20 // one in so many: 5 %

// mixed reads keys by their popularity, and changes one in twenty.
func (w *worker) mixed(keys []string, c *cell) (func(int) meter.Op, error) {
	ranks := make([]*workload.Zipf, c.Goroutines)
	for g := range ranks {
		var err error
		if ranks[g], err = workload.NewZipf(uint64(w.turn*c.Goroutines+g), 0.99, len(keys)); err != nil {
			return nil, err
		}
	}
	return func(g int) meter.Op {
		return func(ctx context.Context, turn *meter.Turn) (int, error) {
			key := keys[ranks[g].Next()]
			if turn.Next(writeShare) == 0 {
				return 1, w.opened.write(ctx, key)
			}
			return 1, w.opened.reads(ctx, key, c.Size)
		}
	}, nil
}

// stampede is one key that nobody has, and all goroutines that want it at once.
func (w *worker) stampede(ctx context.Context, c *cell) (meter.Slot, error) {
	key := w.fresh(c.Size)
	errs := make([]error, c.Goroutines)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			<-start
			errs[i] = w.opened.reads(ctx, key, c.Size)
		})
	}
	runtime.GC() // also gives the goroutines the time to get to the line
	w.scene.source.taken()
	began := time.Now()
	close(start)
	wg.Wait()
	s := meter.Slot{Ops: int64(c.Goroutines), Wall: time.Since(began)}
	s.Loads, s.Load = w.scene.source.taken()
	for _, err := range errs {
		if err != nil {
			s.Failed++
			s.Ops--
			s.Error = err.Error()
		}
	}
	return s, nil
}

// The parts of the library that have a demand of their own.
const (
	partOwner8   = "ring lookup, 8 nodes"
	partOwner100 = "ring lookup, 100 nodes"
	partCount    = "hot-key count, Zipf"
	partBuild    = "ring of 100 nodes x 1,024 points"
)

var parts = []string{partOwner8, partOwner100, partCount, partBuild}

// partKeys are as many as must not all stay in the nearest cache.
const partKeys = 1 << 14

func partOf(name string) (func(int) meter.Op, error) {
	switch name {
	case partOwner8:
		return ownerPart(8)
	case partOwner100:
		return ownerPart(100)
	case partCount:
		return countPart()
	case partBuild:
		nodes := numbered(100)
		return func(int) meter.Op {
			return func(context.Context, *meter.Turn) (int, error) {
				_, err := ring.New(ring.Config{Nodes: nodes})
				return 1, err
			}
		}, nil
	}
	return nil, fmt.Errorf("bench: no part is called %q", name)
}

func ownerPart(nodes int) (func(int) meter.Op, error) {
	r, err := ring.New(ring.Config{Nodes: numbered(nodes)})
	if err != nil {
		return nil, err
	}
	keys := make([]string, partKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("product:%07d:v3", i)
	}
	return func(int) meter.Op {
		return func(context.Context, *meter.Turn) (int, error) {
			sum := 0
			for _, key := range keys {
				sum += r.OwnerIndex(key)
			}
			if sum == 0 { // one node cannot own them all
				return 0, errMissing
			}
			return len(keys), nil
		}
	}, nil
}

// countPart counts reads of Zipf keys as a cache under load does. The clock is the real one, read once for many.
func countPart() (func(int) meter.Op, error) {
	d, err := hotkey.New(hotkey.Config{})
	if err != nil {
		return nil, err
	}
	ranks, err := workload.NewZipf(1, 0.99, 1_000_000)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 4*partKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("product:%07d:v3", ranks.Next())
	}
	return func(int) meter.Op {
		return func(context.Context, *meter.Turn) (int, error) {
			for i := range len(keys) / 64 {
				now := time.Now()
				for _, key := range keys[i*64 : (i+1)*64] {
					d.Count(key, 100, now)
				}
			}
			return len(keys), nil
		}
	}, nil
}
