// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

func BenchmarkBuildFill(b *testing.B) {
	b.ReportAllocs()
	k, value := keysOf("bench"), make([]byte, 100)
	for b.Loop() {
		_ = invalidation.Fill(k, invalidation.Filling{Token: "0123456789abcdef", Value: value, TTL: time.Minute, Version: 7})
	}
}

func BenchmarkParseLease(b *testing.B) {
	b.ReportAllocs()
	reply := []any{"granted", nil, be(7), "9 8"}
	for b.Loop() {
		if _, err := invalidation.ParseLease(reply); err != nil {
			b.Fatal(err)
		}
	}
}

// A miss is a lease and a fill; this is their price on a local node, without the load.
func BenchmarkLeaseAndFill(b *testing.B) {
	b.ReportAllocs()
	node := backend{"redis", connect(b, redistest.Start(b, redistest.Config{}).Addr())}
	k := keysOf("bench")
	for b.Loop() {
		lease(b, node, k, "A", invalidation.LeaseRefresh)
		if fill(b, node, k, "A", 1) != invalidation.Stored {
			b.Fatal("not stored")
		}
	}
}
