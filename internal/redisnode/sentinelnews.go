// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// A subscription is pinged this often, and given up after that silence: the driver waits for a stopped server for ever.
	newsPing    = time.Second
	newsSilence = 3 * time.Second
	// newsBackoff is the pause before the next try, jittered to between half and all of it: one dial a second and Sentinel.
	newsBackoff = time.Second
)

// Run listens to every Sentinel, since during a failover only the one that leads it publishes the first steps, until ctx ends or the Sentinels are closed. onNews is called
// from a goroutine for each Sentinel, and must return quickly. Call Run once.
func (s *Sentinels) Run(ctx context.Context, onNews func(News)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // two contexts end it
	var listeners sync.WaitGroup
	for _, addr := range s.cfg.Addrs {
		listeners.Go(func() {
			for ctx.Err() == nil {
				s.listen(ctx, addr, onNews)
				sleep(ctx, newsBackoff/2+rand.N(newsBackoff/2)) //nolint:gosec // a draw, not a secret
			}
		})
	}
	listeners.Wait()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// listen is one subscription, on a connection of its own, until that is lost or has been silent for too long.
func (s *Sentinels) listen(ctx context.Context, addr string, onNews func(News)) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	o := s.options(addr)
	o.Dialer = once(s.quiet(o.Dialer))
	o.PoolSize = 1
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	sub := client.PSubscribe(ctx, "*") // connects
	defer func() { _ = sub.Close() }()
	var heard atomic.Int64 // when something came last, since began
	began := time.Now()
	watch.Go(func() {
		pingWhileHeard(ctx, sub, func() time.Duration { return time.Since(began) - time.Duration(heard.Load()) })
		_ = sub.Close() // ends Receive
	})
	for {
		msg, err := sub.Receive(ctx)
		if err != nil {
			return
		}
		heard.Store(int64(time.Since(began)))
		switch msg := msg.(type) {
		case *redis.Subscription:
			onNews(News{Sentinel: addr})
		case *redis.Message:
			if n := parseNews(msg.Channel, msg.Payload); n.Name != "" {
				n.Sentinel = addr
				onNews(n)
			}
		}
	}
}

// pingWhileHeard pings a subscription until it has been silent for too long, cannot be pinged, or ctx ends.
func pingWhileHeard(ctx context.Context, sub *redis.PubSub, silence func() time.Duration) {
	tick := time.NewTicker(newsPing)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if silence() >= newsSilence || sub.Ping(ctx) != nil {
				return
			}
		}
	}
}

// once is a dialer for one connection. The driver would replace one that is lost and say nothing, but what was published meanwhile is missed then.
func once(dial dialFunc) dialFunc {
	var used atomic.Bool
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if used.Swap(true) {
			return noConn{net.ErrClosed}, nil
		}
		return dial(ctx, network, addr)
	}
}

// parseNews reads a message of a Sentinel: "+switch-master <name> <ip> <port> <new ip> <new port>", else "<kind> <name> <ip> <port>", which for what is no
// primary is followed by "@ <primary's name> <ip> <port>". The zero News is about none.
func parseNews(channel, payload string) News {
	words := strings.Fields(payload)
	if channel == "+switch-master" {
		if len(words) != 5 {
			return News{}
		}
		return News{Name: words[0], Addr: net.JoinHostPort(words[3], words[4])}
	}
	if len(words) < 4 {
		return News{}
	}
	if words[0] == "master" {
		down := channel == "+sdown" || channel == "+odown" || channel == "+try-failover" || channel == "+elected-leader" || strings.HasPrefix(channel, "+failover-state")
		return News{Name: words[1], Down: down}
	}
	if len(words) >= 6 && words[4] == "@" {
		return News{Name: words[5], Down: channel == "+selected-slave" || strings.HasPrefix(channel, "+failover-state") || channel == "+promoted-slave"}
	}
	return News{}
}
