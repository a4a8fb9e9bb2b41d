// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import (
	"slices"
	"time"
)

// never is a time that has not come.
const never = Forever

// version is one version of a row, and since when it must not be missed any more. Each of these times holds for newer versions as well: who covers
// a version covers those before it. So they never fall from one version to the next, and a version's own are the first at which an older one was
// superseded.
type version struct {
	Write
	committed time.Duration   // this one, or a newer one, had been committed
	confirmed time.Duration   // an invalidation that covers it had returned nil
	own       []time.Duration // the same of each process's own invalidations
}

// history is what is known of a key: its versions in their order, the oldest forgotten.
type history struct {
	versions  []version
	forgotten uint64 // the newest version that was forgotten; 0: none
}

// find is the place of a version, or where it would be.
func (h *history) find(v uint64) (int, bool) {
	// Nearly all reads see the newest or the one before.
	for i := len(h.versions) - 1; i >= max(0, len(h.versions)-3); i-- {
		if h.versions[i].Version == v {
			return i, true
		}
	}
	return slices.BinarySearchFunc(h.versions, v, func(e version, v uint64) int {
		switch {
		case e.Version < v:
			return -1
		case e.Version > v:
			return 1
		}
		return 0
	})
}

// add takes a write. false: there is such a version already.
func (h *history) add(w Write, processes int) bool {
	i, found := h.find(w.Version)
	if found || w.Version <= h.forgotten {
		return false
	}
	v := version{Write: w, committed: never, confirmed: never, own: make([]time.Duration, processes)}
	for p := range v.own {
		v.own[p] = never
	}
	if i < len(h.versions) { // what covers the next one covers this one
		next := &h.versions[i]
		v.committed, v.confirmed = next.committed, next.confirmed
		copy(v.own, next.own)
	}
	h.versions = slices.Insert(h.versions, i, v)
	h.lower(i, w.Committed, func(v *version) *time.Duration { return &v.committed })
	return true
}

// lower notes a time for a version and those before it, as far as they do not have an earlier one.
func (h *history) lower(i int, t time.Duration, of func(*version) *time.Duration) {
	for ; i >= 0; i-- {
		at := of(&h.versions[i])
		if *at <= t {
			return
		}
		*at = t
	}
}

// cover takes an invalidation. All writes that began before it did are known.
func (h *history) cover(inv *Invalidation, process int, countFailed bool) {
	i := len(h.versions) - 1
	for i >= 0 && !covers(inv, &h.versions[i]) {
		i--
	}
	if !inv.Failed || countFailed {
		h.lower(i, inv.Returned, func(v *version) *time.Duration { return &v.own[process] })
	}
	if !inv.Failed {
		h.lower(i, inv.Returned, func(v *version) *time.Duration { return &v.confirmed })
	}
}

func covers(inv *Invalidation, v *version) bool {
	if inv.UpTo > 0 {
		return v.Version <= inv.UpTo
	}
	return v.Committed <= inv.Began
}

// newestAbsence is the newest version without a row that had begun to be written by then; 0 where there is none.
func (h *history) newestAbsence(by time.Duration) uint64 {
	for i := len(h.versions) - 1; i >= 0; i-- {
		if v := &h.versions[i]; v.Absent && v.Began <= by {
			return v.Version
		}
	}
	return 0
}

// near says whether a read began within a second of the newest write that it can have seen, or before its end.
func (h *history) near(r *Read) bool {
	for i := len(h.versions) - 1; i >= 0; i-- {
		if v := &h.versions[i]; v.Began <= r.Ended {
			return r.Began-v.Committed < nearTime
		}
	}
	return false
}

// forget drops versions that were superseded before t; the newest stays.
func (h *history) forget(t time.Duration) {
	n := 0
	for n < len(h.versions)-1 && h.versions[n+1].committed < t {
		n++
	}
	if n > 0 {
		h.forgotten = h.versions[n-1].Version
		h.versions = slices.Delete(h.versions, 0, n)
	}
}
