// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultReplayMax = 100_000
	defaultMinAge    = 10 * time.Second
)

// ReplayConfig are the settings of a [Replay]. The zero value is ready to use; negative values are
// errors.
type ReplayConfig struct {
	// Max is the most keys that are kept. 0 means 100,000. Each takes some 260 bytes and its name.
	// What is invalidated within MinAge and the time between two readings should fit.
	Max int
	// MinAge is how long an invalidation is kept at least, and how long a replica that is not
	// listed any more is waited for. 0 means 10 s. A reading lists only the replicas that are
	// connected at that moment; one that is not may be promoted all the same. Redis Sentinel does
	// not promote a replica that was cut off for more than ten times down-after-milliseconds, so
	// that MinAge should not be less than that; 10 s fits a second.
	MinAge time.Duration
}

func (c ReplayConfig) validate() error {
	switch {
	case c.Max < 0:
		return fmt.Errorf("invalidation: ReplayConfig.Max is %d: must not be negative", c.Max)
	case c.MinAge < 0:
		return fmt.Errorf("invalidation: ReplayConfig.MinAge is %v: must not be negative", c.MinAge)
	}
	return nil
}

// Replay is the log of the invalidations that one node has carried out and may yet forget:
// replication is asynchronous, and a replica that is promoted brings back what it had not heard was
// deleted. There is one log a node. When the primary changes, what is in it is to be repeated; and
// until then its keys are to be read from primaries only ([Replay.Has]), since a replica may have
// the old value.
//
// # When an entry leaves
//
// The primary's answer to ROLE says how far its replication stream has come and how much of it each
// replica has. An invalidation's own place in the stream is not known. But a ROLE that is sent
// after the invalidation was confirmed answers with a place at or behind it. The first such reading
// gives that place to every entry that was waiting for one. An entry leaves at a later reading that
// shows every listed replica at its place or past it, and is sent MinAge after the confirmation or
// later. A replica that was listed and is no more counts for MinAge yet, with what it had last: one
// that hung, was dropped from the list a moment ago and is promoted now would bring back what it
// never received. Where no replica was ever listed there is nobody to wait for but MinAge. Readings
// alone empty the log, so it does not stay full on a node that is no longer written to.
//
// What readings do not show the log cannot know: a replica that was away for longer than MinAge, or
// was listed at none of the moments of the readings, and is promoted before it has received what it
// missed.
//
// # When entries must be repeated
//
// Places in the streams of two primaries cannot be compared, and what the one had may be missing in
// the other. So a reading of another run makes every entry void. A void entry stays until an
// invalidation that began after it, of no smaller version, is confirmed by the new run and added,
// however long that takes.
// [Replay.Read] says how many there are, [Replay.Take] which. An entry is void from the start if it
// was confirmed by a run that is not the one of the last reading: the reply of a primary that is
// gone may be late.
//
// # What a run is
//
// A string that changes whenever the stream may have lost something: the server's run id, which
// ends with its process. It does not change when a primary is demoted and promoted again between
// two readings; join master_replid of INFO replication to it to see that as well. Add and Read must
// be given the same string for the same primary.
//
// All methods are safe for concurrent use. Has takes no lock. Add costs the same whatever is kept,
// Read too but for the entries that it moves; another run and Take cost the number of entries.
type Replay struct {
	max    int
	minAge time.Duration

	depth atomic.Int64 // entries in names
	names sync.Map     // string to *sent; changed under mu, read without it

	mu     sync.Mutex
	run    string    // of the last reading
	read   time.Time // when it was sent
	offset int64     // what it said
	known  map[string]*replica
	open   fifo[*sent] // confirmed by run, no reading since
	placed fifo[*sent] // confirmed by run, with an offset; by offset
	void   fifo[*sent] // to be repeated
	voided time.Time   // what began before is void
	lost   time.Time
	stats  ReplayStats
}

// Sent is an invalidation that a node has carried out, or was sent.
type Sent struct {
	Name    string // of the key's data
	Version uint64 // 0 if none is known
	Run     string // who has confirmed it, see [Replay]
	// Began is when it was sent, At when the confirmation had been read. Both are times of one
	// clock, that of Position.At.
	Began, At time.Time
}

// sent is the entry of one key, in one of the three lists.
type sent struct {
	Sent
	place  link[*sent]
	offset int64 // if placed: at or behind the invalidation's
}

// ReplayStats is a snapshot of a [Replay].
type ReplayStats struct {
	Depth    int       // now: keys kept
	Void     int       // now: those of them that must be repeated
	Oldest   time.Time // now: when the oldest was confirmed; zero when there is none
	Left     uint64    // keys that left because every replica had them
	Replayed uint64    // void keys that were confirmed by a new run
	Dropped  uint64    // keys that left because Max was reached; see Lost
}

// NewReplay returns an empty log, or an error that names the wrong field.
func NewReplay(config ReplayConfig) (*Replay, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Replay{
		max: cmp.Or(config.Max, defaultReplayMax), minAge: cmp.Or(config.MinAge, defaultMinAge), known: make(map[string]*replica),
	}, nil
}

