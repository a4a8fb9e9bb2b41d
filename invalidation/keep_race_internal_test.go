// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const hammered = 3000 // steps of each goroutine

// together runs f in n goroutines until each has made its steps, and waits.
func together(n int, f func(rng *rand.Rand)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 5))
			for range hammered {
				f(rng)
			}
		})
	}
	wg.Wait()
}

// Writers put and look, retriers retry, somebody wakes, somebody reads the figures: a Put that has
// returned is seen until a later attempt is done, the bound is kept, nobody's entry is lost.
func TestOutboxTogether(t *testing.T) {
	o, err := NewOutbox(OutboxConfig{Max: 64, MinBackoff: time.Nanosecond, MaxBackoff: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	// Each key has one writer, which counts its Puts in the version. A retrier notes the version
	// that it is about to report done.
	const keys = 128
	var seen [keys]atomic.Uint64 // the largest version whose attempt was, or is about to be, reported done
	var put [keys]uint64
	var mu [keys]sync.Mutex
	write := func(rng *rand.Rand) {
		k := rng.IntN(keys)
		name := fmt.Sprint("k", k)
		mu[k].Lock()
		defer mu[k].Unlock()
		put[k]++
		if err := o.Put(name, rng.IntN(4), put[k], time.Now()); err != nil {
			if !errors.Is(err, ErrOutboxFull) {
				t.Error(err)
			}
			return
		}
		if !o.Has(name) && seen[k].Load() < put[k] {
			t.Errorf("%s: version %d was put and is not there, done is %d", name, put[k], seen[k].Load())
		}
	}
	retry := func(rng *rand.Rand) {
		for _, p := range o.Due(time.Now(), 8) {
			if rng.IntN(4) == 0 {
				o.Failed(p, time.Now(), rng.Float64())
				continue
			}
			var k int
			fmt.Sscanf(p.Name, "k%d", &k)
			for old := seen[k].Load(); old < p.Version && !seen[k].CompareAndSwap(old, p.Version); old = seen[k].Load() {
			}
			o.Done(p)
		}
	}
	together(6, func(rng *rand.Rand) {
		switch rng.IntN(8) {
		case 0, 1, 2:
			write(rng)
		case 3, 4, 5:
			retry(rng)
		case 6:
			o.Wake(rng.IntN(4), time.Now())
			o.Next()
		default:
			if st := o.Stats(); st.Depth > 64 || st.InFlight > st.Depth {
				t.Errorf("%+v", st)
			}
		}
	})
	o.check(t)
	for deadline := time.Now().Add(time.Minute); o.Stats().Depth > 0; runtime.Gosched() {
		for _, p := range o.Due(time.Now(), 8) {
			o.Done(p)
		}
		if time.Now().After(deadline) {
			t.Fatalf("does not get empty: %+v", o.Stats())
		}
	}
}

// What is added comes out, whoever takes it, and comes out again when it was added after that.
func TestLaterTogether(t *testing.T) {
	l, err := NewLater(LaterConfig{Max: 50})
	if err != nil {
		t.Fatal(err)
	}
	var accepted, out atomic.Int64
	together(6, func(rng *rand.Rand) {
		switch rng.IntN(3) {
		case 0, 1:
			if l.Add(fmt.Sprint(rng.IntN(100)), 0, time.Now().Add(time.Duration(rng.IntN(100_000)))) == nil {
				accepted.Add(1)
			}
		default:
			for range l.Due(time.Now(), 4) {
				out.Add(1)
			}
			l.Next()
			if n := l.Len(); n > 50 {
				t.Errorf("%d keys, the bound is 50", n)
			}
		}
	})
	rest := l.Flush()
	names := map[string]bool{}
	for _, d := range rest {
		names[d.Name] = true
	}
	if len(names) != len(rest) || l.Len() != 0 || out.Load() == 0 || out.Load()+int64(len(rest)) > accepted.Load() {
		t.Errorf("%d accepted, %d out, %d at the end under %d names, %d left", accepted.Load(), out.Load(), len(rest), len(names), l.Len())
	}
}

func TestReplayTogether(t *testing.T) {
	r, err := NewReplay(ReplayConfig{Max: 20, MinAge: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	var offset, run atomic.Int64
	together(6, func(rng *rand.Rand) {
		name := fmt.Sprint(rng.IntN(60))
		switch rng.IntN(20) {
		case 0:
			if rng.IntN(30) == 0 {
				run.Add(1)
			}
		case 1:
			r.Void(time.Now())
		case 2, 3, 4:
			at := time.Now()
			if r.Read(Position{At: at, Run: fmt.Sprint(run.Load()), Offset: offset.Add(1), Replicas: map[string]int64{"a": offset.Load()}}) > 0 {
				for _, s := range r.Take() {
					r.Add(Sent{Name: s.Name, Run: fmt.Sprint(run.Load()), Began: time.Now(), At: time.Now()})
				}
			}
		case 5:
			r.Covered(r.Lost())
		case 6:
			if st := r.Stats(); st.Depth > 20 || st.Void > st.Depth {
				t.Errorf("%+v", st)
			}
		case 7, 8, 9, 10, 11:
			r.Has(name)
		default:
			began := time.Now()
			offset.Add(1)
			r.Add(Sent{Name: name, Run: fmt.Sprint(run.Load()), Began: began, At: time.Now()})
		}
	})
	r.check(t)
	if st := r.Stats(); st.Left == 0 || st.Dropped == 0 || st.Replayed == 0 {
		t.Errorf("%+v: something never happened", st)
	}
}

// check looks for what must hold between two calls: every entry is in the names and in one list,
// and nothing else is; offsets do not fall.
func (r *Replay) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	names, listed := 0, 0
	r.names.Range(func(_, _ any) bool { names++; return true })
	for _, l := range []*fifo[*sent]{&r.void, &r.placed, &r.open} {
		n := 0
		for k := l.first; k != nil; k = k.next {
			n++
			if r.find(k.of.Name) != k.of || k.in != l {
				t.Fatalf("%s is in a list, not in the names or not in that list", k.of.Name)
			}
			if l == &r.placed && k.prev != nil && k.prev.of.offset > k.of.offset {
				t.Fatalf("offset %d comes after %d", k.of.offset, k.prev.of.offset)
			}
		}
		if n != l.len {
			t.Fatalf("a list of %d says that it has %d", n, l.len)
		}
		listed += n
	}
	if names != listed || int(r.depth.Load()) != names {
		t.Fatalf("%d names, %d in lists, depth %d", names, listed, r.depth.Load())
	}
}
