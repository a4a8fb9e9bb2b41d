// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

// What becomes of the copies in a process while the pushes that should take them away are disturbed, in each way that a network and a node have.

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// silence is the documented bound: a copy is served only while each connection of the pushes has answered a command that was sent less than this ago.
const silence = time.Second

// isListener and isFill pick the connections of the pushes.
func isListener(c *redistest.ProxyConn) bool { return c.Sent("CLIENT", "SETNAME", "shelf-listener") }
func isFill(c *redistest.ProxyConn) bool     { return c.Sent("CLIENT", "TRACKING", "ON") }

// trial is one process that invalidates and one that reads, all the time, from L1. The reader comes to the node through a proxy, the writer does not.
//
// Every read in L1 is checked against the moment at which its row was invalidated. The bound is exact, with no slack for a busy machine: let e be the moment at
// which the node executed the invalidation, t when Invalidate returned it, a when the read was asked for and n when the client looked at its clock.
// e <= t and a <= n. The copy was served, so at n all connections had answered commands sent after n - 1s. One sent after e is answered behind the push, or not
// at all, so one of them was sent before e: n - 1s < e, and a - t < 1s, whatever came between.
type trial struct {
	t        *testing.T
	server   *redistest.Server
	proxy    *redistest.Proxy
	began    time.Time
	dead     bool // during the fault the node answers nobody: an invalidation returns when it is over
	writer   *client.Cache[int64]
	reader   *client.Cache[int64]
	stats    func() client.NodeStats // of the reader's node
	rows     map[string]*watchedRow
	names    []string
	quiet    atomic.Int64 // when the node fell silent, for everybody, counted from began; 0: it has not
	healed   atomic.Int64 // when the latest fault was known to be over, likewise
	hits     atomic.Int64 // in L1
	stale    atomic.Int64 // of those, with a row that had been invalidated
	longest  atomic.Int64 // how long before
	failures atomic.Int64
}

// watchedRow is a row of the database: its value counts its writes.
type watchedRow struct {
	now  atomic.Int64
	gone [64]atomic.Int64 // by value: when the invalidation that followed its write had returned, counted from the trial's beginning; 0: not yet
}

// staleSince is when the first invalidation had returned that the value should not have survived; 0: there was none.
func (r *watchedRow) staleSince(value int64) time.Duration {
	for v := value + 1; v <= r.now.Load(); v++ {
		if at := r.gone[v].Load(); at != 0 {
			return time.Duration(at)
		}
	}
	return 0
}

func startTrial(t *testing.T, rows int, dead bool) *trial {
	t.Helper()
	tr := &trial{t: t, server: redistest.Start(t, redistest.Config{}), began: time.Now(), dead: dead, rows: make(map[string]*watchedRow)}
	tr.proxy = redistest.StartProxy(t, tr.server.Addr())
	for i := range rows {
		name := strconv.Itoa(i)
		tr.names, tr.rows[name] = append(tr.names, name), new(watchedRow)
	}
	process := func(addr string, timeout time.Duration) (*client.Client, *client.Cache[int64]) {
		cl := open(t, client.Config{Nodes: []ring.Node{{ID: "a", Addr: addr}}, OperationTimeout: timeout})
		awaitPushes(t, cl)
		return cl, newCache(t, cl, client.CacheConfig[int64]{
			Name: "x", TTL: time.Hour, NoEarlyRefresh: true, L1: client.L1All, L1TTL: 10 * time.Minute,
			// A lease that the node grants after its reader has given up stays until its end: not for long, here.
			LoadTimeout: time.Second, LeaseTTL: 2 * time.Second, WaitTimeout: 100 * time.Millisecond,
			Load: func(_ context.Context, key string) (int64, error) { return tr.rows[key].now.Load(), nil },
		})
	}
	_, tr.writer = process(tr.server.Addr(), 20*time.Second)
	cl, reader := process(tr.proxy.Addr(), 200*time.Millisecond)
	tr.reader, tr.stats = reader, func() client.NodeStats { return cl.Stats().Nodes[0] }
	return tr
}

func (tr *trial) since() time.Duration { return time.Since(tr.began) }

// fail reports the first few of what may be thousands.
func (tr *trial) fail(format string, args ...any) {
	if tr.failures.Add(1) <= 5 {
		tr.t.Errorf(format, args...)
	}
}

