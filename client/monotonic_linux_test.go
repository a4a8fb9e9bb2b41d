// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"syscall"
	"time"
	"unsafe"
)

// hostClock reads CLOCK_MONOTONIC, which is one clock for all processes of a host (clock_gettime(2)); time.Now has it only as counted from the process's
// beginning. The number is 1 on Linux.
func hostClock() (time.Duration, bool) {
	const clockMonotonic = 1
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0) //nolint:gosec // the system call's way to return it
	return time.Duration(ts.Nano()), errno == 0
}
