// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/ring"
)

// TestRestartWithTheClockSetBack: a host restarts, and its clock, which was ahead, is right again. What the node brings back says that it was created after the start,
// and the cache's last clearing too: neither tells it from what was stored since. So the whole cache is owed a clearing, and nothing is read before that.
func TestRestartWithTheClockSetBack(t *testing.T) {
	for _, step := range []time.Duration{0, 5 * time.Minute} {
		server := miniredis.RunT(t)
		cl, err := New(t.Context(), Config{Nodes: []ring.Node{{ID: "a", Addr: server.Addr()}}, OperationTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		load := func(context.Context, string) (string, error) { return "v", nil }
		c, err := NewCache(cl, CacheConfig[string]{Name: "x", TTL: time.Hour, Load: load})
		if err != nil {
			t.Fatal(err)
		}
		server.Close() // nothing of what is owed gets through
		now := time.Now()
		cl.runSeen(0, cl.ring.Nodes()[0], redisnode.Info{RunID: "old", ClockOffset: step},
			redisnode.Info{RunID: "new", StartedAt: now, Role: redisnode.RolePrimary})
		if owes := c.owes(c.slot("k")); owes != (step > 0) {
			t.Errorf("set back by %v: the whole cache is owed: %t", step, owes)
		}
		if cl.debts.outbox.Empty() {
			t.Errorf("set back by %v: nothing is owed", step)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_ = cl.Close(ctx) // says what is owed
		cancel()
	}
}