// read is one read and its check.
func (tr *trial) read(name string) client.Result[int64] {
	row, asked := tr.rows[name], tr.since()
	r, err := tr.reader.Lookup(tr.t.Context(), name)
	if err != nil {
		tr.fail("Lookup(%s): %v", name, err)
		return r
	}
	over := row.staleSince(r.Value)
	old := asked - over
	switch {
	case r.Layer != client.LayerL1:
		// With a node that answers nobody, callers of one load share its value, whenever they came.
		if over != 0 && old > 0 && !tr.dead {
			tr.fail("row %s: %d from %v, %v after the invalidation of %d had returned", name, r.Value, r.Layer, old, r.Value+1)
		}
		return r
	case over != 0 && old > 0:
		tr.stale.Add(1)
		for seen := tr.longest.Load(); int64(old) > seen && !tr.longest.CompareAndSwap(seen, int64(old)); seen = tr.longest.Load() {
		}
		if healed := time.Duration(tr.healed.Load()); old >= silence || healed != 0 && asked >= healed && over <= healed {
			tr.fail("row %s: %d from this process, %v after the invalidation of %d had returned (%v after the fault was over)",
				name, r.Value, old, r.Value+1, asked-healed)
		}
	}
	if quiet := time.Duration(tr.quiet.Load()); quiet != 0 && asked >= quiet+silence {
		tr.fail("row %s: from this process, %v after its node had fallen silent", name, asked-quiet)
	}
	tr.hits.Add(1)
	return r
}

// readAll reads everything again and again until it is told to stop.
func (tr *trial) readAll(stop <-chan struct{}) {
	for {
		for _, name := range tr.names {
			select {
			case <-stop:
				return
			default:
				tr.read(name)
			}
		}
		time.Sleep(100 * time.Microsecond) // the others need the processors as well
	}
}

// warm brings every row into the reader's L1.
func (tr *trial) warm() {
	tr.t.Helper()
	awaitPushesOf(tr.t, tr.stats)
	for range 2 { // loaded, then read through the node's watch
		if m, err := tr.reader.GetMany(tr.t.Context(), tr.names); err != nil || len(m) != len(tr.names) {
			tr.fail("GetMany: %d of %d, %v", len(m), len(tr.names), err)
		}
	}
	for _, name := range tr.names {
		eventually(tr.t, "in L1: "+name, func() bool { return tr.read(name).Layer == client.LayerL1 })
	}
}

// write changes a row and invalidates it, until that succeeds.
func (tr *trial) write(name string) {
	row := tr.rows[name]
	v := row.now.Add(1)
	for tr.writer.Invalidate(tr.t.Context(), name) != nil {
		if !tr.dead || tr.t.Context().Err() != nil {
			tr.fail("the invalidation of row %s failed", name)
			return
		}
		time.Sleep(5 * time.Millisecond) // a node that is dead says so at once
	}
	row.gone[v].Store(int64(tr.since()))
}

// writeAll changes every row once, by four writers; hit is called when the invalidations are well under way.
func (tr *trial) writeAll(hit func()) {
	var done atomic.Int64
	var writers sync.WaitGroup
	under := make(chan struct{})
	const some = 10
	for w := range 4 {
		writers.Go(func() {
			for i := w; i < len(tr.names); i += 4 {
				tr.write(tr.names[i])
				if done.Add(1) == some {
					close(under)
				}
			}
		})
	}
	<-under
	hit()
	writers.Wait()
}

// settle waits until a push that was sent after the fault has come, and with it, in one stream, all that were sent before.
func (tr *trial) settle() {
	tr.t.Helper()
	fence := tr.names[0]
	awaitPushesOf(tr.t, tr.stats)
	eventually(tr.t, "the fence in L1", func() bool { return tr.read(fence).Layer == client.LayerL1 })
	tr.write(fence)
	now := tr.rows[fence].now.Load()
	eventually(tr.t, "the fence pushed", func() bool { return tr.read(fence).Value == now })
	tr.healed.Store(int64(tr.since()))
}

func awaitPushesOf(t *testing.T, stats func() client.NodeStats) {
	t.Helper()
	eventually(t, "pushing", func() bool { return stats().Pushing })
}

// pushFault is a way to disturb the pushes.
type pushFault struct {
	begin, end func(tr *trial)
	hold       time.Duration
	dead       bool   // the node answers nobody
	blind      bool   // nobody notices before the second is over: copies are served meanwhile that are old, else the fault was none
	lost       uint64 // how often the pushes are lost, at least, each time
}

func heal(tr *trial) { tr.proxy.Heal() }

