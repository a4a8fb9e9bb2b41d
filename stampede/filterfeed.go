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
	"slices"
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
)

const (
	addDigests   = 64  // at most in an entry of an addition: some 600 bytes on a node, and a reading of many entries stays small
	entryDigests = 512 // in one of additions that were owed, which may be many: 4 KiB
	offerSpread  = 10 * time.Second
	maxOwed      = 1 << 16 // additions that are kept to be sent, or to be sent again
)

var (
	errHistory = errors.New("the feed has another history: its node was restarted, or a replica was promoted")
	errLost    = errors.New("entries of the feed are gone that were not read yet: evicted, flushed, or more than it keeps were added at once")
	errTold    = errors.New("a process has told of additions that it could not keep")
	errKind    = errors.New("the feed has an entry of a kind that this release does not know")
)

// announce appends additions to the feed. What it does not take is owed.
func (f *Filter) announce(ctx context.Context, digests []digest) error {
	for len(digests) > 0 {
		part := digests[:min(len(digests), addDigests)]
		at, err := f.cfg.Feed.Append(ctx, encodeAdded(part))
		if err != nil {
			f.mu.Lock()
			f.owe(digests...)
			f.mu.Unlock()
			f.signal()
			return err
		}
		f.sent(at, part)
		digests = digests[len(part):]
	}
	return nil
}

func encodeAdded(digests []digest) []byte {
	entry := append(make([]byte, 0, 1+8*len(digests)), entryAdded)
	for _, d := range digests {
		entry = binary.BigEndian.AppendUint64(entry, uint64(d))
	}
	return entry
}

// owe keeps additions that are to be sent, as many as there is room for. f.mu is held.
func (f *Filter) owe(digests ...digest) {
	room := min(len(digests), max(0, maxOwed-len(f.owed)))
	f.owed = append(f.owed, digests[:room]...)
	f.dropped += len(digests) - room
}

// sent notes additions that the feed has taken, in case that it forgets them. If it was another history than the one that is followed, which may have ended already, they are
// sent once more: a gap hands on what is noted only once.
func (f *Filter) sent(at FilterPosition, digests []digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.History != f.at.History {
		f.owe(digests...)
		f.signal()
		return
	}
	room := min(len(digests), maxOwed-len(f.recent))
	f.recent = append(f.recent, digests[:room]...)
	f.many = f.many || room < len(digests)
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
	if r.History != f.at.History {
		return errHistory
	}
	if len(r.Entries) == 0 || r.Entries[0].ID != f.at.ID || !bytes.Equal(r.Entries[0].Data, f.last) {
		return errLost
	}
	for _, e := range r.Entries[1:] {
		if err := f.apply(e.Data); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := r.Entries[len(r.Entries)-1]
	f.at.ID, f.last = e.ID, e.Data
	return nil
}

func (f *Filter) apply(entry []byte) error {
	kind := byte(0)
	if len(entry) > 0 {
		kind = entry[0]
	}
	switch kind {
	case entryAdded:
		digests, err := decodeAdded(entry)
		f.put(digests)
		return err
	case entryHere:
		return nil
	case entryBuilt:
		f.mu.Lock()
		defer f.mu.Unlock()
		if string(entry[1:]) != f.basis { // not all at the same moment
			f.offer = time.Now().Add(time.Duration(f.cfg.Draw() * float64(min(offerSpread, f.cfg.RebuildEvery/10))))
		}
		return nil
	case entryGap:
		return errTold
	default:
		return fmt.Errorf("%w: it begins with %q", errKind, entry[:min(1, len(entry))])
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
	recent, many := f.recent, f.many
	f.recent, f.many = nil, false
	f.owe(recent...)
	if many {
		f.dropped++
	}
}

// forget drops both sets. f.mu is held.
func (f *Filter) forget(why error) {
	f.era++
	f.until.Store(0) // first, see Absent
	f.sets.Store(&filterSets{})
	f.why, f.basis, f.due = why, "", time.Time{}
}

// sendOwed sends what is owed, or, where that was too much to be kept, that something is lost. What is on its way stays owed until it has been taken: a set that is
// published meanwhile must get it.
func (f *Filter) sendOwed(ctx context.Context) {
	for {
		f.mu.Lock()
		dropped, part := f.dropped, slices.Clone(f.owed[:min(len(f.owed), entryDigests)])
		f.mu.Unlock()
		entry := encodeAdded(part)
		switch {
		case dropped > 0:
			entry, part = []byte{entryGap}, nil
		case len(part) == 0:
			return
		}
		at, err := f.cfg.Feed.Append(ctx, entry)
		if err != nil || at.History != f.at.History {
			return // once more, in the history that is followed
		}
		f.sent(at, part) // first: one that is published in between gets it twice
		f.mu.Lock()
		f.owed = f.owed[len(part):]
		if part == nil {
			f.dropped -= dropped // what was dropped meanwhile may have come after the entry
		}
		f.mu.Unlock()
	}
}

// Close sends what is owed, once more, after Run has returned. The error says how many additions of this process others do not know of.
func (f *Filter) Close(ctx context.Context) error {
	for {
		f.mu.Lock()
		dropped, part, owed := f.dropped, slices.Clone(f.owed[:min(len(f.owed), entryDigests)]), f.dropped+len(f.owed)
		f.mu.Unlock()
		entry := encodeAdded(part)
		switch {
		case dropped > 0:
			entry, part = []byte{entryGap}, nil
		case len(part) == 0:
			return nil
		}
		if _, err := f.cfg.Feed.Append(ctx, entry); err != nil {
			return fmt.Errorf("stampede: %d additions to the filter of known keys were not sent: %w", owed, err)
		}
		f.mu.Lock()
		f.owed = f.owed[len(part):]
		if part == nil {
			f.dropped -= dropped
		}
		f.mu.Unlock()
	}
}
