// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-shelf/shelf/client"
)

// row is a row of the table, and the value of the caches.
type row struct {
	Key     string
	Version uint64
	Unique  uint64 // no other write has it
	Pad     string // makes some rows large
}

// A row that is gone leaves its version behind, so that it does not start anew.
const schema = `CREATE TABLE rows (key text PRIMARY KEY, version bigint NOT NULL, value bigint NOT NULL, absent boolean NOT NULL)`

// store is the source. Its methods are safe for concurrent use.
type store struct {
	pool *pgxpool.Pool
}

func openStore(ctx context.Context, dsn string, conns int32) (*store, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("consistency: database: %w", err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("consistency: database: %w", err)
	}
	return &store{pool}, nil
}

// seed makes the rows, each at version 1, with the values 1, 2, 3 and so on.
func (s *store) seed(ctx context.Context, keys []string) error {
	_, err := s.pool.Exec(ctx, schema)
	if err == nil {
		_, err = s.pool.Exec(ctx, `INSERT INTO rows SELECT key, 1, n, false FROM unnest($1::text[]) WITH ORDINALITY AS k (key, n)`, keys)
	}
	return err
}

// load reads a row; ErrNotFound where it is gone.
func (s *store) load(ctx context.Context, key string) (row, error) {
	r := row{Key: key}
	var absent bool
	err := s.pool.QueryRow(ctx, `SELECT version, value, absent FROM rows WHERE key = $1`, key).Scan(&r.Version, &r.Unique, &absent)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && absent {
		return row{}, client.ErrNotFound
	}
	r.pad()
	return r, err
}

// update writes a row and returns it as it is now.
func (s *store) update(ctx context.Context, key string, unique uint64, absent bool) (row, error) {
	r := row{Key: key, Unique: unique}
	err := s.pool.QueryRow(ctx, `UPDATE rows SET version = version + 1, value = $2, absent = $3 WHERE key = $1 RETURNING version`, key, unique, absent).Scan(&r.Version)
	r.pad()
	return r, err
}

const (
	largeBytes = 6 << 10 // of the rows that are large
	largeLimit = 4 << 10 // from which on the cache treats them so
)

// pad makes every fifth row of the cache "hot" large.
func (r *row) pad() {
	if strings.HasPrefix(r.Key, hotName+":") && strings.HasSuffix(r.Key, "5") {
		r.Pad = strings.Repeat(fmt.Sprintf("%16d", r.Unique), largeBytes/16)
	}
}

// whole says whether a row that was read is the one that was asked for, in one piece.
func (r *row) whole(key string) bool {
	same := row{Key: key, Version: r.Version, Unique: r.Unique}
	same.pad()
	return *r == same
}
