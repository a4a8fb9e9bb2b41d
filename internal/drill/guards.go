// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"math/rand/v2"
)

// The guards that the tests break on purpose, to see that a drill then fails.
const (
	guardInvalidate = "invalidate" // writers only say that they have invalidated
	guardCap        = "cap"        // each process takes ten times its share of the database
	guardLoad       = "load"       // one load in a hundred fails
)

var errGuard = errors.New("drill: a guard is broken")

// badly makes a loader fail now and then.
func badly[V any](load func(context.Context, string) (V, error)) func(context.Context, string) (V, error) {
	return func(ctx context.Context, id string) (V, error) {
		if rand.IntN(100) == 0 {
			var none V
			return none, errGuard
		}
		return load(ctx, id)
	}
}
