// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
)

// sysProcAttr puts the child into a process group of its own, and has the
// kernel end it when the thread that starts it ends. The group keeps Ctrl-C on
// the terminal away from it: the owner ends its servers, in its own order.
func sysProcAttr(c Command) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: c.DeathSignal}
	if c.DeathSignal == 0 {
		attr.Pdeathsig = syscall.SIGKILL
	}
	if c.User != nil {
		attr.Credential = &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID}
	}
	return attr
}

// Arguments of waitid(2); package syscall lacks them.
const (
	waitPid    = 1         // P_PID
	waitExited = 4         // WEXITED
	waitPeek   = 0x1000000 // WNOWAIT
)

// awaitExit returns when the child has ended but is not reaped, having killed
// what is left of its process group: a redis-server that is killed while it
// saves leaves the child that it forked for it, with nobody to end it.
//
// The order matters. As long as the leader is not reaped nobody else can get
// its id, so the signal cannot reach a stranger's group.
func awaitExit(pid int) {
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitPid, uintptr(pid), 0, waitExited|waitPeek, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno == 0 {
			_ = syscall.Kill(-pid, syscall.SIGKILL) // ESRCH: nothing is left, as usual
		}
		return
	}
}

// stopped reports whether every thread of the process is stopped by a signal.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		// "pid (name) state ...", where the name may hold anything.
		_, rest, found := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		if !found || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// ephemeralPorts is the range from which the kernel takes the local port of an
// outgoing connection.
func ephemeralPorts() (low, high int) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &low, &high)
	}
	if err != nil {
		return defaultEphemeralLow, defaultEphemeralHigh
	}
	return low, high
}
