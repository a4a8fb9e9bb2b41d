// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix

package meter

import (
	"syscall"
	"time"
)

// processCPU is the time that this process has run, and how much of it in the kernel.
func processCPU() (all, kernel time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), time.Duration(u.Stime.Nano())
}
