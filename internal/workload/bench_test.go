// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/workload"
)

func BenchmarkZipf(b *testing.B) {
	for _, s := range []float64{0.6, 0.99, 1.2} {
		b.Run("s="+strconv.FormatFloat(s, 'g', -1, 64), func(b *testing.B) {
			z := newZipf(b, 1, s, 1_000_000)
			b.ReportAllocs()
			for b.Loop() {
				z.Next()
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	var l workload.Latencies
	b.ReportAllocs()
	for b.Loop() {
		l.Record(123 * time.Microsecond)
	}
}

func BenchmarkQuantile(b *testing.B) {
	var l workload.Latencies
	l.Record(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		l.Quantile(0.99)
	}
}

func BenchmarkQuery(b *testing.B) {
	d := newDatabase(b, workload.DatabaseConfig{Rows: 1000})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Query(b.Context(), "7"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRemoteQuery(b *testing.B) {
	r := workload.Remote(newDatabase(b, workload.DatabaseConfig{Rows: 1000}).Serve(b))
	defer r.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Query(b.Context(), "7"); err != nil {
			b.Fatal(err)
		}
	}
}
