// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestClose: it refuses what is new, waits for what is under way, and leaves no goroutine (the bubble would not end).
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		cl, err := client.New(t.Context(), nodes.Config())
		if err != nil {
			t.Fatal(err)
		}
		slow := func(ctx context.Context, key string) (string, error) {
			time.Sleep(time.Second)
			return echo(ctx, key)
		}
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: slow})
		truth := newCache(t, cl, client.CacheConfig[string]{Name: "t", TTL: time.Minute, Truth: true})
		read := inBackground(t, c, "k")
		written := make(chan error, 1)
		go func() {
			written <- c.Write(context.Background(), "w", func(context.Context) error { time.Sleep(2 * time.Second); return nil })
		}()
		synctest.Wait()
		start := time.Now()
		if err := cl.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("Close took %v, want the 2s that the write had left", d)
		}
		if v, err := read(); err != nil || v != "value of k" {
			t.Errorf("the read under way: %q, %v", v, err)
		}
		if err := <-written; err != nil {
			t.Errorf("the write under way: %v", err)
		}
		ctx := context.Background()
		_, e1 := c.Get(ctx, "k")
		_, e2 := c.GetMany(ctx, []string{"k"})
		_, e3 := c.WriteThrough(ctx, "k", func(context.Context) (string, error) { t.Error("fn was run"); return "", nil })
		e4 := c.Write(ctx, "k", func(context.Context) error { t.Error("fn was run"); return nil })
		_, e5 := client.NewCache(cl, client.CacheConfig[string]{Name: "y", TTL: time.Minute, Load: slow})
		for i, err := range []error{e1, e2, e3, e4, e5, c.Invalidate(ctx, "k"), c.InvalidateMany(ctx, []string{"k"}), truth.Set(ctx, "k", "v")} {
			if !errors.Is(err, client.ErrClosed) {
				t.Errorf("call %d after Close: %v, want ErrClosed", i, err)
			}
		}
		if err := cl.Close(ctx); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// TestCloseReportsWhatIsLeft: a loader that ignores its context cannot be waited for for ever; Close says so and returns.
func TestCloseReportsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl, err := client.New(t.Context(), clienttest.Start(t, 1).Config())
		if err != nil {
			t.Fatal(err)
		}
		let := make(chan struct{})
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: func(context.Context, string) (string, error) {
			<-let // a hanging loader
			return "late", nil
		}})
		start := time.Now()
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, client.ErrLoadTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a hanging loader: %v, want ErrLoadTimeout", err)
		}
		if d := time.Since(start); d > client.DefaultLoadTimeout+time.Second {
			t.Errorf("the caller waited %v", d)
		}
		if n := cl.Stats().LoadsRunning; n != 1 {
			t.Errorf("LoadsRunning is %d: a hanging load still occupies the database", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := cl.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1") {
			t.Errorf("Close: %v, want its deadline and the number of loads left", err)
		}
		close(let)
	})
}

// TestOverload: above MaxLoads loads wait, above the queue they are refused at once; nothing else is.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clienttest.Start(t, 1).Config()
		cfg.MaxLoads, cfg.LoadQueue, cfg.LoadQueueTimeout = 2, 3, 10*time.Second
		cl := open(t, cfg)
		c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: func(ctx context.Context, key string) (string, error) {
			time.Sleep(time.Second)
			return echo(ctx, key)
		}})
		var answers []func() (string, error)
		for _, k := range strings.Split("abcdefgh", "") {
			answers = append(answers, inBackground(t, c, k))
			synctest.Wait()
		}
		refused := 0
		for _, answer := range answers {
			if _, err := answer(); errors.Is(err, client.ErrOverloaded) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused != 3 {
			t.Errorf("%d refused, want 3 of 8 (2 run, 3 wait)", refused)
		}
		if s := cl.Stats(); s.LoadsHighest != 2 || s.LoadsRejected != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCloseDuringReadsOfATruth: a read that Close overtakes is ErrClosed, also where there is no loader to say so.
func TestCloseDuringReadsOfATruth(t *testing.T) {
	cl, err := client.New(t.Context(), clienttest.Start(t, 1).Config())
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, Truth: true, L1: client.L1Off})
	if err := c.Set(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	reads := map[string]func() error{
		"Get":     func() error { _, err := c.Get(context.Background(), "k"); return err },
		"GetMany": func() error { _, err := c.GetMany(context.Background(), []string{"k"}); return err },
	}
	var readers sync.WaitGroup
	var answers atomic.Int64
	for range 4 {
		for name, read := range reads {
			readers.Go(func() {
				for {
					err := read()
					if err == nil || client.Unavailable(err) { // slow at times
						answers.Add(1)
						continue
					}
					if !errors.Is(err, client.ErrClosed) {
						t.Errorf("%s: %v, want ErrClosed", name, err)
					}
					return
				}
			})
		}
	}
	for answers.Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
	readers.Wait()
}
