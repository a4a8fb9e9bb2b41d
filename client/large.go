// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// A large value (its payload is above CacheConfig.LargeValueBytes) does not lie in its entry. The entry is a stub: the header, with the id and the
// length of a body. The body is another key's value on the same node, `~b:<data key>`; it begins with the id. Stubs go the way of small values,
// share MGETs with them, and are all that leases, marks and versions know; bodies go over a few connections of their own
// (redisnode.Node.GetBody), so that nobody's small read waits for a large one.
//
// Why a reader never gets a wrong body: the id is random and drawn for one value, the body is written once under it, and the stub is the only
// thing that names it. What an invalidation must make disappear is therefore the stub alone, and that goes by the same scripts as ever; a body
// without a stub is memory, which the invalidation frees in the same step.
//
// To store one, the body is staged under a name that is used once, and the script that stores the stub moves it to its place (body.lua has the
// interleaving that needs this); a refused or lost one ends with stagedTTL at the latest.
//
// A stub whose body is not there (evicted, or not this one's any more) is unusable bytes: a miss that may replace them. In a cache that is
// itself the truth the value is then missing, as an evicted one is.

const (
	// stagedTTL is how long a staged body waits for its script, beyond the time in which that must have come.
	stagedTTL = 10 * time.Second
	// rereads bounds how often a read follows a stub that was replaced while it asked for the body.
	rereads = 8
)

// stagedName is the name under which a body waits, beside that of its place. It cannot be any other key's: a data key ends with ":v" and digits.
func stagedName(body string, id bodyID) string {
	return body + "~" + hex.EncodeToString(id[:])
}

// setApart makes the entry a stub for a payload.
func (e *entry[V]) setApart(payload []byte) {
	_, _ = rand.Read(e.apart.id[:]) // never fails
	e.apart.size = uint32(len(payload))
	e.body = append(append(make([]byte, 0, len(e.apart.id)+len(payload)), e.apart.id[:]...), payload...)
	e.wire = appendEnvelope(nil, e.header, nil)
}

// stage brings the body of an entry to the node; nothing to do for one that has none.
func (s *slot[V]) stage(ctx context.Context, e *entry[V]) error {
	if e.body == nil {
		return nil
	}
	s.names.Staged = stagedName(s.names.Body, e.apart.id)
	return s.node.PutBody(ctx, s.names.Staged, e.body, s.c.client.cfg.OperationTimeout+stagedTTL)
}

// stageAll stages the bodies of one node's slots, as many at once as there are connections for them. The error is that the node did not
// answer in time, for one of them at least. What else failed will be told by the script that does not find the body.
func stageAll[V any](ctx context.Context, slots []*slot[V], entry func(*slot[V]) *entry[V]) error {
	var mu sync.Mutex
	var late error
	several(len(slots), func(i int) bool { return entry(slots[i]).body != nil }, func(i int) {
		err := slots[i].stage(ctx, entry(slots[i]))
		if redisnode.IsTimeout(err) || (err != nil && ctx.Err() != nil) {
			mu.Lock()
			defer mu.Unlock()
			late = err
		}
	})
	return late
}

// several calls f for 0 to n-1, one after the other; but those that have a body to move meanwhile, as many at once as there are connections for
// that. It returns when all have returned.
func several(n int, slow func(i int) bool, f func(i int)) {
	var bodies crew
	defer bodies.Wait()
	turns := make(chan struct{}, redisnode.LargeConns)
	for i := range n {
		if !slow(i) {
			f(i)
			continue
		}
		turns <- struct{}{}
		bodies.Go(func() {
			defer func() { <-turns }()
			f(i)
		})
	}
}

// isStubReply is isStub of the entry in the reply to a lease request.
func isStubReply(reply any) bool {
	parts, ok := reply.([]any)
	if !ok || len(parts) < 2 {
		return false
	}
	data, ok := parts[1].(string)
	return ok && isStub(data)
}

// whole fetches the payload of an entry that judge found good but for that, and decodes it. f is judge's word on the entry; unusable comes back
// if there is no such body.
func (s *slot[V]) whole(ctx context.Context, e *entry[V], f freshness) (freshness, error) {
	if e.apart == (apart{}) || (f != fresh && f != softened) {
		return f, nil
	}
	if e.apart.id == s.gone {
		return unusable, nil
	}
	if err := s.trouble.met(); err != nil {
		return absent, err
	}
	s.nameAll()
	body, err := s.node.GetBody(ctx, s.names.Body, e.apart.id, int(e.apart.size))
	if err != nil {
		s.trouble.note(s.node, err)
		return absent, err
	}
	if body.Bytes == nil {
		s.c.counters.bodiesGone.Add(1)
		s.gone = e.apart.id
		return unusable, nil
	}
	payload := body.Bytes
	if body.Shared && (s.c.cfg.Codec.ID() >= FirstUserCodec || s.c.whole != nil) && e.packed == (packing{}) {
		payload = append([]byte(nil), payload...) // a codec of the user's may decode in place
	}
	if !s.c.open(e, payload) {
		return unusable, nil
	}
	return f, nil
}
