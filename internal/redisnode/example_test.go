// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-shelf/shelf/internal/redisnode"
)

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	node, err := redisnode.New(redisnode.Config{ID: "cache-a", Addr: server.Addr()})
	if err != nil {
		panic(err)
	}
	defer func() { _ = node.Close() }()
	ctx := context.Background()

	info, err := node.Probe(ctx)
	fmt.Println(info.Engine, info.Capabilities.Lua, err)

	_ = server.Set("empty", "")
	values, err := node.MGet(ctx, []string{"missing", "empty"})
	fmt.Println(values[0] == nil, values[1] == nil, err)

	server.Close()
	_, _, err = node.Get(ctx, "empty")
	fmt.Println("the node is to blame:", redisnode.IsTrouble(err))
	// Output:
	// embedded true <nil>
	// true false <nil>
	// the node is to blame: true
}
