// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"strconv"
	"strings"
	"time"
)

// SplitReply is what [Split] answers.
type SplitReply struct {
	Data       []byte     // what lies under Keys.Data, an entry or not; nil when there is nothing
	Generation Generation // in the same moment; zero where the key is of no group, or has none now
	// Noted says that the record is there. Without it (no memory for it, or the server is a replica) what was read must not be copied.
	Noted bool
}

// Split looks at an entry in order to copy it to other nodes, and notes under Keys.Split, in the same step, that copies may be on the first copies nodes of the
// key's walk, the owner counted (at least 1). [Invalidate] answers how far that is, so that an invalidation finds every copy and costs nothing more where there is none.
//
// The record lives for life from this call on. So a copy must be filled under a lease that was granted before, and lease and copy together must end well
// before life does. When copies shrinks, the record covers what was copied under the larger number for as long as that can be there.
func Split(k Keys, copies int, life time.Duration) Call {
	keys := []string{k.Data, k.Split}
	if k.Of.Generation != "" {
		keys = append(keys, k.Of.Generation)
	}
	return Call{Script: splitScript, Keys: keys, Args: []any{int64(copies), millis(life)}}
}

// ParseSplit reads the reply to [Split].
func ParseSplit(reply any) (SplitReply, error) {
	parts, err := list("split", reply, 3)
	if err != nil {
		return SplitReply{}, err
	}
	var r SplitReply
	if r.Data, err = optionalBytes("split", "data", parts[0]); err != nil {
		return SplitReply{}, err
	}
	if parts[1] != nil {
		if r.Generation, err = generation("split", parts[1]); err != nil {
			return SplitReply{}, err
		}
	}
	r.Noted, err = flag("split", "noted", parts[2])
	return r, err
}

// ParseCopies reads a split record: on how many nodes of the key's walk copies may be, the owner counted; 0 for what is no record.
func ParseCopies(record []byte) int {
	k, rest, _ := strings.Cut(string(record), " ")
	bound, until, _ := strings.Cut(rest, " ")
	n, err1 := strconv.ParseUint(k, 10, 31)
	b, err2 := strconv.ParseUint(bound, 10, 31)
	_, err3 := strconv.ParseUint(until, 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return 0
	}
	return int(max(n, b))
}
