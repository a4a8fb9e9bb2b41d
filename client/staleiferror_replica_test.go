// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
)

// TestStaleIfError_FromAReplica: the primary is dead and the database as well: what the replica has is served, also past its time, alone and in a batch.
func TestStaleIfError_FromAReplica(t *testing.T) {
	r := startReplicated(t, 1, readFrom(client.ReadPrimaryPreferred))
	src := &flaky{row: "v1"}
	c := newCache(t, r.cl, client.CacheConfig[string]{Name: "stale", TTL: time.Second, NoJitter: true, NoEarlyRefresh: true, StaleIfError: time.Minute, L1: client.L1Off, LoadMany: src.loadMany})
	want(t, c, "k", "v1", client.LayerSource)
	r.arrived(t)
	r.readable(t, 1)
	src.set("", errDatabase, 0)
	r.servers[0].Kill()
	eventually(t, "past its time", func() bool {
		v, err := c.Lookup(context.Background(), "k")
		return err == nil && v.LoadErr != nil
	})
	v, err := c.Lookup(t.Context(), "k")
	if err != nil || v.Value != "v1" || v.Layer != client.LayerL2 || !v.Stale || !errors.Is(v.LoadErr, errDatabase) || v.Age < time.Second {
		t.Errorf("%+v, %v", v, err)
	}
	if m, err := c.GetMany(t.Context(), []string{"k", "none"}); len(m) != 1 || m["k"] != "v1" || !errors.Is(err, errDatabase) {
		t.Errorf("%v, %v", m, err)
	}
}
