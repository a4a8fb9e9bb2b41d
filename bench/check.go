// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-shelf/shelf/bench/child"
	"github.com/go-shelf/shelf/bench/meter"
	"github.com/go-shelf/shelf/internal/redistest"
)

// How two builds are compared. A pair of processes, one of each build, runs each path in turns, A B B A, for a few milliseconds each, so that what the machine does meets both
// alike, and a drift of it cancels. Then both are replaced by new ones: where the runtime and the kernel happen to put things makes two processes of one build differ by some per cent, and that
// is not what is looked for. So a pair gives one ratio for a path, the median of its turns, and the interval is over the pairs.
const (
	burst         = 25 * time.Millisecond
	turnsOfPair   = 5
	fewestPairs   = 11 // a 99.9 % interval takes as many
	slowerBy      = 0.10
	passCertain   = 0.99  // of the interval that must end below a tenth more
	failCertain   = 0.999 // of the one that must begin above slowerSurely: it is looked at after each pair, for each path, and twice
	slowerAtLeast = 1.05  // an estimate below this is no finding, however narrow its interval: the layout of a build's code alone moves a path by some per cent
	slowerSurely  = 1.02  // nor is one whose interval goes below this
)

// checkPaths are the probe's.
var checkPaths = []string{"L1 hit", "L2 hit, 1 caller", "L2 hit, 64 callers", "miss", "GetMany of 100"}

// orderOf is what the probe is told; see there.
type orderOf struct {
	Addrs []string
	Name  string
	Path  string
	For   time.Duration
	Spin  float64
}

// build is a program to be measured, and by how much each operation is made longer, as a share of the processor time that it takes anyhow.
type build struct {
	name    string
	program string
	slower  float64
}

