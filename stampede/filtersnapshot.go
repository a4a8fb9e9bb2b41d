// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
)

// FilterStore keeps one process's build for the others, for a quick start. What it loses costs a scan. The caller implements it; the methods bound their own time.
type FilterStore interface {
	// Put stores data under a name, for so long. The largest is some 80 KB at a hundredth of false positives, 350 KB at 1e-9; more only for more than 200 million keys.
	Put(ctx context.Context, name string, data []byte, ttl time.Duration) error
	// Get returns it, and for how long it will stay; nil: it is not there.
	Get(ctx context.Context, name string) (data []byte, left time.Duration, err error)
	// Lead asks that this process alone builds, from now on for so long; false: another one does. It may be asked again by who leads, and 0 gives it back. That two lead at the
	// same time costs a scan and does no harm.
	Lead(ctx context.Context, d time.Duration) (bool, error)
}

// FilterNewest is the name under which the description of the newest build is stored.
const FilterNewest = "newest"

// snapshot is the description of a stored build. It holds all rows that were committed before the feed's entry At, and may hold later ones: who takes it over
// reads the feed from there, and for that the entry must still be there, in the same history.
type snapshot struct {
	f   *Filter
	set *filterBits

	Format         int // 1
	ID             string
	History, At    string
	Entry          []byte // the one at At
	Capacity       int
	FalsePositives float64
	Stripes        int
	Took, TTL      time.Duration // of the scan; and for how long the description was stored
}

// newSnapshot marks the place in the feed before a scan begins. Where that fails the build is not stored.
func newSnapshot(ctx context.Context, f *Filter, set *filterBits) *snapshot {
	s := &snapshot{
		f: f, set: set, Format: 1, ID: rand.Text(), Entry: here(), TTL: f.cfg.RebuildEvery,
		Capacity: set.capacity, FalsePositives: set.p, Stripes: len(set.stripes),
	}
	if f.cfg.Store != nil {
		if at, err := f.cfg.Feed.Append(ctx, s.Entry); err == nil {
			s.History, s.At = at.History, at.ID
		}
	}
	return s
}

// save stores the build, the description last, and tells the others. An error is as good as none: they scan.
func (s *snapshot) save(ctx context.Context, took time.Duration) {
	if s.At == "" {
		return
	}
	s.Took = took
	for i := range s.Stripes {
		data, err := s.set.write(i)
		if err == nil {
			err = s.f.cfg.Store.Put(ctx, stripeName(s.ID, i), sealStripe(s.ID, i, data), s.TTL)
		}
		if err != nil {
			return
		}
	}
	data, err := json.Marshal(s)
	if err != nil || s.f.cfg.Store.Put(ctx, FilterNewest, data, s.TTL) != nil {
		return
	}
	if _, err := s.f.cfg.Feed.Append(ctx, append([]byte{entryBuilt}, s.ID...)); err == nil {
		s.f.saves.Add(1)
	}
}

func stripeName(id string, i int) string { return fmt.Sprintf("%s:%d", id, i) }

// sealStripe puts the build's id and the stripe's number before a stripe, and a checksum of all behind it: two builds that were stored at the same time, or a name that
// was used before, are not mixed up.
func sealStripe(id string, i int, data []byte) []byte {
	head := stripeName(id, i)
	sealed := append(make([]byte, 0, len(head)+len(data)+9), byte(len(head)))
	sealed = append(append(sealed, head...), data...)
	return binary.BigEndian.AppendUint64(sealed, xxhash.Sum64(sealed))
}

func openStripe(id string, i int, sealed []byte) ([]byte, error) {
	head := append([]byte{byte(len(stripeName(id, i)))}, stripeName(id, i)...)
	n := len(sealed) - 8
	if n < len(head) || !bytes.HasPrefix(sealed, head) || binary.BigEndian.Uint64(sealed[n:]) != xxhash.Sum64(sealed[:n]) {
		return nil, fmt.Errorf("stampede: stripe %d of build %s is missing, damaged or another's", i, id)
	}
	return sealed[len(head):n], nil
}

var (
	errNoSnapshot  = errors.New("no build is stored that could be used")
	errBadSnapshot = errors.New("another process's build cannot be used")
)

// takeOver makes the newest build that another process has stored this one's.
func (b *filterBuild) takeOver(ctx context.Context) error {
	f := b.f
	s, age, err := b.newest(ctx)
	if err != nil {
		return err
	}
	set := newFilterBits(s.Capacity, s.FalsePositives)
	for i := range s.Stripes {
		sealed, _, err := f.cfg.Store.Get(ctx, stripeName(s.ID, i))
		if err != nil {
			return err
		}
		data, err := openStripe(s.ID, i, sealed)
		if err == nil {
			err = set.read(i, data)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBadSnapshot, err)
		}
	}
	known := f.knows()
	if !f.publish(set, b.era) {
		return errVoid
	}
	defer f.drop(set)
	if err := s.catchUp(ctx, f, set); err != nil {
		return err
	}
	found := set.keys()
	if err := f.weigh(s.ID, found, known); err != nil {
		return fmt.Errorf("%w: %w", errBadSnapshot, err)
	}
	if !f.install(set, b.era, time.Now().Add(-age), s.ID, found) {
		return errVoid
	}
	f.loads.Add(1)
	return nil
}

// newest finds the newest stored build, and when its scan began. It must be another than the present one, large enough, and of the history that is followed.
func (b *filterBuild) newest(ctx context.Context) (*snapshot, time.Duration, error) {
	f, s := b.f, new(snapshot)
	data, left, err := f.cfg.Store.Get(ctx, FilterNewest)
	if err != nil {
		return nil, 0, err
	}
	if data == nil || json.Unmarshal(data, s) != nil {
		return nil, 0, errNoSnapshot
	}
	age := max(0, s.TTL-left) + s.Took
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case s.Format != 1, s.ID == "", s.ID == f.basis, s.History != f.at.History, age >= f.cfg.RebuildEvery,
		s.Capacity < f.capacity, s.Capacity > 16*f.capacity, // one that much larger is none that was meant for us
		!(s.FalsePositives >= minFalsePositive && s.FalsePositives <= f.cfg.FalsePositives), s.Stripes != stripesFor(s.Capacity):
		return nil, 0, errNoSnapshot
	}
	return s, age, nil
}

// catchUp puts into a published set what was added since its scan began. What is added from now on comes by the way of all additions.
func (s *snapshot) catchUp(ctx context.Context, f *Filter, set *filterBits) error {
	at, last := FilterPosition{s.History, s.At}, s.Entry
	for {
		r, err := f.cfg.Feed.Read(ctx, at.ID)
		if err != nil {
			return err
		}
		at, last, err = r.from(at, last, func(entry []byte) error {
			added, _, err := readEntry(entry)
			for _, d := range added {
				set.add(d)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%w: %w", errBadSnapshot, err)
		}
		if !r.More {
			return nil
		}
	}
}
