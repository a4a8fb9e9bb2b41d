// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
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

// TestViewForgetsTags: a process that invalidates tags, ever new ones, and reads nothing, forgets with the node's log, which goes by what the node answers. What it
// forgets does not hold.
func TestViewForgetsTags(t *testing.T) {
	var v view
	const last = 5 * maxTagLog
	for seq := uint64(1); seq <= last; seq++ {
		gen := invalidation.Generation{Seq: seq}
		if seq > maxTagLog {
			gen.Cleared = seq - maxTagLog
		}
		v.note(nil, fmt.Sprint("tag ", seq), gen)
	}
	if len(v.tags) > 2*maxTagLog {
		t.Errorf("%d tags, of which the node knows %d", len(v.tags), maxTagLog)
	}
	for stamp, want := range map[uint64]bool{1: false, last - maxTagLog - 1: false, last - maxTagLog: true, last: true} {
		if hold, _ := v.holds(nil, stamp, []string{"tag 2"}, last); hold != want {
			t.Errorf("an entry of stamp %d holds: %t", stamp, hold)
		}
	}
	if hold, _ := v.holds(nil, last-1, []string{fmt.Sprint("tag ", last)}, last); hold {
		t.Error("an entry whose tag was the latest to be invalidated holds")
	}
}

// TestUnrevoked: a copy that may be served when nothing else can is none if anything is known to have ended it, under this run of the server or one before.
func TestUnrevoked(t *testing.T) {
	first, second := new(redisnode.Session), new(redisnode.Session)
	var v view
	check := func(when string, stamp uint64, tags []string, want bool) {
		t.Helper()
		if got := v.unrevoked(stamp, tags); got != want {
			t.Errorf("%s: stamp %d, tags %v: %t, want %t", when, stamp, tags, got, want)
		}
	}
	check("nothing is known", 1, []string{"a"}, true)
	v.learn(first, invalidation.Generation{Seq: 8, Cleared: 5})
	check("cleared at 5", 4, nil, false)
	check("cleared at 5", 5, nil, true)
	v.note(first, "a", invalidation.Generation{Seq: 9, Cleared: 5})
	check("a was invalidated at 9", 8, []string{"b", "a"}, false)
	check("a was invalidated at 9", 8, []string{"b"}, true)
	check("a was invalidated at 9", 9, []string{"a"}, true)
	v.watchedBy.Store(&watching{pushes: 3})
	check("the generation has moved on", 9, nil, false)
	v.pushes.Store(3)
	check("and was read again", 9, nil, true)
	v.learn(second, invalidation.Generation{Seq: 7, Cleared: 2})
	check("another run, which has forgotten", 8, []string{"a"}, false)
	check("another run, which has forgotten", 4, nil, false)
	check("another run, which has forgotten", 9, []string{"a"}, true)
}

// TestViewVouches: for what was read through the Tracking that the generation was read through, while that is fresh, and no push has come since.
func TestViewVouches(t *testing.T) {
	var v view
	a, b := new(redisnode.Tracking), new(redisnode.Tracking) // fresh until they begin
	expect := func(what string, tracking *redisnode.Tracking, at time.Duration, want bool) {
		t.Helper()
		if got := v.vouches(tracking, at); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("nobody watches", a, 0, false)
	v.watched(a, time.Hour, 0)
	expect("watched", a, 0, true)
	expect("watched by another", b, 0, false)
	expect("silent", a, 2*time.Hour, false)
	v.pushes.Add(1)
	expect("a push", a, 0, false)
	v.watched(a, time.Hour, 1)
	expect("read after the push", a, 0, true)
	v.watched(a, time.Hour, 0)
	expect("a late reply", a, 0, true)
}
