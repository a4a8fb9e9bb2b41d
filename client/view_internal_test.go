// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// TestTagsOfALostGeneration: the generation that was read with an entry is gone when the tag log is asked for, and nobody makes another. The reader must not
// ask for ever; the entry does not hold.
func TestTagsOfALostGeneration(t *testing.T) {
	server := miniredis.RunT(t)
	n, err := redisnode.New(redisnode.Config{ID: "a", Addr: server.Addr(), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var v view
	of := invalidation.Group{Generation: "~g:x:v0", Tags: "~t:x:v0"}
	if hold, err := v.tagsHold(ctx, n, of, 5, []string{"red"}, 7); hold || err != nil {
		t.Errorf("without a generation: holds %t, %v", hold, err)
	}
	if err := server.Set("~g:x:v0", "6 5"); err != nil { // an older one came back
		t.Fatal(err)
	}
	if hold, err := v.tagsHold(ctx, n, of, 5, []string{"red"}, 7); hold || err != nil {
		t.Errorf("with an older generation: holds %t, %v", hold, err)
	}
}
