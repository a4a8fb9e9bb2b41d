// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
	"github.com/go-shelf/shelf/stampede"
)

// TestFilterOfAnotherSchema: a release that gives rows other keys, and has another schema, does not believe the build of the one before it, which would say of each of its rows that it is not
// there. Each scans for itself; of one schema the second takes the first one's build; and they tell each other of new rows.
func TestFilterOfAnotherSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(50)
		cfg := clienttest.Start(t, 3).Config()
		process := func(schema int, key func(row string) string) *client.Cache[string] {
			return newCache(t, open(t, cfg), client.CacheConfig[string]{
				Name: "x", Schema: schema, TTL: time.Hour, L1: client.L1Off,
				Load: func(ctx context.Context, k string) (string, error) { return s.load(ctx, strings.TrimPrefix(k, "id:")) },
				Filter: &client.FilterConfig{ExpectedKeys: 1000, FalsePositives: 1e-6, Keys: func(ctx context.Context, yield func(string) bool) error {
					return s.keys(ctx, func(row string) bool { return yield(key(row)) })
				}},
			})
		}
		plain, prefixed := func(row string) string { return row }, func(row string) string { return "id:" + row }
		before := process(1, plain)
		complete(t, before, true)
		eventually(t, "stored for others", func() bool { return before.Stats().Filter.Saves > 0 })
		after := process(2, prefixed)
		complete(t, after, true)
		want(t, after, "id:row7", "v", client.LayerSource)
		wantAbsent(t, after, "row7")
		if st := after.Stats().Filter; st.Loads != 0 || st.Builds != 1 {
			t.Errorf("the other schema's build was taken over: %+v", st)
		}
		eventually(t, "stored for others", func() bool { return after.Stats().Filter.Saves > 0 })
		for schema, key := range map[int]func(string) string{1: plain, 2: prefixed} { // each finds its own
			c := process(schema, key)
			complete(t, c, true)
			want(t, c, key("row8"), "v", client.LayerSource)
			if st := c.Stats().Filter; st.Loads != 1 || st.Builds != 0 {
				t.Errorf("schema %d, the second process: %+v", schema, st)
			}
		}
		s.set("new", "v")
		if err := before.Known(t.Context(), "new", "id:new"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stampede.FilterTrust)
		want(t, after, "id:new", "v", client.LayerSource)
	})
}

// TestFilterIsLogged: that it is consulted, that it is not and why, with cache and node; one line each.
func TestFilterIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(10)
		nodes := clienttest.Start(t, 1)
		log := new(lines)
		cfg := nodes.Config()
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		c := s.filtered(t, open(t, cfg), client.FilterConfig{})
		complete(t, c, true)
		of := func(what string) {
			t.Helper()
			time.Sleep(20 * time.Second)
			n := 0
			for line := range strings.Lines(log.take()) {
				if strings.Contains(line, "filter") {
					n++
					if !strings.Contains(line, what) || !strings.Contains(line, "cache=x") || !strings.Contains(line, "node=node-0") {
						t.Errorf("logged %q, want %q", line, what)
					}
				}
			}
			if n != 1 {
				t.Errorf("%d lines about filters, want one: %q", n, what)
			}
		}
		of("filter of known keys is consulted\" cache=x node=node-0 keys=10")
		nodes.Node(0).Flush()
		time.Sleep(2 * time.Second)
		if err := c.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		got := log.take()
		if !strings.Contains(got, "is not consulted: every key may be there") || !strings.Contains(got, "reason=\"entries of the feed are gone") {
			t.Errorf("logged %q after the feed was flushed", got)
		}
		nodes.Node(0).Down()
		time.Sleep(20 * time.Second)
		if got := log.take(); strings.Count(got, "is not consulted") != 1 || !strings.Contains(got, "the feed cannot be followed") {
			t.Errorf("logged %q while the node is down", got)
		}
		nodes.Node(0).Up()
		of("filter of known keys is consulted\" cache=x node=node-0 keys=10")
	})
}

// TestFilterWithoutKeysIsLogged: a filter whose scan found nothing is consulted, with a warning.
func TestFilterWithoutKeysIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTable(0)
		log := new(lines)
		cfg := clienttest.Start(t, 1).Config()
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		c := s.filtered(t, open(t, cfg), client.FilterConfig{})
		complete(t, c, true)
		time.Sleep(20 * time.Second)
		wantAbsent(t, c, "nobody")
		if got := log.take(); !strings.Contains(got, `level=WARN msg="shelf: filter of known keys is consulted" cache=x node=node-0 keys=0 reason="the scan found no keys: every key is taken for absent until it is added"`) {
			t.Errorf("logged %q", got)
		}
	})
}
