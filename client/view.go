// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// view is what this process knows of a cache's generation on one node. Reads of the node bring the generation along and are judged by
// that alone; the view is for what they do not bring: which tags were invalidated, and whether L1's copies still hold.
//
// Numbers only grow in one run of the server. Another run begins anew: a node that came back from a snapshot, or a replica that was
// promoted, may have forgotten the latest.
type view struct {
	latest atomic.Pointer[invalidation.Generation] // the newest seen in this run; nil: none

	// L1's copies hold only while latest is what the node has: pushes counts the pushes that the generation has moved on, and watchedBy says
	// who watched it, and up to which of them, when latest was read.
	pushes    atomic.Uint64
	watchedBy atomic.Pointer[watching]

	mu      sync.RWMutex
	session *redisnode.Session // the run
	tags    map[string]uint64  // tag -> number of its latest invalidation
	upTo    uint64             // tags is complete up to here
	cleared uint64             // entries below are gone though the generation does not say so: the tag log was lost
	former  uint64             // the newest number of the runs before: what they had cleared or invalidated, and no later entry, is below

	asking singleflight.Group // one look at the tag log at a time
}

// watching says that the generation was read through a Tracking, when so many pushes had been seen before.
type watching struct {
	tracking *redisnode.Tracking
	began    time.Duration // when tracking did, on the cache's clock
	pushes   uint64
}

// vouches says whether what was read through a Tracking is still watched, and the generation is what it was when that was last read through it.
func (v *view) vouches(t *redisnode.Tracking, at time.Duration) bool {
	w := v.watchedBy.Load()
	return w != nil && w.tracking == t && t.FreshAfter(at-w.began) && w.pushes == v.pushes.Load()
}

// watched notes that latest was read through a Tracking. A reply that comes late, behind one that was asked for after more pushes, changes nothing.
func (v *view) watched(t *redisnode.Tracking, began time.Duration, pushes uint64) {
	for {
		old := v.watchedBy.Load()
		if old != nil && old.tracking == t && old.pushes >= pushes || t.Over() {
			return
		}
		if v.watchedBy.CompareAndSwap(old, &watching{t, began, pushes}) {
			return
		}
	}
}

// learn takes in a generation that a reply of this run brought.
func (v *view) learn(session *redisnode.Session, gen invalidation.Generation) {
	if old := v.latest.Load(); old != nil && old.Seq >= gen.Seq {
		if v.mu.RLock(); v.session == session {
			v.mu.RUnlock()
			return // the usual case: nothing new
		}
		v.mu.RUnlock()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.enter(session)
	if old := v.latest.Load(); old == nil || old.Seq < gen.Seq {
		v.latest.Store(&gen)
	}
}

// enter forgets what was known of another run. v.mu is held.
func (v *view) enter(session *redisnode.Session) {
	if v.session != session {
		if latest := v.latest.Load(); latest != nil {
			v.former = max(v.former, latest.Seq)
		}
		v.session, v.tags, v.upTo, v.cleared = session, nil, 0, 0
		v.latest.Store(nil)
	}
}

// note takes in a tag's invalidation by this process.
func (v *view) note(session *redisnode.Session, tag string, gen invalidation.Generation) {
	v.learn(session, gen)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session != session {
		return
	}
	if v.tags == nil {
		v.tags = make(map[string]uint64)
	}
	v.tags[tag] = max(v.tags[tag], gen.Seq)
	if v.upTo == gen.Seq-1 {
		v.upTo = gen.Seq
	}
	v.cleared = max(v.cleared, gen.Cleared)
	v.trim()
}

// trim forgets what the log has forgotten: it counts as cleared there, and here. v.mu is held.
func (v *view) trim() {
	if len(v.tags) > 2*maxTagLog {
		maps.DeleteFunc(v.tags, func(_ string, n uint64) bool { return n <= v.cleared })
	}
}

// holds says whether an entry's tags were invalidated since it was stored, as far as the view goes; known is false if it does not go far
// enough.
func (v *view) holds(session *redisnode.Session, stamp uint64, tags []string, upTo uint64) (hold, known bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.session != session {
		return false, false
	}
	if stamp < v.cleared {
		return false, true
	}
	for _, tag := range tags {
		if v.tags[tag] > stamp {
			return false, true
		}
	}
	return true, v.upTo >= upTo
}

// keeps says whether a copy in this process still holds as far as the view goes: not if this process has learned of a clearing, or of an
// invalidation of one of its tags; and a copy that is watched, for which the view vouches, not if what tags were invalidated is not known.
func (v *view) keeps(watched bool, stamp uint64, tags []string) bool {
	latest := v.latest.Load()
	if latest == nil {
		return true
	}
	if stamp < latest.Cleared {
		return false
	}
	if len(tags) == 0 || stamp >= latest.Seq {
		return true
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	if stamp < v.cleared || watched && v.upTo < latest.Seq {
		return false
	}
	for _, tag := range tags {
		if v.tags[tag] > stamp {
			return false
		}
	}
	return true
}

// unrevoked says whether a copy in this process that is not to be served as a rule may be when nothing else can: nothing that this process has heard of
// has ended it. What other runs of the server said is forgotten but for one number, and counts as a clearing of all that was there.
func (v *view) unrevoked(stamp uint64, tags []string) bool {
	if w := v.watchedBy.Load(); w != nil && w.pushes != v.pushes.Load() {
		return false // the generation has moved on since, and nobody has asked what for
	}
	v.mu.RLock()
	former := v.former
	v.mu.RUnlock()
	return stamp >= former && v.keeps(false, stamp, tags)
}

// tagsHold says whether an entry that was just read still holds as far as its tags go. The generation that was read with it has moved on since it
// was stored: the tag log says what for. Once a generation and process, not once a read: a command more.
func (v *view) tagsHold(ctx context.Context, node *redisnode.Node, of invalidation.Group, stamp uint64, tags []string, upTo uint64) (bool, error) {
	session := node.Session()
	for looks := 0; ; looks++ {
		hold, known := v.holds(session, stamp, tags, upTo)
		if known {
			return hold, nil
		}
		// A look that another caller has begun may not go far enough: then this one looks again. A look of its own that does not means that the
		// generation which was read with the entry is gone (evicted, the node was restored): then the entry is as well.
		if looks == 2 {
			return false, nil
		}
		looked := v.asking.DoChan("", func() (any, error) { return nil, v.look(session, of) }) //nolint:contextcheck // shared: it does not end with one of its callers
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case r := <-looked:
			if r.Err != nil {
				return false, r.Err
			}
		}
	}
}

// look asks for what the tag log holds beyond what is known. The node's timeout bounds it.
func (v *view) look(session *redisnode.Session, of invalidation.Group) error {
	v.mu.Lock()
	v.enter(session)
	since := v.upTo
	v.mu.Unlock()
	reply, err := session.Eval(context.Background(), wireCall(invalidation.Tagged(of, since)))
	if err != nil {
		return err
	}
	log, err := invalidation.ParseTagged(reply)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.session != session {
		return redisnode.ErrRunChanged
	}
	if v.tags == nil {
		v.tags = make(map[string]uint64, len(log.Tags))
	}
	for tag, n := range log.Tags {
		v.tags[tag] = max(v.tags[tag], n)
	}
	// Without a generation (evicted this very moment) nothing is readable, and nothing is to be known.
	v.upTo, v.cleared = max(v.upTo, log.Generation.Seq), max(v.cleared, log.Generation.Cleared)
	v.trim()
	return nil
}
