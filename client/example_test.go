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

// A read that must see the source: past this process's copy and the node's entry. What it loads is stored for everybody.
func ExampleCache_GetWith() {
	ctx := context.Background()
	price := 120 // stands for a row
	nodes := clienttest.New(1)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()
	prices, err := client.NewCache(cl, client.CacheConfig[int]{
		Name: "price", TTL: time.Hour,
		Load: func(context.Context, string) (int, error) { return price, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(prices.Get(ctx, "4411"))
	price = 99 // by a job that does not know of the cache
	fmt.Println(prices.Get(ctx, "4411"))
	fmt.Println(prices.GetWith(ctx, "4411", nil, client.GetOptions{Refresh: true})) // nil: the cache's own loader
	fmt.Println(prices.Get(ctx, "4411"))
	// Output:
	// 120 <nil>
	// 120 <nil>
	// 99 <nil>
	// 99 <nil>
}

// All products of a category go at once, without anybody knowing their ids.
func ExampleCache_InvalidateTag() {
	ctx := context.Background()
	cents := 120
	nodes := clienttest.New(2)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()
	products, err := client.NewCache(cl, client.CacheConfig[Product]{
		Name: "product", TTL: time.Hour,
		Load: func(_ context.Context, id string) (Product, error) { return Product{"pencil " + id, cents}, nil },
		Tags: func(Product) []string { return []string{"pencils"} },
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		a, _ := products.Get(ctx, "a")
		b, _ := products.Get(ctx, "b")
		fmt.Println(a, b)
		cents = 99 // UPDATE ... WHERE category = 'pencils'
		fmt.Println(products.InvalidateTag(ctx, "pencils"))
	}
	// Output:
	// {pencil a 120} {pencil b 120}
	// <nil>
	// {pencil a 99} {pencil b 99}
	// <nil>
}

// A loader that knows how long its row is good for.
func ExampleSetTTL() {
	ctx := context.Background()
	nodes := clienttest.New(1)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()
	tokens, err := client.NewCache(cl, client.CacheConfig[string]{
		Name: "token", TTL: time.Hour, NoJitter: true,
		Load: func(ctx context.Context, user string) (string, error) {
			token, expires := "t-"+user, 5*time.Minute // from an authorization server
			return token, client.SetTTL(ctx, user, expires)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tokens.Get(ctx, "ann"))
	node, name := tokens.Where("ann")
	left := nodes.ByID(node).TTL(name)
	fmt.Println(left > 4*time.Minute, left <= 5*time.Minute)
	// Output:
	// t-ann <nil>
	// true true
}

// The database has the change and a node was not reached: that is for the log, not for the caller.
func ExampleCache_Write() {
	ctx := context.Background()
	nodes := clienttest.New(1)
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	names, err := client.NewCache(cl, client.CacheConfig[string]{
		Name: "name", TTL: time.Hour,
		Load: func(context.Context, string) (string, error) { return "a row", nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	rename := func() error {
		err := names.Write(ctx, "7", func(context.Context) error {
			return nil // UPDATE ...
		})
		if client.NodesOnly(err) {
			fmt.Println("log: to be repeated:", client.UnreachedKeys(err))
			return nil
		}
		return err
	}
	fmt.Println(rename())
	nodes.Node(0).Down()
	fmt.Println(rename())
	nodes.Node(0).Up()
	fmt.Println(cl.Close(ctx)) // it waits until the invalidation has got through
	// Output:
	// <nil>
	// log: to be repeated: [7]
	// <nil>
	// <nil>
}
