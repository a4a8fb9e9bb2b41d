// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"strconv"
	"time"
)

// Outcome says what became of a value that [Fill] or [Set] brought.
type Outcome uint8

// The outcomes of [Fill] and [Set].
const (
	// Stored: the value is there, and the lease is gone.
	Stored Outcome = iota + 1
	// LeaseLost: the lease is not this token's any more (expired, evicted, voided by an
	// invalidation, taken over, or the node lost its memory). Only [Fill] answers it.
	LeaseLost
	// BelowMark: an invalidation said that a newer row version exists.
	BelowMark
	// OlderThanStored: an entry with a newer row version is stored already.
	OlderThanStored
)

// String names the outcome as the scripts do.
func (o Outcome) String() string {
	switch o {
	case Stored:
		return "stored"
	case LeaseLost:
		return "lease-lost"
	case BelowMark:
		return "below-mark"
	case OlderThanStored:
		return "older-than-stored"
	}
	return "unknown"
}

// Filling is a value on its way to the node.
type Filling struct {
	Token   string        // the lease's, as it was granted
	Value   []byte        // begins with the entry header
	TTL     time.Duration // at least 1 ms
	Version uint64        // the row version in the header, 0 for none
	// Negative: the value says that there is no such row.
	Negative bool
	// Replace: the reader found bytes that it cannot read (another codec's, or not an entry at all but for its first bytes), so
	// what looks like their version says nothing. It is not compared.
	Replace bool
	// Mark is for a writer that stores what it has written: how long a mark of Version stays, as that of an invalidation would. It
	// refuses what others load from a source that lags once the entry is gone. 0: none.
	Mark  time.Duration
	Epoch uint64 // sent along for the fence that is to come; no effect yet
	// Generation is the number of the generation that the lease was granted under, and Tags are the value's. Without effect
	// where the key is of no group.
	Generation uint64
	Tags       []string
}

// Fill stores what a reader loaded under its lease. It is refused unless the lease key holds exactly
// this token: a missing lease proves nothing and counts as lost. So does a lease that was granted
// before the cache was cleared or one of the value's tags was invalidated (see [Group]).
//
// While a mark is there, a fill is refused if its version is below the mark, if it is negative
// (it says "no such row" of a row that is known to exist), or if it has no version (0). Without a
// mark only the stored entry is compared: a larger version stays, unless the reader could not read
// it. A refused fill gives its own lease back.
func Fill(k Keys, f Filling) Call {
	c := Call{
		Script: fillScript,
		Keys:   k.all(),
		Args: []any{
			tokenPrefix + f.Token, f.Value, millis(f.TTL), versionBytes(f.Version),
			bit(f.Negative), versionBytes(f.Epoch), bit(f.Replace), markMillis(f.Mark), strconv.FormatUint(f.Generation, 10),
		},
	}
	for _, tag := range f.Tags {
		c.Args = append(c.Args, tag)
	}
	return c
}

// markMillis is millis, but 0 for none.
func markMillis(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return millis(d)
}

// bit is a flag as the scripts read it.
func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// ParseFill reads the reply to [Fill].
func ParseFill(reply any) (Outcome, error) {
	return outcome("fill", reply, Stored, LeaseLost, BelowMark, OlderThanStored)
}

// Set stores a value without a lease, for caches that are the truth themselves (sessions, flags):
// the larger version wins against the stored entry and the mark, equal versions and version 0
// overwrite. Storing removes the lease, so that a fill in flight cannot overwrite the value.
//
// Where the key is of a group, the value's stamp is set by the node, so it must have a place for one (see [Group]).
//
// It is not a way to write through to a database: between the database write and the Set another
// writer can come and go, and the older value stays. Such writers use [LeaseForce] and [Fill].
func Set(k Keys, value []byte, ttl time.Duration, version, epoch uint64) Call {
	return Call{
		Script: setScript,
		Keys:   k.all(),
		Args:   []any{value, millis(ttl), versionBytes(version), versionBytes(epoch)},
	}
}

// ParseSet reads the reply to [Set].
func ParseSet(reply any) (Outcome, error) {
	return outcome("set", reply, Stored, BelowMark, OlderThanStored)
}

// Invalidated is what [Invalidate] answers.
type Invalidated struct {
	// Removed says that an entry was there.
	Removed bool
	// Mark is the version floor that now lies on the node, 0 when there is none.
	Mark uint64
	// MarkFailed says that data and lease are gone but the mark could not be written (no memory,
	// no permission): nothing protects from a lagging source until the next invalidation.
	MarkFailed bool
	// Copies says on how many nodes of the key's walk there may be copies of the entry, the owner counted; 0 where it was never split,
	// or the call had no Keys.Split. They are to be invalidated after this.
	Copies int
}

// Invalidate removes entry and lease, which voids every fill in flight, and then leaves a mark
// for markTTL (at least 1 ms): the larger of version and the mark that is there, never the later.
// The mark's lifetime is never shortened.
//
// Version 0 says that the caller does not know the row version: a mark that is there keeps its
// version and lives on, and no mark is left where none was. One without a version would have to
// refuse every fill that has none, which in a cache without versions is all of them: each
// invalidation would switch the cache off for that key for markTTL.
func Invalidate(k Keys, version uint64, markTTL time.Duration, epoch uint64) Call {
	keys := []string{k.Data, k.Lease, k.Mark}
	if k.Body != "" {
		keys = append(keys, k.Body)
	}
	if k.Split != "" {
		keys = append(keys, k.Split)
	}
	return Call{
		Script: invalidateScript,
		Keys:   keys,
		Args:   []any{versionBytes(version), millis(markTTL), versionBytes(epoch)},
	}
}

// ParseInvalidate reads the reply to [Invalidate].
func ParseInvalidate(reply any) (Invalidated, error) {
	var r Invalidated
	parts, err := list("invalidate", reply, 3)
	if split, errSplit := list("invalidate", reply, 4); errSplit == nil {
		record, err := optionalBytes("invalidate", "split record", split[3])
		if err != nil {
			return Invalidated{}, err
		}
		parts, r.Copies = split[:3], ParseCopies(record)
	} else if err != nil {
		return Invalidated{}, err
	}
	if r.Removed, err = flag("invalidate", "removed", parts[0]); err != nil {
		return Invalidated{}, err
	}
	if r.Mark, err = optionalVersion("invalidate", parts[1]); err != nil {
		return Invalidated{}, err
	}
	if r.MarkFailed, err = flag("invalidate", "failed", parts[2]); err != nil {
		return Invalidated{}, err
	}
	return r, nil
}
