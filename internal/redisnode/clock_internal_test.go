// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"testing"
	"time"
)

// server is the moment that a server whose clock is ahead by offset would read at t0+at.
func readingAt(t0 time.Time, at, rtt, offset time.Duration) reading {
	sent := t0.Add(at)
	return newReading(sent, sent.Add(rtt), t0.Round(0).Add(at+rtt/2+offset))
}

func TestClock(t *testing.T) {
	t0 := time.Now()
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		add  []reading
		want time.Duration // offset afterwards, at t0 + 20 s
		err  time.Duration
	}{
		{"none: the local clock", nil, 0, 0},
		{"one", []reading{readingAt(t0, 0, 10*ms, time.Hour)}, time.Hour, 5 * ms},
		{
			"the quickest wins",
			[]reading{readingAt(t0, 0, 10*ms, 3*ms), readingAt(t0, time.Second, 2*ms, 1*ms), readingAt(t0, 2*time.Second, 20*ms, -4*ms)},
			1 * ms, 1 * ms,
		},
		{
			"of equals the later",
			[]reading{readingAt(t0, 0, 2*ms, 0), readingAt(t0, time.Second, 2*ms, ms/2)},
			ms / 2, 1 * ms,
		},
		{
			"a clock that was set makes old readings worthless",
			[]reading{readingAt(t0, 0, 2*ms, 0), readingAt(t0, time.Second, 10*ms, -time.Minute)},
			-time.Minute, 5 * ms,
		},
		{
			"after eight readings the best is forgotten",
			append([]reading{readingAt(t0, 0, 1*ms, ms)}, func() (r []reading) {
				for i := range readings {
					r = append(r, readingAt(t0, time.Duration(i+1)*time.Second, 4*ms, 2*ms))
				}
				return r
			}()...),
			2 * ms, 2 * ms,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var k clock
			for _, r := range c.add {
				k.add(r)
			}
			local := t0.Add(20 * time.Second)
			if got := k.now(local).Sub(local.Round(0)); got != c.want {
				t.Errorf("offset is %v, want %v", got, c.want)
			}
			if best := k.best.Load(); best != nil && best.err != c.err {
				t.Errorf("error bound is %v, want %v", best.err, c.err)
			}
		})
	}
}

// The estimate follows the monotonic clock: setting the local wall clock changes nothing.
func TestClockIgnoresSteppedWallClock(t *testing.T) {
	t0 := time.Now()
	var k clock
	k.add(readingAt(t0, 0, 0, time.Hour))
	later := t0.Add(time.Second) // monotonic reading and wall clock
	if got, want := k.now(later), t0.Round(0).Add(time.Hour+time.Second); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	k.restart(readingAt(t0, 0, 0, time.Minute))
	if got, want := k.now(later), t0.Round(0).Add(time.Minute+time.Second); !got.Equal(want) {
		t.Errorf("after restart: got %v, want %v", got, want)
	}
}
