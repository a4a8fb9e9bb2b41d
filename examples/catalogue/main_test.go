// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"regexp"
	"testing"

	"github.com/go-shelf/shelf/internal/pgtest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// TestRun starts the service with nothing given, as a newcomer does, reads a product, and ends it as a signal does.
func TestRun(t *testing.T) {
	pgtest.Start(t).Close() // skips where there is no PostgreSQL
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, config{listen: "127.0.0.1:0", rows: 20}, slog.New(slog.NewTextHandler(w, nil)))
		w.Close()
	}()
	url := ""
	lines := bufio.NewScanner(r)
	for url == "" && lines.Scan() {
		t.Log(lines.Text())
		if m := regexp.MustCompile(`url=(\S+) products_made=20`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	drained := make(chan struct{})
	go func() { defer close(drained); io.Copy(io.Discard, r) }()
	resp, err := http.Get(url + "/products/20")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("X-Cache") != "source" {
		t.Errorf("got %s from %q", resp.Status, resp.Header.Get("X-Cache"))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-drained
	if resp, err := http.Get(url + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("it still serves")
	}
}

func TestFlags(t *testing.T) {
	var c config
	fs := flag.NewFlagSet("catalogue", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("nodes", "", c.parseNodes)
	fs.IntVar(&c.rows, "rows", 1, "")
	t.Setenv("CATALOGUE_NODES", "a=10.0.0.1:6379")
	t.Setenv("CATALOGUE_ROWS", "7")
	if err := fromEnvironment(fs); err != nil || c.rows != 7 || len(c.nodes) != 1 {
		t.Errorf("from the environment: %+v, %v", c, err)
	}
	if err := fs.Parse([]string{"-nodes", "a=10.0.0.1:6379,b=[::1]:6380"}); err != nil {
		t.Error(err)
	}
	if want := []ring.Node{{ID: "a", Addr: "10.0.0.1:6379"}, {ID: "b", Addr: "[::1]:6380"}}; !reflect.DeepEqual(c.nodes, want) {
		t.Errorf("a flag must win over the environment: got %+v, want %+v", c.nodes, want)
	}
	if err := fs.Parse([]string{"-nodes", "10.0.0.1:6379"}); err == nil {
		t.Error("a node without an id was taken")
	}
	t.Setenv("CATALOGUE_ROWS", "many")
	if err := fromEnvironment(fs); err == nil {
		t.Error("rows=many was taken from the environment")
	}
}

// TestEmbedded: without a redis-server on PATH the nodes are embedded ones.
func TestEmbedded(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDIS_SERVER", "")
	if _, err := redistest.Find(); err == nil {
		t.Fatal("found a server on an empty PATH")
	}
	_, nodes, stop, err := startLocal(t.Context(), config{database: "given"}, slog.New(slog.DiscardHandler))
	if err != nil || len(nodes.Nodes) != 3 || nodes.Redis == nil {
		t.Errorf("got %+v, %v", nodes, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
