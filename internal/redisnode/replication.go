// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"net"
	"strconv"
	"strings"
	"time"
)

// Replication is what a server says about its part in replication: INFO replication
// (https://redis.io/docs/latest/commands/info/).
type Replication struct {
	At    time.Time // when it was asked, on the local clock
	RunID string    // who was asked
	Role  Role
	// Stream names the history of writes: the run id, and the replication id, which changes when a
	// server is promoted. Offsets of two streams cannot be compared.
	Stream string
	// ID is the replication id by itself: a primary and its replicas have the same, and their offsets can be compared. Continues is the id of the
	// history that this one has gone on from: that of the primary whose replica the server was when it was promoted. "" is none.
	ID, Continues string
	Offset        int64 // how far the stream has come; on a replica, what it has applied of it
	LinkUp        bool  // of a replica: it is connected to its primary, and has all that it had when it connected
	// Replicas are those that are connected, by address, with how much of the stream each has
	// acknowledged. One that is being synchronized has nothing yet: it may still hold old data.
	Replicas map[string]int64
}

// parseReplication reads INFO replication. A server that does not say its role is of none.
func parseReplication(text string) Replication {
	r := Replication{Replicas: map[string]int64{}}
	id := ""
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "role" && value == "master":
			r.Role = RolePrimary
		case name == "role" && value == "slave":
			r.Role = RoleReplica
		case name == "master_replid":
			id = value
		case name == "master_replid2" && strings.Trim(value, "0") != "":
			r.Continues = value
		case name == "master_link_status":
			r.LinkUp = value == "up"
		case name == "master_repl_offset":
			r.Offset, _ = strconv.ParseInt(value, 10, 64)
		case strings.HasPrefix(name, "slave") && strings.Contains(value, "ip="):
			addr, offset := parseReplica(value)
			r.Replicas[addr] = offset
		}
	}
	r.ID, r.Stream = id, id
	return r
}

// parseReplica reads "ip=10.0.0.2,port=6379,state=online,offset=1234,lag=0".
func parseReplica(value string) (addr string, offset int64) {
	var ip, port, state string
	for part := range strings.SplitSeq(value, ",") {
		name, v, _ := strings.Cut(part, "=")
		switch name {
		case "ip":
			ip = v
		case "port":
			port = v
		case "state":
			state = v
		case "offset":
			offset, _ = strconv.ParseInt(v, 10, 64)
		}
	}
	if state != "online" {
		offset = 0
	}
	return net.JoinHostPort(ip, port), offset
}

// replicated takes in what a server has said, and tells OnReplication, one reading at a time. One that was sent before the
// answer to the last was there says nothing about what came in between: it is dropped, unless it is of another stream.
func (n *Node) replicated(s *Session, r Replication) {
	if r.Role == RoleUnknown || s.RunID() == "" {
		return
	}
	r.RunID = s.RunID()
	r.Stream = r.RunID + "/" + r.Stream
	n.replication.Lock()
	defer n.replication.Unlock()
	if n.Session() != s {
		return // news of an old run
	}
	if old := s.stream.Load(); old != nil && *old == r.Stream && r.At.Before(n.heard) {
		return
	}
	s.stream.Store(&r.Stream)
	if n.cfg.OnReplication != nil {
		n.cfg.OnReplication(r)
	}
	n.heard = time.Now()
}

// Stream names the history of writes of the server that the session is bound to, see [Replication.Stream]; "" before the first
// connection, and for a server that does not say.
func (s *Session) Stream() string {
	if stream := s.stream.Load(); stream != nil {
		return *stream
	}
	return ""
}
