// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// maxOwed bounds the additions that are kept to be sent, and those that are kept to be sent again.
const maxOwed = 1 << 16

// sentLately are additions that the feed has taken, in case that it forgets them. Each is kept for twice RebuildEvery at least, and twice that at most: a scan that began before it
// was made is believed for no longer, and one that began after it has seen its row.
type sentLately struct {
	young, old sentAdditions
	turned     time.Time // when the young became the old
}

type sentAdditions struct {
	digests []digest
	many    bool // there were more than are kept
}

func (s *sentLately) add(digests []digest, now time.Time, keep time.Duration) {
	s.age(now, keep)
	room := min(len(digests), maxOwed-len(s.old.digests)-len(s.young.digests))
	s.young.digests = append(s.young.digests, digests[:room]...)
	s.young.many = s.young.many || room < len(digests)
}

// age lets go of what is older than keep.
func (s *sentLately) age(now time.Time, keep time.Duration) {
	passed := now.Sub(s.turned)
	if passed < keep {
		return
	}
	if s.old = s.young; passed >= 2*keep {
		s.old = sentAdditions{}
	}
	s.young, s.turned = sentAdditions{}, now
}

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

// owe keeps additions that are to be sent, as many as there is room for. f.mu is held.
func (f *Filter) owe(digests ...digest) {
	room := min(len(digests), max(0, maxOwed-len(f.owed)))
	f.owed = append(f.owed, digests[:room]...)
	f.dropped += len(digests) - room
}

// sent notes additions that the feed has taken. If it was another history than the one that is followed, which may have ended already, they are
// sent once more: a gap hands on what is noted only once.
func (f *Filter) sent(at FilterPosition, digests []digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.History != f.at.History {
		f.owe(digests...)
		f.signal()
		return
	}
	f.recent.add(digests, time.Now(), 2*f.cfg.RebuildEvery)
}

// sendAgain owes what was sent in a history that is over. f.mu is held.
func (f *Filter) sendAgain() {
	recent := &f.recent
	recent.age(time.Now(), 2*f.cfg.RebuildEvery)
	for _, s := range []sentAdditions{recent.old, recent.young} {
		f.owe(s.digests...)
		if s.many {
			f.dropped++
		}
	}
	*recent = sentLately{turned: recent.turned}
}

// debt is what is to be sent next: additions, or, where there were more than are kept, that something is lost.
type debt struct {
	entry   []byte // nil: nothing is owed
	part    []digest
	dropped int
	cleared int
	all     int // additions that are owed
}

func (f *Filter) nextDebt() debt {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := debt{dropped: f.dropped, cleared: f.cleared, all: f.dropped + len(f.owed)}
	switch {
	case d.cleared > 0:
		d.entry = []byte{entryCleared}
	case d.dropped > 0:
		d.entry = []byte{entryGap}
	case len(f.owed) > 0:
		d.part = slices.Clone(f.owed[:min(len(f.owed), entryDigests)])
		d.entry = encodeAdded(d.part)
	}
	return d
}

// paid takes off what the feed has taken.
func (f *Filter) paid(d debt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owed = f.owed[len(d.part):]
	f.dropped -= d.dropped // what was dropped meanwhile may have come after the entry
	f.cleared -= d.cleared
}

// sendOwed sends what is owed. What is on its way stays owed until it has been taken: a set that is published meanwhile must get it.
func (f *Filter) sendOwed(ctx context.Context) {
	for d := f.nextDebt(); d.entry != nil; d = f.nextDebt() {
		at, err := f.cfg.Feed.Append(ctx, d.entry)
		if err != nil || at.History != f.at.History {
			return // once more, in the history that is followed
		}
		f.sent(at, d.part) // first: one that is published in between gets it twice
		f.paid(d)
	}
}

// Close sends what is owed, once more, after Run has returned. The error says how many additions of this process others do not know of.
func (f *Filter) Close(ctx context.Context) error {
	for d := f.nextDebt(); d.entry != nil; d = f.nextDebt() {
		if _, err := f.cfg.Feed.Append(ctx, d.entry); err != nil {
			return fmt.Errorf("stampede: %d additions to the filter of known keys were not sent: %w", d.all, err)
		}
		f.paid(d)
	}
	return nil
}
