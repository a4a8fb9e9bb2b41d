// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package localcache keeps the few hottest keys inside the process, so that reading one costs a hash and a look,
// without a lock, instead of a round trip. It is bounded in bytes and in entries, forgets first what nobody has asked for lately (see sieve), and never
// serves an entry past its expiry.
//
// What makes it safe to put in front of a shared cache is the fill ticket. A value that is on its way here can be
// overtaken by the news that it is old:
//
//	reader:  reads the shared cache, gets v1          (the reply is on its way)
//	writer:  writes v2, this process is told: Invalidate
//	reader:  stores v1                                (and serves it until it expires)
//
// So nothing can be stored without a ticket. The reader takes one with Begin before it sends its read; Invalidate
// drops the entry and makes the key's tickets void in one step; Commit with a void ticket is refused. The rule for
// callers is one line: Begin, then read, then Commit (or Cancel), and Invalidate for every change you hear of.
//
// The package starts no goroutine and reads no clock: the time is an argument, and expired entries are dropped when
// they are met.
package localcache
