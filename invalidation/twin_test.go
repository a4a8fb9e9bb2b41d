// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"encoding/binary"
	"fmt"

	"github.com/go-shelf/shelf/invalidation"
)

// cell is one of the three keys: its bytes, "" for a missing one, and its lifetime in ms.
type cell struct {
	val   string
	ttl   int64
	alien bool // holds something that is not a string
}

// shelf is the twin of the scripts: the same five decisions in plain Go, on a value that can be
// copied and compared. It is checked against the Lua on random states, and it is what the
// exhaustive exploration walks over. The guards that it leaves out are listed in off.
type shelf struct{ data, lease, mark cell }

func (s shelf) String() string {
	return fmt.Sprintf("data %q (list: %t), lease %q, mark %q", s.data.val, s.data.alien, s.lease.val, s.mark.val)
}

// guards that can be switched off, to see that the exploration needs them.
type guards struct {
	anyLease  bool // fill does not look at the lease
	noMark    bool // fill does not look at the mark
	noStored  bool // fill does not look at what is stored
	keepLease bool // invalidate leaves the lease
	lastMark  bool // the later mark wins, not the larger
	plainDel  bool // release removes whatever lease is there
}

func be(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }

// entryOf builds the first 24 bytes of an entry and a payload behind them.
func entryOf(version uint64, payload string) string {
	return "\xf5\x53\x01\x00\x00\x00\x00\x18" + be(version) + be(0) + payload
}

func (c cell) entry() (version uint64, ok bool) {
	if c.alien || len(c.val) < 24 || c.val[:2] != "\xf5\x53" || c.val[2] < 1 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(c.val[8:16])), true
}

func (c cell) floor() uint64 {
	if c.alien || len(c.val) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte(c.val))
}

func (s *shelf) takeLease(token string, mode invalidation.LeaseMode, ttl int64) invalidation.LeaseReply {
	r := invalidation.LeaseReply{Mark: s.mark.floor()}
	if _, ok := s.data.entry(); ok {
		r.Data = []byte(s.data.val)
	}
	switch {
	case mode == invalidation.LeaseMiss && r.Data != nil:
		r.Status = invalidation.Found
	case mode != invalidation.LeaseForce && s.lease.val == "n":
		r.Status = invalidation.NoStore
	case mode != invalidation.LeaseForce && s.lease.val != "":
		r.Status = invalidation.Held
	default:
		r.Status = invalidation.Granted
		s.lease = cell{val: "t" + token, ttl: ttl}
	}
	return r
}

func (s *shelf) fill(token, value string, ttl int64, version uint64, negative, replace bool, off guards) invalidation.Outcome {
	if s.lease.val != "t"+token && !off.anyLease {
		return invalidation.LeaseLost
	}
	s.lease = cell{}
	if f := s.mark.floor(); f > 0 && (negative || version == 0 || version < f) && !off.noMark {
		return invalidation.BelowMark
	}
	if v, ok := s.data.entry(); ok && version < v && !replace && !off.noStored {
		return invalidation.OlderThanStored
	}
	s.data = cell{val: value, ttl: ttl}
	return invalidation.Stored
}

func (s *shelf) release(token string, noStore int64, off guards) bool {
	if s.lease.val != "t"+token && !off.plainDel {
		return false
	}
	s.lease = cell{}
	if noStore > 0 {
		s.lease = cell{val: "n", ttl: noStore}
	}
	return true
}

func (s *shelf) invalidate(version uint64, ttl int64, off guards) invalidation.Invalidated {
	r := invalidation.Invalidated{Removed: s.data.val != "" || s.data.alien}
	s.data = cell{}
	if !off.keepLease {
		s.lease = cell{}
	}
	r.Mark = version
	if !off.lastMark {
		r.Mark = max(version, s.mark.floor())
	}
	if r.Mark > 0 {
		s.mark = cell{val: be(r.Mark), ttl: max(ttl, s.mark.ttl)}
	}
	return r
}

func (s *shelf) set(value string, ttl int64, version uint64) invalidation.Outcome {
	if version > 0 {
		if version < s.mark.floor() {
			return invalidation.BelowMark
		}
		if v, ok := s.data.entry(); ok && version < v {
			return invalidation.OlderThanStored
		}
	}
	s.data = cell{val: value, ttl: ttl}
	s.lease = cell{}
	return invalidation.Stored
}
