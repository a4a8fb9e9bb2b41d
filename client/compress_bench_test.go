// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// jsonRows is what a cache of lists holds: rows of a shop, as JSON, of about size bytes.
func jsonRows(size int) []byte {
	type product struct {
		ID          int      `json:"id"`
		SKU         string   `json:"sku"`
		Name        string   `json:"name"`
		Description string   `json:"description"`
		Price       float64  `json:"price"`
		Stock       int      `json:"stock"`
		Tags        []string `json:"tags"`
		UpdatedAt   string   `json:"updated_at"`
	}
	words := []string{"steel", "oak", "garden", "kitchen", "light", "heavy", "folding", "chair", "table", "lamp", "shelf", "handle", "bright", "matt", "with", "and", "for", "the"}
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(n int) (s string) {
		for range n {
			s += words[rng.IntN(len(words))] + " "
		}
		return s
	}
	var rows []product
	for n := 0; n < size; {
		p := product{
			ID: rng.IntN(1e6), SKU: fmt.Sprintf("%08X", rng.Uint32()), Name: text(3), Description: text(12), Price: float64(rng.IntN(100000)) / 100,
			Stock: rng.IntN(500), Tags: []string{words[rng.IntN(len(words))], words[rng.IntN(len(words))]},
			UpdatedAt: fmt.Sprintf("2025-%02d-%02dT%02d:%02d:00Z", 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60)),
		}
		rows = append(rows, p)
		b, _ := json.Marshal(p)
		n += len(b) + 1
	}
	b, _ := json.Marshal(rows)
	return b
}

func randomBytes(size int) []byte {
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// BenchmarkCompression is what one value costs its writer (pack) and each of its readers (unpack), and what it saves.
func BenchmarkCompression(b *testing.B) {
	for _, size := range []int{1 << 10, 4 << 10, 64 << 10, 1 << 20} {
		for what, payload := range map[string][]byte{"json": jsonRows(size), "random": randomBytes(size)} {
			for _, how := range []Compression{CompressS2, CompressZstd} {
				dst := make([]byte, 0, maxCompressed(len(payload)))
				packed, worth := compress(dst, payload, how)
				b.Run(fmt.Sprintf("%s/%dKiB/%v/pack", what, size>>10, how), func(b *testing.B) {
					b.SetBytes(int64(len(payload)))
					b.ReportAllocs()
					for b.Loop() {
						compress(dst, payload, how)
					}
					b.ReportMetric(float64(len(payload))/float64(len(packed)), "ratio")
				})
				if !worth {
					continue
				}
				b.Run(fmt.Sprintf("%s/%dKiB/%v/unpack", what, size>>10, how), func(b *testing.B) {
					b.SetBytes(int64(len(payload)))
					b.ReportAllocs()
					back := make([]byte, 0, len(payload))
					for b.Loop() {
						if _, ok := decompress(back, packed, packing{how, uint32(len(payload))}); !ok {
							b.Fatal("corrupt")
						}
					}
				})
			}
		}
	}
}
