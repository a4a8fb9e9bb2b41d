// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Command wrongclock is one process with a cache, for tests that build it with package skew and start it with a wall clock that is wrong. Its
// first line of input is a [skew.Setup], each further one a [skew.Order], which it answers with a line of output, a [skew.Report].
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/skew"
	"github.com/go-shelf/shelf/ring"
)

func main() {
	if err := run(context.Background(), bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "wrongclock:", err)
		os.Exit(1)
	}
}

// process is this program's cache and what its loader is told to do.
type process struct {
	setup   skew.Setup
	client  *client.Client
	cache   *client.Cache[string]
	started time.Time
	hang    atomic.Bool
}

func run(ctx context.Context, in *bufio.Scanner, out *json.Encoder) error {
	p := &process{started: time.Now()}
	if !in.Scan() {
		return errors.New("there is no setup on the input")
	}
	if err := json.Unmarshal(in.Bytes(), &p.setup); err != nil {
		return err
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	for in.Scan() {
		var o skew.Order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		if err := out.Encode(p.do(ctx, o)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return errors.Join(in.Err(), p.client.Close(ctx))
}

func (p *process) open(ctx context.Context) (err error) {
	nodes := []ring.Node{{ID: "n", Addr: p.setup.Addr}}
	// Without pushes a copy lives for a fixed time, and that is what is measured.
	if p.client, err = client.New(ctx, client.Config{Nodes: nodes, OperationTimeout: 2 * time.Second, NoPush: true}); err != nil {
		return err
	}
	cfg := client.CacheConfig[string]{
		Name: p.setup.Name, TTL: p.setup.TTL, SoftTTL: p.setup.SoftTTL, Truth: p.setup.Truth, NoJitter: true, L1: client.L1Off,
	}
	if p.setup.L1 {
		cfg.L1 = client.L1All
	}
	if !p.setup.Truth {
		cfg.Load = p.load
	}
	p.cache, err = client.NewCache(p.client, cfg)
	return err
}

func (p *process) load(ctx context.Context, _ string) (string, error) {
	if p.hang.Load() {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return p.setup.Value, nil
}

func (p *process) do(ctx context.Context, o skew.Order) skew.Report {
	p.hang.Store(o.Hang)
	r := skew.Report{Layers: make(map[string]int)}
	var err error
	switch o.Op {
	case "get":
		err = p.get(ctx, o, &r)
	case "set":
		err = p.cache.Set(ctx, o.Key, p.setup.Value)
	case "until stale":
		err = p.untilStale(ctx, o, &r)
	case "step":
		err = skew.Step(o.By)
	case "clock":
	default:
		err = fmt.Errorf("no order %q", o.Op)
	}
	if err != nil {
		r.Err = err.Error()
	}
	r.Loads, r.Wall, r.Elapsed = p.cache.Stats().Loads, time.Now(), time.Since(p.started)
	r.Offset = p.client.Stats().Nodes[0].ClockOffset
	return r
}

// get reads a key, or does so many times.
func (p *process) get(ctx context.Context, o skew.Order, r *skew.Report) error {
	times := max(1, o.Times)
	for range times {
		if err := p.look(ctx, o.Key, r); err != nil {
			return err
		}
		if times > 1 {
			time.Sleep(o.Over / time.Duration(times))
		}
	}
	return nil
}

func (p *process) look(ctx context.Context, key string, r *skew.Report) error {
	res, err := p.cache.Lookup(ctx, key)
	r.Value, r.Layer, r.Age, r.Stale = res.Value, res.Layer.String(), res.Age, res.Stale
	r.Layers[r.Layer]++
	return err
}

// untilStale reads a key until its entry is past its soft TTL.
func (p *process) untilStale(ctx context.Context, o skew.Order, r *skew.Report) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := p.look(ctx, o.Key, r); err != nil || r.Stale {
			return err
		}
		r.LastFresh = r.Age
	}
	return errors.New("the entry does not become stale")
}
