// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Command says what to run.
type Command struct {
	// Path is the program's path, and Args are its arguments without the name.
	Path string
	Args []string
	// Env is added to the environment of this process; a later entry wins.
	Env []string
	// Dir is the working directory; empty means that of this process.
	Dir string
	// User is who runs it; nil means the user of this process. Only root can
	// name another one.
	User *User
	// DeathSignal is what the kernel sends to the child when this process dies
	// (Linux only). Zero means SIGKILL.
	DeathSignal syscall.Signal
}

// User is a user and a group of the system, by number.
type User struct {
	UID, GID uint32
}

// Process is a running child. Its methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	out  tail
	done chan struct{}
	err  error // why it ended; read only after done is closed
}

// outputGrace bounds the wait for the rest of the output after the process
// itself has ended: a process that it forked may hold the pipe open.
const outputGrace = 2 * time.Second

// Start runs the command and returns once the program runs.
//
// The caller owns the process and ends it with [Process.Kill] or [Process.End].
// It costs one goroutine and one thread for as long as the process lives.
func Start(c Command) (*Process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Dir = c.Dir
	cmd.WaitDelay = outputGrace
	cmd.SysProcAttr = sysProcAttr(c)

	p := &Process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("proc: start %s: %w", c.Path, err)
	}
	return p, nil
}

// run starts the child, waits for its end, and closes done.
//
// The kernel sends the death signal when the *thread* that forked the child
// ends, and Go ends threads as it likes:
//
//  1. a test locks its goroutine to a thread and starts a server
//  2. the goroutine returns while locked, so the runtime ends the thread
//  3. the kernel takes this for the parent's death and kills the server
//
// So the fork happens on a thread of its own that does nothing but wait: it
// cannot end before the child does.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	awaitExit(p.cmd.Process.Pid)
	p.err = p.cmd.Wait()
	close(p.done)
}

// Pid is the id of the process. It may belong to another process once Done is
// closed: signal through the methods, which know.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process is gone: ended, reaped, its ports closed.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the process is not gone yet; a stopped one runs.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Err says how the process ended: nil for exit code 0, an *exec.ExitError for
// others and for signals. It is nil while the process runs.
func (p *Process) Err() error {
	if p.Running() {
		return nil
	}
	return p.err
}

// Output is the end of what the process wrote to its standard output and error,
// at most 64 KiB.
func (p *Process) Output() string { return p.out.String() }

// Kill ends the process at once (SIGKILL, which ends a stopped one too) and
// waits until it is gone. Killing a process that is gone does nothing.
func (p *Process) Kill() error {
	// The error is dropped only where it says that there is nothing to kill.
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("proc: kill %d: %w", p.Pid(), err)
	}
	<-p.done
	return nil
}

// End asks the process to end, with each signal in turn and up to grace after
// each, then kills it. A stopped process is continued first, or it would never
// see the request. It returns when the process is gone.
func (p *Process) End(grace time.Duration, signals ...syscall.Signal) error {
	_ = p.signal(contSignal) // where it fails, Kill below says so
	for _, sig := range signals {
		if p.signal(sig) != nil {
			break
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(grace):
		}
	}
	return p.Kill()
}

// stopTimeout bounds the wait for a stop or a continuation to take effect. It is
// a matter of microseconds, so it is reached only when something is wrong.
const stopTimeout = 5 * time.Second

// Stop freezes the process (SIGSTOP) and waits until every thread of it stands
// still. Its connections stay open and answer nothing: what a hung node looks
// like from outside. Stopping a stopped process does nothing.
func (p *Process) Stop() error {
	if err := p.signal(stopSignal); err != nil {
		return err
	}
	return p.await("stop", func() bool { return stopped(p.Pid()) })
}

// Cont lets a stopped process go on (SIGCONT) and waits until it does.
// Continuing a running process does nothing.
func (p *Process) Cont() error {
	if err := p.signal(contSignal); err != nil {
		return err
	}
	return p.await("continue", func() bool { return !stopped(p.Pid()) })
}

// signal sends sig; a process that is gone is an error.
func (p *Process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("proc: send %v to %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// await polls until reached, the end of the process, or the timeout. The kernel
// gives no notice of a child's stop that would not also reap its exit.
func (p *Process) await(what string, reached func() bool) error {
	deadline := time.Now().Add(stopTimeout)
	for !reached() {
		select {
		case <-p.done:
			return fmt.Errorf("proc: %s %d: %w", what, p.Pid(), os.ErrProcessDone)
		case <-time.After(100 * time.Microsecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("proc: %s %d: no effect within %v", what, p.Pid(), stopTimeout)
		}
	}
	return nil
}
