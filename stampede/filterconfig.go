// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	minRebuildEvery  = time.Second
	maxExpectedKeys  = 1 << 32
	minFalsePositive = 1e-9
	maxFalsePositive = 0.5
)

// FilterConfig configures a [Filter]. ExpectedKeys must be given; every other zero means the default that its field names.
type FilterConfig struct {
	// ExpectedKeys is how many keys there are, or will be soon: 1 to 2^32. The filter takes ExpectedKeys*ln(1/FalsePositives)/(ln 2)^2 bits: 1.2 MB for a million keys at a
	// hundredth; while it is rebuilt, twice that. Where there are more keys the next build takes room for them and a quarter more, and it comes at once when there are one and a half times
	// as many.
	ExpectedKeys int

	// FalsePositives is the share of absent keys that the filter takes for known ones when it holds ExpectedKeys; 0 means 0.01; from 1e-9 to 0.5.
	FalsePositives float64

	// Keys gives all known keys to yield, in any order; more than once does no harm. It stops when yield returns false, and returns an error if it could not give
	// them all. It must see every row that was committed before it was called: ask the database's primary, not a replica that lags. It runs behind the
	// readers' backs, one call at a time, and its context ends with Run. nil: no filter is built; the additions of this process are told all the same.
	//
	// One that ends early without an error makes every row that it left out absent. So a scan that gives no key where there were some, or where a row was loaded (Found) less than a minute ago, is a build that
	// failed, until there is a Forget; and one that gives fewer than half of the keys of the build before is one until another scan gives as many, within an eighth. Another process's build is weighed in the same way.
	Keys func(ctx context.Context, yield func(key string) bool) error

	// RebuildEvery is how old a build may get, counted from when its scan began: by then a new one begins beside it, which forgets deleted rows and learns of rows that nobody added. A random tenth is taken
	// off. A filter of twice that age (its builds fail) is not consulted. 0 means 1 h; at least 1 s.
	RebuildEvery time.Duration

	// Feed tells other processes of additions, and this one of theirs. nil: there is no other process that adds rows.
	Feed FilterFeed
	// Store keeps what one process has built for the others. nil: each builds its own. Only with a Feed.
	Store FilterStore

	// Tell is called by Run when the filter begins to be consulted or is not any more, and when why it is not, or why its last build failed, has changed: FilterStats.Complete and Why. At
	// once, but not within 10 s of the call before, or a minute where only why has changed; what lasts is told in the end. That it is not consulted before its first build has ended is not
	// told. It must return quickly. nil: nobody wants to know.
	Tell func(consulted bool, why string)

	// Draw gives numbers in [0, 1), as rand.Float64. It must be given.
	Draw func() float64
}

func (c FilterConfig) withDefaults() (FilterConfig, error) {
	if c.FalsePositives == 0 {
		c.FalsePositives = 0.01
	}
	if c.RebuildEvery == 0 {
		c.RebuildEvery = time.Hour
	}
	switch {
	case c.ExpectedKeys < 1 || c.ExpectedKeys > maxExpectedKeys:
		return c, fmt.Errorf("stampede: ExpectedKeys is %d: must be from 1 to %d", c.ExpectedKeys, maxExpectedKeys)
	case !(c.FalsePositives >= minFalsePositive && c.FalsePositives <= maxFalsePositive): // also catches NaN
		return c, fmt.Errorf("stampede: FalsePositives is %v: must be 0 (meaning 0.01) or from %v to %v", c.FalsePositives, minFalsePositive, maxFalsePositive)
	case c.RebuildEvery < minRebuildEvery:
		return c, fmt.Errorf("stampede: RebuildEvery is %v: must be 0 (meaning 1h) or at least %v", c.RebuildEvery, minRebuildEvery)
	case c.Keys == nil && c.Feed == nil:
		return c, errors.New("stampede: Keys is nil: must be given where Feed is nil")
	case c.Store != nil && c.Feed == nil:
		return c, errors.New("stampede: Feed is nil: must be given where Store is")
	case c.Draw == nil:
		return c, errors.New("stampede: Draw is nil: must be given")
	}
	return c, nil
}
