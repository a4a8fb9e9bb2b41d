// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// slot is one key of a cache at its owner: the place where its entry, its lease and its mark are. It is what the lease loop works on.
// A slot belongs to one read and is not shared.
type slot[V any] struct {
	c     *Cache[V]
	key   string // the caller's
	names invalidation.Keys
	owner int // index of the node
	node  *redisnode.Node

	// session is the run of the server process that granted the lease. The fill and the release go to it and to no other: a
	// process that came back from a snapshot may hold a lease again that an invalidation had deleted.
	session *redisnode.Session

	again   int                     // which of a load's requests for the lease was answered: see nthToken
	down    bool                    // the node did not answer this read: do not ask it again
	cause   error                   // why this read failed at the node
	replace bool                    // the bytes there are unusable: a lease is wanted although something is there
	seen    time.Time               // created-at of the entry that the reader saw, where it saw one
	gone    bodyID                  // a body that was asked for and is not there
	lapsed  lapsed                  // what the owner has is past its time: see staleiferror.go
	wake    *wake                   // what a Watch left to wake it; its owner drops it
	gen     invalidation.Generation // the cache's on this node, as the last reply said; a fill stores under the lease's
	losses  uint64                  // of invalidations by the node, when this read last asked what is owed
	mark    time.Duration           // what a fill leaves for those who load from a source that lags: where it is what this process has written
	forced  bool                    // the lease was forced: what is loaded now is what counts
	gutter  bool                    // the place is in the gutter, on a stand-in for the owner that is down
	since   time.Time               // then: entries from before are not believed
	copied  bool                    // the place is a copy's, on another node than the owner: see copies.go
	now     time.Time               // when the reply came, where that is known: of many values at once; zero: now
	trouble *trouble                // with the node, where the call has more keys of it; nil: this is the only one

	replicaAsked bool // a replica was, by this read
	unwatched    bool // what was read was not read through the watch of the L1's ticket: it must not be kept under that
}

var _ stampede.Shelf[entry[int]] = (*slot[int])(nil)

func (c *Cache[V]) slot(key string) *slot[V] {
	s := c.slotOf(key)
	return &s
}

func (c *Cache[V]) slotOf(key string) (s slot[V]) {
	c.locate(&s, key)
	s.nameAll()
	return s
}

// locate makes a zero slot a key's, with the name of its entry alone: a hit needs no other.
func (c *Cache[V]) locate(s *slot[V], key string) {
	s.c, s.key = c, key
	s.names.Data, s.names.Of = c.names.data(key), c.names.of
	i := c.client.ring.OwnerIndex(s.names.Data)
	s.owner, s.node, s.losses = i, c.client.nodes[i], c.client.debts.logs[i].losses.Load()
}

// nameAll sees that s has all the names of its key.
func (s *slot[V]) nameAll() {
	if s.names.Lease == "" {
		s.names = s.c.names.keys(s.key)
	}
}

// kept is a copy of s that may outlive its read, with all its names. A read that the owner answers needs none: what it has of the slot is on its stack.
//
//go:noinline
func (s *slot[V]) kept() *slot[V] {
	k := *s
	k.nameAll()
	return &k
}

// nodeID is the owner's id, for provenance.
func (s *slot[V]) nodeID() string { return s.c.client.nodeID(s.owner) }

// errOwed stands for a node that is not asked because the invalidation of the key is owed to it.
var errOwed = errors.New("shelf: an invalidation has not reached the owner yet")

// errDown stands for a node that is not asked because it has just failed to answer.
var errDown = errors.New("shelf: the owner did not answer")

// read gets the entry, through watch where there is one: one round trip, and a second one for the body of a large value. Where that is not there any
// more, the entry may have been replaced in between: that is looked up again, since in a cache that is itself the truth nobody else could tell the
// value.
func (s *slot[V]) read(ctx context.Context, watch *redisnode.Tracking, e *entry[V]) (freshness, error) {
	for tries := 1; ; tries++ {
		var data, gen []byte
		err := redisnode.ErrTrackingOver
		if watch != nil {
			data, gen, err = watch.Get(ctx, s.names.Data, s.names.Of.Generation)
		}
		late := errors.Is(err, redisnode.ErrTrackingLate)
		s.unwatched = s.unwatched || late
		if late || errors.Is(err, redisnode.ErrTrackingOver) { // what is stored in L1 under one that is over is not served any more
			data, gen, err = s.node.GetBeside(ctx, s.names.Data, s.names.Of.Generation)
		}
		if err != nil {
			return absent, err
		}
		before := s.gone
		f, err := s.look(ctx, data, invalidation.ParseGeneration(gen), e)
		if f != unusable || s.gone == before || tries == rereads {
			return f, err
		}
	}
}

