// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

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

// A line on which answers are lost for a while: the command runs, the client does
// not learn it.
func ExampleProxy() {
	ctx := context.Background()
	node, err := redistest.Launch(ctx, redistest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close() //nolint:errcheck // the program ends
	proxy, err := redistest.LaunchProxy(node.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer proxy.Close() //nolint:errcheck // the program ends

	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 50 * time.Millisecond, MaxRetries: -1})
	defer client.Close() //nolint:errcheck // the program ends
	wire := proxy.Record()
	isWriter := func(c *redistest.ProxyConn) bool { return c.Sent("INCR") }
	proxy.Only(isWriter).ToClient().BlackHole()
	fmt.Println("timeout:", client.Incr(ctx, "n").Err() != nil, "sent:", wire.Count("INCR"))
	proxy.Heal()
	fmt.Println(client.Get(ctx, "n").Val())
}

// A primary that dies, and the replica that two of three Sentinels agree on.
func ExampleLaunchSentinels() {
	ctx := context.Background()
	primary, err := redistest.Launch(ctx, redistest.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer primary.Close() //nolint:errcheck // the program ends
	replica, err := redistest.Launch(ctx, redistest.Config{ReplicaOf: primary})
	if err != nil {
		log.Fatal(err)
	}
	defer replica.Close() //nolint:errcheck // the program ends
	sentinels, err := redistest.LaunchSentinels(ctx, redistest.SentinelConfig{
		Primaries: map[string]*redistest.Server{"shelf-a": primary},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sentinels.Close() //nolint:errcheck // the program ends

	primary.Kill()
	addr, err := sentinels.AwaitPrimary(ctx, "shelf-a", primary.Addr())
	fmt.Println(addr == replica.Addr(), err)
}
