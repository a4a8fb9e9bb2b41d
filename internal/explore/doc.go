// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package explore walks over every interleaving of the whole freshness protocol: three client processes, one key, a database with
// a replica that may lag, a cache node with a replica that always lags, and everything that can go wrong between them.
//
// It consists of small parts. A state is a plain value that can be copied and compared; the scripts, the server's tracking
// table, tickets, outbox, second deletes and replay log in it are the twins of package twin, each of which is checked against the real
// one. The order of the steps, which is the client's, is written down here (reader.go, writer.go, worker.go), as are the
// faults (faults.go). The search is breadth first, so what it finds is a shortest way to a bad state.
//
// What a bad state is: when everything is quiet (nothing under way, pushes delivered, lost connections noticed, outbox and replay log through, second
// deletes done) some place would serve a value that is not the newest row. And at any moment: a process that is given something older than
// what it has written, and a node that serves something older than what an invalidation which had returned has announced.
//
// One model with everything at once would be too large. A scene says which of it takes part and how often. Every guard of the protocol can be
// taken away: then there must be a bad state, or the exploration would not be worth its time.
//
// Left out: several keys, tags, waiting for another's lease, maps that change, and time but for its order. A process that dies with an invalidation pending is beyond what the protocol promises.
package explore
