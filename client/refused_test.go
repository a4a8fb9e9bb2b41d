// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// TestNodeThatRefuses: a node that answers health checks and refuses the rest is seen in the stats and in the log. It has no memory left and evicts
// nothing; or the user may not call scripts.
func TestNodeThatRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, code string
		refuse     [][]any
		heal       []any
	}{
		{"no memory", "OOM", [][]any{{"CONFIG", "SET", "maxmemory-policy", "noeviction"}, {"CONFIG", "SET", "maxmemory", "1"}}, []any{"CONFIG", "SET", "maxmemory", "0"}},
		{"no permission", "NOPERM", [][]any{{"ACL", "SETUSER", "default", "-@scripting"}}, []any{"ACL", "SETUSER", "default", "+@all"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := redistest.Start(t, redistest.Config{})
			log := new(lines)
			cl := open(t, client.Config{
				Nodes: []ring.Node{{ID: "a", Addr: node.Addr()}}, OperationTimeout: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			c := newCache(t, cl, client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: newSource(map[string]string{"k": "v"}).load})
			if s := cl.Stats().Nodes[0]; s.LastFailure != nil || !s.LastFailureAt.IsZero() {
				t.Errorf("a failure at first: %+v", s)
			}
			do(t, node, tc.refuse...)
			do(t, node, []any{"CONFIG", "RESETSTAT"})
			eventually(t, "a health check", func() bool {
				ran, err := node.Info(t.Context(), "commandstats")
				return err == nil && ran["cmdstat_time"] != ""
			})
			began := time.Now()
			for range 5 {
				want(t, c, "k", "v", client.LayerSource)
			}
			s := cl.Stats().Nodes[0]
			if s.LastFailure == nil || !strings.Contains(s.LastFailure.Error(), tc.code) || !strings.Contains(s.LastFailure.Error(), "EVALSHA") {
				t.Errorf("LastFailure: %v", s.LastFailure)
			}
			if s.LastError != nil || s.LastFailureAt.Before(began) || s.LastFailureAt.After(time.Now()) {
				t.Errorf("LastError %v, LastFailureAt %v after the first read", s.LastError, s.LastFailureAt.Sub(began))
			}
			if n := c.Stats(); n.NodeErrors < 5 || n.FillErrors != 0 || n.Loads != 5 {
				t.Errorf("%d failed commands, %d failed fills, %d loads", n.NodeErrors, n.FillErrors, n.Loads)
			}
			told := log.take()
			for _, part := range []string{`msg="shelf: node refuses commands" node=a`, `op="EVALSHA `, tc.code} {
				if strings.Count(told, "\n") != 1 || !strings.Contains(told, part) {
					t.Errorf("told: %q, want one line with %q", told, part)
				}
			}
			do(t, node, tc.heal)
			eventually(t, "stored again", func() bool {
				r, err := c.Lookup(t.Context(), "k")
				return err == nil && r.Layer == client.LayerL2
			})
			if after := cl.Stats().Nodes[0]; after.LastFailure == nil || after.LastFailureAt.IsZero() {
				t.Error("a success has cleared LastFailure")
			}
			if more := log.take(); more != "" {
				t.Errorf("told: %q", more)
			}
		})
	}
}

func do(t *testing.T, node *redistest.Server, commands ...[]any) {
	t.Helper()
	for _, c := range commands {
		if _, err := node.Do(t.Context(), c...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNodeStatsAsJSON: errors become their texts, and everything else stays as it is.
func TestNodeStatsAsJSON(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	text, err := json.Marshal(client.Stats{Owed: 7, Nodes: []client.NodeStats{
		{
			ID: "a", Addr: "h:1", ClockOffset: 5, Pushing: true, PushError: errors.New("no push"), LastError: errors.New("no answer"),
			LastFailure: errors.New("OOM"), LastFailureAt: at,
		},
		{ID: "b"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Owed  int
		Nodes []map[string]any
	}
	if err := json.Unmarshal(text, &got); err != nil || got.Owed != 7 || len(got.Nodes) != 2 {
		t.Fatalf("%s: %v", text, err)
	}
	for field, want := range map[string]any{
		"ID": "a", "Addr": "h:1", "Engine": "", "ClockOffset": 5.0, "Pushing": true, "Tracking": false, "Unconfirmed": 0.0, "PushesLost": 0.0,
		"PushError": "no push", "LastError": "no answer", "LastFailure": "OOM", "LastFailureAt": "2030-01-02T03:04:05Z",
	} {
		if v, ok := got.Nodes[0][field]; !ok || v != want {
			t.Errorf("%s is %v, want %v", field, v, want)
		}
	}
	for _, field := range []string{"PushError", "LastError", "LastFailure"} {
		if v, ok := got.Nodes[1][field]; !ok || v != nil {
			t.Errorf("without an error %s is %v, want null", field, v)
		}
	}
}
