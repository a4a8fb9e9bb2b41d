// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
	"github.com/go-shelf/shelf/stampede"
)

// Take implements stampede.Shelf: asks for the lease and re-checks the entry in one round trip.
func (s *slot[V]) Take(ctx context.Context, token string, mode stampede.Mode) (stampede.State[entry[V]], error) {
	if s.down {
		return stampede.State[entry[V]]{}, errDown
	}
	if s.c.owes(s) {
		return stampede.State[entry[V]]{}, errOwed
	}
	s.session, s.forced = s.node.Session(), mode == stampede.Force
	var reply any
	var err error
	s.again, reply, err = s.session.EvalAgain(ctx, func(try int) redisnode.Call { return wireCall(s.leaseCall(token, try, mode)) }, s.lateLease(s.session, token)) //nolint:contextcheck // what is late outlives the load
	if err != nil {
		s.c.counters.nodeErrors.Add(1)
		return stampede.State[entry[V]]{}, err
	}
	return s.taken(ctx, token, mode, reply)
}

// lateLease gives back a lease that a request was granted for whose reply nobody waited. Mostly another request of this load has taken it over since. But that may have overtaken
// this one, of which a slow link has many under way: then the lease was granted when the load was over, and the next readers would wait for nobody.
// So they would if the request was carried out and its reply lost, and those that were to take over from it as well: what became of it is not known, and it is given back too.
func (s *slot[V]) lateLease(session *redisnode.Session, token string) func(try int, reply any, err error) {
	names := s.names // what the fill stages is named meanwhile
	return func(try int, reply any, err error) {
		if err == nil {
			if r, err := invalidation.ParseLease(reply); err != nil || r.Status != invalidation.Granted {
				return
			}
		}
		_, _ = session.Eval(context.Background(), wireCall(invalidation.Release(names, nthToken(token, try), 0))) // it ends by itself, if later
	}
}

// nthToken is the token of a load's request for the lease: each has its own.
func nthToken(token string, try int) string {
	if try == 0 {
		return token
	}
	return token + "." + strconv.Itoa(try)
}

// leaseCall chooses the script's mode, and lets the request take the lease over from those before it, which were not waited for. Where the bytes at the key are unusable, a miss must get its lease although something is there.
func (s *slot[V]) leaseCall(token string, try int, mode stampede.Mode) invalidation.Call {
	wire := invalidation.LeaseMiss
	switch {
	case mode == stampede.Force:
		wire = invalidation.LeaseForce
	case mode == stampede.Refresh || s.replace:
		wire = invalidation.LeaseRefresh
	}
	var earlier []string
	for i := range try {
		earlier = append(earlier, nthToken(token, i))
	}
	return invalidation.Lease(s.names, nthToken(token, try), wire, s.c.cfg.LeaseTTL, earlier...)
}

// taken reads the reply to a lease request.
func (s *slot[V]) taken(ctx context.Context, token string, mode stampede.Mode, reply any) (stampede.State[entry[V]], error) {
	r, err := invalidation.ParseLease(reply)
	if err != nil {
		return stampede.State[entry[V]]{}, err
	}
	st := stampede.State[entry[V]]{Status: leaseStatus(r.Status), Floor: r.Mark, HasFloor: r.Mark > 0}
	s.gen = r.Generation
	var e entry[V]
	f, err := s.weigh(ctx, r.Data, &e)
	if err != nil {
		return stampede.State[entry[V]]{}, err
	}
	usable := f == fresh || f == softened
	switch {
	case mode == stampede.Force:
	case mode == stampede.Refresh && !e.created.After(s.seen):
		// The same entry as before: to be refreshed, whatever a second draw for early refresh would say.
	case usable:
		// Another reader has stored one meanwhile: the lease, if it was granted although something is there, is not needed. But if the body of
		// a large value is not there, it is.
		if f, err = s.whole(ctx, &e, f); err != nil {
			return stampede.State[entry[V]]{}, err
		}
		if s.replace = f == unusable; s.replace {
			if r.Status == invalidation.Found {
				st.Status = stampede.Held // as below
			}
			return st, nil
		}
		if r.Status == invalidation.Granted {
			s.release(ctx, token)
		}
		return stampede.State[entry[V]]{Entry: e, Found: true, Status: stampede.Free}, nil
	case r.Status == invalidation.Found:
		// Unusable bytes have come since the read. No lease was taken; as if it were held, the loop looks again and asks again,
		// with a new token, and then for a lease in spite of what is there.
		st.Status = stampede.Held
	}
	return st, nil
}

func leaseStatus(s invalidation.LeaseStatus) stampede.LeaseStatus {
	switch s {
	case invalidation.Granted:
		return stampede.Granted
	case invalidation.NoStore:
		return stampede.NoStore
	default:
		return stampede.Held
	}
}

// Watch implements stampede.Shelf: the entry and the lease in one read, and a push when one of them changes.
func (s *slot[V]) Watch(ctx context.Context) (stampede.State[entry[V]], error) {
	if s.c.owes(s) {
		return stampede.State[entry[V]]{}, errOwed
	}
	s.wake.drop()
	s.wake = s.c.client.wakes.add(s.names.Data, s.names.Lease)
	vals, pushed, err := s.watch(ctx)
	if err == nil {
		var st stampede.State[entry[V]]
		if st, err = s.watched(ctx, vals[0], vals[1], invalidation.ParseGeneration(vals[2])); err == nil {
			if pushed {
				st.Changed = s.wake.changed
			}
			return st, nil
		}
	}
	s.c.counters.nodeErrors.Add(1)
	return stampede.State[entry[V]]{}, err
}

