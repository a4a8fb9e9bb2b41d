// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/ring"
)

// stateSeen takes in that a node's state has changed. When it is up again, what is owed to it is sent at once.
func (c *Client) stateSeen(node int, n ring.Node, s redisnode.StateChange) {
	switch s.To {
	case redisnode.Up:
		c.absences.end(node, s.At)
		c.debts.outbox.Wake(node, time.Now())
		signal(c.debts.putNews)
		if s.From == redisnode.Suspect {
			c.cfg.Logger.Debug("shelf: node is no longer suspect", "node", n.ID, "addr", n.Addr)
		} else {
			c.cfg.Logger.Info("shelf: node is well again", "node", n.ID, "addr", n.Addr)
		}
	case redisnode.Down:
		c.absences.begin(node, s.At)
		if s.From != redisnode.Recovering {
			c.cfg.Logger.Warn("shelf: node is in trouble: nothing is sent to it", "node", n.ID, "addr", n.Addr, "error", s.Err)
		}
	default:
		c.cfg.Logger.Debug("shelf: node is "+s.To.String(), "node", n.ID, "addr", n.Addr, "error", s.Err)
	}
	c.tell(Event{Kind: EventState, Node: n.ID, From: s.From.String(), To: s.To.String(), Err: s.Err})
}
