// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/go-shelf/shelf/bench/child"
	"github.com/go-shelf/shelf/bench/meter"
	"github.com/go-shelf/shelf/internal/redistest"
)

// results are what was measured: a slot a round, in the order of the rounds, which is the same for all contenders of a cell.
type results map[cell]map[string][]meter.Slot

// slots are those of a contender in a cell; none if it was not measured.
func (r results) slots(c cell, contender string) []meter.Slot { return r[c][contender] }

// pace is how long and how often things are run.
type pace struct {
	rounds int
	slot   time.Duration
	warm   time.Duration // before each slot
	most   int           // keys, whatever a group says; 0 is as many as it says
	seed   uint64
}

// What a worker may take to be ready, and for a run beside its time: one that takes longer hangs.
const openLimit, runLimit = 2 * time.Minute, time.Minute

// run measures a group: rounds, in each every cell, in each every contender in an order of chance.
func (g *group) run(ctx context.Context, p pace, into results) (err error) {
	servers, err := startServers(ctx, g.nodes)
	defer func() { err = errors.Join(err, stopServers(servers)) }()
	if err != nil {
		return err
	}
	workers := make(map[string]*child.Process, len(g.contenders))
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.End())
		}
	}()
	for _, name := range g.contenders {
		w, err := startWorker()
		if err != nil {
			return err
		}
		workers[name] = w
		if err := g.open(ctx, w, name, servers, p.most); err != nil {
			return fmt.Errorf("%s: %s: %w", g.name, name, err)
		}
	}
	turns, draw := 0, rand.New(rand.NewPCG(p.seed, uint64(len(g.name))))
	ask := func(c cell, name string, order order) (s meter.Slot, err error) {
		turns++
		order.Run, order.Turn = &c, turns
		ctx, cancel := context.WithTimeout(ctx, runLimit+order.For+order.Warm)
		defer cancel()
		before, err := serversCPU(ctx, servers)
		if err != nil {
			return s, err
		}
		if err := workers[name].Ask(ctx, order, &s); err != nil {
			return s, fmt.Errorf("%s: %s: %s: %w", g.name, c.name(), name, err)
		}
		after, err := serversCPU(ctx, servers)
		s.Servers = after - before
		return s, err
	}
	if g.warm > 0 {
		for _, name := range g.contenders {
			if _, err := ask(g.cells[0], name, order{For: min(g.warm, 10*p.slot)}); err != nil {
				return err
			}
		}
	}
	for range p.rounds {
		for _, c := range g.cells {
			for _, i := range draw.Perm(len(g.contenders)) {
				name := g.contenders[i]
				s, err := ask(c, name, order{For: g.slotOf(p), Warm: p.warm})
				if err != nil {
					return err
				}
				into.add(c, name, s)
			}
		}
	}
	return nil
}

func (r results) add(c cell, name string, s meter.Slot) {
	if r[c] == nil {
		r[c] = make(map[string][]meter.Slot)
	}
	r[c][name] = append(r[c][name], s)
}

// slotOf is how long a run of this group is: its own time, or less where the whole run is short.
func (g *group) slotOf(p pace) time.Duration {
	if g.slot == 0 {
		return p.slot
	}
	return min(g.slot, 4*p.slot)
}

func (g *group) open(ctx context.Context, w *child.Process, name string, servers []*redistest.Server, most int) error {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	s := scene{Contender: name, Kind: g.kind, Keys: g.keys, Sizes: g.sizes, Loading: g.loading}
	if most > 0 {
		s.Keys = min(s.Keys, most)
	}
	for _, server := range servers {
		s.Addrs = append(s.Addrs, server.Addr())
	}
	return w.Ask(ctx, order{Open: &s}, nil)
}

// startWorker starts this program again as a worker.
func startWorker() (*child.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	return child.Start(program, nil, []string{workerEnv + "=1"})
}

// startServers starts n servers; also with an error those that run are returned.
func startServers(ctx context.Context, n int) (servers []*redistest.Server, err error) {
	for range n {
		s, err := redistest.Launch(ctx, redistest.Config{})
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// serversCPU is the processor time that servers have used.
func serversCPU(ctx context.Context, servers []*redistest.Server) (total time.Duration, err error) {
	for _, s := range servers {
		fields, err := s.Info(ctx, "cpu")
		if err != nil {
			return 0, err
		}
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			seconds, err := strconv.ParseFloat(fields[name], 64)
			if err != nil {
				return 0, fmt.Errorf("bench: %s of a server: %w", name, err)
			}
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total, nil
}

func stopServers(servers []*redistest.Server) (err error) {
	for _, s := range servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
