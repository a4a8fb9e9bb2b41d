// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package child is a process that does what its parent asks, one order after the other: lines of JSON on its standard input, answers on its standard output. What its
// libraries print goes to standard error.
//
// It ends when its input does, so also when its parent dies in any way.
package child

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Process is the parent's side. It is for one goroutine.
type Process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed when it says nothing more
	ended chan struct{}
	err   error // how it ended; read after ended
}

// answer is what comes back of an order.
type answer struct {
	Error string          `json:",omitempty"`
	Value json.RawMessage `json:",omitempty"`
}

const (
	longest = 1 << 20 // bytes of an order or answer
	grace   = 5 * time.Second
)

// Start runs a program that calls Serve. The entries of env are added to this process's environment. The caller ends it with End.
func Start(path string, args, env []string) (*Process, error) {
	p := &Process{cmd: exec.Command(path, args...), lines: make(chan []byte), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("child: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("child: start %s: %w", path, err)
	}
	go p.listen(out)
	return p, nil
}

// listen hands on what the process says, and waits for its end.
func (p *Process) listen(out io.Reader) {
	s := bufio.NewScanner(out)
	s.Buffer(nil, longest)
	for s.Scan() {
		p.lines <- append([]byte(nil), s.Bytes()...)
	}
	close(p.lines)
	p.err = p.cmd.Wait()
	close(p.ended)
}

// Ask gives an order, waits for its answer and puts it into reply, a pointer, unless that is nil. When the context ends first nothing can be asked any
// more: End the process.
func (p *Process) Ask(ctx context.Context, order, reply any) error {
	line, err := json.Marshal(order)
	if err != nil {
		return fmt.Errorf("child: %w", err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("child: process %d does not listen: %w", p.cmd.Process.Pid, err)
	}
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.ended
			return fmt.Errorf("child: process %d has ended: %w", p.cmd.Process.Pid, cmp.Or(p.err, io.EOF))
		}
		return take(line, reply)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func take(line []byte, reply any) error {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("child: an answer that is none: %q: %w", line, err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(a.Value, reply)
}

// End closes the process's input, waits up to five seconds for its end, and kills it then.
func (p *Process) End() error {
	_ = p.in.Close() // it may have ended by itself
	timer := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	for range p.lines { // an answer that nobody has waited for
	}
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("child: process %d: %w", p.cmd.Process.Pid, p.err)
	}
	return nil
}

// Serve carries out orders until the input ends. handle gets the order as JSON; what it returns, or its error, is the answer.
func Serve(handle func(order json.RawMessage) (any, error)) error {
	out := os.Stdout
	os.Stdout = os.Stderr // libraries print where they must not
	w := json.NewEncoder(out)
	s := bufio.NewScanner(os.Stdin)
	s.Buffer(nil, longest)
	for s.Scan() {
		value, err := handle(append(json.RawMessage(nil), s.Bytes()...))
		var a answer
		if err == nil && value != nil {
			a.Value, err = json.Marshal(value)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := w.Encode(a); err != nil {
			return fmt.Errorf("child: %w", err)
		}
	}
	return s.Err()
}
