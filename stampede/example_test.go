// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// Ten callers ask for the same key at once; the source is read once.
func ExampleFlight() {
	var flight stampede.Flight[string]
	ctx := context.Background()
	defer flight.Close(ctx)

	var reads int // only one run at a time touches it
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			r, err := flight.Do(ctx, "product:4411", func(ctx context.Context, r *stampede.Run) (string, error) {
				r.Began()
				reads++
				time.Sleep(50 * time.Millisecond)
				return "teapot", nil
			})
			if err != nil || r.Value != "teapot" {
				fmt.Println(r, err)
			}
		})
	}
	callers.Wait()
	fmt.Println("reads:", reads)
	// Output: reads: 1
}

// A batch loads the keys that nobody loads yet, then waits for the others.
func ExampleFlight_Lead() {
	var flight stampede.Flight[string]
	ctx := context.Background()
	defer flight.Close(ctx)

	flight.Start(ctx, "b", func(context.Context, *stampede.Run) (string, error) {
		time.Sleep(10 * time.Millisecond)
		return "B, loaded alone", nil
	})
	keys := []string{"a", "b", "c"}
	batch, waits, err := flight.Lead(ctx, keys)
	if err != nil {
		fmt.Println(err)
		return
	}
	batch.Go(ctx, func(context.Context) {
		batch.Began()
		for _, key := range batch.Keys() { // one query for all of them
			batch.Finish(key, key+", loaded in the batch", nil)
		}
	})
	for _, key := range batch.Keys() {
		waits[key] = batch.Wait(key)
	}
	for _, key := range keys {
		r, err := waits[key].Get(ctx)
		fmt.Println(r.Value, err)
	}
	// Output:
	// a, loaded in the batch <nil>
	// B, loaded alone <nil>
	// c, loaded in the batch <nil>
}

// At most one load at a time, and a loader that reads further keys keeps
// the place that it has.
func ExampleLimiter() {
	limiter, err := stampede.NewLimiter(stampede.LimiterConfig{Max: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	place, err := limiter.Acquire(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer place.Release()

	inLoader := place.With(context.Background())
	inner, err := limiter.Acquire(inLoader) // does not wait for itself
	fmt.Println(err, limiter.Stats().Running)
	inner.Release()
	// Output: <nil> 1
}

// An entry that took 100 ms to load and falls due after a minute: half of the
// readers that come 69 ms before that refresh it.
func ExampleEarly() {
	const soft, cost = time.Minute, 100 * time.Millisecond
	for _, draw := range []float64{0.2, 0.4, 0.6, 0.8} {
		fmt.Println(draw, stampede.Early(soft-69*time.Millisecond, soft, cost, 1, draw))
	}
	// Output:
	// 0.2 false
	// 0.4 false
	// 0.6 true
	// 0.8 true
}

func ExampleJitter() {
	fmt.Println(stampede.Jitter(10*time.Minute, 0.1, 0.5))
	// Output: 9m30s
}
