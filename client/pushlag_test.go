// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// How long a process serves its own copy after another process has invalidated it: make pushes.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/stalecheck"
	"github.com/go-shelf/shelf/ring"
)

// writerEnv makes the test binary the process that invalidates; it is the node's address.
const writerEnv = "SHELF_TEST_WRITER"

// lagCache is the cache of both processes. Its rows are counters beside it, on the same node.
func lagCache(ctx context.Context, addr string) (*client.Client, *client.Cache[int64], error) {
	cl, err := client.New(ctx, client.Config{Nodes: []ring.Node{{ID: "a", Addr: addr}}, OperationTimeout: 5 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	c, err := client.NewCache(cl, client.CacheConfig[int64]{
		Name: "x", TTL: time.Hour, NoEarlyRefresh: true, L1: client.L1All, L1TTL: 10 * time.Minute,
		Load: func(ctx context.Context, key string) (int64, error) {
			return cl.Incr(ctx, "row:"+key, 0, client.NoExpiry)
		},
	})
	return cl, c, err
}

// writerProcess writes and invalidates the keys that it reads, one a line, and prints when each invalidation had returned.
func writerProcess(addr string, in io.Reader, out io.Writer) error {
	ctx := context.Background()
	cl, c, err := lagCache(ctx, addr)
	if err != nil {
		return err
	}
	keys, answers := bufio.NewScanner(in), json.NewEncoder(out)
	for keys.Scan() {
		key := keys.Text()
		version, err := cl.Incr(ctx, "row:"+key, 1, client.NoExpiry)
		if err == nil {
			err = c.Invalidate(ctx, key)
		}
		returned := stalecheck.Now()
		if err != nil {
			return err
		}
		if err := answers.Encode(invalidated{key, version, returned}); err != nil {
			return err
		}
	}
	return errors.Join(keys.Err(), cl.Close(ctx))
}

// invalidated says when the invalidation of a key had returned that followed the write of a version.
type invalidated struct {
	Key     string
	Version int64
	At      time.Duration
}

// lastHit is the last hit in L1 that gave a version of a key: when it was asked for, and when it was there.
type lastHit struct{ asked, got time.Duration }

// TestPushLag: two processes, one of which writes and invalidates keys that the other reads all the time from its own copies. No read that begins a second after an
// invalidation has returned gets the old row (that is promised); the usual time is that of a push. With -v it prints how long it was.
//
// What is measured is the time from when Invalidate had returned to when the last old row was in the reader's hands, both by the host's one monotonic clock.
// A reading of the clock is off by a system call (below a microsecond), and by whatever the scheduler puts between it and the call beside it: that shortens the time on the writer's side and lengthens it on the reader's.
func TestPushLag(t *testing.T) {
	const keys, wanted = 20, 2500
	server := redistest.Start(t, redistest.Config{})
	cl, c, err := lagCache(t.Context(), server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close(context.Background()) })
	awaitPushes(t, cl)
	orders, answers := startWriter(t, server.Addr())
	last := make([]map[int64]lastHit, keys) // by key and version
	for k := range last {
		last[k] = make(map[int64]lastHit)
	}
	asks := make(chan string, keys)
	go func() {
		for key := range asks {
			_, _ = io.WriteString(orders, key+"\n") // an error is the writer's end: it is noticed where its answers are missed
		}
		_ = orders.Close()
	}()
	// As soon as a version is served from L1 the writer is told to write the next, so that what it invalidates is always hot.
	ordered, end := 0, time.Now().Add(time.Minute)
	for until := time.Duration(0); until == 0 || stalecheck.Now() < until; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d invalidations in a minute: the copies stay", ordered, wanted)
		}
		for k := range last {
			key, asked := strconv.Itoa(k), stalecheck.Now()
			r, err := c.Lookup(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if r.Layer != client.LayerL1 {
				continue
			}
			_, seen := last[k][r.Value]
			last[k][r.Value] = lastHit{asked, stalecheck.Now()}
			if !seen && ordered < wanted {
				ordered++
				asks <- key
			}
		}
		if ordered == wanted && until == 0 {
			close(asks)
			until = stalecheck.Now() + 500*time.Millisecond // for what the last ones leave
		}
	}
	report(t, answers(), last, wanted)
}

// startWriter runs the other process. answers waits for its end and returns what it printed.
func startWriter(t *testing.T, addr string) (orders io.WriteCloser, answers func() []invalidated) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0]) // it ends when its input does
	cmd.Env = append(os.Environ(), writerEnv+"="+addr)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	var all []invalidated
	read := make(chan struct{})
	go func() {
		defer close(read)
		for d := json.NewDecoder(out); ; {
			var one invalidated
			if d.Decode(&one) != nil {
				return
			}
			all = append(all, one)
		}
	}()
	ended := false
	wait := func() {
		if !ended {
			ended = true
			_ = in.Close()
			<-read
			if err := cmd.Wait(); err != nil {
				t.Errorf("the writer: %v", err)
			}
		}
	}
	t.Cleanup(wait)
	return in, func() []invalidated { wait(); return all }
}

// report checks the promise and prints the histogram.
func report(t *testing.T, writes []invalidated, last []map[int64]lastHit, wanted int) {
	t.Helper()
	var lags []time.Duration
	none := 0
	for _, w := range writes {
		k, err := strconv.Atoi(w.Key)
		if err != nil {
			t.Fatal(err)
		}
		hit, hot := last[k][w.Version-1]
		switch {
		case !hot:
			t.Errorf("version %d of key %s was not hot when it was written over", w.Version-1, w.Key)
		case hit.asked-w.At >= silence:
			t.Errorf("version %d of key %s: served %v after its invalidation had returned", w.Version-1, w.Key, hit.asked-w.At)
		case hit.asked <= w.At: // no read that began after the return got it
			none++
		default:
			lags = append(lags, hit.got-w.At)
		}
	}
	if len(writes) != wanted {
		t.Fatalf("%d invalidations, want %d", len(writes), wanted)
	}
	slices.Sort(lags)
	t.Logf("%d invalidations of hot keys; %d (%.1f %%) had no old hit after they had returned; the others:\ntime from Invalidate's return to the last old L1 hit | how many\n%s", wanted, none, 100*float64(none)/float64(wanted), histogram(lags))
	all := append(make([]time.Duration, none), lags...) // sorted: none is 0
	t.Logf("last old hit after the return, over all: p50 %v, p99 %v, max %v", rank(all, 0.5), rank(all, 0.99), rank(all, 1))
	t.Logf("... where there was one (%d):           p50 %v, p99 %v, max %v", len(lags), rank(lags, 0.5), rank(lags, 0.99), rank(lags, 1))
	if p50 := rank(all, 0.5); p50 > 50*time.Millisecond {
		t.Errorf("the median is %v: that is not a push", p50)
	}
}

// rank is the share q of sorted durations (nearest rank); 0 without any.
func rank(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, min(len(sorted)-1, int(q*float64(len(sorted))+0.5)-1))]
}

// histogram is one line for each doubling.
func histogram(sorted []time.Duration) string {
	var b strings.Builder
	for least, most := time.Duration(0), time.Microsecond; len(sorted) > 0; least, most = most, 2*most {
		n, _ := slices.BinarySearch(sorted, most)
		if n > 0 {
			fmt.Fprintf(&b, "%10v to %8v  %5d  %s\n", least, most, n, strings.Repeat("#", (n+9)/10))
		}
		sorted = sorted[n:]
	}
	return b.String()
}
