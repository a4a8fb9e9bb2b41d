// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/client/clienttest"
)

// TestRefreshOfAnOlderRow: it is returned, marked stale, and what is there stays; and where the owner does not answer, the row is returned all the same.
func TestRefreshOfAnOlderRow(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	row := "7"
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off,
		Load:    func(context.Context, string) (string, error) { return row, nil },
		Version: func(v string) uint64 { n, _ := strconv.ParseUint(v, 10, 64); return n }})
	ask := func(o client.GetOptions, value string, layer client.Layer, stale bool) {
		t.Helper()
		if r, err := c.LookupWith(t.Context(), "k", nil, o); err != nil || r.Value != value || r.Layer != layer || r.Stale != stale {
			t.Errorf("%+v: %+v, %v; want %s from %v, stale %t", o, r, err, value, layer, stale)
		}
	}
	refresh := client.GetOptions{Refresh: true}
	ask(refresh, "7", client.LayerSource, false)
	row = "6"
	ask(refresh, "6", client.LayerSource, true)
	ask(client.GetOptions{}, "7", client.LayerL2, false)
	row = "8"
	nodes.Node(0).Down()
	ask(refresh, "8", client.LayerSource, false)
	nodes.Node(0).Up()
	ask(client.GetOptions{Refresh: true, NoFill: true}, "8", client.LayerSource, false)
	ask(client.GetOptions{}, "7", client.LayerL2, false)
}

// TestRefreshWithoutFillLeavesCopies: this process's own copy too.
func TestRefreshWithoutFillLeavesCopies(t *testing.T) {
	row := "old"
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1All, L1BlindTTL: time.Minute,
		Load: func(context.Context, string) (string, error) { return row, nil }})
	warm(t, c, "k")
	row = "new"
	if v, err := c.GetWith(t.Context(), "k", nil, client.GetOptions{Refresh: true, NoFill: true}); v != "new" || err != nil {
		t.Errorf("%q, %v, want the source's", v, err)
	}
	if r, err := c.Lookup(t.Context(), "k"); r.Value != "old" || r.Layer != client.LayerL1 || err != nil {
		t.Errorf("%+v, %v, want the old copy", r, err)
	}
}

// TestNotFoundIsThisVeryError: for the caller whose load it was, and for those who get the remembered absence.
func TestNotFoundIsThisVeryError(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute,
		Load: func(context.Context, string) (string, error) {
			return "", fmt.Errorf("no such row: %w", client.ErrNotFound)
		}})
	for _, o := range []client.GetOptions{{}, {}, {BypassL1: true}, {NoFill: true}, {Refresh: true}} {
		if _, err := c.GetWith(t.Context(), "k", nil, o); err != client.ErrNotFound { //nolint:errorlint // this very one
			t.Errorf("%+v: %#v", o, err)
		}
	}
}

// TestWriteThatIsNotAdmitted runs nothing and invalidates nothing.
func TestWriteThatIsNotAdmitted(t *testing.T) {
	nodes := clienttest.Start(t, 1)
	c := newCache(t, open(t, nodes.Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, L1: client.L1Off, Load: echo})
	if _, err := c.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for key, want := range map[string]error{"k": context.Canceled, "": client.ErrInvalidKey} {
		err := c.Write(ended, key, func(context.Context) error { t.Error("fn was run"); return nil })
		_, err2 := c.WriteThrough(ended, key, func(context.Context) (string, error) { t.Error("fn was run"); return "", nil })
		if !errors.Is(err, want) || !errors.Is(err2, want) {
			t.Errorf("%q: %v, %v; want %v", key, err, err2, want)
		}
	}
	if r, err := c.Lookup(t.Context(), "k"); r.Layer != client.LayerL2 || err != nil {
		t.Errorf("%+v, %v: the entry must be there still", r, err)
	}
}

// TestWarmSkipBeyondTheSequence: as many keys as Skip are passed over; a sequence that has fewer is not the one that was begun.
func TestWarmSkipBeyondTheSequence(t *testing.T) {
	c := newCache(t, open(t, clienttest.Start(t, 1).Config()), client.CacheConfig[string]{Name: "x", TTL: time.Minute, Load: echo})
	keys := slices.Values([]string{"a", "b", "c"})
	if r, err := c.Warm(t.Context(), keys, client.WarmOptions{Skip: 3}); err != nil || r.Done != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err := c.Warm(t.Context(), keys, client.WarmOptions{Skip: 4})
	var ce *client.ConfigError
	if !errors.As(err, &ce) || r.Done != 3 {
		t.Fatalf("%+v, %v, want a *ConfigError", r, err)
	}
	mentions(t, err, []string{"WarmOptions.Skip is 4", "(3)"})
}
