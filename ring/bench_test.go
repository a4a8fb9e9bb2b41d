// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"fmt"
	"testing"

	"github.com/go-shelf/shelf/ring"
)

var sizes = []int{8, 100}

// benchKeys are as many as must not all stay in the nearest cache.
func benchKeys() []string {
	keys := make([]string, 1<<14)
	for i := range keys {
		keys[i] = fmt.Sprintf("product:%07d:v3", i)
	}
	return keys
}

func BenchmarkOwnerIndex(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			r, keys := mustNew(b, ring.Config{Nodes: numbered(n)}), benchKeys()
			b.ReportAllocs()
			i, sum := 0, 0
			for b.Loop() {
				sum += r.OwnerIndex(keys[i&(len(keys)-1)])
				i++
			}
			_ = sum
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustNew(b, ring.Config{Nodes: numbered(n)})
			}
		})
	}
	b.Run("weights=1024,1024,5", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustNew(b, ring.Config{Nodes: []ring.Node{{ID: "a", Weight: 1024}, {ID: "b", Weight: 1024}, {ID: "c", Weight: 5}}})
		}
	})
}

func BenchmarkWalk(b *testing.B) {
	for _, n := range sizes {
		nodes := numbered(n)
		for i := range nodes {
			nodes[i].Rack = fmt.Sprint(i % 3)
		}
		r, keys := mustNew(b, ring.Config{Nodes: nodes}), benchKeys()
		for _, take := range []int{2, n} {
			b.Run(fmt.Sprintf("nodes=%d/take=%d", n, take), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					left := take
					for range r.Walk(keys[i&(len(keys)-1)]) {
						if left--; left == 0 {
							break
						}
					}
					i++
				}
			})
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	for _, n := range sizes {
		from, to := mustNew(b, ring.Config{Nodes: numbered(n)}), mustNew(b, ring.Config{Nodes: numbered(n + 1)})
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ring.Diff(from, to)
			}
		})
	}
}
