// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

// The bounds, as the README has them.
const (
	pushSilence = time.Second              // a copy is not served any more when its node has been silent for so long
	blindTTL    = client.DefaultL1BlindTTL // of copies where nobody pushes
	shortTTL    = 8 * time.Second          // of the entries of the cache "hot"; reads of its rows by their age
)

// settled is the phase of the last look.
const settled = "settled"

// rules are the promises. Answers of GetMany do not say where they come from (stalecheck.None): they may be as old as L1 may be.
func rules() []stalecheck.Rule {
	lost := make(map[string]bool) // phases
	for i := range faults {
		lost[faults[i].name] = faults[i].lost
	}
	local := func(r *stalecheck.Read) bool { return r.Layer == stalecheck.L1 || r.Layer == stalecheck.None }
	return []stalecheck.Rule{
		{Name: "P1 from a node", Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer == stalecheck.L2 }},
		{Name: "P1 from a load", Covers: func(r *stalecheck.Read, phase string) bool { return r.Layer == stalecheck.Source && !lost[phase] }},
		// While its owner does not answer, nobody can tell that a load which has begun is too old for who joins it; it is as old as a load can be.
		{Name: "P1 from a load, node lost", Bound: client.DefaultLoadTimeout, Covers: func(r *stalecheck.Read, phase string) bool { return r.Layer == stalecheck.Source && lost[phase] }},
		{Name: "P2 own writes", Since: stalecheck.OwnConfirmed},
		{Name: "P3 L1, pushed", Bound: pushSilence, Covers: func(r *stalecheck.Read, _ string) bool { return local(r) && r.Process() != blind }},
		{Name: "P3 L1, blind", Bound: blindTTL, Covers: func(r *stalecheck.Read, _ string) bool { return local(r) && r.Process() == blind }},
		{Name: "TTL, of writes nobody told of too", Since: stalecheck.Committed, Bound: shortTTL,
			Covers: func(r *stalecheck.Read, _ string) bool { return strings.HasPrefix(r.Key, hotName+":") }},
		{Name: "the last look: the newest", Since: stalecheck.Committed, Covers: func(_ *stalecheck.Read, phase string) bool { return phase == settled }},
	}
}
