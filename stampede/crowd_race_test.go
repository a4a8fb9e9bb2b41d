// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build race

package stampede_test

// crowd is smaller here: the race detector allows 8,128 goroutines at once.
const crowd = 5_000
