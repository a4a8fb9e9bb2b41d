// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// ErrNoRow means that no row has that id; ErrRowExists, that one has already.
var (
	ErrNoRow     = errors.New("workload: no such row")
	ErrRowExists = errors.New("workload: row exists")
)

// Row is a row of the database.
type Row struct {
	ID         string
	Name       string
	PriceCents int64
	// Version is 1 at first and grows with every change of the row. It goes on
	// growing when a deleted row is inserted again.
	Version uint64
}

// DatabaseConfig says what the database holds and how fast it is.
type DatabaseConfig struct {
	// Rows is how many rows there are at the start, with the ids "0" to Rows-1.
	// They take no memory until they are changed.
	Rows int
	// Latency is how long every statement takes, plus a share from 0 to Jitter
	// that is drawn evenly. Zero means no wait at all.
	Latency, Jitter time.Duration
	// MaxConcurrent is how many statements run at once; the rest wait in line, as
	// for a connection of a pool. Zero means no bound.
	MaxConcurrent int
	// Seed makes the jitter repeatable.
	Seed uint64
}

func (c DatabaseConfig) validate() error {
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"Rows", int64(c.Rows)}, {"Latency", int64(c.Latency)}, {"Jitter", int64(c.Jitter)}, {"MaxConcurrent", int64(c.MaxConcurrent)},
	} {
		if field.value < 0 {
			return fmt.Errorf("workload: %s is %d: must not be negative", field.name, field.value)
		}
	}
	return nil
}

// Database stands in for the database behind a cache: it holds rows in memory,
// takes its time, breaks on request, and counts. It is safe for concurrent use.
//
// A statement reads its rows when it begins and returns them a latency later.
// That is the worst case for a cache: whatever changes meanwhile, the reader
// brings home the old row. A change takes effect when its statement returns; one
// that ends in an error, its context's included, has changed nothing.
//
// Waiting uses real timers, so in a testing/synctest bubble it takes the bubble's
// time; create the database in the bubble.
type Database struct {
	cfg   DatabaseConfig
	slots chan struct{} // nil without a bound

	mu      sync.Mutex
	rand    *rand.Rand
	changed map[string]record // what is no longer as it was at the start
	reads   map[string]uint64
	counts  Counts
	faults  faults
}

// record is a row that was changed, inserted or deleted.
type record struct {
	row     Row // of a deleted row: its last version
	deleted bool
}

// NewDatabase returns a database with the configured rows.
func NewDatabase(cfg DatabaseConfig) (*Database, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Database{
		cfg:     cfg,
		rand:    rand.New(rand.NewPCG(cfg.Seed, 0)),
		changed: make(map[string]record),
		reads:   make(map[string]uint64),
	}
	if cfg.MaxConcurrent > 0 {
		d.slots = make(chan struct{}, cfg.MaxConcurrent)
	}
	return d, nil
}

// Query reads one row. The error is [ErrNoRow], the context's, or an injected one.
func (d *Database) Query(ctx context.Context, id string) (row Row, err error) {
	err = d.run(ctx, statement{ids: []string{id}, atStart: func() error {
		var ok bool
		if row, ok = d.find(id); !ok {
			return ErrNoRow
		}
		return nil
	}})
	if err != nil {
		return Row{}, err
	}
	return row, nil
}

// QueryMany reads many rows in one statement, and so in one latency. Ids without
// a row are absent from the result; they are no error.
func (d *Database) QueryMany(ctx context.Context, ids []string) (map[string]Row, error) {
	rows := make(map[string]Row, len(ids))
	err := d.run(ctx, statement{ids: ids, atStart: func() error {
		for _, id := range ids {
			if row, ok := d.find(id); ok {
				rows[id] = row
			}
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// Update changes the price of a row and returns the row as it is then.
func (d *Database) Update(ctx context.Context, id string, priceCents int64) (row Row, err error) {
	err = d.run(ctx, statement{atEnd: func() error {
		var ok bool
		if row, ok = d.find(id); !ok {
			return ErrNoRow
		}
		row.PriceCents = priceCents
		row.Version++
		d.changed[id] = record{row: row}
		return nil
	}})
	if err != nil {
		return Row{}, err
	}
	return row, nil
}

// Insert adds a row, whose version is chosen by the database, and returns it. The
// error is [ErrRowExists], the context's, or an injected one.
func (d *Database) Insert(ctx context.Context, row Row) (Row, error) {
	err := d.run(ctx, statement{atEnd: func() error {
		if _, ok := d.find(row.ID); ok {
			return ErrRowExists
		}
		row.Version = d.changed[row.ID].row.Version + 1
		d.changed[row.ID] = record{row: row}
		return nil
	}})
	if err != nil {
		return Row{}, err
	}
	return row, nil
}

// Delete removes a row and returns the version of the removal, which is one more
// than the row's last.
func (d *Database) Delete(ctx context.Context, id string) (version uint64, err error) {
	err = d.run(ctx, statement{atEnd: func() error {
		row, ok := d.find(id)
		if !ok {
			return ErrNoRow
		}
		version = row.Version + 1
		d.changed[id] = record{row: Row{ID: id, Version: version}, deleted: true}
		return nil
	}})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// Peek looks at a row at once, without counting it: the truth that a test
// compares with.
func (d *Database) Peek(id string) (Row, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.find(id)
}

// find returns the present row. The caller holds mu.
func (d *Database) find(id string) (Row, bool) {
	if r, ok := d.changed[id]; ok {
		return r.row, !r.deleted
	}
	n, err := strconv.Atoi(id)
	if err != nil || n < 0 || n >= d.cfg.Rows || strconv.Itoa(n) != id { // "007" is not "7"
		return Row{}, false
	}
	const priceStep, priceRange = 7919, 100_000 // a prime spreads the prices
	return Row{ID: id, Name: "product " + id, PriceCents: 99 + int64(n)*priceStep%priceRange, Version: 1}, true
}
