// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package skew

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Setup is the first line that a process gets: the cache that it makes.
type Setup struct {
	Addr    string // of the one node
	Name    string // of the cache; also what its values begin with is the process's
	Value   string // what its loader returns
	TTL     time.Duration
	SoftTTL time.Duration // 0: as the client has it
	L1      bool          // keep every key in process
	Truth   bool          // no loader: the process Sets
}

// Order is one thing to do.
type Order struct {
	Op string // "get", "set", "until stale", "step", "clock"

	Key   string
	Times int           // "get": how often, evenly over Over; 0 is once
	Over  time.Duration // "get"
	By    time.Duration // "step": the new offset of the wall clock

	// Hang makes the loader wait for its context from now on, as a database that has stopped does: what is loaded after that fails.
	Hang bool
}

// Report is what an order came to.
type Report struct {
	Err    string
	Value  string // of the last read
	Layer  string
	Age    time.Duration
	Stale  bool
	Layers map[string]int // how many reads each layer answered

	LastFresh time.Duration // "until stale": the age at the last look at which it was not
	Loads     uint64        // loader calls of this process up to now

	Wall    time.Time     // what the process takes for the time
	Elapsed time.Duration // since its start, by its monotonic clock
	Offset  time.Duration // how far it takes the node's clock to be ahead of its own
}

// Process is a running program that takes orders. It is for one goroutine.
type Process struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

// Start runs a program of Build's with its wall clock off by offset. It ends with the test, which fails if it does not end well.
func Start(tb testing.TB, program string, offset time.Duration, s Setup) *Process {
	tb.Helper()
	cmd := exec.Command(program) // ends when its input does
	cmd.Env = append(os.Environ(), Env(offset))
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the process whose clock is off by %v: %v", offset, err)
		}
	})
	p := &Process{in, bufio.NewScanner(out)}
	if err := p.send(s); err != nil {
		tb.Fatal(err)
	}
	return p
}

// Do gives an order and waits for the report. An error means that the process has ended or speaks another language; what the order itself
// came to is Report.Err.
func (p *Process) Do(o Order) (Report, error) {
	var r Report
	if err := p.send(o); err != nil {
		return r, err
	}
	if !p.out.Scan() {
		return r, fmt.Errorf("skew: %q: the process has ended: %w", o.Op, errors.Join(io.ErrUnexpectedEOF, p.out.Err()))
	}
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("skew: %q: the process said %q: %w", o.Op, p.out.Text(), err)
	}
	return r, nil
}

func (p *Process) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("skew: %w", err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("skew: the process takes no orders: %w", err)
	}
	return nil
}
