// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package proc runs real servers as children of a test or an example program,
// and makes sure that none of them outlives it.
//
// A server that a test leaves behind is worse than a failed test: it holds a
// port, and the next run may talk to it. Three things prevent that here.
//
//   - A [Process] is ended through its handle (a pidfd on Linux), by its own id,
//     never by its name. What it forked itself goes with it.
//   - On Linux the kernel ends it when this process dies in any way at all,
//     kill -9 and the timeout of go test included (PR_SET_PDEATHSIG).
//   - Its [Port] lies outside the range from which the kernel gives ports to
//     outgoing connections, and is reserved between all programs that use this
//     package, so that the server finds it free again when it restarts.
//
// Signals that stop and continue a process, and the last two points, need Linux
// or another Unix; elsewhere the package compiles and says what it cannot do.
package proc