// watch reads entry, lease and generation through the node's Tracking, so that their next change is pushed, or plainly where there is none. Where its reply is late the entry is read as
// by any reader, who does not wait for late replies; the lease counts as held then, until the next look. Mostly the late read has been sent, and a change is pushed.
func (s *slot[V]) watch(ctx context.Context) (vals [][]byte, pushed bool, err error) {
	names := []string{s.names.Data, s.names.Lease, s.names.Of.Generation}
	if t := s.node.Tracking(); t != nil && t.Fresh(time.Now()) {
		vals, err = t.MGetSoon(ctx, names)
		if errors.Is(err, redisnode.ErrTrackingLate) {
			data, gen, err := s.node.GetBeside(ctx, s.names.Data, s.names.Of.Generation)
			return [][]byte{data, []byte("held"), gen}, err == nil, err
		}
		if !errors.Is(err, redisnode.ErrTrackingOver) {
			return vals, err == nil, err
		}
	}
	return watch(ctx, s.node, names)
}

// watch reads names through the node's Tracking, so that their next change is pushed, or plainly where there is none.
func watch(ctx context.Context, n *redisnode.Node, names []string) (vals [][]byte, pushed bool, err error) {
	if t := n.Tracking(); t != nil && t.Fresh(time.Now()) {
		vals, err = t.MGet(ctx, names)
		if !errors.Is(err, redisnode.ErrTrackingOver) {
			return vals, err == nil, err
		}
	}
	vals, err = n.MGet(ctx, names)
	return vals, false, err
}

// watched reads what a Watch has brought. An error is that of the node, which did not give the tags' state or the body of a large value.
func (s *slot[V]) watched(ctx context.Context, data, lease []byte, gen invalidation.Generation) (stampede.State[entry[V]], error) {
	s.gen = gen
	var e entry[V]
	f, err := s.weigh(ctx, data, &e)
	if err == nil {
		f, err = s.whole(ctx, &e, f)
	}
	if err != nil {
		return stampede.State[entry[V]]{}, err
	}
	s.replace = f == unusable
	st := stampede.State[entry[V]]{Entry: e, Found: f == fresh || f == softened, Status: stampede.Held}
	switch {
	case lease == nil:
		st.Status = stampede.Free
	case invalidation.IsNoStore(lease):
		st.Status = stampede.NoStore
	}
	return st, nil
}

// Fill implements stampede.Shelf.
func (s *slot[V]) Fill(ctx context.Context, token string, e entry[V]) (stampede.Verdict, error) {
	if s.c.owes(s) {
		s.c.counters.fillErrors.Add(1)
		return stampede.LeaseLost, errOwed
	}
	if err := s.stage(ctx, &e); err != nil {
		s.c.counters.fillErrors.Add(1)
		return stampede.LeaseLost, err
	}
	reply, err := s.session.EvalImpatiently(ctx, wireCall(s.fillCall(token, &e))) // readers wait for it
	if err != nil {
		s.c.counters.fillErrors.Add(1)
		return stampede.LeaseLost, err
	}
	return s.filled(reply)
}

// fillCall: what is left of the entry's hard TTL is what the node gets (and for how long it may answer when the source does not), since the TTL counts
// from the start of the load. The entry is stored under the generation that the lease was granted under.
func (s *slot[V]) fillCall(token string, e *entry[V]) invalidation.Call {
	e.stamp = s.gen.Seq
	setStamp(e.wire, e.stamp)
	left := e.hard
	if s.gutter {
		left = min(left, gutterTTL)
	}
	left = max(time.Millisecond, left-e.ageAt(time.Now()))
	if !s.gutter {
		left += s.c.afterlife(e)
	}
	return invalidation.Fill(s.names, invalidation.Filling{
		Token: nthToken(token, s.again), Value: e.wire, TTL: left, Version: e.version, Negative: e.negative, Epoch: noEpoch,
		// A forced load that finds no row replaces the entry of the row that there was, whatever version it had.
		Replace: s.replace || (s.forced && e.negative), Generation: e.stamp, Tags: e.tags, Mark: s.mark,
	})
}

func (s *slot[V]) filled(reply any) (stampede.Verdict, error) {
	r, err := invalidation.ParseFill(reply)
	if err != nil {
		return stampede.LeaseLost, err
	}
	switch r {
	case invalidation.Stored:
		s.c.counters.fills.Add(1)
		return stampede.Stored, nil
	case invalidation.LeaseLost:
		s.c.counters.fillsRefused.Add(1)
		return stampede.LeaseLost, nil
	default:
		s.c.counters.fillsRefused.Add(1)
		return stampede.Older, nil
	}
}

// Release implements stampede.Shelf.
func (s *slot[V]) Release(ctx context.Context, token string, noStore bool) error {
	if s.session == nil {
		return nil // no lease was ever asked for
	}
	_, err := s.session.Eval(ctx, wireCall(s.releaseCall(token, noStore)))
	if err != nil {
		s.c.counters.nodeErrors.Add(1)
	}
	return err
}

func (s *slot[V]) releaseCall(token string, noStore bool) invalidation.Call {
	keep := time.Duration(0)
	if noStore {
		keep = noStoreTTL
	}
	return invalidation.Release(s.names, nthToken(token, s.again), keep)
}

// release is Release where nobody can use its error: a lease that is not given back ends with its TTL.
func (s *slot[V]) release(ctx context.Context, token string) {
	_ = s.Release(context.WithoutCancel(ctx), token, false) // counted there
}

// noEpoch is the epoch of a static configuration.
const noEpoch = 0

// wireCall is a call in the node's terms. The two types are the same by shape: the scripts know no driver, and the driver no scripts.
func wireCall(c invalidation.Call) redisnode.Call {
	return redisnode.Call{Script: redisnode.Script(c.Script), Keys: c.Keys, Args: c.Args}
}
