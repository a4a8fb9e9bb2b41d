// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Probe is Shelf's main paths under the stopwatch, in a process that does what it is told (package child). bench-check builds it against two states of the library. So it
// uses nothing of the library but what users use, and has to compile with both.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/go-shelf/shelf/bench/child"
	"github.com/go-shelf/shelf/bench/meter"
	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/ring"
)

// Order is what the process is told: to open its clients, first, or to run a path.
type Order struct {
	Addrs []string // of the servers
	Name  string   // of the caches; each process has its own
	Path  string
	For   time.Duration
	Spin  float64 // nanoseconds for which each operation is made longer
}

const (
	keys  = 1000
	size  = 100
	batch = 100
)

// probe is the library at work.
type probe struct {
	local  *client.Cache[string] // everything in L1
	remote *client.Cache[[]byte] // nothing in L1
	keys   []string
	fresh  int
}

func main() {
	p := &probe{}
	ctx := context.Background()
	err := child.Serve(func(text json.RawMessage) (any, error) {
		var o Order
		if err := json.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		if len(o.Addrs) > 0 {
			return nil, p.open(ctx, &o)
		}
		return p.run(ctx, &o)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p *probe) open(ctx context.Context, o *Order) error {
	cfg := client.Config{OperationTimeout: time.Second}
	for i, addr := range o.Addrs {
		cfg.Nodes = append(cfg.Nodes, ring.Node{ID: "node-" + strconv.Itoa(i), Addr: addr})
	}
	cl, err := client.New(ctx, cfg) // closed by the process's end
	if err != nil {
		return err
	}
	value := make([]byte, size)
	p.remote, err = client.NewCache(cl, client.CacheConfig[[]byte]{
		Name: o.Name + "-remote", TTL: time.Hour, NoEarlyRefresh: true, L1: client.L1Off,
		Load: func(context.Context, string) ([]byte, error) { return value, nil },
	})
	if err != nil {
		return err
	}
	p.local, err = client.NewCache(cl, client.CacheConfig[string]{
		Name: o.Name + "-local", TTL: time.Hour, NoEarlyRefresh: true, L1: client.L1All, L1TTL: time.Hour,
		Load: func(context.Context, string) (string, error) { return string(value), nil },
	})
	if err != nil {
		return err
	}
	for i := range keys {
		p.keys = append(p.keys, "product-"+strconv.Itoa(i))
	}
	return p.settle(ctx)
}

// settle reads until all keys are where they are to be read from.
func (p *probe) settle(ctx context.Context) error {
	for range 20 {
		if _, err := p.remote.GetMany(ctx, p.keys); err != nil {
			return err
		}
		if _, err := p.local.GetMany(ctx, p.keys); err != nil {
			return err
		}
		if p.local.Stats().L1Entries == keys {
			return nil
		}
	}
	return fmt.Errorf("probe: %d of %d keys are in L1", p.local.Stats().L1Entries, keys)
}

func (p *probe) run(ctx context.Context, o *Order) (meter.Slot, error) {
	plan := meter.Plan{For: o.For, Goroutines: 1, Spin: o.Spin}
	var op meter.Op
	switch o.Path {
	case "L1 hit":
		plan.Procs = 1
		op = p.localHit
	case "L2 hit, 1 caller":
		op = p.remoteHit
	case "L2 hit, 64 callers":
		plan.Goroutines = 64
		op = p.remoteHit
	case "miss":
		op = p.miss
	case "GetMany of 100":
		op = p.many
	default:
		return meter.Slot{}, fmt.Errorf("probe: no path is called %q", o.Path)
	}
	return meter.Measure(ctx, plan, func(int) meter.Op { return op })
}

var errLength = errors.New("probe: a value of the wrong length")

func (p *probe) localHit(ctx context.Context, turn *meter.Turn) (int, error) {
	const at = 50
	i := turn.Next(keys/at) * at
	for _, key := range p.keys[i : i+at] {
		if v, err := p.local.Get(ctx, key); err != nil || len(v) != size {
			return 0, errors.Join(errLength, err)
		}
	}
	return at, nil
}

func (p *probe) remoteHit(ctx context.Context, turn *meter.Turn) (int, error) {
	v, err := p.remote.Get(ctx, p.keys[turn.Next(keys)])
	if err == nil && len(v) != size {
		err = errLength
	}
	return 1, err
}

func (p *probe) miss(ctx context.Context, _ *meter.Turn) (int, error) {
	p.fresh++
	v, err := p.remote.Get(ctx, "new-"+strconv.Itoa(p.fresh))
	if err == nil && len(v) != size {
		err = errLength
	}
	return 1, err
}

func (p *probe) many(ctx context.Context, turn *meter.Turn) (int, error) {
	at := turn.Next(keys - batch + 1)
	m, err := p.remote.GetMany(ctx, p.keys[at:at+batch])
	if err == nil && len(m) != batch {
		err = errLength
	}
	return 1, err
}
