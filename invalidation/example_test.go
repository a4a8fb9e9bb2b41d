// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/invalidation"
)

// A reader loads a row for the cache while a writer changes the row.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	node := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = node.Close() }()
	ctx := context.Background()
	send := func(c invalidation.Call) any {
		reply, err := node.Eval(ctx, c.Script.Source, c.Keys, c.Args...).Result()
		if err != nil {
			panic(err)
		}
		return reply
	}
	k := invalidation.Keys{Data: "product:4411", Lease: "~lease:product:4411", Mark: "~mark:product:4411"}

	lease, _ := invalidation.ParseLease(send(invalidation.Lease(k, "reader-1", invalidation.LeaseMiss, 5*time.Second)))
	fmt.Println("the reader asks for the lease:", lease.Status)
	row := entry(1, "price 10")

	gone, _ := invalidation.ParseInvalidate(send(invalidation.Invalidate(k, 2, 10*time.Second, 0)))
	fmt.Println("the writer invalidates, which leaves the mark", gone.Mark)

	filled, _ := invalidation.ParseFill(send(invalidation.Fill(k, invalidation.Filling{Token: "reader-1", Value: row, TTL: time.Minute, Version: 1})))
	fmt.Println("the reader's fill:", filled)
	// Output:
	// the reader asks for the lease: granted
	// the writer invalidates, which leaves the mark 2
	// the reader's fill: lease-lost
}

// entry puts a payload behind the shortest header that the scripts accept: magic, format, codec,
// flags, header length, row version, fill epoch.
func entry(version uint64, payload string) []byte {
	header := []byte{0xF5, 0x53, 1, 0, 0, 0, 0, 24}
	header = binary.BigEndian.AppendUint64(header, version)
	header = binary.BigEndian.AppendUint64(header, 0)
	return append(header, payload...)
}
