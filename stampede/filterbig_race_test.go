// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build race

package stampede

// bigFilter is less than without the race detector, under which ten millions take minutes.
const bigFilter = 1_000_000
