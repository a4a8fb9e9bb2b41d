// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache_test

import (
	"fmt"
	"time"

	"github.com/go-shelf/shelf/localcache"
)

// The fill: ticket first, then the read, then the commit. A change that arrives in between refuses it.
func Example() {
	cache, err := localcache.New[string](localcache.Config{MaxBytes: 16 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	shared := map[string]string{"price": "9.90"} // stands for the cache behind this one
	read := func(key string) (value string, ticket localcache.Ticket) {
		ticket = cache.Begin(key)
		return shared[key], ticket
	}
	keep := func(t localcache.Ticket, value string) bool {
		now := time.Now()
		return cache.Commit(t, value, int64(len(value)), now.Add(time.Minute), now)
	}

	value, ticket := read("price") // the reply is on its way
	shared["price"] = "12.50"      // somebody changes it
	cache.Invalidate("price")      // and we are told
	fmt.Println("kept", value, keep(ticket, value))

	value, ticket = read("price")
	fmt.Println("kept", value, keep(ticket, value))

	value, ok := cache.Get("price", time.Now())
	fmt.Println("read", value, ok)
	// Output:
	// kept 9.90 false
	// kept 12.50 true
	// read 12.50 true
}
