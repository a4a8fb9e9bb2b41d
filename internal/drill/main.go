// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Drill breaks what a cache stands on, piece by piece, under load, and judges what the users of the cache notice of it and what the database does.
//
//	make drill                 # all of it, some 12 minutes
//	make drill ONLY=kill       # the drills whose name contains it
//
// Each drill starts real redis-servers (Sentinels, proxies before them, where it needs them), two clients that stand for two processes, and a stand-in
// for the database. It prints one line: what was broken, PASS or FAIL, and the figures that say so. The last line is
//
//	drill: PASS
//
// or drill: FAIL, and then the exit code is 1.
//
// # The load
//
// 100,000 keys; a fifth of the reads is of one key, the others are Zipf 0.99; 5,000 reads a second, and on top of them 5 % writes (a change of
// the row, and Cache.Write's invalidation), of the same keys. A query of the database takes 5 ms; 40 may run at once, of both processes together.
// Every key is on the nodes when a drill begins, unless its line says that it began cold.
//
// It is an open loop: reads are due at the times of a Poisson process, whether or not those before them have been answered, and a read's latency
// counts from when it was due. So a stall is felt by all who would have come in it, and the client cannot make it look better by coming later.
//
// # What is measured
//
//	errors     reads that returned no value, and writes that returned anything but "a node was not reached". ErrOverloaded is one, except where
//	           the drill asks for more than the cap lets through: there the line counts refused reads apart
//	p99        of the reads due in a window. Before the fault: the median of five windows of a second. Then the first second of the fault; then
//	           the median of five windows behind it
//	database   the most queries that ever ran at once, counted by the database, against the cap
//	too old    package internal/stalecheck judges every answer: none from a node or a load may be older than the last Invalidate that had returned
//	           nil before the read began; a copy in the process may be for 1 s (the node's pushes may have fallen silent); a load that a process
//	           shares while it cannot reach the node, for as long as a load may take. Answers that say that they are old (stale-if-error) may be
//	           as old as the cache is configured to allow, and never older than an invalidation of their own process
//	hit ratio  reads that were not answered by the database, of all
//
// A node fault must strike: it is the owner of the key that a fifth of the reads is for.
//
// # How it is judged
//
// A node that is dead, stopped or slow: no errors; p99 in the first second at most 50 ms (one operation timeout) above that before, then at most
// 1.5 times it; the database within its cap; nothing too old. The other drills have their criteria beside them in drills.go; each
// is a figure with its limit in the line.
//
// What is about milliseconds depends on a machine whose cores are free: the load takes below 30 % of two cores, and the line says how much it took.
// When a drill fails in nothing but such figures, and the users themselves came late (p99 of their lateness above 5 ms, which is nothing that a cache
// can be blamed for), it is played again, twice at most; then the last time counts. With -short such figures are shown and not judged. Also errors and
// hit ratios say nothing where for a while nothing ran at all: a drill that fails in those is played again if in some second the lateness was above
// 50 ms, which is all that a node's answer may take. The cap and the age of answers hold on any machine: who breaks them has failed.
//
//	main.go       flags, and what a run consists of
//	drills.go     what breaks, and what must be true then
//	world.go      servers, proxies, processes
//	crowd.go      the load
//	play.go       the course of a drill
//	samples.go    what was seen of the reads
//	freshness.go  what is told to stalecheck
//	figures.go    what servers and machine say of themselves
//	judge.go      the criteria
//	report.go     lines; charts.go: pictures
//	guards.go     what the tests break on purpose
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// config is what a run can be told.
type config struct {
	only   string
	short  bool
	charts string // directory; "" is none
	keys   int
	rate   float64 // reads a second
	pace   float64 // of all times: 0.5 is half as long
	seed   uint64
	guard  string // what is broken on purpose; for tests
}

const (
	minKeys   = 100
	plays     = 3 // of a drill that a busy machine has spoilt
	shortPace = 0.4
	shortRate = 2000
	// The checker's and the database's memory is the harness's, and 100,000 keys of it: a service has none of that, nor the pauses that come of looking through it.
	collectAt = 400
	// The users' own lateness, p99: above the one, figures of milliseconds say nothing; above the other, in the worst second, nothing ran at all for longer than a node's answer may take.
	busyAbove    = 5 * time.Millisecond
	stalledAbove = operationTimeout
)

