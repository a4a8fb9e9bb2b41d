// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// filterNode is a node that keeps a feed and builds, and can lose them.
type filterNode struct {
	mu      sync.Mutex
	history int
	ids     int
	entries []stampede.FilterEntry
	builds  map[string][]byte
	ends    map[string]time.Time
	lead    string
	leadEnd time.Time
}

func newFilterNode() *filterNode {
	return &filterNode{builds: make(map[string][]byte), ends: make(map[string]time.Time)}
}

// promoted is a replica of n that has all its entries, and becomes the primary.
func (n *filterNode) promoted() *filterNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := newFilterNode()
	r.history, r.ids, r.entries = n.history+1, n.ids, append(r.entries, n.entries...)
	return r
}

// failover loses the last entries, as a replica that lags does.
func (n *filterNode) failover(lost int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.history++
	n.entries = n.entries[:max(0, len(n.entries)-lost)]
}

// keep keeps only the last entries.
func (n *filterNode) keep(entries int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = n.entries[max(0, len(n.entries)-entries):]
}

// spoil damages one part of each build that is stored, or forgets them all.
func (n *filterNode) spoil(all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, data := range n.builds {
		if all {
			delete(n.builds, name)
		} else if name != stampede.FilterNewest {
			data = append([]byte(nil), data...)
			data[len(data)/2] ^= 1
			n.builds[name] = data
		}
	}
}

// replaceLast is what a stream with a new history looks like whose ids happen to be the same.
func (n *filterNode) replaceLast() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries[len(n.entries)-1].Data = []byte("hx")
}

var errCut = errors.New("cut off")

// filterLink is one process's way to the node: stampede.FilterFeed and FilterStore.
type filterLink struct {
	node  *filterNode
	self  string
	delay func() time.Duration // nil: none

	mu                     sync.Mutex
	cut, noReply, noAppend bool
	onCall                 func(kind string)
	first                  string // the id from which it began to follow
}

// hook has a function called at certain moments.
func (l *filterLink) hook(f func(kind string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onCall = f
}

func (l *filterLink) moment(kind string) {
	l.mu.Lock()
	f := l.onCall
	l.mu.Unlock()
	if f != nil {
		f(kind)
	}
}

func (l *filterLink) move(to *filterNode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.node = to
}

func (l *filterLink) set(cut, noReply bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.noReply = cut, noReply
}

// call carries out do at the node, unless it does not arrive, and says what the caller hears of it.
func (l *filterLink) call(do func(n *filterNode)) error {
	wait := func() {
		if l.delay != nil {
			time.Sleep(l.delay())
		}
	}
	wait()
	l.mu.Lock()
	cut, noReply, node := l.cut, l.noReply, l.node
	l.mu.Unlock()
	if cut {
		return errCut
	}
	node.mu.Lock()
	do(node)
	node.mu.Unlock()
	wait()
	if noReply {
		return errCut
	}
	return nil
}

func (l *filterLink) Append(_ context.Context, entry []byte) (at stampede.FilterPosition, err error) {
	l.mu.Lock()
	refused := l.noAppend
	l.mu.Unlock()
	if refused {
		return at, errCut
	}
	err = l.call(func(n *filterNode) {
		n.ids++
		at = stampede.FilterPosition{History: fmt.Sprint(n.history), ID: fmt.Sprintf("%09d", n.ids)}
		n.entries = append(n.entries, stampede.FilterEntry{ID: at.ID, Data: append([]byte(nil), entry...)})
	})
	l.mu.Lock()
	if l.first == "" {
		l.first = at.ID
	}
	l.mu.Unlock()
	l.moment("appended")
	return at, err
}

func (l *filterLink) Read(_ context.Context, id string) (r stampede.FilterReading, err error) {
	l.mu.Lock()
	others := id < l.first
	l.mu.Unlock()
	if others {
		l.moment("reads of another's")
	}
	err = l.call(func(n *filterNode) {
		r.History = fmt.Sprint(n.history)
		for _, e := range n.entries {
			if e.ID >= id {
				r.Entries = append(r.Entries, e)
			}
		}
		if r.More = len(r.Entries) > 5; r.More {
			r.Entries = r.Entries[:5]
		}
	})
	return r, err
}

func (l *filterLink) Put(_ context.Context, name string, data []byte, ttl time.Duration) error {
	return l.call(func(n *filterNode) { n.builds[name], n.ends[name] = data, time.Now().Add(ttl) })
}

func (l *filterLink) Get(_ context.Context, name string) (data []byte, left time.Duration, err error) {
	err = l.call(func(n *filterNode) {
		if left = time.Until(n.ends[name]); left > 0 {
			data = n.builds[name]
		}
	})
	return data, left, err
}

func (l *filterLink) Lead(_ context.Context, d time.Duration) (leads bool, err error) {
	err = l.call(func(n *filterNode) {
		if n.lead == l.self || !time.Now().Before(n.leadEnd) {
			n.lead, n.leadEnd, leads = l.self, time.Now().Add(d), d > 0
		}
	})
	return leads, err
}

// filterWorld is a source, a node and some processes.
type filterWorld struct {
	t    *testing.T
	node *filterNode
	rand func() float64
	cfg  stampede.FilterConfig

	mu      sync.Mutex
	rows    []string
	known   map[string]time.Time // when Add had returned nil
	failing bool                 // Keys fails
	scans   int
}

func newFilterWorld(t *testing.T, seed uint64) *filterWorld {
	w := &filterWorld{t: t, node: newFilterNode(), known: make(map[string]time.Time)}
	r, mu := rand.New(rand.NewPCG(seed, 0)), new(sync.Mutex)
	w.rand = func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
	w.cfg = stampede.FilterConfig{ExpectedKeys: 2000, FalsePositives: 1e-6, Keys: w.keys, RebuildEvery: time.Minute, Draw: w.rand}
	return w
}

// upTo draws a time.
func (w *filterWorld) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rand() * float64(d))
}