// look takes in what a read has brought: the entry's bytes, and the cache's generation in the same moment. It brings the body of a large value. e becomes
// the entry; with an error, and where there is none, it is zero.
func (s *slot[V]) look(ctx context.Context, data []byte, gen invalidation.Generation, e *entry[V]) (freshness, error) {
	s.gen = gen
	f, err := s.weigh(ctx, data, e)
	if err == nil {
		f, err = s.whole(ctx, e, f)
	}
	if err != nil {
		*e = entry[V]{}
		return absent, err
	}
	s.replace, s.seen = f == unusable, e.created
	return f, nil
}

// weigh is judge, and whether the node can be trusted, and the entry's tags. An error says that the node was asked about them and did not answer.
// e is as look leaves it.
func (s *slot[V]) weigh(ctx context.Context, data []byte, e *entry[V]) (freshness, error) {
	f := s.c.judgeInto(e, data, s.node, s.gen, s.moment())
	s.lapsed = lapsed{}
	switch {
	case f != fresh && f != softened && f != lapsing:
	case s.c.cfg.Truth:
	case s.c.client.debts.logs[s.owner].losses.Load() != s.losses || !s.c.client.debts.logs[s.owner].trusts(s.stored(e), s.node):
		s.c.counters.distrusted.Add(1)
		f = unusable
	case s.tooEarly(e.created):
		f = unusable
	case len(e.tags) > 0 && s.c.owesTag(s.owner, e.tags):
		s.c.counters.cleared.Add(1)
		f = unusable
	}
	if f != unusable && len(e.tags) > 0 && e.stamp < s.gen.Seq {
		hold, err := s.tagsHold(ctx, e)
		if err != nil {
			*e = entry[V]{}
			return absent, err
		}
		if !hold {
			s.c.counters.cleared.Add(1)
			f = unusable
		}
	}
	if f == lapsing {
		s.lapsed = lapsed{data, e.born}
		f = unusable
	}
	if s.replace = f == unusable; s.replace {
		*e = entry[V]{}
	}
	return f, nil
}

// moment is when what was read is judged. A node whose clock is not known is taken to have the local one, which only time.Now tells: the cache's own clock does not see it set.
func (s *slot[V]) moment() time.Time {
	switch {
	case !s.now.IsZero():
		return s.now
	case s.node.Met():
		return s.c.now()
	}
	return time.Now()
}

// stored is a moment from before an entry was stored where it lies: when its load began. A copy may be much younger than that, and was made of what the owner had then: on a node
// that was restarted it would be believed only once the entry has been loaded anew.
func (s *slot[V]) stored(e *entry[V]) time.Time {
	if s.copied && !e.copied.IsZero() {
		return e.copied
	}
	return e.created
}

// tagsHold is view.tagsHold; but where the node did not answer another key of this call, it is not asked: see trouble.
func (s *slot[V]) tagsHold(ctx context.Context, e *entry[V]) (bool, error) {
	v := &s.c.views[s.owner]
	if err := s.trouble.met(); err != nil {
		hold, known := v.holds(s.node.Session(), e.stamp, e.tags, s.gen.Seq)
		if !known {
			return false, err
		}
		return hold, nil
	}
	hold, err := v.tagsHold(ctx, s.node, s.names.Of, e.stamp, e.tags, s.gen.Seq)
	s.trouble.note(s.node, err)
	return hold, err
}

// fails notes why the node did not give this reader its answer, and whether it is worth asking once more. It is when our own queue
// for it was too long: the one caller that goes on may still get its lease. It is not when the node answers nobody.
func (s *slot[V]) fails(err error) {
	s.cause, s.down = err, !redisnode.IsPoolTimeout(err) || s.node.Ailing()
}
