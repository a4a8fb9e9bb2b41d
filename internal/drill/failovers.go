// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
)

const (
	failoverRounds = 20
	failoverRate   = 200.0                  // reads a second meanwhile
	followLimit    = 300 * time.Millisecond // from the replica's word that it is the primary to the first write there
	followRatio    = 0.6                    // of the driver's own failover client in the same rounds
	followEvery    = 5 * time.Millisecond   // a write is tried so often
	roleEvery      = 2 * time.Millisecond
	roundLimit     = 60 * time.Second
	settleRounds   = 3  // after so many, everything that is kept has been made
	spare          = 10 // goroutines, or connections, that may come and go
)

// followed is what was seen of one failover: how long after the promotion the first write arrived.
type followed struct{ shelf, driver time.Duration }

// playFailovers kills a primary, again and again, and measures how fast writes arrive at the one that was promoted: those of this library, and those of the driver's
// failover client.
func playFailovers(ctx context.Context, cfg config, d *drill) (v verdict, err error) {
	v.name = d.name
	cfg.keys = min(cfg.keys, 1000)
	w, err := launch(ctx, d.setting, cfg)
	defer func() { err = errors.Join(err, w.close()) }() //nolint:contextcheck // also when ctx has ended
	if err != nil {
		return v, err
	}
	f := &failovers{world: w}
	if err := f.open(ctx); err != nil {
		return v, err
	}
	defer f.close()
	rounds := max(settleRounds+1, int(failoverRounds*cfg.pace))
	if err := f.play(ctx, cfg, rounds); err != nil {
		return v, err
	}
	v.checks, v.late, v.stall = f.checks(rounds), f.late, f.stall
	v.notes = fmt.Sprintf("%d failovers", len(f.seen))
	return v, nil
}

// failovers is the course of the drill.
type failovers struct {
	world   *world
	drivers []*redis.Client // the driver's failover clients, one a node
	seen    []followed
	reads   []sample
	errors  map[string]int
	late    time.Duration // p99 of the readers' lateness, of all of them and in the worst second
	stall   time.Duration

	goroutines, connections [2]int // after settleRounds, and in the end
}

// open makes the driver's clients, as patient with a node as ours, and Sentinels that look twice a second, so that the next round can begin soon.
func (f *failovers) open(ctx context.Context) error {
	redis.SetLogger(silence{})
	addrs := f.world.sentinels.Addrs()
	for i := range f.world.servers {
		f.drivers = append(f.drivers, redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: nodeID(i), SentinelAddrs: addrs, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: operationTimeout, ReadTimeout: operationTimeout, WriteTimeout: operationTimeout,
		}))
		if err := f.drivers[i].Set(ctx, "drill", 0, 0).Err(); err != nil {
			return fmt.Errorf("drill: the driver's failover client: %w", err)
		}
	}
	for i := range addrs {
		if _, err := f.world.sentinels.Server(i).Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", 500); err != nil {
			return err
		}
	}
	return nil
}

func (f *failovers) close() {
	for _, c := range f.drivers {
		_ = c.Close() // nothing is lost
	}
}

// silence is for the driver's failover client, which tells the standard error of every failover.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (f *failovers) play(ctx context.Context, cfg config, rounds int) error {
	w := f.world
	w.began = time.Now()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	if err := w.traffic(reading, reading, failoverRate, cfg.seed); err != nil {
		return err
	}
	told := make(chan error, 1)
	go func() { told <- w.tell(reading) }()
	err := f.rounds(ctx, rounds)
	stop()
	err = errors.Join(err, <-told, w.wait(), w.failed())
	f.errors = make(map[string]int)
	for _, p := range w.processes {
		f.reads = append(f.reads, p.samples...)
		for text, n := range p.errors {
			f.errors[text] += n
		}
	}
	slices.SortFunc(f.reads, func(a, b sample) int { return int(a.at - b.at) })
	o := outcome{samples: f.reads, over: time.Since(w.began)}
	f.late, f.stall = quantile(f.reads, 0.99, late), o.stall()
	return err
}

