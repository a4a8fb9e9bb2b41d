// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin

// Slot is the twin of a localcache.Cache as far as one key goes: the value and up to eight tickets. That ids of rounds
// are never used again comes to this: a ticket is good until it ends, or until something ends all that are out.
type Slot struct {
	Value uint8 // 0: none
	Good  uint8 // the tickets that may still be committed, one bit each
}

// Begin takes a ticket.
func (s *Slot) Begin(ticket int) { s.Good |= 1 << ticket }

// Commit stores v under a ticket, unless that is void.
func (s *Slot) Commit(ticket int, v uint8) bool {
	if s.Good&(1<<ticket) == 0 {
		return false
	}
	s.Value, s.Good = v, 0
	return true
}

// Cancel ends one ticket.
func (s *Slot) Cancel(ticket int) { s.Good &^= 1 << ticket }

// Invalidate drops the value and voids all tickets.
func (s *Slot) Invalidate() { *s = Slot{} }
