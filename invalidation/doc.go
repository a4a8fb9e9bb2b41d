// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package invalidation holds the server-side half of the cache's protocol, small Lua
// scripts which decide, on the node and in one step, whether a value may be stored; and what a
// process has to remember so that an invalidation happens in spite of nodes that fail.
//
// Every stale cache entry has one shape: a value was read, the world changed, the value was then
// stored. The scripts break that shape with a lease. A reader that missed leaves a token beside
// the data ([Lease]), reads the database, and stores what it read only if that very token is
// still there ([Fill]). Whoever changed the database removes data and token in one step
// ([Invalidate]), so every read that began before is refused. Three names belong to one key:
//
//	data    the entry: a 24-byte or longer header, then the payload
//	lease   "t" and the token of the reader that may fill, or "n": nobody should try for now
//	mark    8 bytes: a row version that is known to exist; fills below it are refused
//
// Versions come on top of the lease. A lease proves that nothing was invalidated since the read
// began; it cannot see that the read went to a database replica which lags behind. The mark that
// an invalidation leaves for some seconds can: a fill whose row version is below it is refused.
// Versions are full uint64 values and travel as 8 big-endian bytes. The scripts compare them
// byte by byte: a Lua number is a double, which confuses 2^53 with 2^53+1, and the operator "<"
// on Lua strings follows the locale that the server was started in.
//
// # What a process remembers
//
// An invalidation that was sent once is not always one that has happened. Three books keep what
// may still be missing. They start no goroutine, send nothing and read no clock: the caller asks
// them what is due at a moment, does it, and reports how it went. Each is bounded, and says so when
// it is full.
//
//	Outbox  it failed: the node was down. It is repeated until an attempt that began after the
//	        last failure is through; until then the process trusts no copy of the key
//	Later   it came too early: the loader reads a database replica, and what that had not heard
//	        of yet was stored after the delete. A second delete comes when it has caught up
//	Replay  it was undone: the primary confirmed it and died before its replica knew. It is
//	        repeated on the new primary, unless every replica is known to have it
//
// What is lost all the same ends with its entry's TTL: a process that dies with its books full takes
// them along.
//
// # Use
//
// The package is a leaf: it knows no driver. It gives the scripts ([Scripts]), builds their calls
// ([Call]: the script, its keys, its arguments) and reads their replies (ParseLease and others).
// Sending them is the caller's business. The builders and parsers are pure functions and safe for
// concurrent use, and so are the books.
//
// The scripts run on Redis 5 and later, on Valkey, and on miniredis, whose Lua has only part of
// the libraries that Redis offers. They use keys of one cache key only, so all three names must
// live on one node; Redis Cluster is not supported.
package invalidation
