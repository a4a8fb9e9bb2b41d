// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Consistency measures how fresh the answers of a fleet are while everything around it breaks.
//
//	make consistency
//
// It starts a PostgreSQL, three redis-servers, proxies before them, and four processes that read and write through caches as a service does: hot keys
// and cold ones, every kind of write and invalidation, rows that come and go, large values, tags; one process has no pushes. Meanwhile connections
// are cut, silenced and delayed, one node is stopped and one killed. Every write has a value of its own, and every read says what it saw; package
// internal/stalecheck judges them, and its documentation says what counts as stale. In the end all is healed, the clients have
// repeated the invalidations that had failed, and every process must read the newest value of every key.
//
// It prints a table: for each promise of the README how many reads were stale by how much, in all and for each fault. The last line is
//
//	consistency: PASS
//
// or consistency: FAIL, and then the exit code is 1 and the broken reads are named. A run takes -duration (60 s) and some 10 s for start and end.
//
//	main.go     flags, and what a run consists of
//	fleet.go    servers, proxies, processes
//	faults.go   what breaks, and when
//	rules.go    the promises
//	process.go  one process: its caches, and what it tells
//	reads.go    its readers
//	writes.go   its writers
//	owed.go     invalidations that failed, and when they are through
//	report.go   what is printed around the table
//	store.go    the table of rows
//	guards.go   what the tests break on purpose
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

	"github.com/go-shelf/shelf/internal/stalecheck"
)

// config is what a run can be told.
type config struct {
	duration time.Duration
	keys     int    // of each cache
	guard    string // what one of the processes does not do; "" is nothing. For tests
}

const (
	minDuration = time.Second
	settleLimit = 30 * time.Second // for invalidations that failed, after everything is healed
	stopLimit   = 20 * time.Second // for a process to end
)

func main() {
	if text := os.Getenv(ordersEnv); text != "" {
		exitOn(serve(text))
		return
	}
	cfg := config{}
	flag.DurationVar(&cfg.duration, "duration", time.Minute, "how long reads, writes and faults go on, at least 1s")
	flag.IntVar(&cfg.keys, "keys", 200, "`number` of keys of each cache, at least 20, in tens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	pass, err := run(ctx, cfg, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Println(err)
	}
	if err != nil || !pass {
		fmt.Println("consistency: FAIL")
		os.Exit(1)
	}
	fmt.Println("consistency: PASS")
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c config) check() error {
	if c.duration < minDuration {
		return fmt.Errorf("consistency: -duration is %v: must be at least %v", c.duration, minDuration)
	}
	if c.keys < minKeys || c.keys%tags != 0 {
		return fmt.Errorf("consistency: -keys is %d: must be a multiple of %d, at least %d", c.keys, tags, minKeys)
	}
	return nil
}

// run is a whole run: traffic under faults, healing, the last look. It prints the table and what is wrong to out, and how far it is to progress.
func run(ctx context.Context, cfg config, out, progress io.Writer) (pass bool, err error) {
	if err := cfg.check(); err != nil {
		return false, err
	}
	checker, err := stalecheck.New(stalecheck.Config{Processes: processes + 1, Rules: rules(), FailedCountsAsOwn: true})
	if err != nil {
		return false, err
	}
	f, err := startFleet(ctx, cfg, checker)
	defer func() { err = errors.Join(err, f.close()) }()
	if err != nil {
		return false, err
	}
	shown := show(f, progress)
	err = errors.Join(traffic(ctx, f, cfg.duration), f.failed())
	if err == nil {
		err = settle(ctx, f)
	}
	shown()
	err = errors.Join(err, f.end())
	report := checker.Finish()
	_, _ = fmt.Fprintf(out, "\n%s\n%s\n%s\n", summary(&report, f.unanswered()), legend(), report.Table())
	faults := report.Faults()
	if report.Unconfirmed > 0 && err == nil {
		faults = append(faults, fmt.Sprintf("%d writes were confirmed by no invalidation, though the clients owe none any more", report.Unconfirmed))
	}
	if len(faults) > 0 {
		_, _ = fmt.Fprintln(out, strings.Join(faults, "\n"))
	}
	return len(faults) == 0, err
}

// traffic lets the processes read and write while faults come and go, for so long, and until each fault has struck once.
func traffic(ctx context.Context, f *fleet, d time.Duration) error {
	timed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	pace := min(1, d.Seconds()/time.Minute.Seconds())
	for round := ctx; round.Err() == nil; round = timed {
		for i := range faults {
			if err := faults[i].strike(round, f, pace); err != nil {
				return err
			}
		}
	}
	f.phase(calm)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("consistency: cut short: %w", err)
	}
	return nil
}

// settle ends the writes, waits until every failed invalidation is through, and then until no copy can be older than that; then everybody reads everything.
func settle(ctx context.Context, f *fleet) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := f.order(ctx, quiet); err != nil {
		return err
	}
	select {
	case <-time.After(max(pushSilence, blindTTL)): // what these bounds allow is over by then
	case <-ctx.Done():
		return ctx.Err()
	}
	f.phase(settled)
	return f.order(ctx, final)
}

// show writes a line of progress each second, and ends when the function that it returns is called.
func show(f *fleet, to io.Writer) (stop func()) {
	file, ok := to.(*os.File)
	terminal := false
	if ok {
		info, err := file.Stat()
		terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			switch {
			case terminal:
				_, _ = fmt.Fprintf(to, "\r%s\x1b[K", f.line())
			case n%5 == 0:
				_, _ = fmt.Fprintln(to, f.line())
			}
		}
	}()
	return func() {
		close(end)
		<-ended
		if terminal {
			_, _ = fmt.Fprintln(to)
		}
	}
}
