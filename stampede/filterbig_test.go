// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build !race

package stampede

// bigFilter is the number of keys that the filter is measured with.
const bigFilter = 10_000_000
