// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine was booted (CLOCK_MONOTONIC, see clock_gettime(2)): the same clock for all processes of a machine, and nobody can
// set it. What happened before something else, in whatever process, has a time that is not later. It costs a system call, below a microsecond.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("stalecheck: CLOCK_MONOTONIC: " + err.Error()) // a Linux without it does not run Go
	}
	return time.Duration(ts.Nano())
}
