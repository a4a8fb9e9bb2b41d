// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/go-shelf/shelf/invalidation"
)

// Cell is one name on the node: its bytes, "" for a missing one, and its lifetime in ms.
type Cell struct {
	Val   string
	TTL   int64
	Alien bool // holds something that is not a string
}

// Shelf is the twin of the scripts: the same decisions in plain Go. The names of one key, and the generation of its
// cache where Grouped; tags are left out.
type Shelf struct {
	Data, Lease, Mark Cell
	Grouped           bool
	Gen               invalidation.Generation // zero: there is none
}

func (s Shelf) String() string {
	return fmt.Sprintf("data %q (list: %t), lease %q, mark %q, generation %v", s.Data.Val, s.Data.Alien, s.Lease.Val, s.Mark.Val, s.Gen)
}

// Guards are what the scripts can do without, to see that an exploration needs them.
type Guards struct {
	AnyLease  bool // fill does not look at the lease
	NoMark    bool // fill does not look at the mark
	NoStored  bool // fill does not look at what is stored
	KeepLease bool // invalidate leaves the lease
	LastMark  bool // the later mark wins, not the larger
	PlainDel  bool // release removes whatever lease is there
	AnyGen    bool // fill does not look at the generation

	NoWriteMark bool // the fill of a writer leaves no mark
}

// Bytes are a version's eight.
func Bytes(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// Entry builds the first 24 bytes of an entry and a payload behind them.
func Entry(version uint64, payload string) string {
	return "\xf5\x53\x01\x00\x00\x00\x00\x18" + Bytes(version) + Bytes(0) + payload
}

// Entry is the version of the entry that lies in c; false if none does.
func (c Cell) Entry() (version uint64, ok bool) {
	if c.Alien || len(c.Val) < 24 || c.Val[:2] != "\xf5\x53" || c.Val[2] < 1 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(c.Val[8:16])), true
}

// Floor is the version of a mark, 0 for none.
func (c Cell) Floor() uint64 {
	if c.Alien || len(c.Val) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(c.Val))
}

// TakeLease is lease.lua. now is the server's clock, for a generation that has to be made.
func (s *Shelf) TakeLease(token string, mode invalidation.LeaseMode, ttl int64, now uint64, earlier ...string) invalidation.LeaseReply {
	if s.Grouped && s.Gen == (invalidation.Generation{}) {
		s.Gen = invalidation.Generation{Seq: now, Cleared: now}
	}
	r := invalidation.LeaseReply{Mark: s.Mark.Floor(), Generation: s.Gen}
	if _, ok := s.Data.Entry(); ok {
		r.Data = []byte(s.Data.Val)
	}
	switch {
	case mode == invalidation.LeaseMiss && r.Data != nil:
		r.Status = invalidation.Found
	case mode != invalidation.LeaseForce && s.Lease.Val == "n":
		r.Status = invalidation.NoStore
	case mode != invalidation.LeaseForce && s.Lease.Val != "" && !slices.ContainsFunc(earlier, func(e string) bool { return s.Lease.Val == "t"+e }):
		r.Status = invalidation.Held
	default:
		r.Status = invalidation.Granted
		s.Lease = Cell{Val: "t" + token, TTL: ttl}
	}
	return r
}

// Fill is fill.lua; of f it reads Token, Value, TTL and Mark (in ms), Version, Negative, Replace and Generation.
func (s *Shelf) Fill(f invalidation.Filling, off Guards) invalidation.Outcome {
	if s.Lease.Val != "t"+f.Token && !off.AnyLease {
		return invalidation.LeaseLost
	}
	s.Lease = Cell{}
	if s.Grouped && !s.Gen.Holds(f.Generation) && !off.AnyGen {
		return invalidation.LeaseLost
	}
	if m := s.Mark.Floor(); m > 0 && (f.Negative || f.Version == 0 || f.Version < m) && !off.NoMark {
		return invalidation.BelowMark
	}
	if v, ok := s.Data.Entry(); ok && f.Version < v && !f.Replace && !off.NoStored {
		return invalidation.OlderThanStored
	}
	s.Data = Cell{Val: string(f.Value), TTL: f.TTL.Milliseconds()}
	if f.Mark > 0 && !off.NoWriteMark {
		s.leaveMark(f.Version, f.Mark.Milliseconds())
	}
	return invalidation.Stored
}

// leaveMark is mark.lua.
func (s *Shelf) leaveMark(version uint64, ttl int64) {
	if m := max(version, s.Mark.Floor()); m > 0 {
		s.Mark = Cell{Val: Bytes(m), TTL: max(ttl, s.Mark.TTL)}
	}
}

// Release is release.lua; noStore in ms.
func (s *Shelf) Release(token string, noStore int64, off Guards) bool {
	if s.Lease.Val != "t"+token && !off.PlainDel {
		return false
	}
	s.Lease = Cell{}
	if noStore > 0 {
		s.Lease = Cell{Val: "n", TTL: noStore}
	}
	return true
}

// Invalidate is invalidate.lua; ttl in ms.
func (s *Shelf) Invalidate(version uint64, ttl int64, off Guards) invalidation.Invalidated {
	r := invalidation.Invalidated{Removed: s.Data.Val != "" || s.Data.Alien}
	s.Data = Cell{}
	if !off.KeepLease {
		s.Lease = Cell{}
	}
	r.Mark = version
	if !off.LastMark {
		r.Mark = max(version, s.Mark.Floor())
	}
	if r.Mark > 0 {
		s.Mark = Cell{Val: Bytes(r.Mark), TTL: max(ttl, s.Mark.TTL)}
	}
	return r
}

// Set is set.lua, for a key of no group.
func (s *Shelf) Set(value string, ttl int64, version uint64) invalidation.Outcome {
	if version > 0 {
		if version < s.Mark.Floor() {
			return invalidation.BelowMark
		}
		if v, ok := s.Data.Entry(); ok && version < v {
			return invalidation.OlderThanStored
		}
	}
	s.Data = Cell{Val: value, TTL: ttl}
	s.Lease = Cell{}
	return invalidation.Stored
}

// Clear is clear.lua. now is the server's clock.
func (s *Shelf) Clear(now uint64) invalidation.Generation {
	seq := max(s.Gen.Seq+1, now)
	s.Gen = invalidation.Generation{Seq: seq, Cleared: seq}
	return s.Gen
}
