// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/pgtest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/stalecheck"
	"github.com/go-shelf/shelf/ring"
)

const (
	processes = 4
	blind     = processes - 1 // the process without pushes
	nodes     = 3
	sides     = 2 // each node has so many proxies: processes 0 and 1 go through the first, 2 and 3 through the second
)

// fleet is everything that runs. Its methods are safe for concurrent use.
type fleet struct {
	checker *stalecheck.Checker
	pg      *pgtest.Postgres
	nodes   [nodes]*redistest.Server
	proxies [nodes][sides]*redistest.Proxy
	procs   []*process
	began   time.Duration
	saved   bool // the driver's next step: see the fault of the snapshot

	mu     sync.Mutex
	phased string // the present phase
	errors map[string]int
	busy   int
}

// process is the driver's side of one.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when it has said its last word

	mu     sync.Mutex
	last   message       // without its batch
	said   chan struct{} // closed and made anew with each message
	silent error         // why it says nothing more
}

// startFleet starts servers, proxies and processes. The fleet is not nil, also with an error: close it.
func startFleet(ctx context.Context, cfg config, checker *stalecheck.Checker) (*fleet, error) {
	f := &fleet{checker: checker, errors: make(map[string]int)}
	var err error
	if f.pg, err = pgtest.Launch(ctx); err != nil {
		return f, err
	}
	for i := range f.nodes {
		// What a node has saved when it was told to, it has again after a restart.
		if f.nodes[i], err = redistest.Launch(ctx, redistest.Config{Persist: true}); err != nil {
			return f, err
		}
		for side := range f.proxies[i] {
			if f.proxies[i][side], err = redistest.LaunchProxy(f.nodes[i].Addr()); err != nil {
				return f, err
			}
		}
	}
	if err := f.seed(ctx, cfg.keys); err != nil {
		return f, err
	}
	for p := range processes {
		if err := f.startProcess(p, cfg); err != nil {
			return f, err
		}
	}
	for _, p := range f.procs {
		if err := p.await(ctx, func(message) bool { return true }); err != nil {
			return f, err
		}
	}
	f.phase(calm)
	return f, nil
}

// seed makes the rows. The driver is the checker's last process, and has nothing more to report.
func (f *fleet) seed(ctx context.Context, keys int) error {
	b := stalecheck.Batch{Upto: stalecheck.Forever}
	began := stalecheck.Now()
	f.began = began
	var names []string
	for _, cache := range []string{allName, hotName} {
		for n := range keys {
			names = append(names, fmt.Sprintf("%s:%d", cache, n))
		}
	}
	s, err := openStore(ctx, f.pg.DSN(), 1)
	if err == nil {
		err = s.seed(ctx, names)
		s.pool.Close()
	}
	if err != nil {
		return fmt.Errorf("consistency: the table: %w", err)
	}
	now := stalecheck.Now()
	for i, key := range names {
		b.Writes = append(b.Writes, stalecheck.Write{Key: key, Version: 1, Value: uint64(i + 1), Began: began, Committed: now})
	}
	// Nothing is cached yet.
	b.Invalidations = []stalecheck.Invalidation{{Keys: names, Began: now, Returned: now}}
	return f.checker.Add(processes, b)
}

// startProcess starts this program again, with orders. It ends when its input does: also when the driver is killed.
func (f *fleet) startProcess(n int, cfg config) error {
	o := orders{Process: n, Database: f.pg.DSN(), Keys: cfg.keys, NoPush: n == blind}
	if cfg.guard != "" && n == culprit(cfg.guard) {
		o.Guard = cfg.guard
	}
	for i := range f.proxies {
		o.Nodes = append(o.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: f.proxies[i][n*sides/processes].Addr()})
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	p := &process{cmd: exec.Command(program), ended: make(chan struct{}), said: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), ordersEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("consistency: process %d: %w", n, err)
	}
	p.in = in
	f.procs = append(f.procs, p)
	go f.listen(n, p, out)
	return nil
}

