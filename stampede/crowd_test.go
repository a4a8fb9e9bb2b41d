// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build !race

package stampede_test

// crowd is how many callers a crowded test starts.
const crowd = 10_000
