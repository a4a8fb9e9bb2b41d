// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

const (
	nodeCount = 4
	processes = 4               // clients that stand for a service's processes
	evenly    = 1.0 / nodeCount // a node's share when all are as busy
)

// cluster is the running nodes.
type cluster struct {
	cfg     client.Config
	servers []*redistest.Server
}

func startNodes(ctx context.Context) (*cluster, error) {
	path, err := redistest.Find()
	if err != nil {
		return nil, fmt.Errorf("hotkey needs real nodes: what embedded ones serve says nothing: %w", err)
	}
	c := &cluster{cfg: client.Config{OperationTimeout: 2 * time.Second}} // nodes and readers share one machine
	for i := range nodeCount {
		s, err := redistest.Launch(ctx, redistest.Config{})
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.servers = append(c.servers, s)
		c.cfg.Nodes = append(c.cfg.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: s.Addr()})
	}
	fmt.Printf("nodes: %d real ones (%s), %d clients\n", nodeCount, path, processes)
	return c, nil
}

func (c *cluster) stop() (err error) {
	for _, s := range c.servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// caches makes one client and one cache for each process, and returns what closes them.
func (c *cluster) caches(ctx context.Context, n int, cfg client.CacheConfig[string]) (caches []*client.Cache[string], end func() error, err error) {
	var clients []*client.Client
	end = func() (err error) {
		for _, cl := range clients {
			err = errors.Join(err, cl.Close(context.WithoutCancel(ctx)))
		}
		return err
	}
	for range n {
		cl, err := client.New(ctx, c.cfg)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		clients = append(clients, cl)
		cache, err := client.NewCache(cl, cfg)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		caches = append(caches, cache)
	}
	return caches, end, nil
}
