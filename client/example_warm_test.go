// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// A warm-up that is stopped half-way and goes on later from where it was.
func ExampleCache_Warm() {
	ctx := context.Background()
	nodes := clienttest.New(3) // stands for your Redis nodes
	defer nodes.Close()
	cl, err := client.New(ctx, nodes.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cl.Close(ctx) }()
	prices, err := client.NewCache(cl, client.CacheConfig[string]{
		Name: "price", TTL: time.Hour,
		LoadMany: func(_ context.Context, ids []string) (map[string]string, error) { // SELECT ... WHERE id = ANY(ids)
			rows := make(map[string]string, len(ids))
			for _, id := range ids {
				rows[id] = "9.99"
			}
			return rows, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	ids := make([]string, 50)
	for i := range ids {
		ids[i] = fmt.Sprint("article-", i)
	}
	stoppable, stop := context.WithCancel(ctx)
	r, err := prices.Warm(stoppable, slices.Values(ids), client.WarmOptions{
		Rate: 5000, Batch: 10, Total: int64(len(ids)),
		Progress: func(p client.WarmProgress) {
			fmt.Printf("%d of %d\n", p.Done, p.Total) // and p.Speed, p.Left
			if p.Done == 20 {
				stop()
			}
		},
	})
	fmt.Println(r.Done, r.Loaded, err)

	r, err = prices.Warm(ctx, slices.Values(ids), client.WarmOptions{Rate: 5000, Skip: r.Done})
	fmt.Println(r.Done, r.Loaded, err)
	// Output:
	// 10 of 50
	// 20 of 50
	// 20 20 shelf: Warm ended after 20 keys: context canceled
	// 50 30 <nil>
}
