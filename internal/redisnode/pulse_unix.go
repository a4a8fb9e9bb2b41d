// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix

package redisnode

import "syscall"

// cutOff looks at what waits to be read from a socket, and leaves it there. Those of Go do not block.
func cutOff(fd uintptr, first *[1]byte) bool {
	n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
	switch {
	case n > 0:
		return first[0] != '>'
	case err == nil: // the end
		return true
	}
	return err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR //nolint:errorlint // a number of the system
}
