// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"fmt"
)

// ReadIn sends one command that reads, and says in which history of writes it was carried out: it is that of an earlier ReadIn only if nothing
// was lost in between that a primary had taken. The name is [Replication.Stream]; "" for servers that have none (miniredis). A replica's answer is an error. Sent once.
//
// INFO goes behind the command over the same connection. A history's id is never used twice, so the same id before and after means that there was no other in
// between. The heartbeats ask as well, but only now and then.
func (n *Node) ReadIn(ctx context.Context, c Command) (reply any, history string, err error) {
	s := n.Session()
	results := s.DoMany(ctx, []Command{c, {"INFO", "replication"}})
	if results[0].Err != nil {
		return nil, "", results[0].Err
	}
	run := s.RunID()
	if run == "" {
		return results[0].Reply, "", nil
	}
	text, _ := results[1].Reply.(string)
	r := parseReplication(text)
	switch {
	case results[1].Err != nil:
		return nil, "", results[1].Err
	case r.Role != RolePrimary || r.ID == "":
		return nil, "", &Error{Node: n.cfg.ID, Op: c.op(), Err: errors.New("the server does not say that it is a primary, and of which history")}
	}
	return results[0].Reply, run + "/" + r.ID, nil
}

// WriteIn sends commands that write, in one pipeline, and says in which history of writes they were carried out, or an earlier one: one that was true when they were
// sent and may have ended since. They are sent once; if the server's run changed, which is found out before, to the next one.
func (n *Node) WriteIn(ctx context.Context, cs []Command) (results []Result, history string, err error) {
	s := n.Session()
	history = s.Stream()
	results = s.DoMany(ctx, cs)
	if runChanged(results[0].Err) {
		s = n.Session()
		history = s.Stream()
		results = s.DoMany(ctx, cs)
	}
	for _, r := range results {
		if r.Err != nil {
			return results, "", r.Err
		}
	}
	if history == "" { // the first connection of all was made for this
		history = s.Stream()
	}
	if history == "" && s.RunID() != "" {
		return results, "", &Error{Node: n.cfg.ID, Op: cs[0].op(), Err: fmt.Errorf("the server %s does not say of which history it is: INFO replication is needed", s.RunID())}
	}
	return results, history, nil
}
