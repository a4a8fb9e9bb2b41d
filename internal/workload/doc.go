// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package workload is what tests, examples and benchmarks put around a cache: the
// requests that come in, the database behind, and the latencies that come out.
//
//   - [Zipf] draws keys with the skew of real traffic, the same sequence for the
//     same seed.
//   - [Database] stands in for the database. It counts everything that the cache
//     is supposed to save, and it can be slow, fail, or hang. Other processes
//     query it through [Database.Serve] and [Remote].
//   - [Latencies] is a histogram from which percentiles are read.
package workload
