// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package pgtest runs a private PostgreSQL for tests and examples of change
// streams: logical decoding on, durability off, everybody on loopback trusted,
// in a directory of its own that goes away with it.
//
//	pg := pgtest.Start(t)
//	out, err := pg.Psql(ctx, "SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
//	conn, err := pgx.Connect(ctx, pg.DSN()) // in a module that has a driver
//
// PostgreSQL refuses to run as root, and CI containers run as root: there the
// server runs as the user postgres, or else nobody. How it is kept from
// outliving the test is told in package proc.
//
// Without PostgreSQL on the machine a test is skipped, which tells what to
// install; with CI=true in the environment it fails. POSTGRES_BIN in the environment
// names the directory of another version's programs.
package pgtest
