// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Bench measures Shelf beside the other Go clients and caches for Redis, on real servers, in one run.
//
//	make bench-compare         # all of it, some 12 minutes: tables, and the demands with PASS or FAIL
//	make bench-scaling         # what it costs as goroutines, nodes, keys, values and batches grow; both write tables and charts to bench/results
//	make bench-check           # has the last change made anything slower by a tenth?
//
// # How it measures
//
// Each contender is a process of its own, so that processor time, allocations and garbage are its own. For a kind of work the servers are started and all contenders opened; each
// stores the same keys in its own way, and what it reads is compared byte by byte before anything is measured (and by its length at every read). Then, round after round, each cell
// of the table is run by all contenders in an order of chance, for a fifth of a second each: what the machine does meanwhile meets all alike.
// While one runs the others are idle, but for their heartbeats.
//
// Tables have medians of the rounds. "Times" is the ratio of the rounds' rates with its 95 % interval (stats.go). Contexts are context.Background(), with which the peers are quickest.
// Nothing is pinned: clients and servers share the cores, so ratios and processor time say more than times; the servers' own processor time is what they say of themselves. Figures that are the machine's own are marked as such.
//
// The last line is
//
//	bench: PASS
//
// or bench: FAIL, and then the exit code is 1. With -short every cell is run once and briefly, with 5,000 keys at most, and nothing is judged.
//
//	main.go        flags
//	workload.go    what is measured, in groups of cells
//	contender.go   what a contender is; shelf.go, goredis.go, rueidis.go, ...: one file a library
//	worker.go      the process of a contender; operations.go: what it does
//	rounds.go      the course of a group
//	stats.go       medians, ratios, intervals
//	demands.go     what is demanded
//	report.go      tables; charts.go: pictures
//	scaling.go     how costs grow
//	check.go       two builds, side by side; checkbuild.go builds them
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// config is what a run can be told.
type config struct {
	only    string
	rounds  int
	slot    time.Duration
	short   bool
	scaling bool
	check   bool
	self    bool
	base    string
	limit   time.Duration
	md      string
	charts  string
	seed    uint64
}

const (
	defaultRounds = 9
	defaultSlot   = 200 * time.Millisecond
	warmShare     = 5 // a slot's warm-up is a fifth of it
	shortSlot     = 30 * time.Millisecond
	shortKeys     = 5000 // at most, with -short
)

func main() {
	workerMain()
	cfg := config{}
	flag.StringVar(&cfg.only, "only", "", "run what has this `text` in its name, in any case")
	flag.IntVar(&cfg.rounds, "rounds", 0, "`number` of rounds; 0 is 9, or 1 with -short")
	flag.DurationVar(&cfg.slot, "slot", 0, "`time` for which a contender runs a cell in a round; 0 is 200ms, or 30ms with -short")
	flag.BoolVar(&cfg.short, "short", false, "run everything once and briefly, and judge nothing")
	flag.BoolVar(&cfg.scaling, "scaling", false, "measure how costs grow, instead of comparing")
	flag.BoolVar(&cfg.check, "check", false, "compare two builds of Shelf instead: the working tree and -base")
	flag.BoolVar(&cfg.self, "selftest", false, "with -check: compare a build with itself, and with itself made slower by a tenth")
	flag.StringVar(&cfg.base, "base", "", "with -check: the git `revision` to compare with; empty: where this branch left origin's or main, else HEAD, or HEAD~1 where nothing has changed since")
	flag.DurationVar(&cfg.limit, "limit", 0, "with -check: after how much `time` to stop measuring, once there are eleven pairs of processes; 0 is 5m")
	flag.StringVar(&cfg.md, "md", "", "`file` for the tables as Markdown")
	flag.StringVar(&cfg.charts, "charts", "", "`directory` for charts")
	flag.Uint64Var(&cfg.seed, "seed", 1, "`number` that the draws begin with")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	name, code := cfg.run(ctx, os.Stdout)
	stop()
	fmt.Println(name + ": " + []string{"PASS", "FAIL", "UNSURE"}[code])
	os.Exit(code)
}

// run does what is asked for and returns its name and exit code: 0 for PASS, 1 for FAIL, 2 for UNSURE.
func (c *config) run(ctx context.Context, out io.Writer) (name string, code int) {
	name = "bench"
	if c.check {
		name = "bench-check"
	}
	err := c.validate()
	if err == nil {
		switch {
		case c.check:
			code, err = c.compareBuilds(ctx, out)
		case c.scaling:
			err = c.scale(ctx, out)
		default:
			code, err = c.compare(ctx, out)
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(out, err)
		return name, 1
	}
	return name, code
}

// validate puts the defaults in, and refuses what cannot be meant.
func (c *config) validate() error {
	if c.rounds == 0 {
		c.rounds = defaultRounds
		if c.short {
			c.rounds = 1
		}
	}
	if c.slot == 0 {
		c.slot = defaultSlot
		if c.short {
			c.slot = shortSlot
		}
	}
	if c.limit == 0 {
		c.limit = 5 * time.Minute
	}
	switch {
	case c.rounds < 0 || c.rounds > 100:
		return fmt.Errorf("bench: -rounds is %d: must be from 1 to 100, or 0 for the default", c.rounds)
	case c.slot < time.Millisecond || c.slot > time.Minute:
		return fmt.Errorf("bench: -slot is %v: must be from 1ms to 1m, or 0 for the default", c.slot)
	case c.limit < time.Second:
		return fmt.Errorf("bench: -limit is %v: must be at least 1s, or 0 for the default", c.limit)
	case c.scaling && c.check:
		return errors.New("bench: -scaling and -check are two things: give one")
	case !c.check && (c.self || c.base != ""):
		return errors.New("bench: -selftest and -base belong to -check")
	}
	if c.charts == "" {
		return nil
	}
	if info, err := os.Stat(c.charts); err != nil || !info.IsDir() {
		return fmt.Errorf("bench: -charts is %q: there is no such directory", c.charts)
	}
	return nil
}

func (c *config) pace() pace {
	p := pace{rounds: c.rounds, slot: c.slot, warm: c.slot / warmShare, seed: c.seed}
	if c.short {
		p.most = shortKeys
	}
	return p
}

func (c *config) wants(name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(c.only))
}
