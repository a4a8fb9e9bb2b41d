// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const defaultLaterMax = 100_000

// ErrLaterFull is returned by [Later.Add] for a key that is not there yet when there is no place
// left.
var ErrLaterFull = errors.New("invalidation: too many second deletes pending")

// LaterConfig are the settings of a [Later]. The zero value is ready to use; negative values are
// errors.
type LaterConfig struct {
	// Max is the most keys that may wait for their second delete. 0 means 100,000. Each takes some
	// 130 bytes and its name.
	Max int
}

// Later keeps second deletes until they are due. A second delete repeats an invalidation some time
// after the first: what a loader had read from a database replica that lagged behind, and stored
// after the first delete, goes too. The caller adds a key after each invalidation and carries out
// what Due gives; delays may differ from key to key.
//
// # A key that is added again
//
// One entry a key, with at most two times: the first due and the last. Add(K) at 0 ms and at 300
// ms, both with a delay of 500 ms, give deletes at 500 and at 800 ms. The last is needed because
// only it comes a whole delay after the last write. The first is needed because a key that is
// written all the time would otherwise put its second delete off for ever, and what a lagging
// loader had stored after the one write would have to wait for the delay of another. Times in
// between fall together with the last. So every added time is followed by a delete, the first of a
// row exactly then, and the others less than one delay later; and a key costs at most two second
// deletes in less than a delay, however often it is written.
//
// All methods are safe for concurrent use. Add and Due cost the logarithm of the number of keys.
type Later struct {
	max int

	mu    sync.Mutex
	names map[string]*delayed
	queue dueQueue
}

// Delayed is a second delete.
type Delayed struct {
	Name    string    // of the key's data, as given to Add
	Version uint64    // the largest that was added; 0 if none was known
	Due     time.Time // the latest of the added times that this delete is for
}

// delayed is the entry of one key. Its Due is the next time; last is not before it.
type delayed struct {
	Delayed
	last  time.Time
	place int // in the heap
}

// NewLater returns an empty schedule, or an error that names the wrong field.
func NewLater(config LaterConfig) (*Later, error) {
	if config.Max < 0 {
		return nil, fmt.Errorf("invalidation: LaterConfig.Max is %d: must not be negative", config.Max)
	}
	return &Later{max: cmp.Or(config.Max, defaultLaterMax), names: make(map[string]*delayed)}, nil
}

// Add schedules the second delete of a key. It is to be called after the invalidation, with due a
// delay later than its end. A new key is refused with ErrLaterFull when Max keys are waiting: then
// no second delete will come, and the caller must say so or wait; nothing that was accepted is
// dropped.
func (l *Later) Add(name string, version uint64, due time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.names[name]
	if e == nil {
		if len(l.queue) >= l.max {
			return fmt.Errorf("%w: %d keys are waiting, no place for %q", ErrLaterFull, l.max, name)
		}
		e = &delayed{Delayed: Delayed{Name: name, Version: version, Due: due}, last: due}
		l.names[name] = e
		heap.Push(&l.queue, e)
		return nil
	}
	e.Version = max(e.Version, version)
	if due.After(e.last) {
		e.last = due
	}
	if due.Before(e.Due) {
		e.Due = due
		heap.Fix(&l.queue, e.place)
	}
	return nil
}

// Due takes out the second deletes that are due at now, at most most of them, the earliest first;
// nil when there is none. They are the caller's from here: one that fails goes into the [Outbox].
func (l *Later) Due(now time.Time, most int) []Delayed {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []Delayed
	for len(due) < most && len(l.queue) > 0 && !l.queue[0].Due.After(now) {
		e := l.queue[0]
		if e.last.After(now) {
			due = append(due, e.Delayed)
			e.Due = e.last
			heap.Fix(&l.queue, 0)
			continue
		}
		due = append(due, e.whole())
		heap.Pop(&l.queue)
		delete(l.names, e.Name)
	}
	return due
}

// whole is one delete for both of an entry's times.
func (e *delayed) whole() Delayed {
	d := e.Delayed
	d.Due = e.last
	return d
}

// Next returns when the next second delete is due, a time in the past if one is due now; false when
// none is waiting. Add may bring it forward.
func (l *Later) Next() (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return time.Time{}, false
	}
	return l.queue[0].Due, true
}

// Len returns how many keys wait for a second delete.
func (l *Later) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// Flush takes out everything, due or not, one record a key, sorted by Due and then by name. It is
// for a Close that cannot wait: what was not yet due is sent early, which protects less, or
// reported.
func (l *Later) Flush() []Delayed {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Delayed, 0, len(l.queue))
	for _, e := range l.queue {
		all = append(all, e.whole())
	}
	l.queue = nil
	clear(l.names)
	slices.SortFunc(all, func(a, b Delayed) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// dueQueue is a heap by Due. Names settle ties, so that the order is the same in every run.
type dueQueue []*delayed

func (q dueQueue) Len() int { return len(q) }

func (q dueQueue) Less(i, j int) bool {
	return cmp.Or(q[i].Due.Compare(q[j].Due), cmp.Compare(q[i].Name, q[j].Name)) < 0
}

func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push is heap.Interface's.
func (q *dueQueue) Push(x any) {
	e := x.(*delayed)
	e.place = len(*q)
	*q = append(*q, e)
}

// Pop is heap.Interface's.
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
