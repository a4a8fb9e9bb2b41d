// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/pgtest"
	"github.com/go-shelf/shelf/internal/proc"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

// TestMain: with orders in the environment the test binary is not a test but one process of a fleet.
func TestMain(m *testing.M) {
	if text := os.Getenv(ordersEnv); text != "" {
		exitOn(serve(text))
		return
	}
	os.Exit(m.Run())
}

// short is a run of a few seconds: what the tests show is that the machinery works, not how fresh the answers are.
func short(t *testing.T, guard string) config {
	t.Helper()
	_, err := pgtest.Find()
	proc.Require(t, err)
	_, err = redistest.Find()
	proc.Require(t, err)
	return config{duration: 3 * time.Second, keys: 100, guard: guard}
}

// TestRunPasses: with every guard in its place a run passes, and each promise was put to the test in it.
func TestRunPasses(t *testing.T) {
	var out strings.Builder
	pass, err := run(t.Context(), short(t, ""), &out, io.Discard)
	if err != nil || !pass {
		t.Errorf("passed: %v, %v\n%s", pass, err, &out)
	}
	_, head, _ := strings.Cut(out.String(), "stale/broken/worst in")
	head, _, _ = strings.Cut(head, "\n")
	head += "  "
	for _, r := range rules() {
		if !strings.Contains(out.String(), r.Name) {
			t.Errorf("%q is not in the table:\n%s", r.Name, &out)
		}
		if r.Short == "" || !strings.Contains(head, "  "+r.Short+"  ") {
			t.Errorf("%q: its short name %q heads no column of %q", r.Name, r.Short, head)
		}
	}
	for _, f := range faults {
		if !strings.Contains(out.String(), f.name) {
			t.Errorf("%q did not strike:\n%s", f.name, &out)
		}
	}
}

// TestBrokenGuardsFail: a run in which one process does not keep to the rules fails, and says which promise that broke.
func TestBrokenGuardsFail(t *testing.T) {
	for guard, promise := range map[string]string{
		guardInvalidate: "P1 from a node: ",
		guardStore:      "P1 from a node: ",
		guardOneClient:  "P2 own writes: ",
		guardPush:       "P3 L1, pushed: ",
	} {
		t.Run(guard, func(t *testing.T) {
			var out strings.Builder
			pass, err := run(t.Context(), short(t, guard), &out, io.Discard)
			if err != nil || pass {
				t.Errorf("passed: %v, %v\n%s", pass, err, &out)
			}
			if !strings.Contains(out.String(), "\n"+promise) {
				t.Errorf("it does not say that %q was broken:\n%s", promise, &out)
			}
		})
	}
}

// TestDeadProcessFails: a run that lost one of its processes has shown nothing.
func TestDeadProcessFails(t *testing.T) {
	cfg := short(t, "")
	checker, err := stalecheck.New(stalecheck.Config{Processes: processes + 1, Rules: rules(), FailedCountsAsOwn: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := startFleet(t.Context(), cfg, checker)
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.procs[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-f.procs[1].ended
	if err := traffic(t.Context(), f, 2*time.Second); err == nil || !strings.Contains(err.Error(), "process 1 tells nothing more") {
		t.Errorf("the run went on: %v", err)
	}
	if err := settle(t.Context(), f); err == nil {
		t.Error("a dead process was settled")
	}
}

// TestSummary: the layers add up to the reads, and what did not happen is not spoken of.
func TestSummary(t *testing.T) {
	r := stalecheck.Report{Writes: 7, Unconfirmed: 1, Invalidations: 5, Failed: 2, Reads: 100, Layers: [4]uint64{10, 40, 30, 20}, Wrong: 3}
	want := `7 writes (1 unconfirmed), 5 invalidations (2 failed: their nodes were not reached)
100 reads: 40 L1, 30 L2, 20 source, 10 of unknown layer (judged as L1); 3 wrong (values nobody wrote, or another key's)
`
	if got := summary(&r, 0); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := summary(&r, 4); got != want+"4 reads got no answer: the machine was too busy for their load\n" {
		t.Errorf("got\n%s", got)
	}
	if legend := legend(); strings.Contains(legend, "%!") {
		t.Error(legend)
	}
}

// TestLegendExplainsTheColumns: each column's name begins with a promise that the legend has a line of.
func TestLegendExplainsTheColumns(t *testing.T) {
	for _, r := range rules() {
		promise, _, _ := strings.Cut(r.Short, " ")
		if !strings.Contains("\n"+legend(), "\n"+promise+" ") {
			t.Errorf("%q is not explained:\n%s", r.Short, legend())
		}
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]config{
		"-duration is 0s": {keys: 100},
		"-keys is 10":     {duration: time.Minute, keys: 10},
		"-keys is 101":    {duration: time.Minute, keys: 101},
	} {
		if _, err := run(t.Context(), cfg, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestRowsAreWhole: a value of another key, or of parts of two, is not taken for the row.
func TestRowsAreWhole(t *testing.T) {
	large := row{Key: hotName + ":15", Version: 3, Unique: 7}
	large.pad()
	if len(large.Pad) < largeLimit || !large.whole(large.Key) {
		t.Errorf("a large row of %d bytes is not whole", len(large.Pad))
	}
	other := row{Key: large.Key, Version: 4, Unique: 8}
	other.pad()
	mixed := large
	mixed.Pad = other.Pad
	if mixed.whole(mixed.Key) || large.whole(hotName+":25") {
		t.Error("a mixed row, or another's, is whole")
	}
	if small := (row{Key: allName + ":15", Version: 1, Unique: 1}); !small.whole(small.Key) {
		t.Error("a small row is not whole")
	}
}

// TestTagsCoverTheirKeys: what the checker takes to be invalidated by a tag is what carries it.
func TestTagsCoverTheirKeys(t *testing.T) {
	s := &service{orders: orders{Keys: 30}}
	if got := fmt.Sprint(s.tagged(&kind{name: hotName}, "4")); got != "[hot:4 hot:14 hot:24]" {
		t.Errorf("got %s", got)
	}
}