// keys is a scan that takes its time and sees what was committed when it began, and nothing else.
func (w *filterWorld) keys(_ context.Context, yield func(string) bool) error {
	w.mu.Lock()
	rows, failing := append([]string(nil), w.rows...), w.failing
	w.scans++
	w.mu.Unlock()
	for i, row := range rows {
		if i%50 == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if failing && i == len(rows)/2 {
			return errors.New("the database has gone")
		}
		if !yield(row) {
			return nil
		}
	}
	time.Sleep(w.upTo(2 * time.Second))
	return nil
}

// begun is how many scans have begun.
func (w *filterWorld) begun() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scans
}

func (w *filterWorld) commit(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rows = append(w.rows, key)
}

// filterProcess is one process.
type filterProcess struct {
	w    *filterWorld
	link *filterLink
	f    *stampede.Filter
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	own []string // what was added here
}

func (w *filterWorld) start(name string, delay func() time.Duration) *filterProcess {
	p := &filterProcess{w: w, link: &filterLink{node: w.node, self: name, delay: delay}, done: make(chan struct{})}
	cfg := w.cfg
	cfg.Feed, cfg.Store = p.link, p.link
	var err error
	if p.f, err = stampede.NewFilter(cfg); err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	p.stop = stop
	go func() {
		defer close(p.done)
		p.f.Run(ctx)
	}()
	return p
}

func (p *filterProcess) end() {
	p.stop()
	<-p.done
}

// insert commits a row and adds it.
func (p *filterProcess) insert(key string) error {
	p.w.commit(key)
	if p.link.delay != nil {
		time.Sleep(p.w.upTo(300 * time.Millisecond))
	}
	err := p.f.Add(p.w.t.Context(), key)
	p.mu.Lock()
	p.own = append(p.own, key)
	p.mu.Unlock()
	if err == nil {
		p.w.mu.Lock()
		p.w.known[key] = time.Now()
		p.w.mu.Unlock()
	}
	return err
}

// check is the one rule: no key that is known is called absent, here at once, elsewhere after FilterTrust.
func (p *filterProcess) check() {
	now := time.Now()
	p.mu.Lock()
	must := append([]string(nil), p.own...)
	p.mu.Unlock()
	p.w.mu.Lock()
	for key, at := range p.w.known {
		if now.Sub(at) >= stampede.FilterTrust {
			must = append(must, key)
		}
	}
	p.w.mu.Unlock()
	for _, key := range must {
		if p.f.Absent(key, now) {
			p.w.t.Errorf("%s says that %s is absent; stats %+v", p.link.self, key, p.f.Stats())
		}
	}
}

