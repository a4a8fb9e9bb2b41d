// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package explore

import (
	"github.com/go-shelf/shelf/internal/twin"
	"github.com/go-shelf/shelf/invalidation"
)

// order is a call of a script.
type order struct {
	what    scriptName
	token   uint8
	version uint8
	stamp   uint8
	replace bool
	force   bool
	now     uint8
}

type scriptName uint8

const (
	takeLease scriptName = iota
	fill
	release
	invalidate
	clearAll
)

// answer is what a script says, as far as somebody listens.
type answer struct {
	lease invalidation.LeaseStatus
	fill  invalidation.Outcome
	mark  uint8
	seq   uint8
}

type onShelf struct {
	shelf
	order
}

type outcome struct {
	shelf
	answer
}

// scripts runs scripts: each on each shelf once, on the twin, which works on bytes as the Lua does; what came out is remembered.
type scripts struct {
	of    *rules
	known map[onShelf]outcome
}

func (x *scripts) run(on *shelf, o order) answer {
	key := onShelf{*on, o}
	out, ok := x.known[key]
	if !ok {
		out = x.play(*on, o)
		x.known[key] = out
	}
	*on = out.shelf
	return out.answer
}

func token(n uint8) string { return string(rune('A' + n)) }

// header is a version as it stands in the entry, the mark and the arguments.
func (x *scripts) header(v uint8) uint64 {
	if x.of.versions {
		return uint64(v)
	}
	return 0
}

func (x *scripts) entry(v, old, stamp uint8) string {
	return twin.Entry(x.header(v), string([]byte{v, old, stamp}))
}

// open makes the bytes that the scripts work on.
func (x *scripts) open(s shelf) twin.Shelf {
	t := twin.Shelf{Grouped: x.of.generations, Gen: invalidation.Generation{Seq: uint64(s.seq), Cleared: uint64(s.cleared)}}
	if s.data > 0 {
		t.Data.Val = x.entry(s.data, s.old, s.stamp)
	}
	if s.lease > 0 {
		t.Lease.Val = "t" + token(s.lease)
	}
	if s.mark > 0 {
		t.Mark.Val = twin.Bytes(uint64(s.mark))
	}
	return t
}

// closed is the opposite of open.
func closed(t twin.Shelf) (s shelf) {
	if t.Data.Val != "" {
		tail := t.Data.Val[len(t.Data.Val)-3:]
		s.data, s.old, s.stamp = tail[0], tail[1], tail[2]
	}
	if t.Lease.Val != "" {
		s.lease = t.Lease.Val[1] - 'A'
	}
	s.mark = uint8(t.Mark.Floor())
	s.seq, s.cleared = uint8(t.Gen.Seq), uint8(t.Gen.Cleared)
	return s
}

func (x *scripts) play(s shelf, o order) outcome {
	t, off := x.open(s), x.of.off
	var a answer
	switch o.what {
	case takeLease:
		mode := invalidation.LeaseMiss
		switch {
		case o.force:
			mode = invalidation.LeaseForce
		case o.replace:
			mode = invalidation.LeaseRefresh
		}
		r := t.TakeLease(token(o.token), mode, 1, uint64(o.now))
		a = answer{lease: r.Status, mark: uint8(r.Mark), seq: uint8(r.Generation.Seq)}
	case fill:
		a.fill = t.Fill(invalidation.Filling{
			Token: token(o.token), Value: []byte(x.entry(o.version, 0, o.stamp)), Version: x.header(o.version), Replace: o.replace, Generation: uint64(o.stamp),
		}, off)
	case release:
		t.Release(token(o.token), 0, off)
	case invalidate:
		t.Invalidate(x.header(o.version), 1, off)
	case clearAll:
		t.Clear(uint64(o.now))
	}
	return outcome{closed(t), a}
}
