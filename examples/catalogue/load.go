// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/chart"
	"github.com/go-shelf/shelf/internal/redistest"
)

// load is what -load does: the same crowd of readers and writers, first without the cache, then with it from cold, then with it warm. It is a
// closed loop: each reader asks for the next row as soon as it has the last one. So the phases differ in how many reads a second they can
// answer, and a latency holds what readers wait for each other; it does not tell how a fixed rate of arrivals would queue.
type load struct {
	on       bool
	duration time.Duration // of the phase without the cache, and of the one with it warm
	warmup   time.Duration // the longest that the phase from cold may take
	readers  int
	writers  int
	writes   float64 // a second, by all writers together
	zipf     float64 // exponent of the rows' popularity
	seed     uint64
	most     float64 // share of the reads that may reach the database once the cache is warm
	chart    string  // file, or a pattern for os.CreateTemp

	every time.Duration // of a line of progress, and of a point in the chart
}

const (
	loadRows    = 100_000
	serviceRows = 10_000
	// warmReads a row is when the cache counts as warm. At Zipf 0.99 over 100,000 rows some 6 % of the next reads are still the first of their row.
	warmReads = 5
)

// flags declares the flags of -load, with their defaults.
func (l *load) flags(fs *flag.FlagSet) {
	fs.BoolVar(&l.on, "load", false, "serve nobody: measure reads and writes without the cache and with it, and end; see the flags marked load")
	fs.DurationVar(&l.duration, "duration", 10*time.Second, "load: `time` without the cache, and again with it warm")
	fs.DurationVar(&l.warmup, "warmup", time.Minute, "load: the longest `time` from cold to warm, which is 5 reads a row")
	fs.IntVar(&l.readers, "readers", 64, "load: `number` of readers, each of which asks again when it has its answer")
	fs.IntVar(&l.writers, "writers", 2, "load: `number` of writers")
	fs.Float64Var(&l.writes, "writes", 50, "load: rows written a `second`, by all writers together")
	fs.Float64Var(&l.zipf, "zipf", 0.99, "load: `exponent` of the popularity of rows, read and written; 0 is uniform")
	fs.Uint64Var(&l.seed, "seed", 1, "load: `number` that the draws begin with")
	fs.Float64Var(&l.most, "most", 0.1, "load: `share` of the reads that may reach the database once the cache is warm; above it the exit code is 1")
	fs.StringVar(&l.chart, "chart", filepath.Join(os.TempDir(), "shelf-load-*.png"), "load: `file` of the chart, .png or .svg, a * in its name becoming a number that is not taken; empty is none")
	l.every = time.Second
}

// checkFlags refuses what cannot be meant, before anything is started.
func (c *config) checkFlags(fs *flag.FlagSet) error {
	isLoads := map[string]bool{"duration": true, "warmup": true, "readers": true, "writers": true, "writes": true, "zipf": true, "seed": true, "most": true, "chart": true}
	var err error
	fs.Visit(func(f *flag.Flag) {
		switch {
		case err != nil:
		case !c.load.on && isLoads[f.Name]:
			err = fmt.Errorf("-%s is %s: it is of use with -load only", f.Name, f.Value)
		case c.load.on && f.Name == "listen":
			err = fmt.Errorf("-listen is %s: with -load nothing is served", f.Value)
		}
	})
	if c.rows == 0 {
		c.rows = serviceRows
		if c.load.on {
			c.rows = loadRows
		}
	}
	if err != nil || !c.load.on {
		return err
	}
	if c.rows < 1 {
		return fmt.Errorf("-rows is %d: must be at least 1, or 0 for %d", c.rows, loadRows)
	}
	return c.load.check()
}