// compareBuilds is -check.
func (c *config) compareBuilds(ctx context.Context, out io.Writer) (code int, err error) {
	top, err := root(ctx)
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "shelf-bench-check-")
	if err != nil {
		return 1, fmt.Errorf("bench: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	head, err := buildProbe(ctx, top, filepath.Join(dir, "head"))
	if err != nil {
		return 1, err
	}
	if c.self {
		return c.selfTest(ctx, out, head)
	}
	base, err := baseOf(ctx, top, c.base)
	if err != nil {
		return 1, err
	}
	tree := filepath.Join(dir, "tree")
	remove, err := checkout(ctx, top, base, tree)
	if err != nil {
		return 1, err
	}
	old, err := buildProbe(ctx, tree, filepath.Join(dir, "base"))
	if err = errors.Join(err, remove()); err != nil {
		return 1, err
	}
	subject, err := git(ctx, top, "log", "-1", "--format=%h %s", base)
	if err != nil {
		return 1, err
	}
	_, _ = fmt.Fprintf(out, "the working tree against %s\n%s\n", subject, machine(ctx))
	found, err := c.alternate(ctx, out, build{"base", old, 0}, build{"working tree", head, 0})
	return found.code(), err
}

// selfTest compares a build with itself, where nothing may be found, and with itself made slower, where everything must.
func (c *config) selfTest(ctx context.Context, out io.Writer, program string) (code int, err error) {
	_, _ = fmt.Fprintf(out, "the build against itself: nothing may be found\n")
	same, err := c.alternate(ctx, out, build{"base", program, 0}, build{"the same", program, 0})
	if err != nil {
		return 1, err
	}
	_, _ = fmt.Fprintf(out, "the build against itself with each operation made longer by %.0f %% of its processor time: every path must be found\n", 100*slowerBy)
	slow, err := c.alternate(ctx, out, build{"base", program, 0}, build{"slower", program, slowerBy})
	if err != nil {
		return 1, err
	}
	for _, v := range same {
		if v.word() != pathPass {
			code = 1
		}
	}
	for _, v := range slow {
		if v.word() != pathFail {
			code = 1
		}
	}
	return code, nil
}

// alternate measures pairs of processes until every path is decided, or the time is over.
func (c *config) alternate(ctx context.Context, out io.Writer, a, b build) (found verdicts, err error) {
	server, err := redistest.Launch(ctx, redistest.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	for _, p := range checkPaths {
		if c.wants(p) {
			found = append(found, &verdict{path: p})
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("bench: -only is %q: no path of -check has that in its name", c.only)
	}
	pairs, began := 0, time.Now()
	for pairs < fewestPairs || time.Since(began) < c.limit {
		if err := c.pair(ctx, server, pairs, a, b, found); err != nil {
			return nil, err
		}
		pairs++
		if _, err := server.Do(ctx, "FLUSHALL"); err != nil {
			return nil, err
		}
		if c.short || pairs >= fewestPairs && found.decided() {
			break
		}
	}
	_, _ = fmt.Fprintf(out, "%s\n  %s of processes, %s\n", found.table(b.name, a.name), plural(pairs, "pair"), time.Since(began).Round(time.Second))
	return found, nil
}

// pair measures the paths that are not decided with two new processes.
func (c *config) pair(ctx context.Context, server *redistest.Server, n int, a, b build, found verdicts) (err error) {
	var procs [2]*child.Process
	defer func() {
		for _, p := range procs {
			if p != nil {
				err = errors.Join(err, p.End())
			}
		}
	}()
	for i, one := range []build{a, b} {
		if procs[i], err = child.Start(one.program, nil, nil); err != nil {
			return err
		}
		if err := procs[i].Ask(ctx, orderOf{Addrs: []string{server.Addr()}, Name: fmt.Sprintf("pair-%d-%d", n, i)}, nil); err != nil {
			return err
		}
	}
	for _, v := range found {
		if n >= fewestPairs && v.word() != pathUnsure {
			continue
		}
		if err := v.measure(ctx, procs, a, b); err != nil {
			return fmt.Errorf("bench: %s: %w", v.path, err)
		}
	}
	return nil
}

// measure adds a pair's ratios.
func (v *verdict) measure(ctx context.Context, procs [2]*child.Process, a, b build) error {
	var spin [2]float64
	ask := func(i int) (s meter.Slot, err error) {
		err = procs[i].Ask(ctx, orderOf{Path: v.path, For: burst, Spin: spin[i]}, &s)
		return s, err
	}
	for i, one := range []build{a, b} { // turns that do not count: warm, and what an operation takes
		if _, err := ask(i); err != nil {
			return err
		}
		if one.slower > 0 {
			s, err := ask(i)
			if err != nil {
				return err
			}
			spin[i] = one.slower * cpuPerOp(s)
		}
	}
	var walls, cpus []float64
	for range turnsOfPair {
		var took, used [2]float64
		for _, i := range []int{0, 1, 1, 0} {
			s, err := ask(i)
			if err != nil {
				return err
			}
			took[i] += perOp(s)
			used[i] += cpuPerOp(s)
		}
		walls, cpus = append(walls, took[1]/took[0]), append(cpus, used[1]/used[0])
	}
	v.wall, v.cpu = append(v.wall, median(walls)), append(v.cpu, median(cpus))
	return nil
}

// verdict is what is known of a path.
type verdict struct {
	path      string
	wall, cpu []float64 // a pair each: how many times as long the second build takes
}

type verdicts []*verdict

// The words of a verdict.
const (
	pathPass   = "PASS"
	pathFail   = "FAIL"
	pathUnsure = "UNSURE"
)

// word judges: FAIL where time or processor time is surely more, PASS where a tenth more is excluded for both.
func (v *verdict) word() string {
	if len(v.wall) < fewestPairs {
		return pathUnsure
	}
	word := pathPass
	for _, ratios := range [][]float64{v.wall, v.cpu} {
		if e := over(ratios, failCertain); e.Mid >= slowerAtLeast && e.Low >= slowerSurely {
			return pathFail
		}
		if e := over(ratios, passCertain); !(e.High < 1+slowerBy) { // NaN too
			word = pathUnsure
		}
	}
	return word
}

// over is the estimate of ratios that were measured as such.
func over(ratios []float64, confidence float64) estimate {
	ones := make([]float64, len(ratios))
	for i := range ones {
		ones[i] = 1
	}
	return ratio(ratios, ones, confidence)
}

func (f verdicts) decided() bool {
	for _, v := range f {
		if v.word() == pathUnsure {
			return false
		}
	}
	return true
}

func (f verdicts) code() (code int) {
	for _, v := range f {
		switch v.word() {
		case pathFail:
			return 1
		case pathUnsure:
			code = 2
		}
	}
	if len(f) == 0 {
		return 1
	}
	return code
}

func (f verdicts) table(second, first string) string {
	t := table{title: fmt.Sprintf("%s over %s: how many times as long, with 99 %% intervals", second, first), head: []string{"path", "time", "processor time", ""}}
	for _, v := range f {
		t.add(v.path, over(v.wall, passCertain).String(), over(v.cpu, passCertain).String(), v.word())
	}
	return strings.TrimRight(t.text(), "\n")
}
