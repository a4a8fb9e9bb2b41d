// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix && !linux

package proc

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)

// sysProcAttr leaves the child in this process's group, so that at least Ctrl-C
// on the terminal ends it too: there is no death signal here.
func sysProcAttr(c Command) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if c.User != nil {
		attr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID}
	}
	return attr
}

// stopped reports whether the process is stopped by a signal.
func stopped(pid int) bool {
	out, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
