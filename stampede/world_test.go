// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// In these tests an entry is its row version; 0 is none.
type (
	outcome = stampede.Outcome[int]
	loaded  = stampede.Loaded[int]
	state   = stampede.State[int]
)

var errNode = errors.New("node does not answer")

// fault is what happens to one request.
type fault struct {
	err     bool          // the caller gets errNode
	lost    bool          // the node never sees the request
	late    time.Duration // with err: the node acts on it this much later
	latency time.Duration // before the node acts
}

// memShelf is one key on a node, as the scripts would keep it, with faults, and
// a log of what must never happen.
type memShelf struct {
	tb   testing.TB
	ttl  time.Duration
	hook func(op string) fault // called after the node has acted, or before a fault

	mu       sync.Mutex
	entry    int
	lease    string // "-" is the no-store marker
	leaseEnd time.Time
	floor    uint64
	hasFloor bool
	changed  chan struct{}

	sent    map[string]bool // tokens seen in Take
	granted map[string]bool // tokens whose grant the reader has heard of
	filled  map[string]bool // tokens seen in Fill
	tokens  atomic.Int64    // counter for NewToken
	loads   int
	takes   int
	watches int
}

func newMemShelf(tb testing.TB) *memShelf {
	return &memShelf{
		tb: tb, ttl: 5 * time.Second, hook: func(string) fault { return fault{} }, changed: make(chan struct{}),
		sent: map[string]bool{}, granted: map[string]bool{}, filled: map[string]bool{},
	}
}

// do carries act out, now, later or never.
func (s *memShelf) do(op string, act func()) error {
	locked := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lease != "" && !time.Now().Before(s.leaseEnd) {
			s.lease = ""
		}
		act()
	}
	f := s.hook("before " + op)
	if f.latency > 0 {
		time.Sleep(f.latency)
	}
	switch {
	case f.err && f.late > 0:
		time.AfterFunc(f.late, locked)
		return errNode
	case f.lost:
		return errNode
	}
	locked()
	if f.err {
		return errNode
	}
	s.hook(op)
	return nil
}

// touch tells the watchers. s.mu is held.
func (s *memShelf) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// look is the state now. s.mu is held.
func (s *memShelf) look() state {
	st := state{Entry: s.entry, Found: s.entry != 0, Floor: s.floor, HasFloor: s.hasFloor}
	switch s.lease {
	case "":
	case "-":
		st.Status = stampede.NoStore
	default:
		st.Status = stampede.Held
	}
	return st
}

func (s *memShelf) Take(_ context.Context, token string, mode stampede.Mode) (state, error) {
	s.mu.Lock()
	s.takes++
	if s.sent[token] {
		s.tb.Errorf("token %s was sent twice", token)
	}
	s.sent[token] = true
	s.mu.Unlock()
	var st state
	err := s.do("take", func() {
		st = s.look()
		grant := mode == stampede.Force ||
			s.lease == "" && (s.entry == 0 || mode == stampede.Refresh)
		if grant {
			s.lease, s.leaseEnd = token, time.Now().Add(s.ttl)
			st.Status = stampede.Granted
		}
		if mode == stampede.Refresh {
			st.Found = false // what is there is stale
		}
	})
	if err != nil {
		return state{}, err // st may be written to later
	}
	s.mu.Lock()
	s.granted[token] = st.Status == stampede.Granted
	s.mu.Unlock()
	return st, nil
}

func (s *memShelf) Watch(context.Context) (state, error) {
	var st state
	if err := s.do("watch", func() { s.watches++; st = s.look() }); err != nil {
		return state{}, err // st may be written to later
	}
	return st, nil
}

func (s *memShelf) Fill(_ context.Context, token string, e int) (stampede.Verdict, error) {
	s.mu.Lock()
	if s.filled[token] {
		s.tb.Errorf("two fills under token %s", token)
	}
	if !s.granted[token] {
		s.tb.Errorf("fill under token %s, which the reader was never told it had", token)
	}
	s.filled[token] = true
	s.mu.Unlock()
	var v stampede.Verdict
	err := s.do("fill", func() {
		switch {
		case s.lease != token:
			v = stampede.LeaseLost
		case s.hasFloor && uint64(e) < s.floor:
			v = stampede.Older
		default:
			s.entry, s.lease, v = e, "", stampede.Stored
			s.touch()
		}
	})
	if err != nil {
		return 0, err // v may be written to later
	}
	return v, nil
}

func (s *memShelf) Release(_ context.Context, token string, noStore bool) error {
	return s.do("release", func() {
		if s.lease != token {
			return
		}
		s.lease = ""
		if noStore {
			s.lease, s.leaseEnd = "-", time.Now().Add(time.Second)
		}
		s.touch()
	})
}

// invalidate is the writers' request: data and lease go in one step.
func (s *memShelf) invalidate() error {
	return s.do("invalidate", func() {
		s.entry, s.lease = 0, ""
		s.touch()
	})
}

func (s *memShelf) held() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != "" && time.Now().Before(s.leaseEnd) {
		return s.lease
	}
	return ""
}

func (s *memShelf) stored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entry
}

func (s *memShelf) loaded() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

// world is one process with a loop, in front of a shelf and a database whose
// row has a version.
type world struct {
	limiter *stampede.Limiter
	guard   *stampede.Guard
	loop    *stampede.Loop
	shelf   *memShelf
	db      *atomic.Int64
	load    time.Duration // how long the database takes
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{limiter: newLimiter(t, stampede.LimiterConfig{Max: 2}), guard: &stampede.Guard{}, shelf: newMemShelf(t), db: &atomic.Int64{}, load: 100 * time.Millisecond}
	w.db.Store(1)
	loop, err := stampede.NewLoop(stampede.LoopConfig{
		Limiter: w.limiter, Guard: w.guard, LoadTimeout: time.Second, MaxWait: 3 * time.Second,
		Draw:     func() float64 { return 0 },
		NewToken: func() string { return "t" + strconv.FormatInt(w.shelf.tokens.Add(1), 10) },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.loop = loop
	return w
}

// peer is another process in front of the same shelf and database.
func (w *world) peer(t testing.TB) *world {
	p := newWorld(t)
	p.shelf, p.db, p.load = w.shelf, w.db, w.load
	return p
}

// read loads the row: the version is read at once, the answer takes its time.
func (w *world) read(ctx context.Context) (loaded, error) {
	w.shelf.mu.Lock()
	w.shelf.loads++
	w.shelf.mu.Unlock()
	v := w.db.Load()
	select {
	case <-time.After(w.load):
		return loaded{Entry: int(v), Version: uint64(v)}, nil
	case <-ctx.Done():
		return loaded{}, ctx.Err()
	}
}

func (w *world) fetch(ctx context.Context, mode stampede.Mode) (outcome, error) {
	return stampede.Fetch(ctx, w.loop, w.shelf, mode, nil, w.read)
}

// idle checks that nothing of this process is left running.
func (w *world) idle(t testing.TB) {
	t.Helper()
	if s := w.limiter.Stats(); s.Running != 0 || s.Queued != 0 {
		t.Errorf("places left taken: %+v", s)
	}
	if n := w.guard.Running(); n != 0 {
		t.Errorf("%d loads left running", n)
	}
}
