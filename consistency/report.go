// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"strings"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/stalecheck"
)

// summary says what the run has done. The layers add up to the reads.
func summary(r *stalecheck.Report, unanswered int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d writes (%d unconfirmed), %d invalidations (%d failed: their nodes were not reached)\n", r.Writes, r.Unconfirmed, r.Invalidations, r.Failed)
	fmt.Fprintf(&b, "%d reads: %d L1, %d L2, %d source, %d of unknown layer (judged as L1); %d wrong (values nobody wrote, or another key's)\n",
		r.Reads, r.Layers[stalecheck.L1], r.Layers[stalecheck.L2], r.Layers[stalecheck.Source], r.Layers[stalecheck.None], r.Wrong)
	if unanswered > 0 {
		fmt.Fprintf(&b, "%d reads got no answer: the machine was too busy for their load\n", unanswered)
	}
	return b.String()
}

// legend says what the promises are, and the columns.
func legend() string {
	return fmt.Sprintf(`P1    no answer of a node or of a load is older than an invalidation that had returned. "node lost": while this process could not reach the key's
      node, an answer of a load may be older by %v at most, which is the longest load
P2    a process reads its own writes
P3    another process's copy in L1 outlives an invalidation by %v at most where its node pushes changes, by %v where it is "blind": no pushes
TTL   an answer of the cache "hot" is older than the newest row by %v at most, even where nobody invalidates
last  when all is healed and the failed invalidations are through, every process reads the newest row of every key

near: reads that began within a second of a write of their key: a stale copy would show in those. stale: the read began after an invalidation of
what it saw had returned nil (of TTL and last: after a newer version was committed); then how many by more than 1 ms, and so on. A failed
invalidation counts from when the process that owed it owed nothing any more. broken: stale by more than is allowed. nines: of answers that were
not stale at all / that kept the promise; the lower end of a one-sided 95 %% interval, the reads taken as independent.
`, client.DefaultLoadTimeout, pushSilence, blindTTL, shortTTL)
}
