// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/hotkey"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// onServer is a client of one real server, and its part in the fleet's view with one key on its way.
func onServer(t *testing.T, timeout time.Duration, log *slog.Logger) (*redistest.Server, *heat, []telling) {
	t.Helper()
	s := redistest.Start(t, redistest.Config{})
	cl, err := New(t.Context(), Config{Nodes: []ring.Node{{ID: "a", Addr: s.Addr()}}, OperationTimeout: timeout, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close(context.Background()) })
	w := &warmth{names: newNaming("", "x", 0), hotRate: DefaultHotRate, copyRate: DefaultHotCopyRate, copies: 1}
	w.hot.Store(new(map[string]struct{}))
	if w.asked, err = hotkey.New(hotkey.Config{}); err != nil {
		t.Fatal(err)
	}
	return s, cl.heat, []telling{{w: w, k: &warmKey{counter: "~h:x:k:v0"}, said: rates{1000, 1000}, add: rates{1000, 1000}}}
}

// TestHeatCallThatComesLate: a call that its process has given up, and that the server carries out when it goes on, adds nothing: the process says the same again.
func TestHeatCallThatComesLate(t *testing.T) {
	s, h, batch := onServer(t, 200*time.Millisecond, nil)
	evals := func() string {
		stats, err := s.Info(t.Context(), "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		calls, _, _ := strings.Cut(stats["cmdstat_evalsha"], ",")
		return calls
	}
	there := func() bool {
		n, err := s.Client().Exists(t.Context(), batch[0].k.counter).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	for end := time.Now().Add(20 * time.Second); !there(); h.tell(t.Context(), 0, batch) {
		if time.Now().After(end) {
			t.Fatal("calls in time add nothing")
		}
	}
	if err := s.Client().Del(t.Context(), batch[0].k.counter).Err(); err != nil {
		t.Fatal(err)
	}
	before := evals()
	// The script is known by now: the next call is one command. Once more, where the process did not send it: it finds the node down, on a machine that is busy.
	for end := time.Now().Add(time.Minute); evals() == before; {
		if time.Now().After(end) {
			t.Fatal("the scene is not set: the call never came")
		}
		s.Stop()
		h.tell(t.Context(), 0, batch)
		time.Sleep(10 * heatMargin) // until the call is not good any more
		s.Cont()
		for i := 0; i < 200 && evals() == before; i++ {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if there() {
		t.Error("a call that was given up has added to the counter")
	}
}

// TestHeatRefusalIsLogged: once when a node begins to refuse the counters, with its id and why, and once when it counts again.
func TestHeatRefusalIsLogged(t *testing.T) {
	log := new(safeLog)
	s, h, batch := onServer(t, 5*time.Second, slog.New(slog.NewTextHandler(log, nil)))
	acl := func(rule string) {
		t.Helper()
		if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	tells := func(what string) { // and goes on telling
		t.Helper()
		for end := time.Now().Add(20 * time.Second); log.count(what) == 0; h.tell(t.Context(), 0, batch) {
			if time.Now().After(end) {
				t.Fatalf("it is not logged: %s", what)
			}
		}
		h.tell(t.Context(), 0, batch)
		h.tell(t.Context(), 0, batch)
	}
	h.tell(t.Context(), 0, batch)
	acl("-evalsha")
	acl("-eval")
	tells("refuses the counters of hot keys")
	acl("+evalsha")
	acl("+eval")
	tells("counts hot keys again")
	refused, counts := log.count("refuses the counters of hot keys"), log.count("counts hot keys again")
	if refused != 1 || counts != 1 || log.count("node=a error=") == 0 || log.count("NOPERM") == 0 {
		t.Errorf("%d lines of the refusal, %d of its end: %q", refused, counts, log.b.String())
	}
}

// safeLog is a log that is read while it may be written.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *safeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *safeLog) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}