func (l load) check() error {
	switch {
	case l.duration < 100*time.Millisecond || l.duration > time.Hour:
		return fmt.Errorf("-duration is %v: must be from 100ms to 1h", l.duration)
	case l.warmup < 100*time.Millisecond || l.warmup > time.Hour:
		return fmt.Errorf("-warmup is %v: must be from 100ms to 1h", l.warmup)
	case l.readers < 1 || l.readers > 10_000:
		return fmt.Errorf("-readers is %d: must be from 1 to 10000", l.readers)
	case l.writers < 0 || l.writers > 100:
		return fmt.Errorf("-writers is %d: must be from 0 to 100", l.writers)
	case !(l.writes >= 0 && l.writes <= 1e5): // NaN too
		return fmt.Errorf("-writes is %v: must be from 0 to 100000 a second", l.writes)
	case l.writes > 0 && l.writers == 0:
		return fmt.Errorf("-writes is %v: with -writers 0 nobody writes; say -writes 0 too", l.writes)
	case !(l.zipf >= 0 && l.zipf <= 10):
		return fmt.Errorf("-zipf is %v: must be from 0 to 10", l.zipf)
	case !(l.most > 0 && l.most <= 1):
		return fmt.Errorf("-most is %v: must be above 0, at most 1", l.most)
	}
	if l.chart == "" {
		return nil
	}
	if _, err := chart.FormatOf(l.chart); err != nil {
		return fmt.Errorf("-chart: %w", err)
	}
	if info, err := os.Stat(filepath.Dir(l.chart)); err != nil || !info.IsDir() {
		return fmt.Errorf("-chart is %q: there is no folder %q", l.chart, filepath.Dir(l.chart))
	}
	return nil
}

// runLoad measures, and writes its report to out. Progress goes to live. It returns an error when the promise is not kept; when ctx ends it reports what
// was measured until then.
func runLoad(ctx context.Context, cfg config, log *slog.Logger, out io.Writer, live *progress) (err error) {
	if _, err := redistest.Find(); err != nil && len(cfg.nodes) == 0 {
		return fmt.Errorf("catalogue: -load measures real nodes, embedded ones are too slow for it: name yours with -nodes, or let it start some: %w", err)
	}
	database, nodes, stop, err := startLocal(ctx, cfg, log)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	store, err := OpenStore(ctx, database, connections)
	if err != nil {
		return err
	}
	defer store.Close()
	g, err := newGenerator(ctx, store, cfg)
	if err != nil {
		return err
	}

	nodes.MaxLoads = maxLoads
	nodes.Logger = log
	nodes.Namespace = "load-" + strconv.FormatInt(time.Now().UnixNano(), 36) // cold, and nobody else's entries
	cl, err := client.New(ctx, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, within(ctx, stopTimeout, cl.Close)) }()
	server, err := NewServer(store, cl, log)
	if err != nil {
		return err
	}

	log.Info("load begins", "rows", cfg.rows, "readers", cfg.load.readers, "writes_a_second", cfg.load.writes, "zipf", cfg.load.zipf)
	var r report
	live.begin()
	defer live.end()
	for _, p := range g.plan(server) {
		if ctx.Err() != nil {
			break
		}
		result, err := g.run(ctx, p, live)
		r.phases = append(r.phases, result)
		if err != nil {
			return errors.Join(err, r.write(out))
		}
	}
	live.end()
	if err := r.write(out); err != nil {
		return err
	}
	return r.finish(ctx, cfg, out)
}

// finish draws the chart and judges.
func (r report) finish(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.load.chart != "" && r.reads() > 0 {
		file, err := chartFile(cfg.load.chart)
		if err != nil {
			return err
		}
		if err := r.figure(cfg).Save(file); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "\nchart: %s\n", file); err != nil {
			return err
		}
	}
	verdict, err := r.judge(cfg.load.most, ctx.Err() != nil)
	_, failed := fmt.Fprintf(out, "\n%s\n", verdict)
	return errors.Join(err, failed)
}

// chartFile is the file that -chart names: a new one where there is a * in its name, so that no other user's or run's is overwritten.
func chartFile(name string) (string, error) {
	dir, pattern := filepath.Split(name)
	if !strings.Contains(pattern, "*") {
		return name, nil
	}
	f, err := os.CreateTemp(filepath.Clean(dir), pattern)
	if err != nil {
		return "", fmt.Errorf("catalogue: -chart: %w", err)
	}
	return f.Name(), f.Close()
}

// percent is a share as text. Small ones keep two digits.
func percent(share float64) string {
	switch {
	case math.IsNaN(share):
		return "-"
	case share > 0 && share < 0.01:
		return strconv.FormatFloat(share*100, 'g', 2, 64) + " %"
	}
	return strconv.FormatFloat(share*100, 'f', 1, 64) + " %"
}
