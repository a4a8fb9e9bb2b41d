// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// greeting is what a server says about itself on a new connection.
type greeting struct {
	version, mode, runID string
	engine               Engine
	startedAt            time.Time // zero if the server does not say
	replication          Replication
	can                  Capabilities
	clock                reading
	hasClock             bool
	noTracking           error // what CLIENT TRACKING was refused with
}

// onConnect runs on every new connection, before the command it was made for.
func (s *Session) onConnect(ctx context.Context, cn *redis.Conn, user func(context.Context, *redis.Conn) error) error {
	g, err := s.node.greet(ctx, cn)
	if err != nil {
		return err
	}
	if g.mode == "cluster" || g.mode == "sentinel" {
		return &modeError{s.node.cfg.ID, s.client.Options().Addr, g.mode}
	}
	if err := s.meet(g); err != nil {
		s.node.replace(s)
		return err
	}
	if user != nil {
		if err := user(ctx, cn); err != nil {
			return &connectError{"OnConnect of the configured options", err}
		}
	}
	return nil
}

// meet admits a new connection and tells what it has learnt. One at a time: no connection to a new run carries a command before OnRun and
// OnReplication have returned.
func (s *Session) meet(g greeting) error {
	s.meeting.Lock()
	defer s.meeting.Unlock()
	first, err := s.admit(g.runID)
	if err != nil {
		return err
	}
	s.node.met(s, g, first)
	return nil
}

// greet asks everything in one round trip. Commands that a server does not have, or that an ACL
// user may not call, are done without, except INFO: a server that has it and does not answer it
// cannot prove which run it is.
func (n *Node) greet(ctx context.Context, cn *redis.Conn) (greeting, error) {
	pipe := cn.Pipeline()
	info := pipe.Info(ctx, "server")
	clock := pipe.Time(ctx)
	replication := pipe.Info(ctx, "replication")
	// Of no effect on a connection that does not track, and an error where it could not.
	tracking := pipe.Do(ctx, "CLIENT", "TRACKING", "OFF")
	lua := []*redis.BoolSliceCmd{pipe.ScriptExists(ctx, strings.Repeat("0", 40))}
	for _, s := range n.cfg.Scripts {
		pipe.ScriptLoad(ctx, s.Source) // if it is refused, EVALSHA will say so
	}
	sent := time.Now()
	_, err := pipe.Exec(ctx)
	received := time.Now()
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		return greeting{}, &connectError{"reading INFO and TIME on a new connection", err}
	}

	g := greeting{replication: parseReplication(replication.Val()), can: Capabilities{Tracking: tracking.Err() == nil, Lua: lua[0].Err() == nil}, noTracking: tracking.Err()}
	g.replication.At = sent
	switch err := info.Err(); {
	case err == nil:
		g.parseInfo(info.Val())
	case unknownToServer(err):
		g.engine = EngineEmbedded
	default:
		doing := "INFO on a new connection"
		if redis.HasErrorPrefix(err, "NOPERM") {
			doing += " (an ACL user needs +info)"
		}
		return greeting{}, &connectError{doing, err}
	}
	if now, err := clock.Result(); err == nil {
		g.clock, g.hasClock = newReading(sent, received, now), true
		g.boundStart(now)
	}
	return g, nil
}

// unknownToServer tells "there is no such command" from "not now" and "not for you".
func unknownToServer(err error) bool {
	return redis.HasErrorPrefix(err, "ERR unknown") || redis.HasErrorPrefix(err, "unknown") ||
		strings.HasSuffix(err.Error(), "is not supported") // miniredis, about sections of INFO
}

func (g *greeting) parseInfo(text string) {
	g.engine = EngineRedis
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	g.version, g.mode, g.runID = fields["redis_version"], fields["redis_mode"], fields["run_id"]
	if v := fields["valkey_version"]; v != "" { // redis_version is what Valkey is compatible with
		g.engine, g.version = EngineValkey, v
	}
	if g.mode == "" {
		g.mode = fields["server_mode"]
	}
	up, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 64)
	now, err2 := strconv.ParseInt(fields["server_time_usec"], 10, 64)
	if err == nil && err2 == nil {
		// The server takes both from whole seconds, so the difference is the second in which it
		// started, exactly, and its end is the latest moment at which it can have started.
		g.startedAt = time.Unix(now/1_000_000-up+1, 0)
	}
}

// boundStart uses that the server has certainly started before it answered: in its first second
// that is the closer bound, and what is stored behind this reply is younger than it.
func (g *greeting) boundStart(now time.Time) {
	if !g.startedAt.IsZero() && now.Before(g.startedAt) {
		g.startedAt = now
	}
}
