// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

func benchNode(b *testing.B) (*redisnode.Node, []string) {
	b.Helper()
	_, n := startNode(b, func(c *redisnode.Config) { c.Scripts = []redisnode.Script{echo}; c.Timeout = 5 * time.Second })
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = "key:" + strconv.Itoa(i)
		mustSet(b, n, keys[i], strings.Repeat("v", 100))
	}
	b.ReportAllocs()
	b.ResetTimer()
	return n, keys
}

func BenchmarkGet(b *testing.B) {
	n, keys := benchNode(b)
	for b.Loop() {
		if _, ok, err := n.Get(b.Context(), keys[0]); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// The driver alone, to see what sessions cost.
func BenchmarkGetDriver(b *testing.B) {
	n, keys := benchNode(b)
	c := n.Client()
	for b.Loop() {
		if _, err := c.Get(b.Context(), keys[0]).Bytes(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetParallel(b *testing.B) {
	n, keys := benchNode(b)
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok, err := n.Get(b.Context(), keys[0]); !ok || err != nil {
				b.Error(ok, err)
			}
		}
	})
}

func BenchmarkMGet100(b *testing.B) {
	n, keys := benchNode(b)
	for b.Loop() {
		if _, err := n.MGet(b.Context(), keys); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	n, _ := benchNode(b)
	c := redisnode.Call{Script: echo, Keys: []string{"k"}, Args: []any{"x"}}
	for b.Loop() {
		if _, err := n.Eval(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvalMany100(b *testing.B) {
	n, _ := benchNode(b)
	calls := make([]redisnode.Call, 100)
	for i := range calls {
		calls[i] = redisnode.Call{Script: echo, Keys: []string{"k"}, Args: []any{"x"}}
	}
	for b.Loop() {
		if r := n.EvalMany(b.Context(), calls); r[0].Err != nil {
			b.Fatal(r[0].Err)
		}
	}
}

func BenchmarkNow(b *testing.B) {
	n, _ := benchNode(b)
	local := time.Now()
	for b.Loop() {
		_ = n.Now(local)
	}
}
