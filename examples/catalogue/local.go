// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/internal/pgtest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// startLocal starts what cfg does not name: a PostgreSQL, and three cache nodes (redis-servers where one is on PATH, else embedded ones). stop ends
// them and is never nil.
func startLocal(ctx context.Context, cfg config, log *slog.Logger) (database string, nodes client.Config, stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	database, nodes = cfg.database, client.Config{Nodes: cfg.nodes}
	if database == "" {
		pg, err := pgtest.Launch(ctx)
		if err != nil {
			return "", nodes, stop, fmt.Errorf("catalogue: no -database: %w", err)
		}
		stops = append(stops, pg.Close)
		database = pg.DSN()
		log.Info("no -database: started a PostgreSQL, which ends with this program", "dsn", database)
	}
	if len(cfg.nodes) > 0 {
		return database, nodes, stop, nil
	}
	if _, err := redistest.Find(); err != nil {
		embedded := clienttest.New(3)
		stops = append(stops, func() error { embedded.Close(); return nil })
		nodes = embedded.Config()
		log.Info("no -nodes, and no redis-server on PATH: started 3 embedded nodes")
	}
	for i := len(nodes.Nodes); i < 3; i++ {
		s, err := redistest.Launch(ctx, redistest.Config{})
		if err != nil {
			return "", nodes, stop, fmt.Errorf("catalogue: no -nodes: %w", err)
		}
		stops = append(stops, s.Close)
		nodes.Nodes = append(nodes.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: s.Addr()})
		log.Info("no -nodes: started a redis-server, which ends with this program", "id", nodes.Nodes[i].ID, "addr", s.Addr(), "pid", s.Pid())
	}
	nodes.OperationTimeout = 500 * time.Millisecond // ten times the default: nodes, database and service share one machine
	return database, nodes, stop, nil
}
