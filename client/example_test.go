// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// Product is a row of some table.
type Product struct {
	Name  string
	Cents int
}

func Example() {
	ctx := context.Background()
	table := map[string]Product{"4411": {"pencil", 120}} // stands for a database

	nodes := clienttest.New(1) // stands for client.Config{Nodes: []ring.Node{{ID: "cache-a", Addr: "10.0.0.1:6379"}}}
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()

	products, err := client.NewCache(cl, client.CacheConfig[Product]{
		Name: "product", TTL: 10 * time.Minute,
		Load: func(_ context.Context, id string) (Product, error) {
			p, ok := table[id]
			if !ok {
				return Product{}, client.ErrNotFound
			}
			return p, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		r, err := products.Lookup(ctx, "4411")
		fmt.Println(r.Value, r.Layer, err)
	}
	err = products.Write(ctx, "4411", func(context.Context) error {
		table["4411"] = Product{"pencil", 99} // UPDATE ...
		return nil
	})
	p, _ := products.Get(ctx, "4411")
	fmt.Println(p, err)
	_, err = products.Get(ctx, "no such id")
	fmt.Println(errors.Is(err, client.ErrNotFound))
	// Output:
	// {pencil 120} source <nil>
	// {pencil 120} L2 <nil>
	// {pencil 99} <nil>
	// true
}

func ExampleCache_GetMany() {
	ctx := context.Background()
	nodes := clienttest.New(3)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()
	names, err := client.NewCache(cl, client.CacheConfig[string]{
		Name: "name", TTL: time.Hour,
		LoadMany: func(_ context.Context, ids []string) (map[string]string, error) {
			fmt.Println("one query for", len(ids), "ids")
			return map[string]string{"1": "one", "2": "two"}, nil // 3 does not exist
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		found, err := names.GetMany(ctx, []string{"1", "2", "3"})
		fmt.Println(found, err)
	}
	// Output:
	// one query for 3 ids
	// map[1:one 2:two] <nil>
	// map[1:one 2:two] <nil>
}

func ExampleCache_Set() {
	ctx := context.Background()
	nodes := clienttest.New(1)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()
	// Sessions have no database behind them: the cache is the truth.
	sessions, err := client.NewCache(cl, client.CacheConfig[string]{Name: "session", TTL: 30 * time.Minute, Truth: true})
	if err != nil {
		log.Fatal(err)
	}
	_, err = sessions.Get(ctx, "abc")
	fmt.Println(errors.Is(err, client.ErrNotFound))
	err = sessions.Set(ctx, "abc", "user 42")
	who, _ := sessions.Get(ctx, "abc")
	fmt.Println(who, err)
	// Output:
	// true
	// user 42 <nil>
}
