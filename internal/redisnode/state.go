// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"fmt"
	"time"
)

// State is what a [Node] thinks of its server. It is judged as long as [Node.Run] runs; without it, it stays Up.
type State int32

// The states.
const (
	// Up: operations are sent.
	Up State = iota
	// Suspect: three heartbeats or operations, one after the other, were not answered; or a part of the operations fails, and then only a share of
	// the reads is sent ([IsDown]). It lasts for a second at least.
	Suspect
	// Down: nothing is sent but heartbeats.
	Down
	// Recovering: a heartbeat was answered after Down. Two more of them, and the node is Up; one that is not, and it is Down again. Operations are not sent.
	Recovering
)

// String is the state's name in lower case.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Suspect:
		return "suspect"
	case Down:
		return "down"
	case Recovering:
		return "recovering"
	}
	return fmt.Sprintf("State(%d)", int32(s))
}

// StateChange is a change of a Node's [State].
type StateChange struct {
	From, To State
	At       time.Time
	Err      error // what brought it about; nil where the node is well again
}

// ErrDown says that an operation was not sent: the node is [Down] or [Recovering], or [Suspect] and this read not of the share that is sent. The
// error it comes in says since when, and why.
var ErrDown = errors.New("the node is down")

// IsDown reports whether err says that the operation was not sent because of the node's [State]. It came back without a wait, and has changed nothing.
func IsDown(err error) bool { return errors.Is(err, ErrDown) }

// State is the present one. It costs one atomic load.
func (n *Node) State() State { return State(n.breaker.state.Load()) }

// downError is why an operation was not sent. It tells the cause as text and does not wrap it: that another operation timed out, or met the
// end of a connection, must not look like this one's fate.
type downError struct {
	since time.Time
	share float64 // of the operations that are sent
	cause error
}

func (e *downError) Error() string {
	if e.share > 0 {
		return fmt.Sprintf("not sent: a part of the operations fails, and since %s %.0f %% of the reads are sent; the latest failure: %v", e.since.Format(time.RFC3339Nano), 100*e.share, e.cause)
	}
	return fmt.Sprintf("%v since %s: %v", ErrDown, e.since.Format(time.RFC3339Nano), e.cause)
}

// Is makes errors.Is(err, ErrDown) true.
func (e *downError) Is(target error) bool { return target == ErrDown }
