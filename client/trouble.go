// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"sync/atomic"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// trouble is what the keys of one node in one call (GetMany, Warm) know of each other: that the node did not answer a question about one of them.
//
// An MGET is not always all: an entry whose tags may have been invalidated, or whose payload lies apart, takes one question more. Without this:
//
//  1. the node sends the entries of 512 keys, and hangs (or takes reads only: CLIENT PAUSE WRITE, as in a failover)
//  2. for each of them it is asked once more, and each waits for a whole timeout: 25 s at 50 ms, and that for every 512 keys
//
// So the first that gets no answer speaks for the rest. What they have without a question they still use. A nil *trouble knows nothing.
type trouble struct{ first atomic.Pointer[error] }

// met is what the first one that got no answer met; nil: all were answered.
func (t *trouble) met() error {
	if t == nil {
		return nil
	}
	if err := t.first.Load(); err != nil {
		return *err
	}
	return nil
}

// note takes in what a question came to. The rule is that of slot.fails: our own queue for the node may have been too long for one and not for the next,
// unless the node answers nobody.
func (t *trouble) note(n *redisnode.Node, err error) {
	if t != nil && redisnode.IsTrouble(err) && (!redisnode.IsPoolTimeout(err) || n.Ailing()) {
		t.first.CompareAndSwap(nil, &err)
	}
}