func main() {
	cfg := config{}
	list := flag.Bool("list", false, "print the names of the drills, and end")
	flag.StringVar(&cfg.only, "only", "", "play the drills whose name contains this `text`, in any case")
	flag.BoolVar(&cfg.short, "short", false, "play fewer and shorter ones, and do not judge what needs a quiet machine")
	flag.StringVar(&cfg.charts, "charts", "", "`directory` for a chart of each drill, an SVG; empty: none")
	flag.IntVar(&cfg.keys, "keys", 100_000, "`number` of keys, at least 100")
	flag.Float64Var(&cfg.rate, "rate", 0, "reads a `second`; 0 is 5,000, or 2,000 with -short")
	flag.Float64Var(&cfg.pace, "pace", 0, "`factor` of the times of every drill, from 0.2 to 10; 0 is 1, or 0.4 with -short")
	flag.Uint64Var(&cfg.seed, "seed", 1, "`number` that the draws begin with")
	flag.Parse()
	if *list {
		for _, d := range drills() {
			fmt.Println(d.name)
		}
		return
	}
	debug.SetGCPercent(collectAt)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	pass, err := run(ctx, cfg, os.Stdout)
	stop()
	if err != nil {
		fmt.Println(err)
	}
	if err != nil || !pass {
		fmt.Println("drill: FAIL")
		os.Exit(1)
	}
	fmt.Println("drill: PASS")
}

// check puts the defaults in, and refuses what cannot be meant.
func (c *config) check() error {
	if c.rate == 0 {
		c.rate = 5000
		if c.short {
			c.rate = shortRate
		}
	}
	if c.pace == 0 {
		c.pace = 1
		if c.short {
			c.pace = shortPace
		}
	}
	switch {
	case c.keys < minKeys:
		return fmt.Errorf("drill: -keys is %d: must be at least %d", c.keys, minKeys)
	case !(c.rate >= 100 && c.rate <= 1e5): // NaN too
		return fmt.Errorf("drill: -rate is %v: must be from 100 to 100000, or 0 for the default", c.rate)
	case !(c.pace >= 0.2 && c.pace <= 10):
		return fmt.Errorf("drill: -pace is %v: must be from 0.2 to 10, or 0 for the default", c.pace)
	}
	if c.charts == "" {
		return nil
	}
	if info, err := os.Stat(c.charts); err != nil || !info.IsDir() {
		return fmt.Errorf("drill: -charts is %q: there is no such directory", c.charts)
	}
	return nil
}

// scaled is a time of the drills under the pace of this run.
func (c *config) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * c.pace) }

// run plays the drills that were asked for, and prints a line of each.
func run(ctx context.Context, cfg config, out io.Writer) (pass bool, err error) {
	if err := cfg.check(); err != nil {
		return false, err
	}
	pass, played := true, 0
	for _, d := range drills() {
		if !cfg.wants(&d) {
			continue
		}
		played++
		v, err := cfg.judge(ctx, &d)
		if err != nil {
			return false, fmt.Errorf("drill: %s: %w", d.name, err)
		}
		_, _ = fmt.Fprintln(out, v.line(cfg.short))
		pass = pass && v.passed(cfg.short)
		if cfg.charts != "" && v.run != nil {
			if _, err := v.run.draw(cfg.charts, d.name); err != nil {
				return false, err
			}
		}
	}
	if played == 0 {
		return false, fmt.Errorf("drill: -only is %q: no drill has that in its name", cfg.only)
	}
	return pass, nil
}

func (c *config) wants(d *drill) bool {
	if c.only != "" {
		return strings.Contains(strings.ToLower(d.name), strings.ToLower(c.only))
	}
	return d.quick || !c.short
}

// judge plays a drill, again where the machine was too busy for it.
func (c *config) judge(ctx context.Context, d *drill) (v verdict, err error) {
	for range plays {
		if d.own != nil {
			v, err = d.own(ctx, *c, d)
		} else {
			v, err = c.once(ctx, d)
		}
		if err != nil || v.passed(c.short) || !v.spoilt() {
			return v, err
		}
	}
	return v, nil
}

func (c *config) once(ctx context.Context, d *drill) (verdict, error) {
	o, err := play(ctx, *c, d)
	if err != nil {
		return verdict{name: d.name}, err
	}
	v := verdict{name: d.name, run: o, notes: o.notes(), late: o.lateness(), stall: o.stall()}
	for _, f := range d.checks {
		v.checks = append(v.checks, f(o))
	}
	if len(v.checks) == 0 {
		return v, errors.New("nothing is checked")
	}
	return v, nil
}