// until waits, within a bubble.
func until(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v later: not %s", within, what)
		}
	}
}

// complete waits until the filter says "absent".
func (p *filterProcess) complete(within time.Duration) {
	p.w.t.Helper()
	for end := time.Now().Add(within); !p.f.Stats().Complete; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.w.t.Fatalf("%s is not complete after %v: %+v", p.link.self, within, p.f.Stats())
		}
	}
}

// TestFilterStorm lets processes insert while everything goes wrong: nodes forget, fail over, are slow or cut off, builds are damaged, scans fail, processes are
// restarted. No filter may say "absent" of a row that is known; and when it is quiet again all are complete.
func TestFilterStorm(t *testing.T) {
	absents, known := uint64(0), 0
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFilterWorld(t, seed)
				absents += filterStorm(w)
				known += len(w.known)
			})
		})
	}
	if absents < 2000 || known < 500 {
		t.Errorf("the filters said \"absent\" %d times, %d rows got known: too few for this to be a test", absents, known)
	}
}

func filterStorm(w *filterWorld) (absents uint64) {
	const processes, lasts = 3, 90 * time.Second
	end := time.Now().Add(lasts)
	procs := make([]*filterProcess, processes)
	open := func(i int) {
		procs[i] = w.start(fmt.Sprint("p", i), func() time.Duration {
			if w.rand() < 0.05 {
				return w.upTo(1500 * time.Millisecond)
			}
			return w.upTo(time.Millisecond)
		})
	}
	for i := range procs {
		open(i)
	}
	for n := 0; time.Now().Before(end); n++ {
		var adds sync.WaitGroup
		for i, p := range procs {
			if w.rand() < 0.5 {
				adds.Go(func() { _ = p.insert(fmt.Sprintf("row %d of %d", n, i)) }) // owed, if it fails
			}
		}
		for range 5 {
			time.Sleep(w.upTo(200 * time.Millisecond))
			for _, p := range procs {
				p.check()
				p.f.Absent("nobody", time.Now())
			}
		}
		adds.Wait()
		if w.rand() < 0.1 {
			i := int(w.rand() * processes)
			if !w.trouble(procs, procs[i]) {
				absents += procs[i].f.Stats().Absents
				procs[i].end()
				open(i)
			}
		}
	}
	w.mu.Lock()
	w.failing = false
	w.mu.Unlock()
	for _, p := range procs {
		p.link.set(false, false)
	}
	time.Sleep(10 * time.Second) // what was owed has been sent
	for _, p := range procs {
		p.complete(2 * time.Minute)
		absents += p.f.Stats().Absents
		for _, q := range procs {
			for _, key := range q.own {
				if p.f.Absent(key, time.Now()) {
					w.t.Errorf("%s says that %s of %s is absent when all is quiet", p.link.self, key, q.link.self)
				}
			}
		}
		if s := p.f.Stats(); s.Owed > 0 {
			w.t.Errorf("%s owes %d additions when all is quiet", p.link.self, s.Owed)
		}
		p.end()
	}
	return absents
}

// trouble does something bad; false: the process is to be restarted.
func (w *filterWorld) trouble(procs []*filterProcess, p *filterProcess) bool {
	switch draw := w.rand(); {
	case draw < 0.2:
		w.node.failover(int(w.rand() * 5))
	case draw < 0.25:
		w.node.keep(0)
	case draw < 0.35:
		w.node.keep(3)
	case draw < 0.5:
		p.link.set(true, false)
	case draw < 0.6:
		p.link.set(false, true)
	case draw < 0.75:
		for _, p := range procs {
			p.link.set(false, false)
		}
	case draw < 0.85:
		w.node.spoil(w.rand() < 0.5)
	case draw < 0.9:
		w.mu.Lock()
		w.failing = !w.failing
		w.mu.Unlock()
	default:
		return false
	}
	return true
}
