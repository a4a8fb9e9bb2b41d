// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-shelf/shelf/client"
)

// Product is a row of the table products, in the order of its columns. Outside of the SQL an id is text, as the cache's keys are.
type Product struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	PriceCents int64     `json:"price_cents"`
	Stock      int64     `json:"stock"` // as it was when the row was loaded: a checkout must read the database
	Version    uint64    `json:"version"`
	UpdatedAt  time.Time `json:"updated_at"`
}

// NewProduct is what a product begins with.
type NewProduct struct {
	Name       string `json:"name"`
	PriceCents int64  `json:"price_cents"`
	Stock      int64  `json:"stock"`
}

// Patch is a partial update; nil fields stay as they are.
type Patch struct {
	Name       *string `json:"name"`
	PriceCents *int64  `json:"price_cents"`
}

// ErrNotFound says that there is no such product. It wraps client.ErrNotFound: by that the cache tells an absent row, which it remembers, from
// a query that failed.
var ErrNotFound = fmt.Errorf("catalogue: no such product: %w", client.ErrNotFound)

// ErrInvalid says that the table refuses a value.
var ErrInvalid = errors.New("catalogue: invalid product")

// schema has one column for the cache's sake: version, which only grows, so that a newer row is never replaced by an older one. A trigger keeps
// it, and an UPDATE typed by hand counts too. Ids are never given twice: a product that was deleted does not come back with version 1.
const schema = `
CREATE TABLE IF NOT EXISTS products (
	id          bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	name        text        NOT NULL CHECK (name <> ''),
	price_cents bigint      NOT NULL CHECK (price_cents >= 0),
	stock       bigint      NOT NULL CHECK (stock >= 0),
	version     bigint      NOT NULL DEFAULT 1,
	updated_at  timestamptz NOT NULL DEFAULT now()
);
CREATE OR REPLACE FUNCTION products_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.version := OLD.version + 1;
	NEW.updated_at := now();
	RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER products_touch BEFORE UPDATE ON products FOR EACH ROW EXECUTE FUNCTION products_touch();
`

const columns = "id::text, name, price_cents, stock, version, updated_at"

// Store is the source: the table products. Its methods are safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	reads atomic.Int64
}

// OpenStore connects to a PostgreSQL (14 or later) with at most conns connections, and creates the table unless it is there.
func OpenStore(ctx context.Context, dsn string, conns int32) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("catalogue: database: %w", err)
	}
	cfg.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("catalogue: database: %w", err)
	}
	// One Exec is one transaction. The lock is for services that start at the same moment: IF NOT EXISTS alone would let one of them fail.
	if _, err := pool.Exec(ctx, "SELECT pg_advisory_xact_lock(20443);"+schema); err != nil {
		pool.Close()
		return nil, fmt.Errorf("catalogue: create the table: %w", err)
	}
	return &Store{pool: pool}, nil
}

// Seed fills an empty table with so many products and returns how many it made.
func (s *Store) Seed(ctx context.Context, rows int) (int64, error) {
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO products (name, price_cents, stock)
		SELECT 'product ' || n, 1000 + n, 10 FROM generate_series(1, $1) AS n
		WHERE NOT EXISTS (SELECT FROM products) ORDER BY n`, rows)
	return tag.RowsAffected(), err
}

// Product reads one row, or returns ErrNotFound. It is the cache's Load.
func (s *Store) Product(ctx context.Context, id string) (Product, error) {
	s.reads.Add(1)
	return one(s.pool.Query(ctx, "SELECT "+columns+" FROM products WHERE id = $1::text::bigint", id))
}

// Products reads many rows in one query; those that do not exist are missing from the map. It is the cache's LoadMany.
func (s *Store) Products(ctx context.Context, ids []string) (map[string]Product, error) {
	s.reads.Add(1)
	rows, err := s.pool.Query(ctx, "SELECT "+columns+" FROM products WHERE id = ANY($1::text[]::bigint[])", ids)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Product])
	found := make(map[string]Product, len(list))
	for _, p := range list {
		found[p.ID] = p
	}
	return found, err
}

// Update changes a row and returns it as it is now. The transaction has been committed when Update returns: an invalidation before the commit
// would let a reader bring the old row back. After an error nobody knows: a connection that broke in COMMIT leaves both possible.
func (s *Store) Update(ctx context.Context, id string, patch Patch) (p Product, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		p, err = one(tx.Query(ctx, "SELECT "+columns+" FROM products WHERE id = $1::text::bigint FOR UPDATE", id))
		if err != nil {
			return err
		}
		if patch.Name != nil {
			p.Name = *patch.Name
		}
		if patch.PriceCents != nil {
			p.PriceCents = *patch.PriceCents
		}
		p, err = one(tx.Query(ctx, "UPDATE products SET name = $2, price_cents = $3 WHERE id = $1::text::bigint RETURNING "+columns,
			id, p.Name, p.PriceCents))
		return err
	})
	return p, err
}

// Insert adds a product and returns it with its id.
func (s *Store) Insert(ctx context.Context, n NewProduct) (Product, error) {
	return one(s.pool.Query(ctx, "INSERT INTO products (name, price_cents, stock) VALUES ($1, $2, $3) RETURNING "+columns,
		n.Name, n.PriceCents, n.Stock))
}

// Delete removes a row, or returns ErrNotFound.
func (s *Store) Delete(ctx context.Context, id string) error {
	_, err := one(s.pool.Query(ctx, "DELETE FROM products WHERE id = $1::text::bigint RETURNING "+columns, id))
	return err
}

// one is the only row that a statement gives.
func one(rows pgx.Rows, err error) (Product, error) {
	if err != nil {
		return Product{}, err
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Product])
	if errors.Is(err, pgx.ErrNoRows) {
		return p, ErrNotFound
	}
	// Classes 22 and 23 of SQLSTATE are about the data: not the right form, or against a constraint.
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23")) {
		return p, fmt.Errorf("%w: %s", ErrInvalid, e.Message)
	}
	return p, err
}

// Reads is the number of queries that Product and Products have sent.
func (s *Store) Reads() int64 { return s.reads.Load() }

// Ping asks the database whether it is there.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// Close waits for the statements under way and closes the connections.
func (s *Store) Close() { s.pool.Close() }
