// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-shelf/shelf/internal/pgtest"
)

// A program's own database, with a slot for a change stream.
func ExampleLaunch() {
	ctx := context.Background()
	pg, err := pgtest.Launch(ctx)
	if err != nil {
		log.Fatal(err) // says what to install
	}
	defer pg.Close() //nolint:errcheck // the program ends

	out, err := pg.Psql(ctx, `
		CREATE TABLE product (id int PRIMARY KEY, name text);
		CREATE PUBLICATION shelf FOR TABLE product;
		SELECT slot_name FROM pg_create_logical_replication_slot('shelf', 'pgoutput');`)
	fmt.Println(out, err, pg.DSN())
}
