// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// recordingBytes bounds a [Recording].
const recordingBytes = 32 << 20

// Passage is a piece of what passed through a [Proxy].
type Passage struct {
	Conn      int // the index of the connection
	Direction Direction
	Arrived   time.Time // when the proxy had read it
	Passed    time.Time // when it was written on
	Data      []byte    // not to be changed
}

// Command is a command that passed, in RESP or inline.
type Command struct {
	Conn   int       // the index of the connection
	Passed time.Time // when its last byte was written on
	Args   []string  // the name is the first, as the client wrote it
}

// Is reports whether the command begins with these words, upper or lower case, as
// in Is("CLIENT", "TRACKING", "ON").
func (c Command) Is(words ...string) bool { return beginsWith(c.Args, words) }

// Recording keeps what passes through a [Proxy]: not what is still held back, and
// not what was lost. Whoever got an answer finds both the command and the answer
// in it. It is safe for concurrent use.
//
// It holds 32 MiB. More is a failed step of the proxy, so that a test cannot
// count half of what it asked for.
type Recording struct {
	proxy *Proxy
	began time.Time

	mu       sync.Mutex
	passages []Passage
	held     int
	full     bool
}

// Record begins a recording. It costs the memory of what passes until it is
// stopped. Several may run at the same time.
func (p *Proxy) Record() *Recording {
	r := &Recording{proxy: p, began: time.Now()}
	p.editRecordings(func(all []*Recording) []*Recording { return append(all, r) })
	return r
}

// Stop ends the recording. What it holds remains.
func (r *Recording) Stop() {
	r.proxy.editRecordings(func(all []*Recording) []*Recording {
		return slices.DeleteFunc(all, func(other *Recording) bool { return other == r })
	})
}

// Passages is all that was recorded so far, in the order in which it passed.
func (r *Recording) Passages() []Passage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.passages)
}

// Commands are the commands that passed completely, in the order of their last
// bytes. On a connection older than the recording the first byte recorded must be
// the first of a command. Bytes that are no command are a failed step.
func (r *Recording) Commands() []Command {
	var commands []Command
	rest := make(map[int][]byte) // by connection: the beginning of a command
	for _, p := range r.Passages() {
		if p.Direction != ToServer {
			continue
		}
		stream := append(rest[p.Conn], p.Data...)
		parsed, used, err := parseCommands(stream)
		for _, args := range parsed {
			commands = append(commands, Command{Conn: p.Conn, Passed: p.Passed, Args: args})
		}
		rest[p.Conn] = stream[used:]
		if err != nil {
			r.proxy.step("commands recorded by", func() error { return fmt.Errorf("connection %d: %w", p.Conn, err) })
			break
		}
	}
	return commands
}

// Count is how many of [Recording.Commands] begin with these words.
func (r *Recording) Count(words ...string) int {
	n := 0
	for _, c := range r.Commands() {
		if c.Is(words...) {
			n++
		}
	}
	return n
}

// add keeps a passage; false means that the recording is full, for the first time.
func (r *Recording) add(p Passage) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return true
	}
	r.held += len(p.Data) + chunkCost
	if r.held > recordingBytes {
		r.full = true
		return false
	}
	r.passages = append(r.passages, p)
	return true
}

// editRecordings replaces the list. It is read without a lock, for each piece.
func (p *Proxy) editRecordings(edit func([]*Recording) []*Recording) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*Recording
	if old := p.recs.Load(); old != nil {
		all = slices.Clone(*old)
	}
	all = edit(all)
	p.recs.Store(&all)
}

// passing hands a piece that is about to be written to the recordings. The caller
// holds a link's mu, so a failure is reported by another goroutine.
func (p *Proxy) passing(conn int, d Direction, taken chunk) {
	all := p.recs.Load()
	if all == nil || len(*all) == 0 {
		return
	}
	passage := Passage{Conn: conn, Direction: d, Arrived: taken.arrived, Passed: time.Now(), Data: taken.data}
	for _, r := range *all {
		if !r.add(passage) {
			p.wg.Go(func() {
				p.step("record at", func() error { return fmt.Errorf("more than %d bytes", recordingBytes) })
			})
		}
	}
}
