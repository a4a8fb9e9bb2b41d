// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import "context"

// Shelf is one key's place on the node that owns it, as the lease loop sees it.
// E is the form in which the caller keeps entries. An error from any method means
// that the node did not answer; the request may still be carried out later. The
// methods bound their own time.
type Shelf[E any] interface {
	// Take asks for the lease under token and looks at the entry again, in one
	// round trip. It leaves a lease only where it answers Granted. It must not send
	// a token twice, driver retries included.
	Take(ctx context.Context, token string, mode Mode) (State[E], error)
	// Watch reads entry and lease in one step and takes nothing: its status is
	// Free, Held or NoStore.
	Watch(ctx context.Context) (State[E], error)
	// Fill stores e if the lease under token is still there, and then removes
	// the lease, in one step.
	Fill(ctx context.Context, token string, e E) (Verdict, error)
	// Release removes the lease if it is still token's, in one step; releasing
	// a lost lease does nothing. With noStore it leaves a short marker in the lease's
	// place, which tells those who wait that nothing will be stored.
	Release(ctx context.Context, token string, noStore bool) error
}

// Mode says what a reader wants of [Shelf.Take].
type Mode uint8

const (
	// Miss is a reader who found nothing: an entry that is there after all is
	// returned, and no lease taken.
	Miss Mode = iota
	// Refresh takes the lease although a stale entry is there. An entry that is
	// fresh after all is returned as for Miss.
	Refresh
	// Force takes the lease whatever is there, replacing another's. It is for
	// a write that stores what it wrote.
	Force
	// Expired is a Miss of a reader who has an entry that is past its time, to be served if nothing
	// else can be. It does not queue for a place: those who queue have nothing.
	// A Shelf is asked with Miss.
	Expired
)

// LeaseStatus is the lease's side of a [State].
type LeaseStatus uint8

// What can be said of a lease.
const (
	Free    LeaseStatus = iota // nobody has it
	Granted                    // the asking token has it; only Take says so
	Held                       // another token has it
	NoStore                    // a marker: what was loaded last could not be stored
)

// State is what a shelf holds for a key.
type State[E any] struct {
	Entry  E
	Found  bool // Entry is set and usable for the mode asked
	Status LeaseStatus
	// Floor is the row version of the latest invalidation that the shelf
	// remembers, if HasFloor. What is older must not be stored.
	Floor    uint64
	HasFloor bool
	// Changed, if not nil, is closed when entry or lease may have changed since
	// this state was read. It wakes those who wait; without it they poll.
	Changed <-chan struct{}
}

// Verdict is what a shelf answers to a fill.
type Verdict uint8

// The answers to a fill.
const (
	Stored    Verdict = iota + 1
	LeaseLost         // the lease was not there any more: refused
	Older             // the shelf knows of something newer: refused
)

// Loaded is what the source gave, ready to be stored.
type Loaded[E any] struct {
	Entry E
	// Version is the row version, 0 where there is none.
	Version uint64
	// Negative: the source says that there is no such row. Any floor is above it:
	// a source that lags behind misses new rows as well.
	Negative bool
	// Unstorable: the entry is returned to those who wait, but not stored (too large).
	Unstorable bool
}

// below reports whether the shelf knows of something newer than l.
func (l *Loaded[E]) below(floor uint64, hasFloor bool) bool {
	return hasFloor && (l.Negative || l.Version < floor)
}

// Source says where an [Outcome]'s entry came from.
type Source uint8

const (
	// FromNone says that there is no entry. Only a Refresh ends so, when somebody
	// else refreshes already or nothing could be stored. A caller that joined its
	// flight because it needs the entry goes on with a Miss of its own.
	FromNone Source = iota
	// FromShelf says that it was there, or was put there while Fetch waited.
	FromShelf
	// FromLoad says that this Fetch read the source.
	FromLoad
)

// Outcome is what [Fetch] brings.
type Outcome[E any] struct {
	Entry  E
	Source Source
	Filled bool // the entry was stored
	// Refused: the lease was gone at the fill, so an invalidation may have come
	// in between. Callers that came after the load began ([Result.Late]) must not
	// use the entry, but run again, once.
	Refused bool
	Older   bool // the fill was refused because the shelf knows of something newer
	Stale   bool // loaded below the shelf's floor, twice; not stored
	Waited  bool // another process held the lease for a while
	// ShelfErr is the last error of the shelf, for counters and logs. It is
	// never the caller's error.
	ShelfErr error
}
