// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix

package client_test

import (
	"syscall"
	"testing"
)

// countCPU makes a benchmark report the time that this process has computed for each operation, from now on, as cpu-ns/op: a figure that other work on the
// machine moves less than the time that has passed.
func countCPU(b *testing.B) (end func()) {
	before := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it cannot fail
	return u.Utime.Nano() + u.Stime.Nano()
}
