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

// TestReadsUnderFire: while connections are cut and callers leave, each read that succeeds, by whatever command, has the right value; in the end every turn has been given back,
// and nobody uses the session any more.
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
				v, err := readBy(caller, n, read%5, fmt.Sprint(i))
				leave()
				if err != nil {
					continue
				}
				if right.Add(1); v != fmt.Sprint("value ", i) {
					t.Errorf("%d is %q, by command %d", i, v, read%5)
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
	if reads, others := len(s.wires.turns), len(s.wires.others); reads != 0 || others != 0 {
		t.Errorf("%d turns of reads and %d others were not given back", reads, others)
	}
	s.connsMu.Lock()
	ours := 0
	for c := range s.conns {
		if c.ours {
			ours++
		}
	}
	s.connsMu.Unlock()
	if idle, most := len(s.wires.idle), cap(s.wires.turns)+cap(s.wires.others); ours != idle || idle > most {
		t.Errorf("%d connections for operations are open, %d idle, of %d", ours, idle, most)
	}
	if v, _, err := n.Get(t.Context(), "7"); err != nil || string(v) != "value 7" {
		t.Errorf("afterwards: %q, %v", v, err)
	}
}

// readBy reads a key by one of five commands.
func readBy(ctx context.Context, n *Node, command int, key string) (string, error) {
	switch command {
	case 0:
		v, _, err := n.Get(ctx, key)
		return string(v), err
	case 1:
		both, err := n.MGet(ctx, []string{"none", key})
		if err != nil {
			return "", err
		}
		return string(both[1]), nil
	case 2:
		m := n.Many(2)
		defer m.Free()
		m.Add("none")
		m.Add(key)
		m.Send(ctx, time.Now().Add(time.Millisecond))
		m.Here()
		both, err := m.Read(ctx)
		if err != nil {
			return "", err
		}
		return string(both[1]), nil
	case 3:
		reply, err := n.Eval(ctx, Call{Script: NewScript("get", "return redis.call('GET', KEYS[1])"), Keys: []string{key}})
		return fmt.Sprint(reply), err
	default:
		results := n.DoMany(ctx, []Command{{"GET", "none"}, {"GET", key}})
		return fmt.Sprint(results[1].Reply), results[1].Err
	}
}
