// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/go-shelf/shelf/internal/workload"
)

// A thousand requests with the skew of real traffic, and no cache: all of them
// reach the database. A cache in front of it is judged by how few still do.
func Example() {
	db, err := workload.NewDatabase(workload.DatabaseConfig{Rows: 100})
	if err != nil {
		panic(err)
	}
	keys, err := workload.NewZipf(1, 0.99, 100)
	if err != nil {
		panic(err)
	}
	for range 1000 {
		if _, err := db.Query(context.Background(), strconv.Itoa(keys.Next())); err != nil {
			panic(err)
		}
	}
	fmt.Println("queries:", db.Counts().Queries)
	fmt.Println("one row took a tenth of them:", db.Reads("0") > 100)
	// Output:
	// queries: 1000
	// one row took a tenth of them: true
}
