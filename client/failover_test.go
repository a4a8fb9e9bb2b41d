// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// failovers is how many TestFailover makes, one after the other, some 6 s each. SHELF_FAILOVERS in the environment is another number: the figures of the
// documentation are of 20.
func failovers(t *testing.T) int {
	if testing.Short() {
		t.Skip("a failover takes 6 s")
	}
	if n, err := strconv.Atoi(os.Getenv("SHELF_FAILOVERS")); err == nil {
		return n
	}
	return 2
}

// roleIs asks a server for its ROLE.
func roleIs(ctx context.Context, s *redistest.Server, role string) bool {
	reply, err := s.Do(ctx, "ROLE")
	parts, ok := reply.([]any)
	return err == nil && ok && len(parts) > 0 && parts[0] == role
}

// primaryOf is the server that says that it is the primary.
func (s *shards) primaryOf(t *testing.T, name string) *redistest.Server {
	t.Helper()
	addr, err := s.AwaitPrimary(t.Context(), name, "")
	if err != nil {
		t.Fatal(err)
	}
	return redistest.ByAddr(s.servers[name], addr)
}

// rejoin makes every other server of a shard a replica of the primary, in sync and known to all Sentinels as fit for the next failover. The Sentinels may promote once more meanwhile.
func (s *shards) rejoin(t *testing.T, name string) {
	t.Helper()
	told := make(map[*redistest.Server]*redistest.Server) // whose replica it is to be
	eventuallyIn(t, 60*time.Second, "all are replicas, and known as such", func() bool {
		primary := s.primaryOf(t, name)
		for _, server := range s.servers[name] {
			if server != primary && (told[server] != primary || !roleIs(t.Context(), server, "slave")) {
				mustDo(t, server, "REPLICAOF", "127.0.0.1", strconv.Itoa(primary.Port()))
				told[server] = primary
			}
		}
		for i := range s.Addrs() {
			if !s.knowsAll(t, i, name, primary) {
				time.Sleep(50 * time.Millisecond) // a Sentinel looks once in ten seconds
				return false
			}
		}
		return true
	})
}

// knowsAll says whether a Sentinel finds the primary well, and all others its replicas.
func (s *shards) knowsAll(t *testing.T, sentinel int, name string, primary *redistest.Server) bool {
	t.Helper()
	master, err := s.Server(sentinel).Do(t.Context(), "SENTINEL", "MASTER", name)
	fields, _ := master.([]any)
	if known := pairsOf(fields); err != nil || known["flags"] != "master" || known["port"] != strconv.Itoa(primary.Port()) {
		return false
	}
	reply, err := s.Server(sentinel).Do(t.Context(), "SENTINEL", "REPLICAS", name)
	list, _ := reply.([]any)
	good := 0
	for _, one := range list {
		fields, _ := one.([]any)
		if known := pairsOf(fields); known["flags"] == "slave" && known["master-link-status"] == "ok" && known["master-port"] == strconv.Itoa(primary.Port()) {
			good++
		}
	}
	return err == nil && good == len(s.servers[name])-1
}

func pairsOf(fields []any) map[string]string {
	m := make(map[string]string)
	for i := 0; i+1 < len(fields); i += 2 {
		m[fmt.Sprint(fields[i])] = fmt.Sprint(fields[i+1])
	}
	return m
}

func eventuallyIn(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

// failoverClient is go-redis's own, with short timeouts and no waiting between dials.
func failoverClient(s *shards, name string) *redis.Client {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: name, SentinelAddrs: s.Addrs(), MaxRetries: -1, DialerRetries: 1, DialTimeout: 100 * time.Millisecond,
		ReadTimeout: 80 * time.Millisecond, WriteTimeout: 80 * time.Millisecond, PoolTimeout: 80 * time.Millisecond, PoolSize: 16, ContextTimeoutEnabled: true,
		DisableIdentity: true,
	})
}

