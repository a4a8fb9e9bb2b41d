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

// unreached is the class of reads during which this process's commands to a node have failed, or were not sent since it owes the node an invalidation.
const unreached = 1

// settled is the phase of the last look.
const settled = "settled"

// rules are the promises. Answers of GetMany do not say where they come from (stalecheck.None): they may be as old as L1 may be.
func rules() []stalecheck.Rule {
	local := func(r *stalecheck.Read) bool { return r.Layer == stalecheck.L1 || r.Layer == stalecheck.None }
	return []stalecheck.Rule{
		{Name: "P1 from a node", Short: "P1 node", Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer == stalecheck.L2 }},
		{Name: "P1 from a load", Short: "P1 load", Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer == stalecheck.Source && r.Class != unreached }},
		// A process that gets no answer from the owner cannot tell that a load which has begun is too old for who joins it now; it may be as old as a load can be.
		{Name: "P1 from a load, node lost", Short: "P1 lost", Bound: client.DefaultLoadTimeout, Covers: func(r *stalecheck.Read, _ string) bool { return r.Layer == stalecheck.Source && r.Class == unreached }},
		{Name: "P2 own writes", Short: "P2", Since: stalecheck.OwnConfirmed},
		{Name: "P3 L1, pushed", Short: "P3 push", Bound: pushSilence, Covers: func(r *stalecheck.Read, _ string) bool { return local(r) && r.Process() != blind }},
		{Name: "P3 L1, blind", Short: "P3 blind", Bound: blindTTL, Covers: func(r *stalecheck.Read, _ string) bool { return local(r) && r.Process() == blind }},
		{Name: "TTL, of writes nobody told of too", Short: "TTL", Since: stalecheck.Committed, Bound: shortTTL,
			Covers: func(r *stalecheck.Read, _ string) bool { return strings.HasPrefix(r.Key, hotName+":") }},
		{Name: "the last look: the newest", Short: "last", Since: stalecheck.Committed, Covers: func(_ *stalecheck.Read, phase string) bool { return phase == settled }},
	}
}
