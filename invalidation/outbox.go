// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultOutboxMax  = 10_000
	defaultMinBackoff = 100 * time.Millisecond
	defaultMaxBackoff = 10 * time.Second

	// probeSize is how many keys are risked on a node that failed last time: enough that one key
	// which always fails does not look like a dead node, few enough to be nothing for one that is
	// coming up.
	probeSize = 16
)

// ErrOutboxFull is returned by [Outbox.Put] for a key that is not in the outbox when there is no
// place left.
var ErrOutboxFull = errors.New("invalidation: outbox full")

// OutboxConfig are an outbox's settings. The zero value is ready to use; negative values are
// errors.
type OutboxConfig struct {
	// Max is the most keys that are kept. 0 means 10,000. Each takes some 300 bytes and its name.
	Max int
	// MinBackoff is the pause after a node's first failure. 0 means 100 ms. It doubles with every
	// failure in a row.
	MinBackoff time.Duration
	// MaxBackoff ends the doubling. 0 means 10 s; it must not be below MinBackoff.
	MaxBackoff time.Duration
}

func (c OutboxConfig) withDefaults() (OutboxConfig, error) {
	if c.Max == 0 {
		c.Max = defaultOutboxMax
	}
	if c.MinBackoff == 0 {
		c.MinBackoff = defaultMinBackoff
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = defaultMaxBackoff
	}
	return c, c.validate()
}

func (c OutboxConfig) validate() error {
	switch {
	case c.Max < 0:
		return fmt.Errorf("invalidation: OutboxConfig.Max is %d: must not be negative", c.Max)
	case c.MinBackoff < 0:
		return fmt.Errorf("invalidation: OutboxConfig.MinBackoff is %v: must not be negative", c.MinBackoff)
	case c.MaxBackoff < c.MinBackoff:
		return fmt.Errorf("invalidation: OutboxConfig.MaxBackoff is %v: must not be below MinBackoff (%v)", c.MaxBackoff, c.MinBackoff)
	}
	return nil
}

// Outbox keeps the invalidations that did not get through, one entry a key, until an attempt that
// began after the last of them succeeds. Until then the process must not trust any copy of the key:
// [Outbox.Has] is to be asked before a read, and again before a fill.
//
// It keeps books and does nothing by itself. The caller puts failures in, asks for what is due,
// sends it and reports every outcome:
//
//	for batch := o.Due(now, 64); len(batch) > 0; batch = o.Due(now, 64) {
//		// send; then o.Done(p) or o.Failed(p, now, rand.Float64()) for every p of the batch
//	}
//
// # Which node is asked, and how often
//
// Nodes fail, not keys. So it is the node that has a back-off, and the keys queue behind it, first
// come first served. A batch is of one node, and a node has one batch out at a time. After a
// failure the next batch waits for the back-off and is a probe of at most 16 keys: ten thousand
// keys of a dead node cost one small pipeline a pause. A batch without a failure ends the back-off,
// and the rest of the node goes at once, in batches of the caller's size. In a batch with both, the
// node is up and some keys are not: the back-off begins anew, and those keys go to the end.
//
// # What an attempt must do
//
// An attempt repeats the whole walk over the shelves that can hold the key, in their order, under
// the map of the moment. [Pending.Node] says on whom it waits, not where the walk begins: of two
// failures of one key only the last node is known, and the walk that met it may have passed the
// other node before the other write. If the walk gets past Node and fails at a second one, Put the
// key with the second node, then call Done.
//
// All methods are safe for concurrent use. Has takes no lock; the others take one, for a time that
// does not grow with the number of keys, Drain excepted.
type Outbox struct {
	config OutboxConfig

	depth atomic.Int64 // entries in names
	names sync.Map     // string to *undone; changed under mu, read without it

	mu       sync.Mutex
	order    fifo[*undone] // every entry, in the order of first Puts
	nodes    map[int]*outboxNode
	inFlight int    // entries whose attempt is under way
	turns    uint64 // the number of the last batch
	stats    OutboxStats
}

// undone is the entry of one key.
type undone struct {
	Pending
	inOrder link[*undone]
	inNode  link[*undone] // in its node's queue, unless an attempt is under way
	put     time.Time     // the last Put
	again   bool          // a Put came since the attempt began
}

