// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// The next Tracking is tried after a random time between half of the back-off and all of it: 100 to 200 ms after the
	// first failure, up to 1 to 2 s. The processes that a flush or a restart has cut off do not come back all at once.
	trackBackoff    = 200 * time.Millisecond
	trackMaxBackoff = 2 * time.Second
	// A node that refused is asked again after this, or in its next run: permissions can be given while it runs.
	trackRefused = time.Minute
)

// tracker is what builds a node's Trackings, one after the other.
type tracker struct {
	present atomic.Pointer[Tracking]
	able    atomic.Bool   // the node can and may, as far as is known, whether there is a present one or not
	news    chan struct{} // has room for one: the node can track, and this was not known or it is another run
	stats   trackingCounts

	// Guarded by the node's mu. cancel is nil when none runs.
	cancel context.CancelFunc
	done   chan struct{}
}

// Tracking is the present one; nil if there is none: Push is nil, [Node.Run] does not run, the node is not connected,
// cannot track (miniredis) or does not permit it ([Info.TrackingError] says which). Take it anew for each use. It costs
// one atomic load.
func (n *Node) Tracking() *Tracking { return n.tracking.present.Load() }

// Tracks says whether the node pushes changes to this Node, though perhaps not at the moment: a [Tracking] has just ended, or is being built. It costs
// one atomic load.
func (n *Node) Tracks() bool { return n.tracking.able.Load() }

// startTracking begins to build Trackings, until ctx ends or stop is called, which waits.
func (n *Node) startTracking(ctx context.Context) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cfg.Push == nil || n.shut || n.tracking.cancel != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	n.tracking.cancel, n.tracking.done = cancel, done
	go func() {
		defer close(done)
		n.track(ctx)
	}()
	return func() {
		cancel()
		<-done
		n.mu.Lock()
		n.tracking.cancel = nil
		n.mu.Unlock()
	}
}

// track builds one Tracking after the other.
func (n *Node) track(ctx context.Context) {
	backoff := trackBackoff
	for n.awaitCapable(ctx) {
		t := newTracking(n)
		t.live(ctx)
		was := n.tracking.present.CompareAndSwap(t, nil)
		why, err := t.cause()
		n.note(why, err, was)
		if was {
			n.cfg.Push(nil) // all of t's goroutines have ended: this comes behind its last push
		}
		if was && t.since() > trackMaxBackoff {
			backoff = trackBackoff
		}
		if refused(err) {
			n.tracking.able.Store(false)
			n.pause(ctx, trackRefused, n.tracking.news)
			continue
		}
		n.pause(ctx, backoff/2+rand.N(backoff/2), nil) //nolint:gosec // a draw, not a secret
		backoff = min(2*backoff, trackMaxBackoff)
	}
}

// awaitCapable waits until the node is known to track; false means that ctx ended.
func (n *Node) awaitCapable(ctx context.Context) bool {
	for ctx.Err() == nil {
		if i := n.Info(); i.Capabilities.Tracking && i.RunID != "" {
			return true
		}
		n.pause(ctx, 0, n.tracking.news)
	}
	return false
}

// pause waits for news, for ctx, and if d is not 0, no longer than that.
func (n *Node) pause(ctx context.Context, d time.Duration, news <-chan struct{}) {
	var timeout <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
	case <-timeout:
	case <-news:
	}
}

// refused tells "you may not" and "I cannot" from trouble that passes.
func refused(err error) bool {
	reply := redis.Error(nil)
	return errors.As(err, &reply) && (redis.HasErrorPrefix(reply, "NOPERM") || unknownToServer(reply))
}

