// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/go-shelf/shelf/internal/redistest"
)

// A program's own node: killed, back at the same address, and empty.
func ExampleLaunch() {
	ctx := context.Background()
	node, err := redistest.Launch(ctx, redistest.Config{})
	if err != nil {
		log.Fatal(err) // says what to install
	}
	defer node.Close() //nolint:errcheck // the program ends

	if _, err := node.Do(ctx, "SET", "product:1", "chair"); err != nil {
		log.Fatal(err)
	}
	node.Kill()
	node.Restart()
	keys, err := node.Do(ctx, "DBSIZE")
	fmt.Println(keys, err)
}
