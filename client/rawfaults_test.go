// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/ring"
)

// rawCalls is every raw operation on one name.
func rawCalls(ctx context.Context, cl *client.Client, name string) map[string]error {
	_, _, get := cl.Get(ctx, name)
	_, nx := cl.SetNX(ctx, name, nil, time.Minute)
	_, mget := cl.MGet(ctx, []string{name})
	_, del := cl.Delete(ctx, name)
	_, expire := cl.Expire(ctx, name, time.Minute)
	_, _, ttl := cl.TTL(ctx, name)
	_, incr := cl.Incr(ctx, name, 1, time.Minute)
	_, forever := cl.Incr(ctx, name, 1, client.NoExpiry)
	return map[string]error{
		"get": get, "set": cl.Set(ctx, name, nil, time.Minute), "setnx": nx, "mget": mget, "delete": del, "expire": expire, "ttl": ttl, "incr": incr,
		"incr forever": forever, "mset": cl.MSet(ctx, map[string][]byte{name: nil}, time.Minute),
	}
}

// TestRawNodeFailure: it is the caller's error, in every operation, whatever is wrong with the node; and it names node, operation and name.
func TestRawNodeFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl, err := client.New(t.Context(), nodes.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close(context.Background()) }()
		node := nodes.Node(0)
		for what, fault := range map[string]func(){
			"down": node.Down, "hanging": node.Hang,
			"loading":   func() { node.Fail("LOADING Redis is loading the dataset in memory") },
			"read-only": func() { node.Fail("READONLY You can't write against a read only replica.") },
		} {
			fault()
			for op, err := range rawCalls(t.Context(), cl, "n") {
				var failed *client.NodeError
				if !errors.As(err, &failed) || failed.Node != "node-0" || !strings.HasPrefix(op, failed.Op) || !slices.Equal(failed.Keys, []string{"n"}) {
					t.Errorf("%s, %s: %v, want a *NodeError with all three", what, op, err)
				}
				if !client.Unavailable(err) || !client.NodesOnly(err) {
					t.Errorf("%s, %s: %v is not Unavailable or not NodesOnly", what, op, err)
				}
			}
			node.Up()
			time.Sleep(20 * time.Second) // until it is up, and well for so long that the next fault is no flapping
		}
		for op, err := range rawCalls(t.Context(), cl, "n") {
			if err != nil {
				t.Errorf("%s on a node that is well again: %v", op, err)
			}
		}
	})
}

// TestRawPartialFailure: one node of three is down. Its names fail, each with its reason, and the others are done.
func TestRawPartialFailure(t *testing.T) {
	nodes := clienttest.Start(t, 3)
	cfg := nodes.Config()
	cfg.OperationTimeout = 5 * time.Second // a busy machine is not what is tested
	cl, ctx := open(t, cfg), t.Context()
	names, rows := numbered(1500)
	values := make(map[string][]byte)
	r, err := ring.New(ring.Config{Nodes: cfg.Nodes})
	if err != nil {
		t.Fatal(err)
	}
	var lost []string
	for _, name := range names {
		values[name] = []byte(rows[name])
		if r.Owner(name).ID == "node-1" {
			lost = append(lost, name)
		}
	}
	if err := cl.MSet(ctx, values, time.Minute); err != nil {
		t.Fatal(err)
	}
	nodes.Node(1).Down()
	check := func(op string, err error) {
		t.Helper()
		keys := client.UnreachedKeys(err)
		slices.Sort(keys)
		var failed *client.NodeError
		if !errors.As(err, &failed) || failed.Node != "node-1" || failed.Op != op || !slices.Equal(keys, lost) || !client.Unavailable(err) {
			t.Errorf("%s: %v with %d names, want a *NodeError of node-1 with %d", op, err, len(keys), len(lost))
		}
	}
	got, err := cl.MGet(ctx, names)
	check("mget", err)
	for i, name := range names {
		if down := slices.Contains(lost, name); down != (got[i].Err != nil) || down == got[i].Found || !down && string(got[i].Value) != rows[name] {
			t.Errorf("%s: %+v", name, got[i])
		}
	}
	check("mset", cl.MSet(ctx, values, time.Minute))
	n, err := cl.Delete(ctx, names...)
	check("delete", err)
	if n != len(names)-len(lost) {
		t.Errorf("%d were removed, want %d", n, len(names)-len(lost))
	}
}

// TestRawHangingNodeIsWaitedForOnce: however many commands a call would need, it waits for one.
func TestRawHangingNodeIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 2)
		cfg := nodes.Config()
		cl, err := client.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close(context.Background()) }()
		names, _ := numbered(5000)
		nodes.Node(0).Hang()
		for _, call := range []func() error{
			func() error { _, err := cl.MGet(t.Context(), names); return err },
			func() error { _, err := cl.Delete(t.Context(), names...); return err },
			func() error {
				values := make(map[string][]byte)
				for _, name := range names {
					values[name] = nil
				}
				return cl.MSet(t.Context(), values, time.Minute)
			},
		} {
			start := time.Now()
			err := call()
			if took := time.Since(start); took > 2*cfg.OperationTimeout || !client.NodesOnly(err) {
				t.Errorf("it took %v, %.200v", took, err)
			}
		}
	})
}

