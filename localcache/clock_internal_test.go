// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package localcache

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// stepWall returns t as time.Now would have given it after the wall clock was set forward (or back) by whole seconds:
// same monotonic reading, another wall time. There is no exported way to make such a time, so this one writes into
// time.Time, and skips the test if its layout is no longer the one that it knows.
func stepWall(t testing.TB, at time.Time, by time.Duration) time.Time {
	t.Helper()
	type layout struct {
		wall uint64 // flag, 33 bits of seconds, 30 bits of nanoseconds
		ext  int64  // monotonic reading
		loc  *time.Location
	}
	if unsafe.Sizeof(layout{}) != unsafe.Sizeof(at) {
		t.Skip("time.Time has another layout")
	}
	stepped := at
	p := (*layout)(unsafe.Pointer(&stepped))
	p.wall += uint64(int64(by/time.Second)) << 30
	if stepped.Sub(at) != 0 || stepped.Round(0).Sub(at.Round(0)) != by {
		t.Skip("time.Time has another layout")
	}
	return stepped
}

// An entry lives by elapsed time. If expiry were kept as a wall time (UnixNano, say), then a clock that is set back
// by ten minutes would serve every entry ten minutes too long, and one set forward would empty the cache at once.
func TestExpiryIgnoresWallClockSteps(t *testing.T) {
	for _, step := range []time.Duration{-10 * time.Minute, 10 * time.Minute} {
		c, err := New[string](Config{})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		c.Commit(c.Begin("k"), "v", 1, now.Add(time.Minute), now)
		if _, ok := c.Get("k", stepWall(t, now.Add(59*time.Second), step)); !ok {
			t.Errorf("wall clock stepped by %v: gone before its minute was over", step)
		}
		if _, ok := c.Get("k", stepWall(t, now.Add(60*time.Second), step)); ok {
			t.Errorf("wall clock stepped by %v: served after its minute was over", step)
		}
	}
}

// With the real calls to time.Now and a minute that passes.
func TestExpiryOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New[string](Config{})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		c.Commit(c.Begin("k"), "v", 1, now.Add(time.Minute), now)
		time.Sleep(time.Minute - 1)
		if v, ok := c.Get("k", time.Now()); !ok || v != "v" {
			t.Errorf("a nanosecond before its end: %q, %v", v, ok)
		}
		time.Sleep(time.Nanosecond)
		if _, ok := c.Get("k", time.Now()); ok {
			t.Error("served at its end")
		}
		if c.Len() != 0 || c.Bytes() != 0 {
			t.Errorf("expired entry still held: %d entries, %d bytes", c.Len(), c.Bytes())
		}
		check(t, c)
	})
}
