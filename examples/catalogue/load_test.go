// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/pgtest"
	"github.com/go-shelf/shelf/internal/redistest"
)

// small is a load that is over soon.
func small(t *testing.T, dsn string) config {
	t.Helper()
	cfg := config{database: dsn, rows: 400}
	fs := flag.NewFlagSet("catalogue", flag.ContinueOnError)
	cfg.load.flags(fs)
	chart := filepath.Join(t.TempDir(), "load.svg")
	err := fs.Parse([]string{"-load", "-duration", "400ms", "-warmup", "30s", "-readers", "8", "-writes", "40", "-most", "0.5", "-chart", chart})
	if err == nil {
		err = cfg.checkFlags(fs)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.load.every = 50 * time.Millisecond
	return cfg
}

// database makes one of the server's, so that each test has an empty one.
func database(t *testing.T, pg *pgtest.Postgres, name string) string {
	t.Helper()
	if out, err := pg.Psql(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Replace(pg.DSN(), "/postgres?", "/"+name+"?", 1)
}

// cells finds a line of the table by its title.
func cells(t *testing.T, table, title string) []string {
	t.Helper()
	for l := range strings.Lines(table) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(l), title); ok {
			return strings.Split(strings.Join(strings.Fields(strings.ReplaceAll(rest, " %", "%")), "|"), "|")
		}
	}
	t.Fatalf("no line %q in\n%s", title, table)
	return nil
}