// untilDone repeats a write every 2 ms until it succeeds, and returns when that was.
func untilDone(ctx context.Context, write func() error) (time.Time, error) {
	for ctx.Err() == nil {
		if write() == nil {
			return time.Now(), nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Time{}, ctx.Err()
}

// TestFailover kills primaries. Writes reach the new one at most 300 ms after its ROLE says that it is one, and in at most 0.6 of the time of go-redis's failover client beside; no read
// fails, and next to none needs the loader; and however many there are, neither connections nor goroutines are left behind.
func TestFailover(t *testing.T) {
	rounds := failovers(t)
	s := startShards(t, 1, "shelf-a")
	var told events
	cfg := s.config("shelf-a")
	cfg.OperationTimeout = 0
	cfg.ReadFrom, cfg.OnEvent, cfg.PoolSize = client.ReadPrimaryPreferred, told.add, 4
	cfg.Redis = func(_ ring.Node, o *redis.Options) { o.ClientName = "ours" }
	cl := open(t, cfg)
	var loads atomic.Int64
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Hour, L1: client.L1Off, Load: func(ctx context.Context, key string) (string, error) {
		loads.Add(1)
		return echo(ctx, key)
	}})
	theirs := failoverClient(s, "shelf-a")
	defer theirs.Close() //nolint:errcheck // a test's
	var afterRole, ours, others []time.Duration
	goroutines := 0
	for round := range rounds {
		primary := s.primaryOf(t, "shelf-a")
		replica := redistest.ByAddr(s.servers["shelf-a"], otherAddr(s.servers["shelf-a"], primary))
		eventuallyIn(t, 20*time.Second, "the replica may be read", func() bool {
			n := nodeStats(cl, "shelf-a")
			return n.Addr == primary.Addr() && len(n.Replicas) == 1 && n.Replicas[0].Addr == replica.Addr() && n.Replicas[0].Readable && n.Pushing
		})
		for i := range 50 {
			if _, err := c.Get(t.Context(), fmt.Sprint("k", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := theirs.Set(t.Context(), "theirs", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if round == 1 { // the first has warmed everything up
			goroutines = ourGoroutines()
		}
		eventually(t, "replicated", func() bool {
			size, err := replica.Do(t.Context(), "EXISTS", "x:k49:v0")
			return err == nil && size == int64(1)
		})
		before := loads.Load()
		stop, failed, fromReplica := readOn(t, c)
		killed := time.Now()
		primary.Kill()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		var roleAt, oursAt, theirsAt time.Time
		var all sync.WaitGroup
		all.Go(func() {
			roleAt, _ = untilDone(ctx, func() error {
				if !roleIs(ctx, replica, "master") {
					return errNot
				}
				return nil
			})
		})
		all.Go(func() { oursAt, _ = untilDone(ctx, func() error { return c.Invalidate(ctx, "written") }) })
		all.Go(func() { theirsAt, _ = untilDone(ctx, func() error { return theirs.Set(ctx, "theirs", 2, 0).Err() }) })
		all.Wait()
		cancel()
		stop()
		if oursAt.IsZero() || theirsAt.IsZero() || roleAt.IsZero() {
			t.Fatalf("round %d: no failover in 30 s: role %v, ours %v, theirs %v", round, roleAt, oursAt, theirsAt)
		}
		if failed.Load() > 0 {
			t.Errorf("round %d: %d reads failed", round, failed.Load())
		}
		if fromReplica.Load() == 0 {
			t.Errorf("round %d: no read was answered by the replica", round)
		}
		t.Logf("round %d: ROLE %v, ours %v (%v after), go-redis %v; %d reads from the replica, %d loads", round, roleAt.Sub(killed).Round(time.Millisecond), oursAt.Sub(killed).Round(time.Millisecond),
			oursAt.Sub(roleAt).Round(time.Millisecond), theirsAt.Sub(killed).Round(time.Millisecond), fromReplica.Load(), loads.Load()-before)
		afterRole, ours, others = append(afterRole, oursAt.Sub(roleAt)), append(ours, oursAt.Sub(killed)), append(others, theirsAt.Sub(killed))
		primary.Restart()
		s.rejoin(t, "shelf-a")
		eventuallyIn(t, 20*time.Second, "go-redis goes on", func() bool { return theirs.Ping(t.Context()).Err() == nil })
	}
	middle := func(d []time.Duration) time.Duration { slices.Sort(d); return d[len(d)/2] }
	a, o, g := middle(afterRole), middle(ours), middle(others)
	t.Logf("medians of %d: %v after ROLE, %v after the kill, go-redis %v: %.2f of it", rounds, a, o, g, float64(o)/float64(g))
	if a > 300*time.Millisecond {
		t.Errorf("writes reached the new primary %v after its ROLE said so, want at most 300 ms", a)
	}
	if rounds >= 5 && float64(o) > 0.6*float64(g) {
		t.Errorf("after %v, go-redis's client after %v: want at most 0.6 of that", o, g)
	}
	if got := told.get(); len(got) < rounds {
		t.Errorf("%d events of another primary, want %d: %+v", len(got), rounds, got)
	}
	last := s.primaryOf(t, "shelf-a")
	eventuallyIn(t, 30*time.Second, "the last round is over", func() bool {
		n := nodeStats(cl, "shelf-a")
		return n.Addr == last.Addr() && len(n.Replicas) == 1 && n.Replicas[0].Readable && n.Pushing
	})
	eventually(t, "as many goroutines as after the first failover", func() bool { return ourGoroutines() <= goroutines })
	for _, server := range s.servers["shelf-a"] { // a pool, three for bodies, and the primary's three for pushes
		if n := connectionsTo(t, server, "ours"); n > 4+3+3 {
			t.Errorf("%d connections to %s after %d failovers", n, server.Addr(), rounds)
		}
	}
}

var errNot = fmt.Errorf("not yet")

func otherAddr(servers []*redistest.Server, not *redistest.Server) string {
	for _, s := range servers {
		if s != not {
			return s.Addr()
		}
	}
	return ""
}

// connectionsTo counts a server's clients of that name.
func connectionsTo(t *testing.T, s *redistest.Server, name string) int {
	t.Helper()
	return strings.Count(fmt.Sprint(mustDo(t, s, "CLIENT", "LIST")), " name="+name+" ")
}

// ourGoroutines counts those that run the package's code, or what it stands on, but the driver's own: go-redis's failover client is there too.
func ourGoroutines() int {
	stacks := make([]byte, 4<<20)
	n := 0
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "shelf/client.") || strings.Contains(stack, "shelf/internal/redisnode.") {
			n++
		}
	}
	return n
}

// readOn reads keys all the time, until stop is called.
func readOn(t *testing.T, c *client.Cache[string]) (stop func(), failed, fromReplica *atomic.Int64) {
	failed, fromReplica = new(atomic.Int64), new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range 2 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprint("k", (i*2+w)%50)
				r, err := c.Lookup(context.Background(), key)
				if err != nil || r.Value != "value of "+key {
					failed.Add(1)
				}
				if r.Replica != "" {
					fromReplica.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return func() { cancel(); all.Wait() }, failed, fromReplica
}
