// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import "time"

// EventKind says what an Event is about.
type EventKind string

const (
	// EventState says that a node's state has changed: From and To are states (NodeStats.State), Err is what brought it about.
	EventState EventKind = "node-state"
	// EventPrimary says that another server is a node's primary now: From and To are addresses. Where the node was down, it is "up" on that server shortly before this is told.
	EventPrimary EventKind = "primary-changed"
)

// Event is something that happened to a node, see Config.OnEvent.
type Event struct {
	Kind EventKind
	Node string    // the node's id
	At   time.Time // when this process learnt of it
	From string
	To   string
	Err  error // why; nil where there is nothing to say
}

// tell hands an event to the user.
func (c *Client) tell(e Event) {
	if c.cfg.OnEvent != nil {
		e.At = time.Now()
		c.cfg.OnEvent(e)
	}
}
