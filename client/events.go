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
	// EventLoad says that a node has been at least twice as busy as the mean of the others, by weight, for some 2 to 6 s, and at 10,000 a second or more: From "even", To "high"; or that this is over, at
	// less than one and a half times as busy: the other way round. Load, Peers and Keys say more. What a server itself measures is compared, so clients of others count too. Each process tells it. A server
	// that does not say how busy it is (INFO stats) is left out.
	EventLoad EventKind = "node-load"
)

// Event is something that happened to a node, see Config.OnEvent.
type Event struct {
	Kind EventKind
	Node string    // the node's id
	At   time.Time // when this process learnt of it
	From string
	To   string
	Err  error // why; nil where there is nothing to say

	// Of EventLoad:
	Load  float64   // of the node: commands a second, and one more for each 4 KiB a second that it sends
	Peers float64   // what it would be if the node were as busy as the mean of the others
	Keys  []KeyRate // up to five keys that this process asks the node for most, by the names of their entries (Cache.Where); of caches that take part in the fleet's view: with L1Hot or HotCopies of 2 or more, and not NoFleetHot. None where no such cache reads one of the node's keys at a sixteenth of HotRate or more from it: many keys are read, other caches', or by other clients
}

// tell hands an event to the user.
func (c *Client) tell(e Event) {
	if c.cfg.OnEvent != nil {
		e.At = time.Now()
		c.cfg.OnEvent(e)
	}
}
