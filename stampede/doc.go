// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package stampede keeps a crowd of readers from falling on the database at
// once: one load per key in a process, one per key across processes, and never
// more loads at a time than the database is meant to bear.
//
// A miss passes four doors, each usable alone:
//
//   - [Flight] lets one caller go on for a key while the others wait for what
//     it brings. Whoever loses patience leaves with the error of its own
//     context and disturbs nobody.
//   - [Limiter] caps how many loads run at once, with a bounded queue. The cap may be a
//     fleet's share, and move with how long the loads take ([Gauge]).
//   - [Fetch], the lease loop, lets one process load while the others watch for
//     the result. It follows one rule: take a lease on the place that will hold
//     the value, read the source, then fill; the fill is refused unless the
//     lease is still there. An invalidation removes the lease, so a value that
//     was read before it can never be stored after it.
//   - [Call] runs the user's loader so that a panic, a Goexit or a hang in it
//     costs one error and no more.
//
// Before the doors stands the [Filter], a Bloom filter of all known keys, which turns away keys that are certainly
// absent, and behind them [Absences], which keeps a flood of absent keys from filling the nodes with what was not found.
//
// Beside the doors stand three formulas that spread load over time: [Jitter]
// shortens lifetimes so that entries made together do not die together,
// [Early] elects a reader to refresh an entry shortly before it expires, and
// [Backoff] says how long to leave alone what has failed. And [Breaker] keeps
// loads away from a source that fails, and leads back to it slowly.
//
// The package knows nothing of Redis. What it needs of a node is the interface
// [Shelf], which the caller implements.
//
// # Who waits for whom
//
// A loader may read other keys through the same flight and limiter: it keeps
// using the place that it has (see [Place.With]), and asking for a key that it
// is itself loading is [ErrRecursiveLoad]. Two loads that were started
// independently and then wait for each other's key are not recognised; the load
// timeout ends them.
package stampede
