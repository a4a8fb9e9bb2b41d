// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-shelf/shelf/bench/child"
	"github.com/go-shelf/shelf/bench/meter"
)

// workerEnv makes the program a worker: a process with one contender, which does what it is told.
const workerEnv = "SHELF_BENCH_WORKER"

// order is what a worker is told: to open a contender, first, or to run a cell.
type order struct {
	Open *scene
	Run  *cell
	For  time.Duration // of a run
	Warm time.Duration // before it, unmeasured
	Turn int           // a number that no other run of the same scene has
}

// cell is one place of a table: what is done, and by how many.
type cell struct {
	Kind       string
	Part       string // of kindParts
	Nodes      int
	Keys       int
	Size       int // bytes of a value
	Goroutines int
	Procs      int // GOMAXPROCS; 0 leaves it
	Batch      int // keys of a GetMany
}

// worker is a contender at work.
type worker struct {
	scene  *scene
	opened *opened
	keys   map[int][]string // by size, in an order of no meaning
	turn   int
	prefix string // of keys that are new, and how many there were
	read   int
}

// work is the main function of a worker.
func work() error {
	var w worker
	ctx := context.Background() // what peers are quickest with: rueidis and go-redis do more where a context can end
	err := child.Serve(func(text json.RawMessage) (any, error) {
		var o order
		if err := json.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		switch {
		case o.Open != nil:
			return nil, w.open(ctx, o.Open)
		case o.Run != nil:
			return w.run(ctx, &o)
		}
		return nil, errors.New("bench: an order for nothing")
	})
	if w.opened != nil {
		w.opened.close()
	}
	return err
}

// workerMain is called first in main and TestMain: it does not return in a worker.
func workerMain() {
	if os.Getenv(workerEnv) == "" {
		return
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// verified is how many keys are compared byte by byte before anything is measured.
const verified = 200

// open makes the contender ready: opened, its keys stored, read once and compared.
func (w *worker) open(ctx context.Context, s *scene) error {
	c, err := contenderOf(s.Contender)
	if err != nil {
		return err
	}
	s.number = slices.Index(names(), s.Contender)
	s.source = &source{loading: s.Loading}
	w.scene, w.keys = s, make(map[int][]string)
	if w.opened, err = c.open(ctx, s); err != nil {
		return err
	}
	var turn meter.Turn
	for _, size := range s.Sizes {
		keys := s.keys(size)
		if len(keys) == 0 {
			continue
		}
		if err := w.opened.seed(ctx, keys); err != nil {
			return fmt.Errorf("bench: storing the keys: %w", err)
		}
		if err := w.opened.verify(ctx, keys[:min(len(keys), verified)]); err != nil {
			return err
		}
		for i := range keys { // shuffled
			j := i + turn.Next(len(keys)-i)
			keys[i], keys[j] = keys[j], keys[i]
		}
		w.keys[size] = keys
	}
	if w.opened.settle != nil {
		if err := w.opened.settle(ctx); err != nil {
			return err
		}
	}
	s.source.taken()
	return nil
}

func (w *worker) run(ctx context.Context, o *order) (meter.Slot, error) {
	w.turn = o.Turn
	if o.Run.Kind == kindStampede {
		return w.stampede(ctx, o.Run)
	}
	newOp, every, err := w.operation(o.Run)
	if err != nil {
		return meter.Slot{}, err
	}
	p := meter.Plan{For: o.Warm, Goroutines: o.Run.Goroutines, Procs: o.Run.Procs, TimeEvery: every}
	var warm meter.Slot
	if o.Warm > 0 {
		if warm, err = meter.Measure(ctx, p, newOp); err != nil {
			return meter.Slot{}, err
		}
	}
	w.scene.source.taken()
	p.For = o.For
	s, err := meter.Measure(ctx, p, newOp)
	s.Loads, s.Load = w.scene.source.taken()
	s.Connections, s.Warmed = sockets(), warm.Ops
	return s, err
}
