// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// A node is down while a row is written twice. The loop that repeats invalidations belongs to the
// caller.
func ExampleOutbox() {
	outbox, err := invalidation.NewOutbox(invalidation.OutboxConfig{})
	if err != nil {
		panic(err)
	}
	now := time.Now()
	const node = 2
	_ = outbox.Put("product:4411:v3", node, 7, now)
	_ = outbox.Put("product:4411:v3", node, 8, now.Add(time.Millisecond))
	fmt.Println("may copies be read:", !outbox.Has("product:4411:v3"))

	now = now.Add(100 * time.Millisecond)
	for _, p := range outbox.Due(now, 64) {
		fmt.Println("repeat", p.Name, "version", p.Version)
		outbox.Failed(p, now, 1) // the draw would be rand.Float64()
	}
	next, _ := outbox.Next()
	fmt.Println("again in", next.Sub(now))

	outbox.Wake(node, now) // the health check has seen it
	for _, p := range outbox.Due(now, 64) {
		outbox.Done(p)
	}
	fmt.Println("may copies be read:", !outbox.Has("product:4411:v3"))
	// Output:
	// may copies be read: false
	// repeat product:4411:v3 version 8
	// again in 200ms
	// may copies be read: true
}

// A row is written at 0 and at 300 ms; the loader reads a replica that may lag by half a second.
func ExampleLater() {
	later, err := invalidation.NewLater(invalidation.LaterConfig{})
	if err != nil {
		panic(err)
	}
	start, delay := time.Now(), 500*time.Millisecond
	_ = later.Add("product:4411:v3", 0, start.Add(delay))
	_ = later.Add("product:4411:v3", 0, start.Add(300*time.Millisecond+delay))
	for now, ok := later.Next(); ok; now, ok = later.Next() { // a real loop waits until then
		for _, d := range later.Due(now, 64) {
			fmt.Println("at", now.Sub(start), "delete", d.Name)
		}
	}
	// Output:
	// at 500ms delete product:4411:v3
	// at 800ms delete product:4411:v3
}

// A primary dies before its replica has heard of an invalidation.
func ExampleReplay() {
	log, err := invalidation.NewReplay(invalidation.ReplayConfig{})
	if err != nil {
		panic(err)
	}
	now := time.Now()
	after := func(d time.Duration) time.Time { return now.Add(d) }
	log.Read(invalidation.Position{At: now, Run: "first", Offset: 1000, Replicas: map[string]int64{"10.0.1.1:6379": 1000}})

	log.Add(invalidation.Sent{Name: "product:1:v3", Run: "first", Began: after(time.Second), At: after(1001 * time.Millisecond)})
	log.Read(invalidation.Position{At: after(2 * time.Second), Run: "first", Offset: 1100, Replicas: map[string]int64{"10.0.1.1:6379": 1000}})
	log.Read(invalidation.Position{At: after(12 * time.Second), Run: "first", Offset: 1100, Replicas: map[string]int64{"10.0.1.1:6379": 1100}})
	fmt.Println("still in the log, now that the replica has it:", log.Has("product:1:v3"))

	log.Add(invalidation.Sent{Name: "product:2:v3", Version: 8, Run: "first", Began: after(13 * time.Second), At: after(13*time.Second + time.Millisecond)})
	void := log.Read(invalidation.Position{At: after(15 * time.Second), Run: "second", Offset: 1100})
	fmt.Println("to be repeated on the new primary:", void)
	for _, s := range log.Take() {
		fmt.Println("invalidate", s.Name, "version", s.Version)
		log.Add(invalidation.Sent{Name: s.Name, Version: s.Version, Run: "second", Began: after(16 * time.Second), At: after(16*time.Second + time.Millisecond)})
	}
	fmt.Println("left to do:", len(log.Take()))
	// Output:
	// still in the log, now that the replica has it: false
	// to be repeated on the new primary: 1
	// invalidate product:2:v3 version 8
	// left to do: 0
}