// listen hands what a process tells to the checker, until it says nothing more.
func (f *fleet) listen(n int, p *process, out io.Reader) {
	defer close(p.ended)
	in := gob.NewDecoder(out)
	for {
		var m message
		err := in.Decode(&m)
		if err == nil {
			err = f.checker.Add(n, m.Batch)
		}
		f.mu.Lock()
		for text, times := range m.Errors {
			f.errors[text] += times
		}
		f.busy += m.Busy
		f.mu.Unlock()
		m.Batch = stalecheck.Batch{}
		p.mu.Lock()
		if err != nil {
			p.silent = fmt.Errorf("consistency: process %d tells nothing more: %w", n, err)
		} else {
			p.last = m
		}
		close(p.said)
		p.said = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits for a message that is good.
func (p *process) await(ctx context.Context, good func(message) bool) error {
	for first := true; ; first = false {
		p.mu.Lock()
		last, said, silent := p.last, p.said, p.silent
		p.mu.Unlock()
		if silent != nil {
			return silent
		}
		if !first && good(last) { // the first may be one from before this call
			return nil
		}
		select {
		case <-said:
		case <-ctx.Done():
			return fmt.Errorf("consistency: waiting for a process: %w; it has done %q, and owes %d invalidations", ctx.Err(), last.Done, last.Owed)
		}
	}
}

// order gives all processes an order, and waits until each has carried it out.
func (f *fleet) order(ctx context.Context, what string) error {
	for _, p := range f.procs {
		if _, err := io.WriteString(p.in, what+"\n"); err != nil {
			return fmt.Errorf("consistency: order %q: %w", what, err)
		}
	}
	for _, p := range f.procs {
		if err := p.await(ctx, func(m message) bool { return m.Done == what }); err != nil {
			return err
		}
	}
	return nil
}

// phase begins a part of the run.
func (f *fleet) phase(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phased = name
	f.checker.Phase(name, stalecheck.Now())
}

// failed says why the run is worth nothing: a server or a process that is not there any more, or one that got an error which it must not get.
func (f *fleet) failed() error {
	var errs []error
	for i := range f.nodes {
		errs = append(errs, f.nodes[i].Err())
		for _, proxy := range f.proxies[i] {
			errs = append(errs, proxy.Err())
		}
	}
	for _, p := range f.procs {
		p.mu.Lock()
		errs = append(errs, p.silent)
		p.mu.Unlock()
	}
	return errors.Join(errs...)
}

// end ends the processes, which say their last word. What they got and must not have got is an error: no reader may see one of a node.
func (f *fleet) end() error {
	var errs []error
	for _, p := range f.procs {
		errs = append(errs, p.in.Close())
	}
	late := time.After(stopLimit)
	for n, p := range f.procs {
		select {
		case <-p.ended:
		case <-late:
			errs = append(errs, fmt.Errorf("consistency: process %d does not end", n), p.cmd.Process.Kill())
			<-p.ended
		}
		if err := p.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("consistency: process %d: %w", n, err))
		}
		p.cmd = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errors) > 0 {
		errs = append(errs, fmt.Errorf("consistency: callers got errors: %s", strings.Join(slices.Sorted(maps.Keys(f.errors)), "; ")))
	}
	return errors.Join(errs...)
}

// close ends all that is left.
func (f *fleet) close() error {
	var errs []error
	for _, p := range f.procs {
		if p.cmd != nil {
			_ = p.cmd.Process.Kill() // it has ended already, or is not wanted any more
			<-p.ended
			_ = p.cmd.Wait()
		}
	}
	for i := range f.nodes {
		for _, proxy := range f.proxies[i] {
			if proxy != nil {
				errs = append(errs, proxy.Close())
			}
		}
		if f.nodes[i] != nil {
			errs = append(errs, f.nodes[i].Close())
		}
	}
	if f.pg != nil {
		errs = append(errs, f.pg.Close())
	}
	return errors.Join(errs...)
}

// line tells how far the run is.
func (f *fleet) line() string {
	r := f.checker.Report()
	f.mu.Lock()
	phase := f.phased
	f.mu.Unlock()
	owed := 0
	for _, p := range f.procs {
		p.mu.Lock()
		owed += p.last.Owed
		p.mu.Unlock()
	}
	broken, oldest := r.Wrong, time.Duration(0)
	for i := range r.Rules {
		if strings.HasPrefix(r.Rules[i].Name, "P3") {
			oldest = max(oldest, r.Rules[i].Max)
		}
		broken += r.Rules[i].Broken
	}
	return fmt.Sprintf("%3.0fs %-27s %6d writes %8d reads, L1 stale at most %s, owed %d, BROKEN %d", (stalecheck.Now() - f.began).Seconds(), phase,
		r.Writes, r.Reads, oldest.Round(time.Millisecond), owed, broken)
}

// unanswered is how many reads got no answer, since the machine was too busy for their load.
func (f *fleet) unanswered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.busy
}
