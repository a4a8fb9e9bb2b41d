// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/workload"
	"github.com/go-shelf/shelf/ring"
)

// fleetEnv carries a process's orders: with it the test binary is not a test but one process of a fleet.
const fleetEnv = "SHELF_TEST_FLEET"

func TestMain(m *testing.M) {
	if orders := os.Getenv(fleetEnv); orders != "" {
		if err := fleetProcess(orders); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if addr := os.Getenv(writerEnv); addr != "" {
		if err := writerProcess(addr, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fleetOrders is what a process of the fleet is told: for each round that is announced on its input, callers ask for the keys of that round.
type fleetOrders struct {
	Nodes    map[string]string // id: address
	Database string            // URL of the counting database
	Callers  int
	MaxLoads int
}

// fleetReport is what a process tells after a round.
type fleetReport struct {
	Values  map[string]int // value: how many callers got it
	Errors  map[string]int
	Stats   client.CacheStats
	Highest int // most loads at once in this process
}

// fleetProcess serves rounds: a line of input names the keys, a line of output is the report. While all callers of a round wait for a load it says so.
func fleetProcess(text string) error {
	var orders fleetOrders
	if err := json.Unmarshal([]byte(text), &orders); err != nil {
		return err
	}
	db := workload.Remote(orders.Database)
	defer db.Close()
	cfg := client.Config{OperationTimeout: 2 * time.Second, MaxLoads: orders.MaxLoads, LoadQueueTimeout: time.Minute, LoadQueue: orders.Callers}
	for id, addr := range orders.Nodes {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: id, Addr: addr})
	}
	ctx := context.Background()
	cl, err := client.New(ctx, cfg)
	if err != nil {
		return err
	}
	c, err := client.NewCache(cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, NoEarlyRefresh: true, L1: client.L1Off,
		LoadTimeout: time.Minute, LeaseTTL: 2 * time.Minute,
		Load: func(ctx context.Context, id string) (string, error) {
			r, err := db.Query(ctx, id)
			return r.Name, err
		}})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var keys []string
		if err := json.Unmarshal(in.Bytes(), &keys); err != nil {
			return err
		}
		if err := fleetRound(ctx, cl, c, keys, orders.Callers); err != nil {
			return err
		}
	}
	return errors.Join(in.Err(), cl.Close(ctx))
}

func fleetRound(ctx context.Context, cl *client.Client, c *client.Cache[string], keys []string, callers int) error {
	var mu sync.Mutex
	report := fleetReport{Values: make(map[string]int), Errors: make(map[string]int)}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			v, err := c.Get(ctx, keys[i%len(keys)])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				report.Errors[err.Error()]++
			} else {
				report.Values[v]++
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for waiting := false; ; {
		select {
		case <-ended:
			report.Stats, report.Highest = c.Stats(), cl.Stats().LoadsHighest
			return json.NewEncoder(os.Stdout).Encode(report)
		case <-time.After(time.Millisecond):
			if !waiting && c.Stats().Waiting == int64(callers) {
				waiting = true
				fmt.Println("waiting")
			}
		}
	}
}

// fleet is the parent's side.
type fleet struct {
	in  []io.WriteCloser
	out []*bufio.Scanner
}

func startFleet(t *testing.T, processes int, orders fleetOrders) *fleet {
	t.Helper()
	text, err := json.Marshal(orders)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{}
	for range processes {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]) // it ends when its input does
		cmd.Env = append(os.Environ(), fleetEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close() // ends the process
			if err := cmd.Wait(); err != nil {
				t.Errorf("a process of the fleet: %v", err)
			}
		})
		f.in, f.out = append(f.in, in), append(f.out, bufio.NewScanner(out))
	}
	f.await(t, "ready")
	return f
}

// await waits until every process has printed the line.
func (f *fleet) await(t *testing.T, line string) {
	t.Helper()
	for i, out := range f.out {
		if !out.Scan() || out.Text() != line {
			t.Fatalf("process %d said %q (%v), want %q", i, out.Text(), out.Err(), line)
		}
	}
}

func (f *fleet) ask(t *testing.T, keys ...string) {
	t.Helper()
	line, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range f.in {
		if _, err := in.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
}

// reports collects one report a process; lines that say "waiting" are passed over.
func (f *fleet) reports(t *testing.T) []fleetReport {
	t.Helper()
	reports := make([]fleetReport, len(f.out))
	for i, out := range f.out {
		for out.Scan() && out.Text() == "waiting" {
		}
		if err := json.Unmarshal(out.Bytes(), &reports[i]); err != nil {
			t.Fatalf("process %d said %q: %v", i, out.Text(), err)
		}
	}
	return reports
}

// TestFleetStampede: ten processes with a thousand callers each want one cold key at the same moment.
//
// While the owner answers, the whole fleet loads it exactly once. While it is down each process loads it once; and whatever is asked, the database
// never sees more at once than the processes' caps allow.
func TestFleetStampede(t *testing.T) {
	const processes, callers, maxLoads = 10, 1000, 4
	db, err := workload.NewDatabase(workload.DatabaseConfig{Rows: 10_000, Latency: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t, redistest.Config{})
	f := startFleet(t, processes, fleetOrders{
		Nodes: map[string]string{"node-0": server.Addr()}, Database: db.Serve(t), Callers: callers, MaxLoads: maxLoads,
	})
	check := func(reports []fleetReport) {
		t.Helper()
		answers := 0
		for i, r := range reports {
			for text, n := range r.Errors {
				t.Errorf("process %d: %d callers got %s", i, n, text)
			}
			for _, n := range r.Values {
				answers += n
			}
			if r.Highest > maxLoads {
				t.Errorf("process %d had %d loads at once, its cap is %d", i, r.Highest, maxLoads)
			}
		}
		if answers != processes*callers {
			t.Errorf("%d answers, want %d", answers, processes*callers)
		}
	}

	f.ask(t, "1")
	reports := f.reports(t)
	check(reports)
	if n := db.Counts().Queries; n != 1 {
		t.Errorf("owner up: %d loads for %d callers in %d processes, want exactly 1", n, processes*callers, processes)
	}
	for i, r := range reports {
		if r.Stats.NodeErrors != 0 {
			t.Errorf("owner up: process %d had %d timeouts", i, r.Stats.NodeErrors)
		}
	}

	server.Kill()
	db.ResetCounts()
	db.Hang(true) // until every caller waits, so that all of them are callers of one moment
	f.ask(t, "2")
	f.await(t, "waiting")
	db.Hang(false)
	check(f.reports(t))
	if c := db.Counts(); c.Queries > processes || c.MaxInFlight > processes {
		t.Errorf("owner down: %d loads, %d at once; want at most one a process, %d", c.Queries, c.MaxInFlight, processes)
	}

	db.ResetCounts()
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprint(100+i))
	}
	f.ask(t, keys...)
	check(f.reports(t))
	if c := db.Counts(); c.MaxInFlight > processes*maxLoads || c.MaxInFlight < maxLoads {
		t.Errorf("owner down, %d keys: %d loads at once; want at most %d for each of %d processes", len(keys), c.MaxInFlight, maxLoads, processes)
	}
}
