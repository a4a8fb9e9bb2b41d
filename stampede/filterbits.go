// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/cespare/xxhash/v2"
)

// digest is what a filter knows of a key: 64 bits of xxhash. Two keys with the same digest are one to the filter, which adds n/2^64 to the
// share of false positives, and takes no key away: what a digest was added for is found. It is the same in every process and version, since
// feeds and snapshots hold digests, and it must stay so.
type digest uint64

func digestOf(key string) digest { return digest(xxhash.Sum64String(key)) }

// filterBits is one Bloom filter of digests, cut into stripes that each have a lock: bloom/v3 is not safe for concurrent use. Bits are only ever
// set. A stripe is also what a snapshot moves at a time.
//
// It takes n*ln(1/p)/(ln 2)^2 bits (B. Bloom, Space/time trade-offs in hash coding with allowable errors, 1970; for the best number of hashes),
// rounded up to whole words a stripe. Keys spread over the stripes by the first bits of their digests: at 1,024 keys and more a stripe the
// spread costs less than a fiftieth of p.
type filterBits struct {
	capacity int     // the number of keys that it was made for
	p        float64 // the share of false positives that it has then
	shift    uint    // what takes a digest to its stripe
	stripes  []filterStripe
}

type filterStripe struct {
	mu   sync.RWMutex
	set  *bloom.BloomFilter
	keys int      // keys that set a bit: those that were not taken for one that was there
	_    [64]byte // no two stripes' locks in one line of the processor's cache
}

const (
	stripeKeys = 1 << 16 // of a stripe, at most, as long as there are fewer than maxStripes
	minStripes = 16
	maxStripes = 1 << 12
)

// stripesFor is how many stripes n keys get: a power of two.
func stripesFor(n int) int {
	if n < minStripes*1024 {
		return 1
	}
	return min(max(minStripes, 1<<bits.Len(uint(n/stripeKeys))), maxStripes)
}

func newFilterBits(n int, p float64) *filterBits {
	stripes := stripesFor(n)
	b := &filterBits{capacity: n, p: p, shift: uint(64 - bits.Len(uint(stripes-1))), stripes: make([]filterStripe, stripes)}
	for i := range b.stripes {
		b.stripes[i].set = bloom.NewWithEstimates(uint((n+stripes-1)/stripes), p)
	}
	return b
}

func (b *filterBits) stripe(d digest) *filterStripe { return &b.stripes[uint64(d)>>b.shift] } // a shift by 64 is 0

func (d digest) bytes() (data [8]byte) {
	binary.LittleEndian.PutUint64(data[:], uint64(d))
	return data
}

func (b *filterBits) add(d digest) {
	data, s := d.bytes(), b.stripe(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.set.TestOrAdd(data[:]) {
		s.keys++
	}
}

func (b *filterBits) has(d digest) bool {
	data, s := d.bytes(), b.stripe(d)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.set.Test(data[:])
}

// keys estimates how many keys are in it. It is too low by those that were taken for others: by less than a hundredth as long as there are no
// more than n and p is a hundredth.
func (b *filterBits) keys() (n int) {
	for i := range b.stripes {
		s := &b.stripes[i]
		s.mu.RLock()
		n += s.keys
		s.mu.RUnlock()
	}
	return n
}

// size is the memory that the bits take.
func (b *filterBits) size() (n int64) {
	for i := range b.stripes {
		n += int64(len(b.stripes[i].set.BitSet().Words()) * 8)
	}
	return n
}

// write returns one stripe as bytes: how many keys it counted, then the set as bloom/v3 writes it.
func (b *filterBits) write(i int) ([]byte, error) {
	s := &b.stripes[i]
	s.mu.RLock()
	defer s.mu.RUnlock()
	var buf bytes.Buffer
	buf.Grow(8 + 24 + 8*len(s.set.BitSet().Words()))
	buf.Write(binary.BigEndian.AppendUint64(nil, uint64(s.keys)))
	if _, err := s.set.WriteTo(&buf); err != nil {
		return nil, fmt.Errorf("stampede: writing a stripe of a filter: %w", err)
	}
	return buf.Bytes(), nil
}

// read replaces one stripe, of which nothing is in use yet, by what write made of another filter's.
func (b *filterBits) read(i int, data []byte) error {
	s, set := &b.stripes[i], new(bloom.BloomFilter)
	if want := 8 + 24 + 8*len(s.set.BitSet().Words()); len(data) != want { // before its own words about its length are believed
		return fmt.Errorf("stampede: stripe %d of a filter's snapshot has %d bytes, want %d", i, len(data), want)
	}
	if _, err := set.ReadFrom(bytes.NewReader(data[8:])); err != nil {
		return fmt.Errorf("stampede: stripe %d of a filter's snapshot: %w", i, err)
	}
	if set.Cap() != s.set.Cap() || set.K() != s.set.K() || set.BitSet().Len() != s.set.BitSet().Len() {
		return fmt.Errorf("stampede: stripe %d of a filter's snapshot has %d bits and %d hashes, want %d and %d", i, set.Cap(), set.K(), s.set.Cap(), s.set.K())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set, s.keys = set, int(binary.BigEndian.Uint64(data)&(1<<40-1))
	return nil
}

// likely is the share of false positives that so many keys make likely: (1 - e^(-kn/m))^k.
func (b *filterBits) likely() float64 {
	set := b.stripes[0].set
	m, k := float64(set.Cap())*float64(len(b.stripes)), float64(set.K())
	return math.Pow(1-math.Exp(-k*float64(b.keys())/m), k)
}
