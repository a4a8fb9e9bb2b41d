// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// readings collects what OnReplication is told.
type readings struct {
	mu  sync.Mutex
	all []redisnode.Replication
}

func (r *readings) add(x redisnode.Replication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, x)
}

func (r *readings) last(t *testing.T) redisnode.Replication {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		t.Fatal("nothing was told")
	}
	return r.all[len(r.all)-1]
}

// TestReplicationIsTold: how far each replica is, from the first connection on; a promotion is another stream though the process is the same.
func TestReplicationIsTold(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	replica := primary.Replica(t, redistest.Config{})
	var got, fromReplica readings
	n := newNode(t, primary.Addr(), func(c *redisnode.Config) { c.OnReplication = got.add })
	mustSet(t, n, "k", "v")
	first := got.last(t)
	if first.Role != redisnode.RolePrimary || first.RunID == "" || first.Stream == "" || first.At.IsZero() {
		t.Errorf("the first connection told %+v", first)
	}
	if s := n.Session().Stream(); s != first.Stream {
		t.Errorf("the session's stream is %q, the reading's %q", s, first.Stream)
	}
	for deadline := time.Now().Add(10 * time.Second); ; mustProbe(t, n) {
		r := got.last(t)
		if offset, listed := r.Replicas[replica.Addr()]; listed && r.Offset > 0 && offset == r.Offset {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the replica at %s does not get there: %+v", replica.Addr(), r)
		}
	}

	r := newNode(t, replica.Addr(), func(c *redisnode.Config) { c.OnReplication = fromReplica.add })
	mustProbe(t, r)
	before := fromReplica.last(t)
	if before.Role != redisnode.RoleReplica {
		t.Errorf("the replica told %+v", before)
	}
	if err := r.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	mustProbe(t, r)
	after := fromReplica.last(t)
	if after.Role != redisnode.RolePrimary || after.RunID != before.RunID || after.Stream == before.Stream || r.Session().Stream() != after.Stream {
		t.Errorf("promoted: %+v, before: %+v", after, before)
	}
}

// TestReplicationInOrder: readings of connections that are made at the same time do not overlap: each was sent after the last one's answer was there.
func TestReplicationInOrder(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	var mu sync.Mutex
	var answered time.Time
	told := 0
	n := newNode(t, primary.Addr(), func(c *redisnode.Config) {
		c.OnReplication = func(r redisnode.Replication) {
			if !mu.TryLock() {
				t.Error("told twice at once")
				return
			}
			defer mu.Unlock()
			if r.At.Before(answered) {
				t.Errorf("reading %d was sent %v before the last one's answer", told, answered.Sub(r.At))
			}
			told++
			answered = time.Now()
			time.Sleep(time.Millisecond) // for others to come in between
		}
	})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 5 {
				_, _ = n.Probe(t.Context())
			}
		})
	}
	wg.Wait()
	if told == 0 {
		t.Error("nothing was told")
	}
}
