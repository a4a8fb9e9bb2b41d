// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// A limit of three calls a minute: the counter ends a minute after its first call, whatever happens to this process.
func ExampleClient_Incr() {
	ctx := context.Background()
	nodes := clienttest.New(2) // stands for your Redis nodes
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()

	for range 4 {
		n, err := cl.Incr(ctx, "limit:user-42", 1, time.Minute)
		if err != nil {
			log.Fatal(err) // a node failed: let the call pass or not, as you prefer
		}
		fmt.Println(n, n <= 3)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 true
	// 4 false
}

// A lock that ends by itself when its holder dies.
func ExampleClient_SetNX() {
	ctx := context.Background()
	nodes := clienttest.New(2)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()

	for _, who := range []string{"first", "second"} {
		token := []byte(rand.Text()) // says whose the lock is
		held, err := cl.SetNX(ctx, "lock:nightly-report", token, 30*time.Second)
		fmt.Println(who, held, err)
	}
	// Output:
	// first true <nil>
	// second false <nil>
}

func ExampleClient_MGet() {
	ctx := context.Background()
	nodes := clienttest.New(3)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()

	flags := map[string][]byte{"flag:dark-mode": []byte("on"), "flag:beta": []byte("")}
	if err := cl.MSet(ctx, flags, client.NoExpiry); err != nil {
		log.Fatal(err)
	}
	names := []string{"flag:beta", "flag:none", "flag:dark-mode"} // on several nodes; the answers keep the order
	found, err := cl.MGet(ctx, names)
	for i, f := range found {
		fmt.Printf("%s: %q %t\n", names[i], f.Value, f.Found)
	}
	fmt.Println(err)
	// Output:
	// flag:beta: "" true
	// flag:none: "" false
	// flag:dark-mode: "on" true
	// <nil>
}
