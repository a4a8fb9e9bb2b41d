// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"testing"
	"time"
)

// TestHandAfterClose: a caller has a slot, and no connection is free; before it queues, the node is closed, whose Close waits for nobody any more. So no worker begins: it would outlive Close, and
// one that begins just when Close wakes up from waiting for others makes that a panic.
func TestHandAfterClose(t *testing.T) {
	n, err := New(Config{ID: "n", Addr: "127.0.0.1:1", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	m := n.Many(1)
	m.Add("k")
	if !n.manys.enter(m) {
		t.Fatal("no slot is free")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	n.manys.hand(m)
	if m.queued || n.manys.busy != 0 {
		t.Errorf("queued: %v, slots taken: %d; want none", m.queued, n.manys.busy)
	}
	if vals, err := m.Read(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("%q, %v; want ErrClosed", vals, err)
	}
	m.Free()
}
