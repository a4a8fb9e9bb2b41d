// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/push"
)

// meetListener is the handshake of the listener: whom it reached, and under which id.
func (t *Tracking) meetListener(ctx context.Context, cn *redis.Conn) error {
	run, reply, err := t.meet(ctx, cn, "shelf-listener", "CLIENT", "ID")
	if err != nil {
		return err
	}
	id, ok := reply.(int64)
	if !ok {
		return &connectError{"CLIENT ID", errors.New("the reply is not an integer")}
	}
	t.run, t.id = run, id
	return nil
}

// meetFill is the handshake of a fill connection. Behind a proxy it may have reached another server than the listener,
// where the same id is somebody else's.
func (t *Tracking) meetFill(ctx context.Context, cn *redis.Conn) error {
	run, _, err := t.meet(ctx, cn, "shelf-fill", "CLIENT", "TRACKING", "ON", "REDIRECT", strconv.FormatInt(t.id, 10))
	if err == nil && run != t.run {
		return ErrRunChanged
	}
	return err
}

// meet asks for the run and sends one more command, in one round trip. The name is for those who read CLIENT LIST; a
// server that refuses it is none the worse.
func (t *Tracking) meet(ctx context.Context, cn *redis.Conn, name string, command ...any) (run string, reply any, err error) {
	pipe := cn.Pipeline()
	if t.node.options.ClientName == "" {
		pipe.ClientSetName(ctx, name)
	}
	info, cmd := pipe.Info(ctx, "server"), pipe.Do(ctx, command...)
	_, err = pipe.Exec(ctx)
	if refusal := redis.Error(nil); err != nil && !errors.As(err, &refusal) {
		return "", nil, &connectError{"the handshake for tracking", err}
	}
	if err := info.Err(); err != nil {
		return "", nil, &connectError{"INFO (for tracking)", err}
	}
	if err := cmd.Err(); err != nil {
		return "", nil, &connectError{"CLIENT ID or CLIENT TRACKING (an ACL user needs +client)", err}
	}
	var g greeting
	g.parseInfo(info.Val())
	return g.runID, cmd.Val(), nil
}

// listen reads the listener: pushes go to their handler on the way, what comes here are answers to pings.
func (t *Tracking) listen(sub *redis.PubSub) {
	for {
		msg, err := sub.Receive(t.ctx)
		if reply := redis.Error(nil); errors.As(err, &reply) {
			continue // BUSY and the like: an answer that proves nothing, on a connection that lives
		}
		if err != nil {
			t.lost(listener, err)
			return
		}
		if pong, ok := msg.(*redis.Pong); ok {
			if sent, err := strconv.ParseInt(pong.Payload, 10, 64); err == nil {
				t.answered(listener, time.Duration(sent))
			}
		}
	}
}

// pushes hands on what the server pushes: names, or nil after a flush of everything.
type pushes struct{ t *Tracking }

// HandlePushNotification is called by the driver, on the goroutine of listen.
func (p pushes) HandlePushNotification(_ context.Context, _ push.NotificationHandlerContext, note []any) error {
	if len(note) < 2 {
		return nil
	}
	n := p.t.node
	list, ok := note[1].([]any)
	if !ok {
		n.tracking.stats.flushes.Add(1)
		p.t.end(flushed, errFlushed)
		return nil
	}
	names := make([]string, 0, len(list))
	for _, v := range list {
		if name, ok := v.(string); ok {
			names = append(names, name)
		}
	}
	n.tracking.stats.pushes.Add(uint64(len(names)))
	if len(names) > 0 {
		n.cfg.Push(names)
	}
	return nil
}