// Has says whether the log has the key. It costs one atomic load when the log is empty, a lock-free
// look-up else. A key that was dropped for want of room is not known any more: who reads from
// replicas should also look at Lost.
func (r *Replay) Has(name string) bool {
	return r.depth.Load() != 0 && r.find(name) != nil
}

func (r *Replay) find(name string) *sent {
	e, _ := r.names.Load(name)
	s, _ := e.(*sent)
	return s
}

// Add records an invalidation that was confirmed. One that was sent and not answered is added too,
// At the time when it was given up; it may be carried out later than that, so it must also go into
// the [Outbox], whose success adds it again. A key that is here already stays one entry, with the
// largest version. When Max is reached the oldest entry is dropped.
//
// It returns whether the key is void now: then it is to be invalidated again, as after a Read, with that version.
func (r *Replay) Add(s Sent) (version uint64, void bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// 1. Primary A confirms the invalidation. Its reply is on the way.
	// 2. B is promoted and has not heard of it. A reading of B makes the log void; the log is
	//    replayed.
	// 3. The reply of 1 is added. A place in B's stream would prove nothing about it: it must be
	//    void.
	current := s.Run == r.run && s.Began.After(r.voided)
	e := r.find(s.Name)
	if e == nil {
		e = &sent{Sent: s}
		e.place.of = e
		r.names.Store(s.Name, e)
		r.depth.Add(1)
	} else if !r.merge(e, s, current) {
		return e.Version, e.place.in == &r.void
	}
	e.place.leave()
	if current {
		r.open.push(&e.place)
	} else {
		r.void.push(&e.place)
	}
	if r.depth.Load() > int64(r.max) {
		r.dropOldest()
	}
	return e.Version, !current
}

// merge adds s to the entry of its key. It returns whether the entry has to be put into the list
// that s belongs to.
func (r *Replay) merge(e *sent, s Sent, current bool) bool {
	announced := e.Version
	e.Version = max(e.Version, s.Version)
	void := e.place.in == &r.void
	switch {
	case current && void && s.Version < announced:
		// 1. B knows nothing of version 2; a replay of it is on its way to B.
		// 2. A's late confirmation of version 3 is added: void too, and one entry with the first.
		// 3. The replay of version 2 is confirmed by B. It has deleted what there was, but its mark lets
		//    a lagging source store version 2 again.
		return false
	case current && void && !s.Began.After(e.At):
		// 1. Y is carried out by B. Its reply is on the way.
		// 2. The row is written again; X is carried out by A, which B knows nothing of, and added:
		//    void.
		// 3. The reply to Y is added. B has carried it out before the write of 2, so that it does
		//    not stand for X.
		return false
	case current && !void && s.At.Before(e.At):
		return false // late; the offset that the entry has or gets is at or behind this one's too
	case current && void:
		r.stats.Replayed++
	case s.At.Before(e.At): // void from now on, until something begins that is newer than either
		return true
	}
	e.Run, e.Began, e.At = s.Run, s.Began, s.At
	return true
}

// Void makes every entry void at now, and every later one that began before: for a node that was
// out of reach and is back, where what it has been through meanwhile is not known.
func (r *Replay) Void(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.voidAll(now)
}

func (r *Replay) voidAll(now time.Time) {
	for _, l := range []*fifo[*sent]{&r.placed, &r.open} {
		for k := l.first; k != nil; k = l.first {
			k.leave()
			r.void.push(k)
		}
	}
	if now.After(r.voided) {
		r.voided = now
	}
}

// Take returns the void entries, those first that became void first. They stay in the log, and
// void, until they are added again: a replay that fails half-way loses nothing.
func (r *Replay) Take() []Sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Sent, 0, r.void.len)
	for k := r.void.first; k != nil; k = k.next {
		all = append(all, k.of.Sent)
	}
	return all
}

// Lost returns the time of the newest invalidation that was dropped for want of room, the zero time
// if none was since the last Covered. When the log has to be replayed, that one cannot be: the
// caller must trust no entry of the node that was created before that moment. In the time between,
// an old Lost costs nothing.
func (r *Replay) Lost() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Covered says that the caller has stopped to trust the node's entries from before t, a time that
// Lost had given. What was dropped since stays lost.
func (r *Replay) Covered(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.lost.After(t) {
		r.lost = time.Time{}
	}
}

// oldest is the entry with the earliest time among the first of each list; nil if there is none.
func (r *Replay) oldest() *sent {
	var oldest *sent
	for _, l := range []*fifo[*sent]{&r.void, &r.placed, &r.open} {
		if l.first != nil && (oldest == nil || l.first.of.At.Before(oldest.At)) {
			oldest = l.first.of
		}
	}
	return oldest
}

func (r *Replay) dropOldest() {
	e := r.oldest()
	if e.At.After(r.lost) {
		r.lost = e.At
	}
	r.remove(e)
	r.stats.Dropped++
}

func (r *Replay) remove(e *sent) {
	e.place.leave()
	r.names.Delete(e.Name)
	r.depth.Add(-1)
}

// Stats returns the log's figures.
func (r *Replay) Stats() ReplayStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.stats
	st.Depth, st.Void = int(r.depth.Load()), r.void.len
	if e := r.oldest(); e != nil {
		st.Oldest = e.At
	}
	return st
}