// TestRawNodesAreAskedAtOnce: a call that needs every node takes as long as the slowest, not as all of them one after the other.
func TestRawNodesAreAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 3)
		cl, err := client.New(t.Context(), nodes.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close(context.Background()) }()
		names, rows := numbered(30)
		values := make(map[string][]byte)
		for name, v := range rows {
			values[name] = []byte(v)
		}
		calls := map[string]func() error{
			"mset":   func() error { return cl.MSet(t.Context(), values, time.Minute) },
			"mget":   func() error { _, err := cl.MGet(t.Context(), names); return err },
			"delete": func() error { _, err := cl.Delete(t.Context(), names...); return err },
		}
		for op, call := range calls { // opens the connections, and tells the client how large values are
			if err := call(); err != nil {
				t.Fatal(op, err)
			}
		}
		for i := range nodes.Len() {
			nodes.Node(i).Slow(100 * time.Millisecond)
		}
		for op, call := range calls {
			start := time.Now()
			if err := call(); err != nil || time.Since(start) != 100*time.Millisecond {
				t.Errorf("%s of three nodes that take 100ms each: %v, %v", op, time.Since(start), err)
			}
		}
	})
}

// TestRawRefusedName: a pipeline in which one command is refused has stored the others.
func TestRawRefusedName(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	cl := open(t, nodes.Config())
	cl.Node("list").RPush(t.Context(), "list", "x")
	_, _, err := cl.Get(t.Context(), "list")
	var refused *client.KeyError
	if !errors.As(err, &refused) || refused.Key != "list" || !strings.Contains(err.Error(), "node-0") || client.Unavailable(err) {
		t.Errorf("Get of a list: %v, want a *KeyError that names the node", err)
	}
	nodes.Node(0).Fail("ERR some other trouble with this command")
	err = cl.MSet(t.Context(), map[string][]byte{"a": nil, "b": nil}, time.Minute)
	if !errors.As(err, &refused) || client.NodesOnly(err) || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("MSet: %v, want a *KeyError for each name", err)
	}
	_, err = cl.Delete(t.Context(), "a", "b")
	if keys := client.UnreachedKeys(err); !slices.Equal(keys, []string{"a", "b"}) || client.Unavailable(err) {
		t.Errorf("Delete: %v, want a *NodeError with both names", err)
	}
}

// TestRawContext: it is honoured before the call and during it; a write that was under way says what it was.
func TestRawContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl, err := client.New(t.Context(), nodes.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cl.Close(context.Background()) }()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for op, err := range rawCalls(ended, cl, "n") {
			if err != context.Canceled { //nolint:errorlint // exactly this
				t.Errorf("%s: %v, want the context's own error", op, err)
			}
		}
		if keys := nodes.Node(0).Keys(); len(keys) > 0 {
			t.Errorf("calls that had ended before they began wrote %q", keys)
		}
		nodes.Node(0).Hang()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err = cl.Set(ctx, "n", nil, time.Minute)
		var failed *client.NodeError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failed) || client.Unavailable(err) || time.Since(start) > 10*time.Millisecond {
			t.Errorf("after %v: %v, want a *NodeError that wraps the context's error and does not blame the node", time.Since(start), err)
		}
	})
}

// TestRawClose: it waits for what is under way and refuses the rest.
func TestRawClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cl, err := client.New(t.Context(), nodes.Config())
		if err != nil {
			t.Fatal(err)
		}
		for op, err := range rawCalls(t.Context(), cl, "n") { // opens the connections
			if err != nil {
				t.Fatal(op, err)
			}
		}
		nodes.Node(0).Slow(100 * time.Millisecond)
		under := make(chan error, 3)
		go func() { under <- cl.Set(context.Background(), "late", []byte("v"), time.Minute) }()
		go func() { _, _, err := cl.Get(context.Background(), "n"); under <- err }()
		go func() { _, err := cl.MGet(context.Background(), []string{"n"}); under <- err }()
		synctest.Wait()
		if err := cl.Close(t.Context()); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := <-under; err != nil {
				t.Errorf("under way when Close came: %v", err)
			}
		}
		if v, ok := nodes.Node(0).Get("late"); string(v) != "v" || !ok {
			t.Error("Close did not wait for the write")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), ended} {
			for op, err := range rawCalls(ctx, cl, "n") {
				if err != client.ErrClosed { //nolint:errorlint // exactly this
					t.Errorf("%s after Close: %v", op, err)
				}
			}
		}
	})
}

// TestRawCloseOutOfTime: Close gives up on a call that hangs, and that call says why it failed.
func TestRawCloseOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := clienttest.Start(t, 1)
		cfg := nodes.Config()
		cfg.OperationTimeout = time.Hour
		cl, err := client.New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first health check is through: the next one, which Close would wait for, comes in a second
		nodes.Node(0).Hang()
		hanging := make(chan error, 1)
		go func() { hanging <- cl.Set(context.Background(), "n", nil, time.Minute) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := cl.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "1 ") {
			t.Errorf("Close: %v, want its deadline and how many calls were left", err)
		}
		var failed *client.NodeError
		if err := <-hanging; !errors.Is(err, client.ErrClosed) || !errors.As(err, &failed) {
			t.Errorf("the call: %v, want a *NodeError that wraps ErrClosed", err)
		}
	})
}