// Pending is an invalidation that is to be repeated.
type Pending struct {
	Name    string    // of the key's data, as given to Put
	Node    int       // the node that it waits for
	Version uint64    // the largest that was put; 0 if none was known
	Since   time.Time // when the key was put first

	attempt uint64 // tells this attempt from all others; 0 when none is under way
}

// OutboxStats is a snapshot of an [Outbox].
type OutboxStats struct {
	Depth    int       // now: keys kept
	InFlight int       // now: keys whose attempt is under way
	Oldest   time.Time // now: when the key that is here longest was put; zero when there is none
	Attempts uint64    // keys that Due has given out
	Done     uint64    // keys that an attempt has removed
	Full     uint64    // Puts that were refused with ErrOutboxFull
}

// NewOutbox returns an empty outbox, or an error that names the wrong field.
func NewOutbox(config OutboxConfig) (*Outbox, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Outbox{config: config, nodes: make(map[int]*outboxNode)}, nil
}

// Has says whether an invalidation of the key is pending. It costs one atomic load when nothing is
// pending, a lock-free look-up else. A Put that has returned is seen.
func (o *Outbox) Has(name string) bool {
	return o.depth.Load() != 0 && o.find(name) != nil
}

// Empty says whether nothing is pending. It costs one atomic load.
func (o *Outbox) Empty() bool { return o.depth.Load() == 0 }

func (o *Outbox) find(name string) *undone {
	e, _ := o.names.Load(name)
	u, _ := e.(*undone)
	return u
}

// Put records at now that an invalidation of a key has failed at a node. A key that is here already
// stays one entry: with the larger version, the first time, and the last node. A new one is refused
// with ErrOutboxFull when Max keys are here: then nobody remembers the invalidation, Has does not
// know the key, and the caller must say so to whoever asked for it.
func (o *Outbox) Put(name string, node int, version uint64, now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.find(name)
	if e == nil {
		return o.add(Pending{Name: name, Node: node, Version: version, Since: now})
	}
	// 1. An attempt for K is under way; its delete has been carried out, its reply has not come
	//    back.
	// 2. A reader of another process loads the row and fills K.
	// 3. A writer changes the row; its invalidation fails and is put here.
	// 4. The attempt's reply comes: Done. The copy of 2 is older than the row of 3.
	// So that Done must leave the entry, for an attempt that begins after 3. Equal versions prove
	// nothing: they may both be 0.
	e.again = e.attempt != 0
	e.Version = max(e.Version, version)
	e.put = now
	if from := e.Node; from != node {
		e.Node = node
		if e.attempt == 0 { // else it is queued when the attempt ends
			e.inNode.leave()
			o.enqueue(e)
			o.forget(from)
		}
	}
	return nil
}

func (o *Outbox) add(p Pending) error {
	if o.order.len >= o.config.Max {
		o.stats.Full++
		return fmt.Errorf("%w: it holds %d keys, no place for %q of node %d", ErrOutboxFull, o.config.Max, p.Name, p.Node)
	}
	e := &undone{Pending: p, put: p.Since}
	e.inOrder.of, e.inNode.of = e, e
	o.order.push(&e.inOrder)
	o.names.Store(p.Name, e)
	o.depth.Add(1)
	o.enqueue(e)
	return nil
}

// remove takes an entry out, wherever it is.
func (o *Outbox) remove(e *undone) {
	e.inOrder.leave()
	e.inNode.leave()
	o.names.Delete(e.Name)
	o.depth.Add(-1)
}

// Drain empties the outbox and returns what was in it, the oldest first, also those whose attempt
// is under way: what a Close that gives up has to report. Outcomes that are reported afterwards
// change nothing.
func (o *Outbox) Drain() []Pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Pending, 0, o.order.len)
	for o.order.first != nil {
		e := o.order.first.of
		all = append(all, e.Pending)
		o.remove(e)
	}
	clear(o.nodes)
	o.inFlight = 0
	return all
}

// Stats returns the outbox's figures.
func (o *Outbox) Stats() OutboxStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.stats
	st.Depth, st.InFlight = o.order.len, o.inFlight
	if o.order.first != nil {
		st.Oldest = o.order.first.of.Since
	}
	return st
}
