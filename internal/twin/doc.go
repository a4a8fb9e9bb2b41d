// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package twin has small twins of the parts that keep copies fresh, for explorations: the scripts on a node, the
// server's table of tracked keys, a process's copy with its tickets, the outbox, the schedule of second deletes and the replay log.
//
// A twin makes the same decisions as what it stands for, for one key only, in a value that can be copied and compared,
// so that an exploration can hold millions of them. Time is left out, or is a number in the hands of the caller. Each
// is checked against the real thing on random steps: a twin that decides otherwise is a test that fails. (Of the scripts
// by the tests of package invalidation, of all else by those here.)
package twin
