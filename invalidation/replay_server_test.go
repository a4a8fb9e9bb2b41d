// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// readServer is what a caller does for a reading: ROLE, and the run id.
func readServer(t *testing.T, s *redistest.Server) invalidation.Position {
	t.Helper()
	p := invalidation.Position{At: time.Now(), Run: runOf(t, s), Replicas: map[string]int64{}}
	reply, err := s.Do(t.Context(), "ROLE")
	if err != nil {
		t.Fatal(err)
	}
	role := reply.([]any)
	if role[0] != "master" {
		t.Fatalf("ROLE answers %v", role)
	}
	p.Offset = role[1].(int64)
	for _, r := range role[2].([]any) {
		r := r.([]any)
		var offset int64
		fmt.Sscan(r[2].(string), &offset)
		p.Replicas[net.JoinHostPort(r[0].(string), r[1].(string))] = offset
	}
	return p
}

func runOf(t *testing.T, s *redistest.Server) string {
	t.Helper()
	info, err := s.Info(t.Context(), "server")
	if err != nil {
		t.Fatal(err)
	}
	return info["run_id"]
}

// deleteOn invalidates a key on a server and adds the confirmation.
func deleteOn(t *testing.T, r *invalidation.Replay, s *redistest.Server, name string) {
	t.Helper()
	run, began := runOf(t, s), time.Now()
	if _, err := s.Do(t.Context(), "DEL", name); err != nil {
		t.Fatal(err)
	}
	r.Add(invalidation.Sent{Name: name, Run: run, Began: began, At: time.Now()})
}

// await polls until ok, for at most a minute.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited a minute for this: %s", what)
		}
	}
}

// A real primary with a real replica: an invalidation stays while the replica hangs and leaves when
// it has caught up; one that only the former primary knows is repeated on the one that was
// promoted.
func TestReplayServers(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	replica := primary.Replica(t, redistest.Config{})
	r := newReplay(t, invalidation.ReplayConfig{MinAge: time.Millisecond})
	if p := readServer(t, primary); len(p.Replicas) != 1 {
		t.Fatalf("the primary lists %v", p.Replicas)
	} else {
		r.Read(p)
	}

	replica.Stop()
	deleteOn(t, r, primary, "nothing there") // replicates nothing: any place will do
	if _, err := primary.Do(t.Context(), "SET", "k", "old"); err != nil {
		t.Fatal(err)
	}
	deleteOn(t, r, primary, "k")
	for range 20 {
		if r.Read(readServer(t, primary)); !r.Has("k") {
			t.Fatal("k has left while its replica hangs")
		}
	}
	replica.Cont()
	await(t, "the log is empty", func() bool {
		r.Read(readServer(t, primary))
		return r.Stats().Depth == 0
	})
	if v, err := replica.Client().Get(t.Context(), "k").Result(); !errors.Is(err, redis.Nil) {
		t.Fatalf("k has left the log, the replica has %q, %v", v, err)
	}

	if _, err := primary.Do(t.Context(), "SET", "k", "old"); err != nil {
		t.Fatal(err)
	}
	await(t, "the replica has k", func() bool { return replica.Client().Get(t.Context(), "k").Val() == "old" })
	if _, err := replica.Do(t.Context(), "REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	deleteOn(t, r, primary, "k") // by a client that has not heard
	if void := r.Read(readServer(t, replica)); void != 1 {
		t.Fatalf("%d void after the promotion, want 1", void)
	}
	for _, s := range r.Take() {
		if v := replica.Client().Get(t.Context(), s.Name).Val(); v != "old" {
			t.Fatalf("%s is %q on the new primary: this test tests nothing", s.Name, v)
		}
		deleteOn(t, r, replica, s.Name)
	}
	await(t, "the log is empty again", func() bool {
		r.Read(readServer(t, replica))
		return r.Stats().Depth == 0
	})
}
