// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
	"github.com/go-shelf/shelf/internal/redistest"
)

// small is a run of a few seconds: what the tests show is that drills are played and judged, not how good the client is.
func small(t *testing.T, only, guard string) config {
	t.Helper()
	_, err := redistest.Find()
	proc.Require(t, err)
	return config{only: only, short: true, guard: guard, keys: 2000, rate: 500, pace: 0.3, seed: 1}
}

// TestDrillPasses: with every guard in its place a drill passes, and its line and its chart say what was measured.
func TestDrillPasses(t *testing.T) {
	cfg := small(t, "kill -9 of a primary", "")
	cfg.charts = t.TempDir()
	var out strings.Builder
	pass, err := run(t.Context(), cfg, &out)
	if err != nil || !pass {
		t.Fatalf("passed: %v, %v\n%s", pass, err, &out)
	}
	for _, want := range []string{"PASS", "0 errors of ", "p99 ", "in the first second", "database at most ", "0 of ", "hit ratio"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, &out)
		}
	}
	chart, err := os.ReadFile(filepath.Join(cfg.charts, "kill--9-of-a-primary.svg"))
	if err != nil || !strings.Contains(string(chart), "struck") {
		t.Errorf("the chart: %d bytes, %v", len(chart), err)
	}
}

// TestBrokenGuardsFail: a drill fails where the client is made to break what it promises, and says what was broken.
func TestBrokenGuardsFail(t *testing.T) {
	for _, c := range []struct{ guard, drill, want string }{
		{guardInvalidate, "kill -9 of a primary", " answers too old or wrong: "},
		{guardLoad, "kill -9 of a primary", " errors of "},
		{guardCap, "all nodes killed, back empty", "FAILED: database at most "},
	} {
		t.Run(c.guard, func(t *testing.T) {
			cfg := small(t, c.drill, c.guard)
			d := theDrill(t, c.drill)
			d.before, d.lasts, d.after = 7*time.Second, 5*time.Second, 3*time.Second
			if c.guard == guardCap {
				cfg.rate = shortRate
			}
			v, err := cfg.judge(t.Context(), &d)
			if line := v.line(true); err != nil || v.passed(true) || !strings.Contains(line, "FAILED: ") || !strings.Contains(line, c.want) {
				t.Errorf("passed: %v, %v; want %q in\n%s", v.passed(true), err, c.want, line)
			}
		})
	}
}

// theDrill is the drill of a name.
func theDrill(t *testing.T, name string) drill {
	t.Helper()
	for _, d := range drills() {
		if d.name == name {
			return d
		}
	}
	t.Fatalf("there is no drill %q", name)
	return drill{}
}

// TestLostServerIsNoResult: a run in which a server did not do what it was told has shown nothing, and is an error.
func TestLostServerIsNoResult(t *testing.T) {
	cfg := small(t, "", "")
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	d := drill{name: "a dead server is told to go on", checks: oneNode, strike: func(w *world) {
		w.servers[0].Kill()
		w.servers[0].Cont()
	}}
	if _, err := cfg.judge(t.Context(), &d); err == nil || !strings.Contains(err.Error(), "continue 127.0.0.1:") {
		t.Errorf("got %v", err)
	}
}

// TestDrills: each has a name of its own, something that breaks, and something that is judged.
func TestDrills(t *testing.T) {
	var names []string
	quick := 0
	for _, d := range drills() {
		if slices.Contains(names, d.name) || len(d.name) > nameWidth {
			t.Errorf("name %q: twice, or longer than %d", d.name, nameWidth)
		}
		names = append(names, d.name)
		if d.own == nil && (len(d.checks) == 0 || d.strike == nil && d.again == nil || d.again != nil && d.every == 0) {
			t.Errorf("%s breaks nothing, or is not judged", d.name)
		}
		if d.quick {
			quick++
		}
	}
	if quick == 0 || quick == len(names) {
		t.Errorf("%d of %d are in the short form", quick, len(names))
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]config{
		"-keys is 99":            {keys: 99},
		"-rate is 99":            {keys: 100, rate: 99},
		"-pace is 0.1":           {keys: 100, pace: 0.1},
		"-charts is \"/no/dir\"": {keys: 100, charts: "/no/dir"},
		"-only is \"no such\"":   {keys: 100, only: "no such"},
	} {
		if _, err := run(t.Context(), cfg, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestValues: what the cache keeps of a row is read back, and nothing else is taken for it.
func TestValues(t *testing.T) {
	cfg := small(t, "", "")
	w, err := launch(t.Context(), setting{nodes: 1, processes: 1, cold: true}, cfg)
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	row, err := w.db.Update(t.Context(), "7", 1<<41)
	if err != nil {
		t.Fatal(err)
	}
	if rank, version, value := decode(encode(7, row)); rank != 7 || version != 2 || value != 1<<41 {
		t.Errorf("rank %d, version %d, value %d", rank, version, value)
	}
	if rank, _, _ := decode([]byte("else")); rank != -1 {
		t.Errorf("four bytes are the value of rank %d", rank)
	}
	many, err := w.loadMany(t.Context(), []string{"7", "8"})
	one, err1 := w.load(t.Context(), "7")
	if err != nil || err1 != nil || len(many) != 2 || string(many["7"]) != string(one) {
		t.Errorf("%v, %v, %v, %v", many, one, err, err1)
	}
}

// TestStreamIsOpen: users come at their rate, however long the ones before them have to wait.
func TestStreamIsOpen(t *testing.T) {
	w := &world{keys: 100, jobs: make(chan func())}
	d, err := newDraws(1, w.keys)
	if err != nil {
		t.Fatal(err)
	}
	block := make(chan struct{})
	came := make(chan time.Time, 1000)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w.crowd.Go(func() {
		w.stream(ctx, 1000, d, func(due time.Time, _ int) {
			came <- due
			<-block
		})
	})
	var last time.Time
	for range 500 { // nobody has been answered
		due := <-came
		if due.After(last) {
			last = due
		}
	}
	stop()
	close(block)
	w.crowd.Wait()
	hot := 0
	for range 10_000 {
		if d.rank() == 0 {
			hot++
		}
	}
	if hot < 1800 || hot > 2200 { // 2,000 +- 5 standard deviations
		t.Errorf("%d of 10,000 reads are of the hot key, want 2,000", hot)
	}
}