func TestLoad(t *testing.T) {
	pg := pgtest.Start(t)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	t.Run("all of a small run", func(t *testing.T) {
		redistest.Start(t, redistest.Config{}) // skips where there is none
		cfg := small(t, database(t, pg, "small"))
		var out, lines bytes.Buffer
		if err := runLoad(t.Context(), cfg, log, &out, &progress{out: &lines}); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		t.Log(out.String())
		wantRun(t, cfg, out.String(), lines.String())
	})
	t.Run("a table with rows is refused", func(t *testing.T) {
		cfg := small(t, database(t, pg, "used"))
		store, err := OpenStore(t.Context(), cfg.database, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if _, err := store.Seed(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		err = runLoad(t.Context(), cfg, log, io.Discard, &progress{out: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "has rows already") {
			t.Errorf("got %v", err)
		}
		if p, err := store.Product(t.Context(), "1"); err != nil || p.Version != 1 {
			t.Errorf("the rows were written: %+v, %v", p, err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		cfg := small(t, database(t, pg, "interrupted"))
		cfg.load.duration, cfg.load.warmup = time.Hour, time.Hour
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var out bytes.Buffer
		if err := runLoad(ctx, cfg, log, &out, &progress{out: &callAfter{3, interrupt}}); err != nil {
			t.Errorf("an interruption is no failure: %v", err)
		}
		if got := cells(t, out.String(), "reads answered"); len(got) != 1 || got[0] == "0" {
			t.Errorf("what was measured until then: %v\n%s", got, out.String())
		}
		if !strings.Contains(out.String(), "interrupted: no verdict") {
			t.Errorf("no word of the interruption:\n%s", out.String())
		}
		if _, err := os.Stat(cfg.load.chart); err != nil {
			t.Error(err)
		}
	})
}

// TestLoadNeedsRealNodes: without a redis-server and -nodes it says what to do, before it starts anything.
func TestLoadNeedsRealNodes(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDIS_SERVER", "")
	err := runLoad(t.Context(), small(t, ""), slog.New(slog.DiscardHandler), io.Discard, &progress{out: io.Discard})
	if err == nil {
		t.Fatal("it ran")
	}
	for _, want := range []string{"-load", "-nodes", "apt-get install redis-server"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

// TestChartFile: a name with a * is a new file each time, any other is what it is.
func TestChartFile(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	for range 3 {
		file, err := chartFile(filepath.Join(dir, "shelf-*.svg"))
		if err != nil || filepath.Dir(file) != dir || !strings.HasSuffix(file, ".svg") || seen[file] {
			t.Errorf("got %q, %v", file, err)
		}
		seen[file] = true
	}
	if file, err := chartFile("a/b.png"); file != "a/b.png" || err != nil {
		t.Errorf("got %q, %v", file, err)
	}
	if file, err := chartFile(filepath.Join(dir, "none", "*.png")); err == nil {
		t.Errorf("got %q in a folder that is not there", file)
	}
}

// callAfter calls a function when so many lines have been written.
type callAfter struct {
	lines int
	call  func()
}

func (c *callAfter) Write(b []byte) (int, error) {
	c.lines -= bytes.Count(b, []byte{'\n'})
	if c.lines <= 0 {
		c.call()
	}
	return len(b), nil
}

// wantRun checks what a run that has gone well has written.
func wantRun(t *testing.T, cfg config, table, lines string) {
	t.Helper()
	ours, theirs := cells(t, table, "database reads, as we count"), cells(t, table, "database reads, as PostgreSQL counts")
	if strings.Join(ours, " ") != strings.Join(theirs, " ") || len(ours) != 4 || ours[0] == "0" {
		t.Errorf("database reads: we count %v, PostgreSQL %v", ours, theirs)
	}
	if got, reads := ours[0], cells(t, table, "reads answered")[0]; got != reads {
		t.Errorf("without the cache %s reads of the database answer %s", got, reads)
	}
	if got := cells(t, table, "reads that reached the database"); got[0] != "100.0%" || got[2] == "100.0%" {
		t.Errorf("reads that reached the database: %v", got)
	}
	if got := cells(t, table, "rows written a second"); got[0] == "0" || got[2] == "0" {
		t.Errorf("nothing was written: %v", got)
	}
	if got := cells(t, table, "answered by L2, the nodes"); got[0] != "0.0%" || got[2] == "0.0%" {
		t.Errorf("answered by the nodes: %v", got)
	}
	for _, none := range []string{"reads that failed", "writes that failed", "answers older than a finished write", "answers that are not the row"} {
		if got := strings.Join(cells(t, table, none), " "); got != "0 0 0 0" {
			t.Errorf("%s: %s", none, got)
		}
	}
	for _, phase := range []string{"without", "cold", "warm"} {
		if !strings.Contains(lines, "\n"+phase) && phase != "cold" { // cold may be over before its first line
			t.Errorf("no line of progress of %q:\n%s", phase, lines)
		}
	}
	svg, err := os.ReadFile(cfg.load.chart)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reads answered", "reads that reached the database", "no cache", "cache, cold", "cache, warm", "p99.9", "8 readers of 400 rows"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("%q is not in the chart", want)
		}
	}
}

// TestReaderNotices: whatever a read must not give is counted as what it is.
func TestReaderNotices(t *testing.T) {
	for _, c := range []struct {
		what    string
		product Product
		err     error
		counted func(i *interval) uint64
	}{
		{"as seeded", Product{ID: "7", Name: "product 7", Version: 1}, nil, (*interval).reads},
		{"as written", Product{ID: "7", Name: "product 7 for 12", PriceCents: 12, Version: 9}, nil, (*interval).reads},
		{"another row", Product{ID: "8", Name: "product 8", Version: 1}, nil, func(i *interval) uint64 { return i.wrong.Load() }},
		{"the parts of two writes", Product{ID: "7", Name: "product 7 for 12", PriceCents: 13, Version: 9}, nil, func(i *interval) uint64 { return i.wrong.Load() }},
		{"a version too new for its content", Product{ID: "7", Name: "product 7", Version: 2}, nil, func(i *interval) uint64 { return i.wrong.Load() }},
		{"nothing", Product{}, nil, func(i *interval) uint64 { return i.wrong.Load() }},
		{"an old row", Product{ID: "7", Name: "product 7 for 12", PriceCents: 12, Version: 4}, nil, func(i *interval) uint64 { return i.stale.Load() }},
		{"an error", Product{}, client.ErrOverloaded, func(i *interval) uint64 { return i.failed.Load() }},
	} {
		g := &generator{load: load{zipf: 1, readers: 1}, ids: []string{"7"}}
		g.known = make([]atomic.Uint64, 1)
		if c.product.Version > 1 {
			raise(&g.known[0], 5)
		}
		r := newRecorder(&Store{})
		until, stop := context.WithCancel(t.Context())
		p := phase{read: func(context.Context, string) (Product, client.Layer, error) {
			stop()
			return c.product, client.LayerL2, c.err
		}}
		g.reader(until, t.Context(), p, r, g.draws(0))
		res := r.end("warm")
		bad := res.total.wrong.Load() + res.total.stale.Load() + res.total.failed.Load()
		if good := c.what[:3] == "as "; c.counted(res.total) != 1 || good && bad != 0 || !good && bad != 1 {
			t.Errorf("%s: %d answers, %d wrong, %d stale, %d failed", c.what, res.total.reads(), res.total.wrong.Load(), res.total.stale.Load(), res.total.failed.Load())
		}
		if !errors.Is(res.err, c.err) {
			t.Errorf("%s: the first error is %v", c.what, res.err)
		}
	}
}

// TestWriterRaises: after a write that was confirmed an older row is stale, after one that was not it may be read.
func TestWriterRaises(t *testing.T) {
	for _, failure := range []error{nil, errors.New("a node was not reached")} {
		g := &generator{load: load{zipf: 1, writers: 1, writes: 1e5}, ids: []string{"7"}, known: make([]atomic.Uint64, 1)}
		r := newRecorder(&Store{})
		until, stop := context.WithCancel(t.Context())
		p := phase{write: func(_ context.Context, id string, patch Patch) (Product, error) {
			stop()
			return Product{ID: id, Name: *patch.Name, PriceCents: *patch.PriceCents, Version: 3}, failure
		}}
		g.writer(until, t.Context(), p, r, g.draws(0))
		total := r.end("warm").total
		known, written, failed := g.known[0].Load(), total.writes.Load(), total.writesFailed.Load()
		if failure == nil && (known != 3 || written == 0 || failed != 0) || failure != nil && (known != 0 || written == 0 || failed != written) {
			t.Errorf("failure %v: version %d is known after %d writes, of which %d failed", failure, known, written, failed)
		}
	}
}

// TestRaise: the larger version stays, whoever comes last.
func TestRaise(t *testing.T) {
	var v atomic.Uint64
	var wg sync.WaitGroup
	for i := range uint64(100) {
		wg.Go(func() { raise(&v, 100-i) })
	}
	wg.Wait()
	if v.Load() != 100 {
		t.Errorf("got %d, want 100", v.Load())
	}
}

// measured makes a phase's result of reads that came from layers, and of queries.
func measured(name string, l1, l2, source, loads, scans uint64, took time.Duration) result {
	i := &interval{took: took, loads: loads}
	i.layers[client.LayerL1].Store(l1)
	i.layers[client.LayerL2].Store(l2)
	i.layers[client.LayerSource].Store(source)
	for range l1 + l2 + source {
		i.latency.Record(time.Millisecond)
	}
	return result{name: name, total: i, parts: []*interval{i}, scans: scans}
}

// TestTable checks the arithmetic of the table and of the verdict.
func TestTable(t *testing.T) {
	r := report{phases: []result{
		measured("without", 0, 0, 2000, 2000, 2000, 10*time.Second),
		measured("cold", 100, 500, 400, 300, 300, 4*time.Second),
		measured("warm", 600, 2200, 200, 150, 160, 2*time.Second),
	}}
	r.phases[2].total.latency.Record(2 * time.Second)
	var b bytes.Buffer
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for title, want := range map[string]string{
		"reads answered":                       "2,000 1,000 3,000 4,000",
		"reads a second":                       "200 250 1,500 667",
		"database reads a second":              "200 75 80 77", // of the larger count
		"reads that reached the database":      "100.0% 30.0% 5.3% 11.5%",
		"answered by L1, this process":         "0.0% 10.0% 20.0% 17.5%",
		"answered by L2, the nodes":            "0.0% 50.0% 73.3% 67.5%",
		"answered by a load, or joined one":    "100.0% 40.0% 6.7% 15.0%",
		"latency p99.9":                        "1.0ms 1.0ms 1.0ms 1.0ms",
		"latency, longest":                     "1.0ms 1.0ms 2.0s 2.0s",
		"database reads, as we count":          "2,000 300 150 450",
		"database reads, as PostgreSQL counts": "2,000 300 160 460",
	} {
		if got := strings.Join(cells(t, b.String(), title), " "); got != want {
			t.Errorf("%s: %s, want %s", title, got, want)
		}
	}

	verdict, err := r.judge(0.0534, false)
	if want := "Once warm (after 1,000 reads), 5.3 % of the reads reached the database; at most 5.3 % may. From cold on, it was 11.5 %."; verdict != want || err != nil {
		t.Errorf("%s, %v", verdict, err)
	}
	if _, err := r.judge(0.0533, false); err == nil || !strings.Contains(err.Error(), "once warm 5.3 % of the reads reached the database") {
		t.Errorf("above the share: %v", err)
	}
	if _, err := (report{phases: r.phases[:2]}).judge(1, false); err == nil {
		t.Error("a verdict without the warm phase")
	}
	if _, err := (report{phases: r.phases[:2]}).judge(1, true); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	for _, bad := range []func(i *interval){
		func(i *interval) { i.wrong.Add(1) }, func(i *interval) { i.stale.Add(1) },
		func(i *interval) { i.failed.Add(1) }, func(i *interval) { i.writesFailed.Add(1) },
	} {
		one := measured("warm", 1, 0, 0, 0, 0, time.Second)
		bad(one.total)
		if _, err := (report{phases: []result{r.phases[0], r.phases[1], one}}).judge(1, false); err == nil || !strings.Contains(err.Error(), "cache, warm: 1 ") {
			t.Errorf("a promise was broken, and the verdict is %v", err)
		}
		if _, err := (report{phases: []result{one}}).judge(1, true); err == nil {
			t.Error("interrupted after a broken promise, and no error")
		}
	}
}

func TestLoadFlags(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"", ""}, {"-load", ""}, {"-load -writers 0 -writes 0 -zipf 0 -chart=", ""}, {"-listen :1", ""},
		{"-readers 5", "-readers is 5: it is of use with -load only"},
		{"-load -listen :1", "-listen is :1: with -load nothing is served"},
		{"-load -rows -1", "-rows is -1: must be at least 1"},
		{"-load -duration 1ms", "-duration is 1ms: must be from 100ms to 1h"},
		{"-load -duration 2h", "-duration is 2h0m0s: must be"},
		{"-load -warmup -1s", "-warmup is -1s: must be"},
		{"-load -readers 0", "-readers is 0: must be from 1"},
		{"-load -writers -1", "-writers is -1: must be"},
		{"-load -writers 0", "-writes is 50: with -writers 0 nobody writes"},
		{"-load -writes -1", "-writes is -1: must be"},
		{"-load -writes NaN", "-writes is NaN: must be"},
		{"-load -zipf -0.1", "-zipf is -0.1: must be from 0 to 10"},
		{"-load -zipf NaN", "-zipf is NaN: must be"},
		{"-load -most 0", "-most is 0: must be above 0"},
		{"-load -most 1.5", "-most is 1.5: must be"},
		{"-load -chart a.gif", "-chart: chart: file \"a.gif\": must end in .svg or .png"},
		{"-load -chart no/such/folder/a.png", `-chart is "no/such/folder/a.png": there is no folder "no/such/folder"`},
	} {
		var cfg config
		fs := flag.NewFlagSet("catalogue", flag.ContinueOnError)
		fs.StringVar(&cfg.listen, "listen", "", "")
		fs.IntVar(&cfg.rows, "rows", 0, "")
		cfg.load.flags(fs)
		if err := fs.Parse(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		err := cfg.checkFlags(fs)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: got %v, want %q", c.flags, err, c.want)
		}
		if want := map[bool]int{true: loadRows, false: serviceRows}[cfg.load.on]; c.want == "" && cfg.rows != want {
			t.Errorf("%q: %d rows, want %d", c.flags, cfg.rows, want)
		}
	}
}

// TestProgress: one line on a terminal, many elsewhere; and none is wider than a terminal.
func TestProgress(t *testing.T) {
	var plain, terminal bytes.Buffer
	for _, p := range []*progress{{out: &plain}, {out: &terminal, terminal: true}} {
		p.show("one")
		p.show("two")
		p.end()
		p.end()
	}
	if got := plain.String(); got != "one\ntwo\n" {
		t.Errorf("plain: %q", got)
	}
	if got := terminal.String(); got != "\rone\x1b[K\rtwo\x1b[K\n" {
		t.Errorf("on a terminal: %q", got)
	}
	i := measured("without", 99, 900, 1, 9_990, 0, 10*time.Millisecond).total
	i = &interval{took: i.took, loads: i.loads}
	i.layers[client.LayerL2].Store(1000)
	i.latency.Record(999 * time.Microsecond)
	i.latency.Record(59 * time.Second)
	wide := line(phase{name: "without"}, 999*time.Second, i)
	if len(wide) > 79 || len(heading) > 79 || !strings.Contains(wide, "100000/s") {
		t.Errorf("%d columns: %s", len(wide), wide)
	}
	if none := line(phase{name: "cold"}, time.Second, &interval{took: time.Second}); strings.Contains(none, "NaN") {
		t.Error(none)
	}
}
