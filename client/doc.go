// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package client puts a distributed cache in front of a service's database. It runs in the service's process and talks to plain Redis (or
// Valkey) nodes; nothing is installed on them.
//
// A [Client] knows the nodes; [NewCache] makes a [Cache] for one kind of value, with the function that loads it:
//
//	cl, err := client.New(ctx, client.Config{Nodes: []ring.Node{{ID: "cache-a", Addr: "10.0.0.1:6379"}}})
//	products, err := client.NewCache(cl, client.CacheConfig[Product]{
//		Name: "product", TTL: 10 * time.Minute,
//		Load: func(ctx context.Context, id string) (Product, error) { return db.Product(ctx, id) },
//	})
//	p, err := products.Get(ctx, "4411")
//	err = products.Write(ctx, "4411", func(ctx context.Context) error { return db.SetPrice(ctx, "4411", 999) })
//
// # What happens on Get
//
// Each stop only goes forward; what each costs is in the README.
//
//  1. The read is counted: a key that this process reads often enough is hot.
//  2. L1, this process's own copies of hot keys. The node pushes every change of them; where it cannot, they are at most L1BlindTTL old.
//  3. The filter of all known keys, where there is one (CacheConfig.Filter), turns away what is certainly absent.
//  4. The ring says which node owns the key.
//  5. The owner is asked: one round trip. A fresh entry is the answer. One past its soft TTL is the answer too, and one reader of the whole
//     fleet refreshes it behind everybody's back. "There is no such row" is an entry like any other.
//  6. A miss. One caller of this process goes on, the others wait for its result. It takes a place among the loads that may run at once, then the
//     key's lease on the owner. If another process holds the lease, it waits for that one's value.
//  7. The loader reads the source, and the value is stored, unless the lease is gone: then an invalidation has come by, the value may be
//     old, and it is only returned.
//
// A node that does not answer is a miss for its keys, at whatever stop: the loader is asked, under the cap of Config.MaxLoads, one load a
// key and process, and nothing is stored. Ownership does not change because a node is down.
//
// Where a cache has copies on other nodes (CacheConfig.HotCopies, Copies), stop 5 may ask one of those: for a key that the fleet reads very often, or while the owner does
// not answer. An invalidation voids them before it returns.
//
// A source that does not answer is left alone: a key whose load has failed for a second at first (CacheConfig.ErrorBackoff), all keys of the cache when most loads fail
// (CacheConfig.NoSourceBreaker). Their readers get the error that was met, or, with CacheConfig.StaleIfError, the value that is past its time, marked.
//
// # What it promises
//
//   - Once [Cache.Invalidate] (or Write) has returned nil, no reader gets the old value from a node, and no load that began before it can put it
//     back; nor does who joins such a load get its value. Reads of the same process see the new value; another process's L1 follows within a round
//     trip, within a second where its node has fallen silent, within its L1BlindTTL where nodes cannot push.
//   - No entry is served longer than its TTL after the load that made it began, by the node's clock.
//   - One load a key and miss in the whole fleet while the owner answers; at most one a process while it does not; never more at once than MaxLoads
//     in one process.
//   - A failing node is never a reader's error (but where there is no loader to ask instead, in a cache that is itself the truth), an ended context
//     of one caller never another's, a panic of a loader never the process's.
//
// It does not promise linearizable reads across processes. For a balance that must be exact, read the database.
//
// # Which write
//
//   - [Cache.Write] is the normal one: the database write, then the invalidation, whatever happened. The next reader loads.
//   - [Cache.InvalidateVersion] where loaders read a database replica that may lag: after the write, with the row version that it made. For ten
//     seconds nothing older can be stored. Not for a DELETE: the absence has no version, so it could not be remembered for as long. And versions of a
//     key must never start anew, not even when its row is deleted and made again.
//   - [Cache.WriteThrough] where the next read must not have to load.
//   - [Cache.Set] only where there is no database: the cache is the truth (CacheConfig.Truth). There [Cache.Invalidate] deletes.
//
// After a Write the error may be the database's, a node's, or both: see [NodesOnly].
//
// # Loaders that read through caches
//
// They may, through other keys and other caches; their own key is ErrRecursiveLoad. What they load runs on their own place among the loads, so that
// MaxLoads counts the outermost ones; GetMany then loads one row at a time. LoadTimeout includes what is nested.
//
// # Values
//
// []byte values are copied: each caller has its own. Values of other types are shared, between callers and with L1, and must not be modified; give
// a Clone function where they are.
//
// All types are safe for concurrent use unless they say otherwise.
package client