// live connects t, publishes it when all its connections have answered, and watches it until it is over. When it returns
// nothing of t runs any more. The end of ctx ends t.
func (t *Tracking) live(ctx context.Context) {
	defer t.workers.Wait()
	stop := context.AfterFunc(ctx, func() { t.end(trackingStopped, ErrTrackingOver) })
	defer stop()
	// The driver waits for the handshake without a limit, as it does for every reply.
	tooLong := time.AfterFunc(giveUpAfter, func() {
		if !t.isReady() {
			t.end(fellSilent, errSilent)
		}
	})
	defer tooLong.Stop()
	ears := t.client(listener, t.meetListener)
	defer func() { _ = ears.Close() }()
	ears.RegisterPushNotificationHandler("invalidate", pushes{t}, true) //nolint:errcheck // of a new client there is none yet
	// Subscribed to nothing: pushes come without, and a subscription is read all the time.
	sub := ears.Subscribe(t.ctx) //nolint:contextcheck // t ends with ctx, in good order
	defer func() { _ = sub.Close() }()
	t.pingListener(sub) // connects
	if t.Over() {
		return
	}
	t.workers.Go(func() { t.listen(sub) })
	for i := range fills {
		client := t.client(listener+1+i, t.meetFill)
		defer func() { _ = client.Close() }()
		t.workers.Go(func() { t.fill(listener+1+i, client) })
	}
	t.watchOver(ctx, sub)
}

// watchOver publishes t when it is ready, pings the listener, and gives up when a connection has been silent for too long.
func (t *Tracking) watchOver(ctx context.Context, sub *redis.PubSub) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	ready := t.ready
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-ready:
			ready = nil
			if !t.node.publish(ctx, t) {
				t.end(runEnded, ErrRunChanged)
			}
		case <-tick.C:
			if t.silent() {
				t.end(fellSilent, errSilent)
			}
			t.pingListener(sub)
		}
	}
}

// pingListener sends a ping that says when it was sent; its answer comes to listen.
func (t *Tracking) pingListener(sub *redis.PubSub) {
	if err := sub.Ping(t.ctx, strconv.FormatInt(int64(t.since()), 10)); err != nil {
		t.lost(listener, err)
	}
}

// publish makes t the present one, unless the node has come to another run of the server meanwhile. Whoever judges what
// is read through t does so by what [Info] says of the run.
func (n *Node) publish(ctx context.Context, t *Tracking) bool {
	// The session may not have noticed that the run changed: its idle connections are dead, one look takes one of them.
	for tries := 0; n.Session().RunID() != t.run && tries <= n.cfg.PoolSize && !t.Over(); tries++ {
		if !deadConnection(n.ask(ctx)) {
			break
		}
	}
	//   1. another goroutine's connection is the session's first to the new run; n.info has it
	//   2. t is published; R reads through it what came back from a snapshot
	//   3. OnRun is called, from which R's owner would have heard that it must not believe that
	// So whoever is telling of the run has to be through with it.
	s := n.Session()
	s.meeting.Lock()
	defer s.meeting.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.info.RunID != t.run || n.session.Load() != s || s.RunID() != t.run {
		return false
	}
	n.info.TrackingError = nil
	n.tracking.able.Store(true)
	n.tracking.stats.begun.Add(1)
	n.tracking.present.Store(t)
	return true
}

// trackingMet takes in what a session's new connection has learnt, after it is in n.info.
func (n *Node) trackingMet(run string, news bool) {
	// publish looks at n.info with the lock held: either it finds the new run there, or t is found here.
	if t := n.tracking.present.Load(); t != nil && t.run != run {
		t.end(runEnded, ErrRunChanged)
	}
	if news {
		select {
		case n.tracking.news <- struct{}{}:
		default:
		}
	}
}

// client makes the driver's client for one connection.
func (t *Tracking) client(conn int, meet func(context.Context, *redis.Conn) error) *redis.Client {
	o := t.node.options // a copy: the driver keeps what it gets
	o.Addr = t.node.Addr()
	o.Dialer, o.OnConnect = t.dialer(conn), meet
	if user := t.node.options.OnConnect; user != nil {
		o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			if err := meet(ctx, cn); err != nil {
				return err
			}
			if err := user(ctx, cn); err != nil {
				return &connectError{"OnConnect of the configured options", err}
			}
			return nil
		}
	}
	o.PoolSize = 1
	// The driver closes a connection whose reply is late, or old; this one is closed by t or not at all. So its waits
	// have no limit, and those who wait for it leave by themselves.
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = -1, giveUpAfter, false
	o.ConnMaxIdleTime, o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = -1, 0, 0
	o.Limiter = nil // a breaker that is open must not hold back a ping
	return redis.NewClient(&o)
}
