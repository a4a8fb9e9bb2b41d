// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bytes"
	"context"
	"hash/maphash"
	"time"
)

// ask is a key that is queued, with a second key beside it ("" for none). What is below callers is final when its batch is done.
type ask struct {
	key, beside string
	since       time.Duration // when its first caller came, on the clock of reads
	callers     int           // that wait for it; final once its batch has left the queue

	value, besideValue []byte // nil: missing
	err                error
}

// batch is what one MGET will bring. Its callers wait for one channel, so that a read costs no channel of its own, nor any other memory that is not its answer.
type batch struct {
	asks []ask // in the order in which they came; none is added once it has left the queue
	done chan struct{}
	rest *batch // what was split off; final when it is done

	sent, over, slow bool // the state of its command; guarded by the mu of reads
	left, answered   bool // it has been ended, though its command goes on; and that was answered at last. Its worker's
}

// read is one caller's place in a batch.
type read struct {
	in *batch
	at int
}

// wait waits until r is done; false: ctx has ended before that.
func (r *read) wait(ctx context.Context) bool {
	for {
		if left := ctx.Done(); left == nil {
			<-r.in.done // a third of what the select costs
		} else {
			select {
			case <-r.in.done:
			case <-left:
				return false
			}
		}
		if !r.follow() {
			return true
		}
	}
}

// follow goes on to what was split off the batch, if that is where r is. For those who hold the mu of reads, or know that the batch is done: of the next one
// they know nothing yet.
func (r *read) follow() (moved bool) {
	if r.at < len(r.in.asks) {
		return false
	}
	r.in, r.at = r.in.rest, r.at-len(r.in.asks)
	return true
}

// answer is what one of its callers gets of a read that is done.
func (r *read) answer() (value, besideValue []byte, err error) {
	a := &r.in.asks[r.at]
	if a.callers > 1 { // each has bytes of its own: a codec may decode in place
		return bytes.Clone(a.value), a.besideValue, a.err
	}
	return a.value, a.besideValue, a.err
}

// split leaves the first n asks in b, which must not be done yet; the others become a batch of their own.
func (b *batch) split(n int) *batch {
	b.rest = &batch{asks: b.asks[n:], done: make(chan struct{})}
	b.asks = b.asks[:n:n]
	return b.rest
}

// end answers all of a batch with an error.
func (b *batch) end(err error) {
	for i := range b.asks {
		b.asks[i].err = err
	}
	close(b.done)
}

// names appends the names of a batch to into: the keys in their order, then the second keys, each once.
func (b *batch) names(into []string) []string {
	for i := range b.asks {
		into = append(into, b.asks[i].key)
	}
	for i := range b.asks {
		if beside := b.asks[i].beside; beside != "" && placeOf(into[len(b.asks):], beside) < 0 {
			into = append(into, beside)
		}
	}
	return into
}

// fill gives the asks of a batch the values of its names.
func (b *batch) fill(names []string, values [][]byte) {
	n := len(b.asks)
	for i := range b.asks {
		a := &b.asks[i]
		a.value = values[i]
		if a.beside != "" {
			a.besideValue = values[n+placeOf(names[n:], a.beside)]
		}
	}
}

// placeOf is where a name is; -1: it is not there. The second keys of a batch are a few: one a cache.
func placeOf(names []string, name string) int {
	for i := range names {
		if names[i] == name {
			return i
		}
	}
	return -1
}

// known says where keys are queued, so that the callers of one share a place. It forgets: of more than it has room for it knows some, and what has left the queue
// gives its place to whatever comes. So nothing is ever taken out, and who looks there compares the key.
type known struct {
	seed maphash.Seed
	rows []knownRow // made when it is first needed
}

const knownRows = 256 // a power of two

type knownRow [4]knownPlace

// knownPlace is a place in the queue: the number of a batch, and of an ask in it.
type knownPlace struct{ batch, at uint32 }

// row is where a key is, if it is known.
func (k *known) row(key string) *knownRow {
	if k.rows == nil {
		k.seed, k.rows = maphash.MakeSeed(), make([]knownRow, knownRows)
	}
	return &k.rows[maphash.String(k.seed, key)%knownRows]
}
