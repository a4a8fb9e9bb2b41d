// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"math"
	"time"
)

// Position is one reading of a primary: its answer to ROLE.
type Position struct {
	At       time.Time        // when ROLE was sent; not when it was answered
	Run      string           // who answered, see [Replay]; a reading with "" is ignored
	Offset   int64            // the primary's replication offset
	Replicas map[string]int64 // the offset of each replica that it lists, by address
}

// replica is what the readings of a run have said of one replica.
type replica struct {
	offset int64
	missed bool      // the last reading did not list it
	gone   time.Time // if set: it was cut off before
}

// Read takes a reading of the primary into account and returns how many entries are void: if any,
// Take gives them, and each is to be invalidated again and added when that is confirmed. It is to
// be called on every connect, before the first Add, and then every second or so, one reading after
// the other: ROLE is sent when the one before has been answered. Readings that were sent before the
// newest one are ignored.
func (r *Replay) Read(p Position) (void int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Run == "" || p.At.Before(r.read) {
		return r.void.len
	}
	if p.Run != r.run || p.Offset < r.offset {
		// A stream that runs backwards is another stream. And a run that comes back, after another,
		// may lack what it had confirmed before.
		r.voidAll(p.At)
		clear(r.known)
	}
	r.run, r.read, r.offset = p.Run, p.At, p.Offset
	low := r.lowest(p)
	for k := r.placed.first; k != nil && k.of.offset <= low && p.At.Sub(k.of.At) >= r.minAge; k = r.placed.first {
		r.remove(k.of)
		r.stats.Left++
	}
	// Strictly before: of a ROLE that was sent at the moment of the confirmation nobody knows which
	// the server saw first.
	for k := r.open.first; k != nil && k.of.At.Before(p.At); k = r.open.first {
		k.of.offset = p.Offset
		k.leave()
		r.placed.push(k)
	}
	return r.void.len
}

// lowest is how much of the stream every replica has that may be promoted. Without any, that is all
// of it.
func (r *Replay) lowest(p Position) int64 {
	for name, offset := range p.Replicas {
		r.known[name] = &replica{offset: offset}
	}
	low := int64(math.MaxInt64)
	for name, k := range r.known {
		if _, listed := p.Replicas[name]; !listed {
			// It may have been cut off between the sending of the first ROLE that misses it and the
			// answer. The second was sent after that.
			if k.missed && k.gone.IsZero() {
				k.gone = p.At
			}
			k.missed = true
			if !k.gone.IsZero() && p.At.Sub(k.gone) >= r.minAge {
				delete(r.known, name)
				continue
			}
		}
		low = min(low, k.offset)
	}
	return low
}