func (f *failovers) rounds(ctx context.Context, rounds int) error {
	for round := range rounds {
		if round == settleRounds {
			f.goroutines[0], f.connections[0] = f.resources(ctx)
		}
		one, cancel := context.WithTimeout(ctx, roundLimit)
		err := f.round(one, round%len(f.world.servers))
		cancel()
		if err != nil {
			return fmt.Errorf("failover %d: %w", round+1, err)
		}
	}
	f.goroutines[1], f.connections[1] = f.resources(ctx)
	return nil
}

// round is one failover of a node.
func (f *failovers) round(ctx context.Context, node int) error {
	old, err := f.primary(ctx, node)
	if err != nil {
		return err
	}
	key := f.world.ids[slices.Index(f.world.owners, int16(node))]
	cache := f.world.processes[0].cache
	old.Kill()
	promoted := begin(ctx, roleEvery, func() error {
		_, err := f.primary(ctx, node)
		return err
	})
	shelf := begin(ctx, followEvery, func() error { return cache.Invalidate(ctx, key) })
	driver := begin(ctx, followEvery, func() error { return f.drivers[node].Set(ctx, "drill", "x", 0).Err() })
	at, err1 := (<-promoted).get()
	ours, err2 := (<-shelf).get()
	theirs, err3 := (<-driver).get()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	f.seen = append(f.seen, followed{max(0, ours.Sub(at)), max(0, theirs.Sub(at))})
	return f.restore(ctx, node, old)
}

// moment is when something was done first, or why it never was.
type moment struct {
	at  time.Time
	err error
}

func (m moment) get() (time.Time, error) { return m.at, m.err }

// begin tries again and again until it succeeds.
func begin(ctx context.Context, every time.Duration, try func() error) <-chan moment {
	done := make(chan moment, 1)
	go func() {
		for {
			err := try()
			if err == nil {
				done <- moment{at: time.Now()}
				return
			}
			if pause(ctx, every); ctx.Err() != nil {
				done <- moment{err: fmt.Errorf("%w; last: %w", ctx.Err(), err)}
				return
			}
		}
	}()
	return done
}

