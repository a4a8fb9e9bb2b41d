// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/core/stores/cache"
	"github.com/zeromicro/go-zero/core/stores/redis"
	"github.com/zeromicro/go-zero/core/syncx"
)

// goZero is go-zero's cache, which stores JSON and hashes keys over its nodes by itself.
var goZero = contender{
	name: "go-zero cache", about: "Take; values are stored as JSON strings",
	kinds: []string{kindL2, kindMiss, kindStampede, kindZipf}, open: openGoZero,
}

// Its statistics, a line a minute, are nobody's wish here.
func init() { logx.Disable() }

func openGoZero(_ context.Context, s *scene) (*opened, error) {
	var nodes cache.ClusterConf
	for _, addr := range s.Addrs {
		nodes = append(nodes, cache.NodeConf{Weight: 100, RedisConf: redis.RedisConf{
			Host: addr, Type: redis.NodeType, NonBlock: true, DisableIdentity: true, Protocol: 3, MaintNotifications: "disabled",
		}})
	}
	c := cache.New(nodes, syncx.NewSingleFlight(), cache.NewStat("bench"), errNoRow)
	out := &opened{close: func() {}} // its connections are the process's
	out.text = func(ctx context.Context, key string) (v string, err error) { return v, c.GetCtx(ctx, key, &v) }
	if s.Kind != kindL2 {
		out.text = func(ctx context.Context, key string) (v string, err error) {
			return v, c.TakeCtx(ctx, &v, key, func(row any) error {
				text, err := s.source.row(ctx, key)
				*row.(*string) = text
				return err
			})
		}
	}
	out.write = func(ctx context.Context, key string) error { return c.DelCtx(ctx, key) }
	out.seed = func(ctx context.Context, keys []string) error {
		for _, key := range keys {
			if err := c.SetCtx(ctx, key, valueOf(key)); err != nil {
				return err
			}
		}
		return nil
	}
	return out, nil
}
