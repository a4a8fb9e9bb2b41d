// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"time"
)

// FilterConfig configures a cache's Bloom filter of all known keys: a read of a key that is certainly absent is ErrNotFound without a look at node or source. ExpectedKeys and Keys must be given; every other
// zero means the default that its field names.
//
// A filter that is not complete, or not up to date, says nothing, and reads go on as without it; so it costs the source one scan a process, or, where the nodes keep what one has built, one for all. It is up to date
// while this process has read the additions of all others from a node less than 2 s ago (stampede.FilterTrust).
//
// Rows become known to it by Write, WriteThrough and every Invalidate of their keys, by Known, and by the next build. The call adds them before it returns: this process's readers find them at once, others' 2 s
// later at the latest. If the call's error is a *NodeError with Op "filter" the others may miss them until the node that keeps the additions answers again. A row that is inserted by a program that calls none of these
// stays absent until the next build: RebuildEvery and what a scan takes, and never for longer than twice RebuildEvery. So does one whose process died between its commit and the call.
//
// All processes that insert rows must have the filter, or they tell nobody. Deploy it with AnnounceOnly first, everywhere, and then without. Processes of another Schema tell each other, and take over no build
// of each other's. A release that gives rows other keys must have another Schema; rows that the release before it inserts meanwhile become known by the keys that that gives them, so keep the new one on AnnounceOnly until the
// old one is gone, or let the old one call Known with both.
//
// All of a cache's filters read one node (node= in the log line): while it is down none is consulted, and after its restart or failover the table is scanned again.
//
// Look at CacheStats.Filter: Complete says that it is consulted, Why why it is not; Config.Logger hears of both when they change, of what lasts longer than some 10 s. The additions are a stream on one node, the last 250,000 of them, some 10 MB (150 MB if all of them come by Known in bulk). A write adds one
// command there, beside its invalidation; each process reads it twice a second, and so hears of every addition: that node sends some 60 bytes for each, times the number of processes. An ACL user of a
// namespace needs ~~k:namespace/* ~~ks:namespace/* ~~kc:namespace/* ~~kl:namespace/* for it.
type FilterConfig struct {
	// ExpectedKeys is how many keys there are, or will be soon: 1 to 2^32. Memory is ExpectedKeys*ln(1/FalsePositives)/(ln 2)^2 bits: 12 MB for ten millions at a hundredth; twice that during a build; and the nodes keep a build of that size for RebuildEvery. Where there are
	// more, the next build makes room for them; it comes at once when there are one and a half times as many.
	ExpectedKeys int

	// FalsePositives is the share of absent keys that get past the filter when it holds ExpectedKeys; 0 means 0.01; from 1e-9 to 0.5.
	FalsePositives float64

	// Keys gives all keys that the source has to yield, in any order; yield may be called concurrently. It stops when yield returns false, and returns an error if it could not give all of them (sql.Rows.Err,
	// for one). It must see every row that was committed before it was called: a primary, not a replica that lags. One call at a time in a process, and mostly in the fleet; not capped by MaxLoads. Its context ends with Close, or when the
	// build is of no use any more; Close waits for it.
	//
	// It gives the keys as your callers spell them: a row that Load finds under another spelling (upper case, leading zeros) is absent.
	//
	// A Keys that ends early without an error makes every row that it left out absent, for all processes, and the build is kept on the nodes: a restart or a new release takes it over and does not scan.
	// Compare Stats().Filter.Keys with the table. After a mistake, and after a bulk import by another program, call Clear (or Known with the keys), or give the cache another Schema. What is noticed: a scan
	// without keys where this process knows of some, or has loaded a row in the last minute, is a build that failed (a table that was really emptied: Clear); one with fewer than half of the keys of the build before is
	// not used until another scan says the same. The very first scan of an empty table is believed, and logged as a warning.
	Keys func(ctx context.Context, yield func(key string) bool) error

	// RebuildEvery is how old a build gets, counted from the beginning of its scan, before a new one begins beside it; a random tenth is taken off. 0 means 1 h; at least 1 s.
	RebuildEvery time.Duration

	// AnnounceOnly tells others of this process's additions; it builds no filter and asks none: for the first step of a deployment, and for processes that only write. Keys may be nil, and is not called.
	AnnounceOnly bool
}

// checkFilter checks what stampede does not; NewFilter does the rest.
func (c *CacheConfig[V]) checkFilter() error {
	switch {
	case c.Filter == nil:
		return nil
	case c.Truth:
		return &ConfigError{"CacheConfig.Filter", "set", "must be nil in a cache that is itself the truth (Truth): nobody else knows its keys"}
	case c.Filter.Keys == nil && !c.Filter.AnnounceOnly:
		return &ConfigError{"CacheConfig.Filter.Keys", "nil", "must be given (or AnnounceOnly)"}
	}
	return nil
}

func (c *CacheConfig[V]) checkNegatives() error {
	if c.NegativeRate > 0 && c.NegativeRate < 1 {
		return &ConfigError{"CacheConfig.NegativeRate", c.NegativeRate, fmt.Sprintf("must be 0 (meaning %v) or at least 1 (or NoNegative)", DefaultNegativeRate)}
	}
	return orDefaultFloat("CacheConfig.NegativeRate", &c.NegativeRate, DefaultNegativeRate)
}
