// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/internal/workload"
)

func newDatabase(tb testing.TB, cfg workload.DatabaseConfig) *workload.Database {
	tb.Helper()
	d, err := workload.NewDatabase(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// store is what a database of this process and one of another have in common.
type store interface {
	Query(ctx context.Context, id string) (workload.Row, error)
	QueryMany(ctx context.Context, ids []string) (map[string]workload.Row, error)
	Update(ctx context.Context, id string, priceCents int64) (workload.Row, error)
	Insert(ctx context.Context, row workload.Row) (workload.Row, error)
	Delete(ctx context.Context, id string) (uint64, error)
}

var (
	_ store = (*workload.Database)(nil)
	_ store = (*workload.RemoteDatabase)(nil)
)

// eachStore runs the test against a database of this process and over HTTP.
func eachStore(t *testing.T, cfg workload.DatabaseConfig, test func(*testing.T, *workload.Database, store)) {
	t.Run("local", func(t *testing.T) {
		d := newDatabase(t, cfg)
		test(t, d, d)
	})
	t.Run("remote", func(t *testing.T) {
		d := newDatabase(t, cfg)
		r := workload.Remote(d.Serve(t))
		defer r.Close()
		test(t, d, r)
	})
}

func TestRowsAndVersions(t *testing.T) {
	eachStore(t, workload.DatabaseConfig{Rows: 10}, func(t *testing.T, d *workload.Database, s store) {
		ctx := t.Context()
		row, err := s.Query(ctx, "3")
		if want := (workload.Row{ID: "3", Name: "product 3", PriceCents: 99 + 3*7919, Version: 1}); err != nil || row != want {
			t.Fatalf("Query = %+v, %v; want %+v", row, err, want)
		}
		row.PriceCents, row.Version = 5, 2
		if got, err := s.Update(ctx, "3", 5); err != nil || got != row {
			t.Errorf("Update = %+v, %v; want %+v", got, err, row)
		}
		if got, ok := d.Peek("3"); !ok || got != row {
			t.Errorf("Peek = %+v, %v; want %+v", got, ok, row)
		}
		if version, err := s.Delete(ctx, "3"); err != nil || version != 3 {
			t.Errorf("Delete = %d, %v; want 3", version, err)
		}
		for what, err := range map[string]error{
			"Query":  second(s.Query(ctx, "3")),
			"Update": second(s.Update(ctx, "3", 1)),
			"Delete": second(s.Delete(ctx, "3")),
		} {
			if !errors.Is(err, workload.ErrNoRow) {
				t.Errorf("%s of a deleted row: %v", what, err)
			}
		}
		again := workload.Row{ID: "3", Name: "chair", PriceCents: -1, Version: 77}
		got, err := s.Insert(ctx, again)
		again.Version = 4 // goes on where it was, whatever the caller says
		if err != nil || got != again {
			t.Errorf("Insert = %+v, %v; want %+v", got, err, again)
		}
		if _, err := s.Insert(ctx, again); !errors.Is(err, workload.ErrRowExists) {
			t.Errorf("second Insert: %v", err)
		}
		if got, err := s.Insert(ctx, workload.Row{ID: "new"}); err != nil || got.Version != 1 {
			t.Errorf("Insert of a new id = %+v, %v", got, err)
		}
		if n := d.Counts().Failed; n != 0 {
			t.Errorf("%d statements count as failed, but the database did what it should", n)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestOnlyConfiguredRowsExist(t *testing.T) {
	d := newDatabase(t, workload.DatabaseConfig{Rows: 10})
	for _, id := range []string{"", "10", "-1", "+1", "007", "7 ", "x", "99999999999999999999"} {
		if row, err := d.Query(t.Context(), id); !errors.Is(err, workload.ErrNoRow) || row != (workload.Row{}) {
			t.Errorf("Query(%q) = %+v, %v", id, row, err)
		}
	}
}

func TestQueryManyIsOneQuery(t *testing.T) {
	eachStore(t, workload.DatabaseConfig{Rows: 10}, func(t *testing.T, d *workload.Database, s store) {
		rows, err := s.QueryMany(t.Context(), []string{"1", "2", "none"})
		if err != nil || len(rows) != 2 || rows["1"].ID != "1" || rows["2"].ID != "2" {
			t.Errorf("QueryMany = %v, %v", rows, err)
		}
		if rows, err := s.QueryMany(t.Context(), []string{"none"}); err != nil || rows == nil || len(rows) != 0 {
			t.Errorf("QueryMany of nothing there = %v, %v", rows, err)
		}
		want := workload.Counts{Queries: 2, Rows: 4, MaxInFlight: 1, MaxReading: 1}
		if got := d.Counts(); got != want {
			t.Errorf("Counts = %+v, want %+v", got, want)
		}
		if got := d.ReadsByID(); !maps.Equal(got, map[string]uint64{"1": 1, "2": 1, "none": 2}) {
			t.Errorf("ReadsByID = %v", got)
		}
	})
}

func TestCountersUnderConcurrency(t *testing.T) {
	eachStore(t, workload.DatabaseConfig{Rows: 10}, func(t *testing.T, d *workload.Database, s store) {
		const workers, each = 8, 50
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for i := range each {
					if _, err := s.Query(t.Context(), strconv.Itoa(i%10)); err != nil {
						t.Error(err)
					}
					if _, err := s.Update(t.Context(), strconv.Itoa(w), int64(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		got := d.Counts()
		if got.MaxInFlight < 1 || got.MaxInFlight > workers {
			t.Errorf("MaxInFlight = %d", got.MaxInFlight)
		}
		if got.MaxReading < 1 || got.MaxReading > got.MaxInFlight {
			t.Errorf("MaxReading = %d of %d", got.MaxReading, got.MaxInFlight)
		}
		got.MaxInFlight, got.MaxReading = 0, 0
		if want := (workload.Counts{Queries: workers * each, Rows: workers * each, Writes: workers * each}); got != want {
			t.Errorf("Counts = %+v, want %+v", got, want)
		}
		for i := range 10 {
			if n := d.Reads(strconv.Itoa(i)); n != workers*each/10 {
				t.Errorf("Reads(%d) = %d", i, n)
			}
		}
		for w := range workers {
			if row, _ := d.Peek(strconv.Itoa(w)); row.Version != each+1 {
				t.Errorf("row %d has version %d after %d updates: one was lost", w, row.Version, each)
			}
		}
		d.ResetCounts()
		if d.Counts() != (workload.Counts{}) || len(d.ReadsByID()) != 0 {
			t.Error("counters are not reset")
		}
	})
}

// In a bubble, time is exact: a query takes its latency to the nanosecond.
func TestLatencySlowAndJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(d *workload.Database) time.Duration {
			began := time.Now()
			if _, err := d.Query(t.Context(), "1"); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		d := newDatabase(t, workload.DatabaseConfig{Rows: 10, Latency: 5 * time.Millisecond})
		if got := took(d); got != 5*time.Millisecond {
			t.Errorf("took %v, want 5ms", got)
		}
		d.Slow(time.Second)
		if got := took(d); got != 1005*time.Millisecond {
			t.Errorf("slow: took %v, want 1.005s", got)
		}
		d.Slow(0)
		if got := took(d); got != 5*time.Millisecond {
			t.Errorf("after Slow(0): took %v", got)
		}

		jittery := workload.DatabaseConfig{Rows: 10, Latency: time.Millisecond, Jitter: time.Millisecond, Seed: 5}
		a, b := newDatabase(t, jittery), newDatabase(t, jittery)
		seen := make(map[time.Duration]bool)
		for range 50 {
			x, y := took(a), took(b)
			if x < time.Millisecond || x > 2*time.Millisecond || x != y {
				t.Errorf("took %v and %v, want the same from 1ms to 2ms", x, y)
			}
			seen[x] = true
		}
		if len(seen) < 40 {
			t.Errorf("only %d different latencies of 50", len(seen))
		}
	})
}

// The order that caches must survive: the row is read, changed by another, and
// only then brought home.
func TestReadIsOfItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t, workload.DatabaseConfig{Rows: 10, Latency: 10 * time.Millisecond})
		d.Slow(time.Second) // for the reader, which has begun when this ends
		reads := make(map[string]chan workload.Row)
		for name, read := range map[string]func() (workload.Row, error){
			"Query": func() (workload.Row, error) { return d.Query(t.Context(), "1") },
			"QueryMany": func() (workload.Row, error) {
				rows, err := d.QueryMany(t.Context(), []string{"1"})
				return rows["1"], err
			},
		} {
			home := make(chan workload.Row)
			reads[name] = home
			go func() {
				row, err := read()
				if err != nil {
					t.Error(err)
				}
				home <- row
			}()
		}
		synctest.Wait()
		d.Slow(0)
		if _, err := d.Update(t.Context(), "1", 0); err != nil {
			t.Error(err)
		}
		if row, err := d.Query(t.Context(), "1"); err != nil || row.Version != 2 {
			t.Errorf("a query that began after the update sees %+v, %v", row, err)
		}
		for name, home := range reads {
			if row := <-home; row.Version != 1 {
				t.Errorf("a %s that began before the update sees version %d", name, row.Version)
			}
		}
	})
}

func TestMaxConcurrentMakesALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t, workload.DatabaseConfig{Rows: 10, Latency: 10 * time.Millisecond, MaxConcurrent: 3})
		began := time.Now()
		var wg sync.WaitGroup
		for range 9 {
			wg.Go(func() {
				if _, err := d.Query(t.Context(), "1"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := d.Counts(); got.InFlight != 9 || got.MaxInFlight != 9 {
			t.Errorf("in flight %d, most %d; want 9, the line included", got.InFlight, got.MaxInFlight)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := d.Query(ctx, "1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a query that gives up in line: %v", err)
		}
		wg.Wait()
		if got := time.Since(began); got != 30*time.Millisecond {
			t.Errorf("9 queries of 10ms, 3 at a time, took %v", got)
		}
		if got := d.Counts(); got.InFlight != 0 || got.MaxInFlight != 10 || got.Failed != 1 {
			t.Errorf("Counts = %+v", got)
		}
	})
}

// Reads and changes run at once, and only the reads count as reading.
func TestReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t, workload.DatabaseConfig{Rows: 10, Latency: 10 * time.Millisecond})
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				if _, err := d.Query(t.Context(), "1"); err != nil {
					t.Error(err)
				}
			})
			if i > 1 {
				continue
			}
			wg.Go(func() {
				if _, err := d.Update(t.Context(), "2", 7); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := d.Counts(); got.Reading != 5 || got.InFlight != 7 {
			t.Errorf("%d of %d are reading, want 5 of 7", got.Reading, got.InFlight)
		}
		d.ResetCounts()
		wg.Wait()
		if got := d.Counts(); got.Reading != 0 || got.MaxReading != 5 || got.MaxInFlight != 7 {
			t.Errorf("Counts = %+v", got)
		}
	})
}

