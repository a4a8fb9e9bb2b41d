// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// FilterFeed is a log that all processes append to and read in the same order. The caller implements it; the methods bound their own time, and an error means that
// it is not known whether the call was carried out.
type FilterFeed interface {
	// Append puts an entry at the end, and says where that is.
	Append(ctx context.Context, entry []byte) (FilterPosition, error)
	// Read returns entries from the one with this id on, that one the first. Where it is not there any more, what comes first is another one, or nothing does.
	Read(ctx context.Context, id string) (FilterReading, error)
}

// FilterPosition is a place in a [FilterFeed].
type FilterPosition struct {
	// History names the feed's history of writes. It changes, to one that was never there before, whenever entries may have been lost that were appended: with a
	// restart of its server, with the promotion of a replica. Ids of two histories cannot be compared.
	History string
	ID      string // of the entry; larger ones come later
}

// FilterReading is what a read of a [FilterFeed] has brought.
type FilterReading struct {
	History string // in which it was read, from beginning to end
	Entries []FilterEntry
	More    bool // there may be more behind them; else they were all that there were when the read was carried out
}

// FilterEntry is one entry of a [FilterFeed].
type FilterEntry struct {
	ID   string
	Data []byte
}

// What an entry says, by its first byte. An entry of a kind that is not known is from a release that knows more: it counts as entryGap.
const (
	entryAdded = 'a' // digests follow, 8 big-endian bytes each
	entryGap   = 'g' // additions were lost: who has not scanned since knows nothing
	entryHere  = 'h' // somebody begins to follow, or to scan, here; 16 random bytes
	entryBuilt = 'b' // a build was stored; its id follows

	entryCleared = 'c' // as entryGap, since somebody wanted it (Forget)
)

const (
	addDigests   = 64  // at most in an entry of an addition: some 600 bytes on a node, and a reading of many entries stays small
	entryDigests = 512 // in one of additions that were owed, which may be many: 4 KiB
	offerSpread  = 10 * time.Second
)

var (
	errHistory = errors.New("the feed has another history: its node was restarted, or a replica was promoted")
	errLost    = errors.New("entries of the feed are gone that were not read yet: evicted, flushed, or more than it keeps were added at once")
	errTold    = errors.New("a process has told of additions that it could not keep")
	errCleared = errors.New("the cache was cleared")
	errKind    = errors.New("the feed has an entry of a kind that this release does not know")
)

func encodeAdded(digests []digest) []byte {
	entry := append(make([]byte, 0, 1+8*len(digests)), entryAdded)
	for _, d := range digests {
		entry = binary.BigEndian.AppendUint64(entry, uint64(d))
	}
	return entry
}

// follow reads the feed to its end and sends what is owed. Only Run calls it.
func (f *Filter) follow(ctx context.Context) {
	if f.at.ID == "" && !f.begin(ctx) {
		return
	}
	for {
		sent := time.Now()
		reading, err := f.cfg.Feed.Read(ctx, f.at.ID)
		if err != nil {
			f.unheard(err)
			return // what was heard before holds for FilterTrust
		}
		if err := f.take(reading); err != nil {
			f.gap(err)
			return
		}
		if !reading.More {
			f.heard(sent)
			break
		}
	}
	f.sendOwed(ctx)
}

// begin puts an entry at the end of the feed from which on it is followed. There is no other way to say "from here on" that a feed which has lost
// everything does not understand as well.
func (f *Filter) begin(ctx context.Context) bool {
	entry := here()
	at, err := f.cfg.Feed.Append(ctx, entry)
	if err != nil {
		f.unheard(err)
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.last = at, entry
	return true
}

func here() []byte {
	entry := make([]byte, 17)
	entry[0] = entryHere
	_, _ = rand.Read(entry[1:]) // it never fails
	return entry
}

// take puts what was read into the sets. The error is why nothing is believed any more.
func (f *Filter) take(r FilterReading) error {
	at, last, err := r.from(f.at, f.last, f.apply)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.last = at, last
	return nil
}

// from hands on the entries behind the one at a position, which must have come first, and returns the last one's position and bytes. The error is why what follows that
// position is not known.
func (r FilterReading) from(at FilterPosition, last []byte, apply func(entry []byte) error) (FilterPosition, []byte, error) {
	if r.History != at.History {
		return at, last, errHistory
	}
	if len(r.Entries) == 0 || r.Entries[0].ID != at.ID || !bytes.Equal(r.Entries[0].Data, last) {
		return at, last, errLost
	}
	for _, e := range r.Entries[1:] {
		if err := apply(e.Data); err != nil {
			return at, last, err
		}
	}
	e := r.Entries[len(r.Entries)-1]
	return FilterPosition{at.History, e.ID}, e.Data, nil
}

// apply puts an entry into the sets.
func (f *Filter) apply(entry []byte) error {
	added, built, err := readEntry(entry)
	f.put(added)
	if built != "" {
		f.mu.Lock()
		defer f.mu.Unlock()
		if built != f.basis { // not all at the same moment
			f.offer = time.Now().Add(time.Duration(f.cfg.Draw() * float64(min(offerSpread, f.cfg.RebuildEvery/10))))
		}
	}
	return err
}

// readEntry reads an entry: what was added, or the id of a build that was stored. The error is why who reads it knows nothing any more.
func readEntry(entry []byte) (added []digest, built string, err error) {
	kind := byte(0)
	if len(entry) > 0 {
		kind = entry[0]
	}
	switch kind {
	case entryAdded:
		added, err = decodeAdded(entry)
		return added, "", err
	case entryHere:
		return nil, "", nil
	case entryBuilt:
		return nil, string(entry[1:]), nil
	case entryGap:
		return nil, "", errTold
	case entryCleared:
		return nil, "", errCleared
	default:
		return nil, "", fmt.Errorf("%w: it begins with %q", errKind, entry[:min(1, len(entry))])
	}
}

func decodeAdded(entry []byte) ([]digest, error) {
	if len(entry)%8 != 1 {
		return nil, fmt.Errorf("%w: additions of %d bytes", errKind, len(entry)-1)
	}
	digests := make([]digest, 0, len(entry)/8)
	for data := entry[1:]; len(data) > 0; data = data[8:] {
		digests = append(digests, digest(binary.BigEndian.Uint64(data)))
	}
	return digests, nil
}

// heard notes that the feed was read to its end by a read that was sent then.
func (f *Filter) heard(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proven, f.deaf = sent, nil
	f.believe()
}

// unheard keeps for Stats why the feed could not be followed.
func (f *Filter) unheard(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = err
}

// gap forgets both sets: something may be missing in them. What this process has sent in the history that has ended perhaps, it sends again: the node
// may have lost it, or have been an old primary's, which others did not read any more.
func (f *Filter) gap(why error) {
	f.gaps.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(why)
	f.at, f.last, f.proven = FilterPosition{}, nil, time.Time{}
	f.sendAgain()
}

// forget drops both sets. f.mu is held.
func (f *Filter) forget(why error) {
	f.era++
	f.until.Store(0) // first, see Absent
	if set := f.sets.Load().current; set != nil {
		f.known = set.keys()
	}
	f.sets.Store(&filterSets{})
	if f.why, f.basis, f.due = why, "", (time.Time{}); errors.Is(why, errCleared) {
		f.unknow()
	}
}
