// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package proc_test

import (
	"os"
	"syscall"
)

// threadID is the caller's thread, or 0 for the main thread, which never ends.
func threadID() int {
	if tid := syscall.Gettid(); tid != os.Getpid() {
		return tid
	}
	return 0
}