func TestFail(t *testing.T) {
	broken := errors.New("connection reset")
	eachStore(t, workload.DatabaseConfig{Rows: 10}, func(t *testing.T, d *workload.Database, s store) {
		d.Fail(broken)
		for what, err := range map[string]error{
			"Query":     second(s.Query(t.Context(), "1")),
			"QueryMany": second(s.QueryMany(t.Context(), []string{"1"})),
			"Update":    second(s.Update(t.Context(), "1", 5)),
			"Insert":    second(s.Insert(t.Context(), workload.Row{ID: "new"})),
			"Delete":    second(s.Delete(t.Context(), "1")),
		} {
			if err == nil || err.Error() != broken.Error() {
				t.Errorf("%s: %v, want %v", what, err, broken)
			}
		}
		d.Fail(nil)
		if row, err := s.Query(t.Context(), "1"); err != nil || row.Version != 1 {
			t.Errorf("after the fault: %+v, %v; want the unchanged row", row, err)
		}
		if got := d.Counts(); got.Failed != 5 || got.Queries != 3 || got.Writes != 3 || got.InFlight != 0 {
			t.Errorf("Counts = %+v", got)
		}
	})
}

func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t, workload.DatabaseConfig{Rows: 10})
		d.Hang(true)
		d.Hang(true) // is hung already
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Query(ctx, "1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Query of a hung database: %v", err)
		}
		done := make(chan error, 2)
		go func() { done <- second(d.Query(t.Context(), "1")) }()
		go func() { done <- second(d.Update(t.Context(), "1", 1)) }()
		synctest.Wait()
		if n := d.Counts().InFlight; n != 2 {
			t.Errorf("%d in flight, want 2", n)
		}
		d.Hang(false)
		d.Hang(false)
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("after the hang: %v", err)
			}
		}
	})
}

