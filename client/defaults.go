// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"time"
)

// The defaults that a zero in a configuration stands for, and the fixed bounds.
const (
	DefaultOperationTimeout = 50 * time.Millisecond
	DefaultMaxLoads         = 64
	DefaultLoadQueue        = 1024
	DefaultLoadQueueTimeout = time.Second
	DefaultReplicaMaxLag    = 10 * time.Second

	DefaultOutboxSize        = 10_000
	DefaultSecondDeleteQueue = 100_000

	DefaultSoftShare       = 0.8 // SoftTTL as a share of TTL
	DefaultJitter          = 0.1
	DefaultNegativeTTL     = 30 * time.Second
	DefaultNegativeRate    = 50.0
	DefaultLoadTimeout     = 3 * time.Second
	DefaultErrorBackoff    = time.Second
	DefaultLeaseTTL        = 5 * time.Second
	DefaultMaxValueBytes   = 1 << 20
	DefaultCompressAbove   = 1 << 10
	DefaultLargeValueBytes = 64 << 10
	DefaultL1TTL           = time.Minute
	DefaultL1BlindTTL      = 2 * time.Second
	DefaultL1MaxBytes      = 64 << 20
	DefaultHotRate         = 100.0
	DefaultHotCopyRate     = 2000.0
	DefaultBeta            = 1.0

	// MaxTTL is the longest time to live: ten years. It keeps every sum of a clock and a TTL far from an overflow.
	MaxTTL = 10 * 365 * 24 * time.Hour

	maxValueBytes  = 512 << 20        // what a server takes as one string, by default
	minL1Bytes     = 4 << 10          // room for a few entries
	minLeaseMargin = time.Second      // a lease outlives the load timeout by at least this
	markTTL        = 10 * time.Second // how long an invalidation's mark is kept
	// maxSecondDelete bounds what Close has to wait for.
	maxSecondDelete = time.Minute
	noStoreTTL      = time.Second // how long "do not wait, this value cannot be stored" is kept
)

// orDefaultDuration and its siblings are the one rule for optional fields: zero is the default, negative is an error. A time below a millisecond is
// one whose unit was forgotten.
func orDefaultDuration(field string, d *time.Duration, def time.Duration) error {
	switch {
	case *d == 0:
		*d = def
	case *d < time.Millisecond:
		return &ConfigError{field, *d, fmt.Sprintf("must be 0 (meaning %v) or at least 1ms (a number without a unit is nanoseconds)", def)}
	case *d > MaxTTL:
		return &ConfigError{field, *d, fmt.Sprintf("must be 0 (meaning %v) or at most %v", def, MaxTTL)}
	}
	return nil
}

func orDefaultInt(field string, n *int, def int) error {
	if *n < 0 {
		return &ConfigError{field, *n, fmt.Sprintf("must not be negative (0 means %d)", def)}
	}
	if *n == 0 {
		*n = def
	}
	return nil
}

func orDefaultFloat(field string, f *float64, def float64) error {
	if !(*f >= 0 && *f <= 1e9) { // also catches NaN and Inf
		return &ConfigError{field, *f, fmt.Sprintf("must be from 0 (meaning %v) to 1e9", def)}
	}
	if *f == 0 {
		*f = def
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
