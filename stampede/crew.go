// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrClosed is returned for work that comes after Close, and is the cause with
// which background runs are cancelled.
var ErrClosed = errors.New("shelf: closed")

// crew counts goroutines for an owner that must be able to wait for them.
// A sync.WaitGroup cannot be waited for with a context, nor refuse newcomers.
type crew struct {
	mu     sync.Mutex
	count  int
	closed atomic.Bool   // written under mu; read without it by those who only wait: they are many
	idle   chan struct{} // made by the first close, closed when count is 0
}

// enter counts one more, unless the crew is closed. Whoever entered must leave.
func (c *crew) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return false
	}
	c.count++
	return true
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	if c.closed.Load() && c.count == 0 {
		close(c.idle)
	}
}

func (c *crew) running() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *crew) isClosed() bool { return c.closed.Load() }

// shut refuses newcomers from now on and returns the channel that is closed
// when the last member has left. It may be called again.
func (c *crew) shut() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.closed.Store(true)
		c.idle = make(chan struct{})
		if c.count == 0 {
			close(c.idle)
		}
	}
	return c.idle
}

// close shuts the crew and waits until all have left or ctx is over.
func (c *crew) close(ctx context.Context) error {
	idle := c.shut()
	select {
	case <-idle:
		return nil
	default: // an idle crew closes without error even when ctx is over already
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shelf: close: %d still running: %w", c.running(), ctx.Err())
	}
}
