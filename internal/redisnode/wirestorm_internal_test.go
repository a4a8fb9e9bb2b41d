// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

// TestReadsUnderFire: while connections are cut and callers leave, each read that succeeds has the right value; in the end every turn has been given back, and
// nobody uses the session any more.
func TestReadsUnderFire(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	n, err := New(Config{ID: "a", Addr: server.Addr(), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	const keys = 50
	for i := range keys {
		if err := server.Client().Set(t.Context(), fmt.Sprint(i), fmt.Sprint("value ", i), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var crowd sync.WaitGroup
	var right atomic.Int64
	for range 16 {
		crowd.Go(func() {
			for read := 0; ctx.Err() == nil; read++ {
				caller, leave := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
				i := rand.IntN(keys)
				var v []byte
				var err error
				if read%2 == 0 {
					v, _, err = n.Get(caller, fmt.Sprint(i))
				} else {
					var both [][]byte
					if both, err = n.MGet(caller, []string{"none", fmt.Sprint(i)}); err == nil {
						v = both[1]
					}
				}
				leave()
				if err != nil {
					continue
				}
				if right.Add(1); string(v) != fmt.Sprint("value ", i) {
					t.Errorf("%d is %q", i, v)
				}
			}
		})
	}
	crowd.Go(func() {
		for ctx.Err() == nil {
			_, _ = server.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") // one that fails was early
			time.Sleep(3 * time.Millisecond)
		}
	})
	crowd.Wait()
	if right.Load() == 0 {
		t.Error("nobody has read anything")
	}
	s := n.Session()
	for deadline := time.Now().Add(10 * time.Second); s.users.Load() != 0; time.Sleep(time.Millisecond) { // connections that their callers have left
		if time.Now().After(deadline) {
			t.Fatalf("%d users of a session that nobody uses", s.users.Load())
		}
	}
	if turns := len(s.wires.turns); turns != 0 {
		t.Errorf("%d turns were not given back", turns)
	}
	s.connsMu.Lock()
	ours := 0
	for c := range s.conns {
		if c.ours {
			ours++
		}
	}
	s.connsMu.Unlock()
	if idle := len(s.wires.idle); ours != idle || idle > n.cfg.wires() {
		t.Errorf("%d connections for reads are open, %d idle, of %d", ours, idle, n.cfg.wires())
	}
	if v, _, err := n.Get(t.Context(), "7"); err != nil || string(v) != "value 7" {
		t.Errorf("afterwards: %q, %v", v, err)
	}
}