var pushFaults = map[string]pushFault{
	"listener cut":             {begin: func(tr *trial) { tr.proxy.Only(isListener).CutAfter(0) }, end: heal, hold: 500 * time.Millisecond, lost: 1},
	"listener reset":           {begin: func(tr *trial) { tr.proxy.Only(isListener).Reset() }, end: heal, lost: 1},
	"listener black-holed":     {begin: func(tr *trial) { tr.proxy.Only(isListener).BlackHole() }, end: heal, hold: 1300 * time.Millisecond, blind: true},
	"listener's answers late":  {begin: func(tr *trial) { tr.proxy.Only(isListener).ToClient().BlackHole() }, end: heal, hold: 1100 * time.Millisecond, blind: true},
	"listener silent for long": {begin: func(tr *trial) { tr.proxy.Only(isListener).BlackHole() }, end: heal, hold: 3500 * time.Millisecond, blind: true, lost: 1},
	"fill connections killed":  {begin: func(tr *trial) { tr.proxy.Only(isFill).Reset() }, end: heal, lost: 1},
	"fill connections killed on the node, and nobody told": {begin: func(tr *trial) {
		tr.proxy.Only(isFill).BlackHole()
		tr.killOnNode("shelf-fill")
	}, end: heal, hold: 1300 * time.Millisecond, blind: true, lost: 1},
	"node stopped":          {begin: stopNode, end: func(tr *trial) { tr.quiet.Store(0); tr.server.Cont() }, hold: 1300 * time.Millisecond, dead: true},
	"node stopped for long": {begin: stopNode, end: func(tr *trial) { tr.quiet.Store(0); tr.server.Cont() }, hold: 3500 * time.Millisecond, dead: true, lost: 1},
	"node killed": {begin: func(tr *trial) { tr.server.Kill(); tr.quiet.Store(int64(tr.since())) },
		end: func(tr *trial) { tr.quiet.Store(0); tr.server.Restart() }, hold: 1300 * time.Millisecond, dead: true, lost: 1},
}

func stopNode(tr *trial) {
	tr.server.Stop()
	tr.quiet.Store(int64(tr.since()))
}

// killOnNode has the node close the connections of a name.
func (tr *trial) killOnNode(name string) {
	raw := tr.server.Client()
	ids := connections(tr.t, raw, name)
	if len(ids) == 0 {
		tr.fail("no connection of the name %s", name)
	}
	for _, id := range ids {
		if err := raw.ClientKillByFilter(tr.t.Context(), "ID", id).Err(); err != nil {
			tr.fail("CLIENT KILL: %v", err)
		}
	}
}

// TestCopiesWhilePushesFail: 1,000 invalidations by another process for each fault, which begins in the middle of them. No read that begins a second or more after an
// invalidation has returned gets the old row from L1; when the fault is over none does; and one that begins a second after the node has fallen silent gets none.
func TestCopiesWhilePushesFail(t *testing.T) {
	for name, f := range pushFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			rounds := 2
			if f.hold > 2*time.Second {
				rounds = 1
			}
			startTrial(t, 1000/rounds, f.dead).disturb(f, rounds)
		})
	}
}

func (tr *trial) disturb(f pushFault, rounds int) {
	t := tr.t
	stop := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { tr.readAll(stop) })
	defer reading.Wait()
	defer close(stop)
	for round, again := 0, 3; round < rounds; round++ {
		tr.warm()
		hits, stale, lost := tr.hits.Load(), tr.stale.Load(), tr.stats().PushesLost
		tr.writeAll(func() {
			f.begin(tr)
			time.Sleep(f.hold)
			f.end(tr)
		})
		tr.settle()
		for _, name := range tr.names {
			if r := tr.read(name); r.Value != tr.rows[name].now.Load() {
				t.Fatalf("round %d: the fault is over, and row %s is %+v; want %d", round, name, r, tr.rows[name].now.Load())
			}
		}
		if got := tr.stats().PushesLost - lost; got < f.lost {
			t.Errorf("round %d: PushesLost grew by %d, want at least %d", round, got, f.lost)
		}
		nothing := tr.hits.Load() == hits || f.blind && tr.stale.Load() == stale
		if nothing && again > 0 { // on a busy machine the invalidations may take longer than the fault stays unnoticed
			again, round = again-1, round-1
		} else if nothing {
			t.Errorf("round %d: %d hits, %d of them old: this fault tested nothing", round, tr.hits.Load()-hits, tr.stale.Load()-stale)
		}
	}
	t.Logf("%d invalidations: %d hits in L1, %d of them old, by %v at most",
		rounds*len(tr.names), tr.hits.Load(), tr.stale.Load(), time.Duration(tr.longest.Load()))
}