func TestContext(t *testing.T) {
	eachStore(t, workload.DatabaseConfig{Rows: 10, Latency: time.Hour}, func(t *testing.T, d *workload.Database, s store) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- second(s.Query(ctx, "1")) }()
		go func() { done <- second(s.Update(ctx, "1", 5)) }()
		eventually(t, func() bool { return d.Counts().InFlight == 2 })
		cancel()
		for range 2 {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		}
		// Over HTTP, the database hears of it a moment later.
		eventually(t, func() bool { return d.Counts().InFlight == 0 })
		if got := d.Counts().Failed; got != 2 {
			t.Errorf("Failed = %d, want 2", got)
		}
		if row, _ := d.Peek("1"); row.Version != 1 {
			t.Error("a cancelled update changed the row")
		}
	})
	d := newDatabase(t, workload.DatabaseConfig{Rows: 10}) // no latency to wait for
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Query(ctx, "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("Query with an ended context: %v", err)
	}
}

func eventually(tb testing.TB, reached func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal("not within 10 s")
		}
	}
}

func TestNewDatabaseRefusesNegatives(t *testing.T) {
	for want, cfg := range map[string]workload.DatabaseConfig{
		"Rows is -1":          {Rows: -1},
		"Latency is -2":       {Latency: -2},
		"Jitter is -3":        {Jitter: -3},
		"MaxConcurrent is -4": {MaxConcurrent: -4},
	} {
		want = fmt.Sprintf("workload: %s: must not be negative", want)
		if d, err := workload.NewDatabase(cfg); err == nil || err.Error() != want {
			t.Errorf("NewDatabase(%+v) = %v, %v; want %s", cfg, d, err, want)
		}
	}
}
