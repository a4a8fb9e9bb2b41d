// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/bench/child"
	"github.com/go-shelf/shelf/bench/meter"
	"github.com/go-shelf/shelf/internal/redistest"
)

// TestMain makes the test's own program a worker where it is started as one.
func TestMain(m *testing.M) {
	workerMain()
	os.Exit(m.Run())
}

// worked opens a contender for a kind of work in a process of its own, on new servers, and runs a cell.
func worked(t *testing.T, name string, g group, c cell) meter.Slot {
	t.Helper()
	var addrs []string
	for _, s := range redistest.StartNodes(t, g.nodes) {
		addrs = append(addrs, s.Addr())
	}
	w, err := startWorker()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.End(); err != nil {
			t.Error(err)
		}
	})
	if err := w.Ask(t.Context(), order{Open: &scene{Contender: name, Kind: g.kind, Addrs: addrs, Keys: g.keys, Sizes: g.sizes, Loading: time.Millisecond}}, nil); err != nil {
		t.Fatal(err)
	}
	var s meter.Slot
	if err := w.Ask(t.Context(), order{Run: &c, For: 20 * time.Millisecond, Warm: 5 * time.Millisecond, Turn: 1}, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryContender: each does what it says it can, on servers, and returns the right bytes: a worker compares them when it is opened, and their length at each read.
func TestEveryContender(t *testing.T) {
	for _, c := range contenders() {
		for _, kind := range c.kinds {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				i := slices.IndexFunc(groups(), func(g group) bool { return g.kind == kind })
				g := groups()[i]
				g.nodes, g.keys = min(g.nodes, 2), min(g.keys, 500)
				one := g.cells[0]
				one.Goroutines = min(one.Goroutines, 500) // the race detector does not bear thousands in every process
				s := worked(t, c.name, g, one)
				if s.Ops == 0 || s.Failed > 0 || s.Wall <= 0 {
					t.Errorf("%+v", s)
				}
				if loads := kind == kindMiss || kind == kindStampede; loads && s.Loads == 0 {
					t.Errorf("%d loads", s.Loads)
				}
				if kind == kindStampede && c.name == shelf.name && s.Loads != 1 {
					t.Errorf("%d loads in a stampede", s.Loads)
				}
				if (kind == kindL1 || kind == kindL2 || kind == kindMany) && s.Loads != 0 {
					t.Errorf("%d loads of what is there", s.Loads)
				}
			})
		}
	}
}

// TestSeveralNodes: keys that are hashed over servers are found again.
func TestSeveralNodes(t *testing.T) {
	for _, kind := range []string{kindL2, kindMany, kindZipf} {
		for _, name := range able(kind) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				i := slices.IndexFunc(groups(), func(g group) bool { return g.kind == kind })
				g := groups()[i]
				g.nodes, g.keys = 3, 300
				one := g.cells[0]
				if s := worked(t, name, g, one); s.Ops == 0 || s.Failed > 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestWrongValuesAreNoticed: who answers with other bytes is not measured.
func TestWrongValuesAreNoticed(t *testing.T) {
	key := keyOf(small, "7")
	right := valueOf(key)
	wrong := right[:small-1] + "?"
	text := func(v string) *opened {
		return &opened{text: func(context.Context, string) (string, error) { return v, nil }}
	}
	many := &opened{text: text(right).text, many: func(_ context.Context, keys []string, each func(key, value string)) error {
		each(keys[0], wrong)
		return nil
	}}
	for name, o := range map[string]*opened{"text": text(wrong), "bytes": {bytes: func(context.Context, string) ([]byte, error) { return []byte(wrong), nil }}, "many": many} {
		if err := o.verify(t.Context(), []string{key}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: a wrong value has passed: %v", name, err)
		}
	}
	if err := text(right).verify(t.Context(), []string{key}); err != nil {
		t.Error(err)
	}
	if err := text(right[1:]).reads(t.Context(), key, small); err == nil {
		t.Error("a value that is too short was taken for a read")
	}
}

// TestWorkerSaysWhatIsWrong: an error of a worker comes back, and it goes on.
func TestWorkerSaysWhatIsWrong(t *testing.T) {
	w, err := startWorker()
	if err != nil {
		t.Fatal(err)
	}
	err = w.Ask(t.Context(), order{Open: &scene{Contender: "nobody"}}, nil)
	if err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("opening nobody: %v", err)
	}
	if err := w.Ask(t.Context(), order{}, nil); err == nil {
		t.Error("an order for nothing was carried out")
	}
	if err := w.End(); err != nil {
		t.Error(err)
	}
	if err := w.Ask(t.Context(), order{}, nil); err == nil {
		t.Error("a process that has ended has answered")
	}
}

// TestChildThatDies: its parent hears of it instead of waiting.
func TestChildThatDies(t *testing.T) {
	p, err := child.Start("/bin/sh", []string{"-c", "read line; exit 3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Ask(t.Context(), order{}, nil); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("the order's error is %v", err)
	}
	if err := p.End(); err == nil {
		t.Error("its end was no error")
	}
}

// TestKeysTellTheirValues: a value follows from its key, and is as long as that says.
func TestKeysTellTheirValues(t *testing.T) {
	for _, size := range []int{1, 16, 100, 1024} {
		for _, id := range []string{"1", "new-2"} {
			key := keyOf(size, id)
			if sizeOf(key) != size || len(valueOf(key)) != size {
				t.Errorf("%s: %d bytes, want %d", key, len(valueOf(key)), size)
			}
		}
	}
	if valueOf(keyOf(100, "1")) == valueOf(keyOf(100, "2")) {
		t.Error("two keys have one value")
	}
}

// TestContendersShareServers: on the same servers each reads what it has stored itself, in its own form.
func TestContendersShareServers(t *testing.T) {
	g := group{name: "shared", kind: kindL2, nodes: 1, keys: 300, sizes: []int{small}, contenders: []string{goZero.name, goRedis.name, redisCache.name},
		cells: []cell{l2Cell(1, small, 2)}}
	r := make(results)
	if err := g.run(t.Context(), pace{rounds: 2, slot: 20 * time.Millisecond}, r); err != nil {
		t.Fatal(err)
	}
	for _, name := range g.contenders {
		slots := r.slots(g.cells[0], name)
		if len(slots) != 2 || slots[0].Ops == 0 || slots[0].Failed+slots[1].Failed > 0 {
			t.Errorf("%s: %+v", name, slots)
		}
	}
}
