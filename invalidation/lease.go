// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"time"
)

// LeaseMode says under which circumstances [Lease] grants.
type LeaseMode uint8

// The modes of [Lease].
const (
	// LeaseMiss is for a reader that found nothing: a value which has come meanwhile is returned
	// and no lease is taken; a lease that somebody holds is respected.
	LeaseMiss LeaseMode = iota
	// LeaseRefresh is for a reader that found a value but wants a newer one: the lease is granted
	// although a value is there, unless somebody holds it.
	LeaseRefresh
	// LeaseForce is for a writer that is about to change the row: it replaces whoever holds the
	// lease (that reader's fill is then refused) and a no-store marker too.
	LeaseForce
)

// String gives the mode as lease.lua knows it.
func (m LeaseMode) String() string {
	switch m {
	case LeaseMiss:
		return "miss"
	case LeaseRefresh:
		return "refresh"
	case LeaseForce:
		return "force"
	}
	return "unknown"
}

// LeaseStatus is the outcome of [Lease].
type LeaseStatus uint8

// The outcomes of [Lease].
const (
	// Granted: the token now holds the lease; load, then [Fill] or [Release].
	Granted LeaseStatus = iota + 1
	// Held: somebody else holds it; wait for the value, or load without filling.
	Held
	// NoStore: the last reader could not store the value; load without filling.
	NoStore
	// Found: a value is there after all (mode [LeaseMiss] only); no lease was taken.
	Found
)

// String names the status as lease.lua does.
func (s LeaseStatus) String() string {
	switch s {
	case Granted:
		return "granted"
	case Held:
		return "held"
	case NoStore:
		return "nostore"
	case Found:
		return "found"
	}
	return "unknown"
}

// LeaseReply is what [Lease] answers.
type LeaseReply struct {
	Status LeaseStatus
	// Data is the entry that lies under the data key, whatever the status; nil when there is none
	// or when its first bytes are not those of an entry.
	Data []byte
	// Mark is the row version that an invalidation left, 0 when there is none. A load that gives
	// an older row read a lagging source: its fill would be refused.
	Mark uint64
	// Generation is what the entry is to be stored under; zero where the key is of no group.
	Generation Generation
}

// Lease asks for the lease of a key and looks at its value again in the same step, which makes it
// the second round trip of a miss. The lease ends by itself after ttl (at least 1 ms, fractions of
// a millisecond count as one); it must outlast the load.
//
// A token must be new for every request: it is sent once and never again, not even after a
// timeout, since the request that timed out may still be carried out later.
//
// A caller that asks once more, because the reply is late, gives the tokens of its requests that are unanswered as earlier: if one of them has been granted the lease, the new token
// takes it over, and the earlier one is worth nothing from then on. A request that is still on its way may be granted later, when the lease is free again: release what it
// was granted when its reply comes. The caller must not have read the source under an earlier token.
func Lease(k Keys, token string, mode LeaseMode, ttl time.Duration, earlier ...string) Call {
	args := make([]any, 3, 3+len(earlier))
	args[0], args[1], args[2] = tokenPrefix+token, mode.String(), millis(ttl)
	for _, t := range earlier {
		args = append(args, tokenPrefix+t)
	}
	return Call{Script: leaseScript, Keys: k.all(), Args: args}
}

// ParseLease reads the reply to [Lease].
func ParseLease(reply any) (LeaseReply, error) {
	parts, err := list("lease", reply, 4)
	if err != nil {
		return LeaseReply{}, err
	}
	var r LeaseReply
	status, _ := text(parts[0])
	for s := Granted; s <= Found; s++ {
		if status == s.String() {
			r.Status = s
		}
	}
	if r.Status == 0 {
		return LeaseReply{}, unexpected("lease", "status", parts[0])
	}
	if r.Data, err = optionalBytes("lease", "data", parts[1]); err != nil {
		return LeaseReply{}, err
	}
	if r.Mark, err = optionalVersion("lease", parts[2]); err != nil {
		return LeaseReply{}, err
	}
	if parts[3] != nil {
		if r.Generation, err = generation("lease", parts[3]); err != nil {
			return LeaseReply{}, err
		}
	}
	return r, nil
}

// Release gives a lease back without a value. It removes the lease only if this token still holds
// it: a reader whose lease ran out must not release the one that somebody else was granted since.
//
// A noStore above zero leaves the no-store marker for that long instead (rounded up to a
// millisecond), so that others who want the key load for themselves and do not wait.
func Release(k Keys, token string, noStore time.Duration) Call {
	var ms int64
	if noStore > 0 {
		ms = millis(noStore)
	}
	return Call{
		Script: releaseScript,
		Keys:   []string{k.Lease},
		Args:   []any{tokenPrefix + token, noStoreMarker, ms},
	}
}

// ParseRelease reads the reply to [Release]: whether the token still held the lease.
func ParseRelease(reply any) (released bool, err error) {
	return flag("release", "released", reply)
}
