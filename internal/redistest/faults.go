// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

var (
	errPortTaken = errors.New("another program took the port")
	errClosed    = errors.New("the server is closed")
)

// Kill ends the process at once (kill -9) and returns when it is gone:
// connections are refused from then on. It also ends a stopped one. Killing a
// dead server does nothing.
func (s *Server) Kill() {
	s.step("kill", func() error { return s.proc.Kill() })
}

// Stop freezes the process (SIGSTOP): connections stay open, new ones are
// accepted by the kernel, and nothing is answered. It returns when no thread of
// the server runs any more.
func (s *Server) Stop() {
	s.step("stop", func() error { return s.proc.Stop() })
}

// Cont lets a stopped process go on (SIGCONT). What was sent to it meanwhile is
// executed now.
func (s *Server) Cont() {
	s.step("continue", func() error { return s.proc.Cont() })
}

// Restart kills the process, if it still runs, and starts another one at the
// same address with the same arguments; it returns when that answers. Without
// [Config.Persist] it comes back empty. A replica comes back as a replica of its
// first primary and may still be connecting.
func (s *Server) Restart() {
	s.step("restart", func() error {
		if s.closed {
			return errClosed
		}
		if err := s.proc.Kill(); err != nil {
			return err
		}
		if !s.cfg.Persist {
			if err := s.clear(); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		return s.start(ctx)
	})
}

// step runs one step of a scenario and reports its failure.
func (s *Server) step(what string, act func() error) {
	s.mu.Lock()
	err := act()
	if err != nil {
		err = fmt.Errorf("redistest: %s %s: %w", what, s.Addr(), err)
		if s.err == nil {
			s.err = err
		}
	}
	s.mu.Unlock()
	if err != nil {
		s.report(err)
	}
}

// start runs a process and waits until it answers. The caller holds mu, or has
// the server for itself.
func (s *Server) start(ctx context.Context) error {
	p, err := proc.Start(proc.Command{Path: s.binary, Args: s.args(), Env: s.cfg.Env, Dir: s.dir})
	if err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	s.proc, s.client = p, nil
	err = poll(ctx, p, func() error { return s.answers(ctx, p.Pid()) })
	if err != nil {
		return fmt.Errorf("redistest: start at %s: %w", s.Addr(), err)
	}
	return nil
}

// poll repeats check until it succeeds, the process ends, or the context does.
func poll(ctx context.Context, p *proc.Process, check func() error) error {
	for {
		err := check()
		if err == nil {
			return nil
		}
		if errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-p.Done():
			return endOf(p)
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w; it wrote:\n%s", ctx.Err(), err, lastLines(p.Output(), 10))
		case <-time.After(pollEvery):
		}
	}
}
