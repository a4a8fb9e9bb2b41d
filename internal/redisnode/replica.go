// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// AskRole asks the server what it is, by ROLE: the cheapest question that tells, some 2 us of the server's time. Where an ACL user may not call it, it is
// INFO replication, some five times as dear.
func (n *Node) AskRole(ctx context.Context) (Role, error) {
	if n.noRole.Load() {
		r, err := n.AskReplication(ctx)
		return r.Role, err
	}
	reply, err := n.Do(ctx, Command{"ROLE"})
	if redis.HasErrorPrefix(err, "NOPERM") || err != nil && unknownToServer(err) {
		n.noRole.Store(true)
		return n.AskRole(ctx)
	}
	if err != nil {
		return RoleUnknown, err
	}
	parts, _ := reply.([]any)
	if len(parts) > 0 {
		switch parts[0] {
		case "master":
			return RolePrimary, nil
		case "slave":
			return RoleReplica, nil
		}
	}
	return RoleUnknown, nil // a sentinel, for one
}

// AskReplication asks the server about its replication, and answers for nobody but the caller: OnReplication is not called.
func (n *Node) AskReplication(ctx context.Context) (Replication, error) {
	s := n.Session()
	reply, err := s.Do(ctx, Command{"INFO", "replication"})
	for tries := 1; readAgain(err, tries); tries++ {
		s = n.Session()
		reply, err = s.Do(ctx, Command{"INFO", "replication"})
	}
	if err != nil {
		return Replication{}, err
	}
	text, ok := reply.(string)
	if !ok {
		return Replication{}, &Error{Node: n.cfg.ID, Op: "INFO", Err: fmt.Errorf("the reply is a %T, not a text", reply)}
	}
	r := parseReplication(text)
	r.RunID = s.RunID()
	r.Stream = r.RunID + "/" + r.Stream
	return r, nil
}

// Met says whether the node has told its clock: whether Now is more than the local time. After a [Node.Move] it is the old server's until the new one is met. It costs
// one atomic load.
func (n *Node) Met() bool { return n.clock.best.Load() != nil }

// IsReadOnly reports whether err says that the server is a replica, which takes no writes.
func IsReadOnly(err error) bool {
	reply := redis.Error(nil)
	return errors.As(err, &reply) && hasCode(reply.Error(), []string{"READONLY"})
}
