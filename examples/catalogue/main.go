// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Catalogue is a small HTTP service over PostgreSQL, with Shelf in front of its table of products. It is meant to be copied from:
//
//	store.go   the source: a table with row versions, and the SQL
//	server.go  the cache and the handlers: reads through it, writes that invalidate, errors as statuses
//	main.go    flags, wiring, and the order in which things end
//	local.go   starts a database and nodes where none are given; a real service has no such file
//
// With -load it serves nobody and measures: load.go, generator.go, recorder.go, progress.go and report.go, which nobody needs to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/ring"
)

const (
	connections = 16               // to the database
	maxLoads    = 12               // of them for the cache's loads, so that a cold cache leaves some for writes and health checks
	stopTimeout = 10 * time.Second // for requests under way, and again for the client
)

// config is what the flags say; each can also be given in the environment, -listen as CATALOGUE_LISTEN.
type config struct {
	listen   string
	database string
	nodes    []ring.Node
	rows     int // 0 is 10,000, or 100,000 with -load
	load     load
}

func main() {
	var cfg config
	flag.StringVar(&cfg.listen, "listen", "127.0.0.1:8080", "`address` to serve at")
	flag.StringVar(&cfg.database, "database", "", "`DSN` of a PostgreSQL; without it one is started")
	flag.Func("nodes", "cache nodes, as `id=host:port,...`; without them three are started", cfg.parseNodes)
	flag.IntVar(&cfg.rows, "rows", 0, "`number` of products to make when the table is empty; 0 means 10,000, with -load 100,000")
	cfg.load.flags(flag.CommandLine)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))

	err := fromEnvironment(flag.CommandLine)
	if err == nil {
		flag.Parse()
		err = cfg.checkFlags(flag.CommandLine)
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		if cfg.load.on {
			err = runLoad(ctx, cfg, log, os.Stdout, progressOn(os.Stderr))
		} else {
			err = run(ctx, cfg, log)
		}
		stop()
	}
	if err != nil {
		log.Error("catalogue ended", "error", err)
		os.Exit(1)
	}
}

func fromEnvironment(fs *flag.FlagSet) (err error) {
	fs.VisitAll(func(f *flag.Flag) {
		name := "CATALOGUE_" + strings.ToUpper(f.Name)
		if v := os.Getenv(name); v != "" && err == nil {
			if e := fs.Set(f.Name, v); e != nil {
				err = fmt.Errorf("catalogue: %s: %w", name, e)
			}
		}
	})
	return err
}

// parseNodes reads "a=10.0.0.1:6379,b=10.0.0.2:6379". The id is what a node's keys belong to: it stays when the address changes.
func (c *config) parseNodes(s string) error {
	c.nodes = nil
	for part := range strings.SplitSeq(s, ",") {
		id, addr, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q is not id=host:port", part)
		}
		c.nodes = append(c.nodes, ring.Node{ID: id, Addr: addr})
	}
	return nil
}

// run serves until ctx ends. Deferred calls run in reverse, and that is the order of the shutdown: the requests, then the client, which sends the
// invalidations that it still owes and whose loads need the database, then the database's connections.
func run(ctx context.Context, cfg config, log *slog.Logger) (err error) {
	database, nodes, stop, err := startLocal(ctx, cfg, log)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	store, err := OpenStore(ctx, database, connections)
	if err != nil {
		return err
	}
	defer store.Close()
	made, err := store.Seed(ctx, cfg.rows)
	if err != nil {
		return fmt.Errorf("catalogue: seed: %w", err)
	}

	nodes.MaxLoads = maxLoads
	nodes.Logger = log
	cl, err := client.New(ctx, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, within(ctx, stopTimeout, cl.Close)) }()
	server, err := NewServer(store, cl, log)
	if err != nil {
		return err
	}

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.listen)
	if err != nil {
		return err
	}
	log.Info("catalogue serves", "url", "http://"+listener.Addr().String(), "products_made", made)
	return serve(ctx, listener, server.Handler(), log)
}

// serve answers requests until ctx ends and those under way are done.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	log.Info("catalogue stops")
	err := within(ctx, stopTimeout, srv.Shutdown)
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// within gives a step of the shutdown a time of its own: ctx, which asked for it, has ended.
func within(ctx context.Context, d time.Duration, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d)
	defer cancel()
	return step(ctx)
}