// primary is the server of a node that runs and says that it is a primary.
func (f *failovers) primary(ctx context.Context, node int) (*redistest.Server, error) {
	for _, s := range f.world.group(node) {
		if role, err := roleOf(ctx, s); err == nil && role == "master" {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server of %s says that it is a primary", nodeID(node))
}

// roleOf is what a server says that it is: "master" or "slave".
func roleOf(ctx context.Context, s *redistest.Server) (string, error) {
	if !s.Running() { // the driver logs each dial that is refused
		return "", errors.New("it does not run")
	}
	reply, err := s.Do(ctx, "ROLE")
	if parts, _ := reply.([]any); len(parts) > 0 {
		return fmt.Sprint(parts[0]), err
	}
	return "", err
}

// restore starts the server that was killed, and waits until the Sentinels could do it all again.
func (f *failovers) restore(ctx context.Context, node int, old *redistest.Server) error {
	old.Restart() //nolint:contextcheck // a step of a server has a limit of its own
	m := <-begin(ctx, 50*time.Millisecond, func() error { return f.ready(ctx, node) })
	return m.err
}

// ready says whether every Sentinel sees the same primary, and all other servers of the node as replicas in sync. One of them that still takes itself for a
// primary is told: the Sentinels would do so, 10 s later.
func (f *failovers) ready(ctx context.Context, node int) error {
	addr, err := f.world.sentinels.PrimaryAddr(ctx, nodeID(node))
	if err != nil {
		return err
	}
	now := redistest.ByAddr(f.world.group(node), addr)
	if now == nil {
		return fmt.Errorf("the Sentinels name %s, which is none of ours", addr)
	}
	for _, s := range f.world.group(node) {
		if role, err := roleOf(ctx, s); s != now && (err != nil || role == "master") {
			_, err := s.Do(ctx, "REPLICAOF", "127.0.0.1", now.Port())
			return errors.Join(errors.New("a server was told whose replica it is"), err)
		}
	}
	for i := range f.world.sentinels.Addrs() {
		if err := f.sees(ctx, i, node, now); err != nil {
			return err
		}
	}
	return nil
}

// sees says whether a Sentinel sees that primary, and its replicas in sync.
func (f *failovers) sees(ctx context.Context, i, node int, now *redistest.Server) error {
	s := f.world.sentinels.Server(i)
	reply, err := s.Do(ctx, "SENTINEL", "MASTER", nodeID(node))
	if err != nil {
		return err
	}
	if m := fieldsOf(reply); m["flags"] != "master" || m["port"] != fmt.Sprint(now.Port()) {
		return fmt.Errorf("sentinel %d sees a %s at port %s", i, m["flags"], m["port"])
	}
	if reply, err = s.Do(ctx, "SENTINEL", "REPLICAS", nodeID(node)); err != nil {
		return err
	}
	good := 0
	list, _ := reply.([]any)
	for _, r := range list {
		if m := fieldsOf(r); m["flags"] == "slave" && m["master-link-status"] == "ok" && m["master-port"] == fmt.Sprint(now.Port()) {
			good++
		}
	}
	if good < f.world.replicas {
		return fmt.Errorf("sentinel %d sees %d good replicas of %d", i, good, f.world.replicas)
	}
	return nil
}

// fieldsOf are the pairs of a reply that is a list of names and values.
func fieldsOf(reply any) map[string]string {
	list, _ := reply.([]any)
	m := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// resources are the goroutines of this process, and the connections that all servers have, once they do not become fewer any more.
func (f *failovers) resources(ctx context.Context) (goroutines, connections int) {
	goroutines, connections = math.MaxInt, math.MaxInt
	for range 20 { // 2 s: what is retired ends by then
		goroutines = min(goroutines, runtime.NumGoroutine())
		sum := 0
		for _, fields := range f.world.figures(ctx, "clients") {
			n := 0
			_, _ = fmt.Sscan(fields["connected_clients"], &n) // 0 of one that does not answer
			sum += n
		}
		connections = min(connections, sum)
		pause(ctx, pollEvery)
	}
	return goroutines, connections
}

func (f *failovers) checks(rounds int) []check {
	var ours, theirs []time.Duration
	for _, s := range f.seen {
		ours, theirs = append(ours, s.shelf), append(theirs, s.driver)
	}
	half, other := median(ours), median(theirs)
	ratio := float64(half) / float64(max(other, time.Millisecond))
	bad := count(f.reads, func(s *sample) bool { return !s.answered() })
	return []check{
		{text: fmt.Sprintf("writes at the new primary %s after its promotion, median of %d (at most %s; the longest %s)", short(half), len(ours), short(followLimit), short(maxOf(ours))),
			ok: len(ours) == rounds && half <= followLimit},
		{text: fmt.Sprintf("%.2f of the driver's %s (at most %.1f)", ratio, short(other), followRatio), ok: len(ours) == rounds && ratio <= followRatio},
		{text: fmt.Sprintf("%d of %s reads failed%s", bad, thousands(len(f.reads)), f.example()), ok: bad == 0 && len(f.reads) >= fewest},
		{text: fmt.Sprintf("%d goroutines, then %d", f.goroutines[0], f.goroutines[1]), ok: f.goroutines[1] <= f.goroutines[0]+spare},
		{text: fmt.Sprintf("%d connections, then %d", f.connections[0], f.connections[1]), ok: f.connections[1] <= f.connections[0]+spare},
	}
}

func (f *failovers) example() string {
	for text, n := range f.errors {
		if strings.HasPrefix(text, "read: ") {
			return fmt.Sprintf(" (%d times: %.160s)", n, text)
		}
	}
	return ""
}

func maxOf(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Max(all)
}
