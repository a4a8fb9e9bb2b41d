// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build !unix

package proc

import "syscall"

// There are no such signals: sending them is an error of os.Process.Signal.
const (
	stopSignal = syscall.Signal(0x13)
	contSignal = syscall.Signal(0x12)
)

func sysProcAttr(Command) *syscall.SysProcAttr { return nil }

func stopped(int) bool { return false }
