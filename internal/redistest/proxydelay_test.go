// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

func TestDelay(t *testing.T) {
	const d = 30 * time.Millisecond
	cases := []struct {
		name string
		set  func(*redistest.Proxy)
		want time.Duration
	}{
		{"both", func(p *redistest.Proxy) { p.Delay(d, 0) }, 2 * d},
		{"to server", func(p *redistest.Proxy) { p.ToServer().Delay(d, 0) }, d},
		{"to client", func(p *redistest.Proxy) { p.ToClient().Delay(d, time.Millisecond) }, d},
		{"existing", func(p *redistest.Proxy) { p.Existing().Delay(d, 0) }, 2 * d},
		{"new, and this is not", func(p *redistest.Proxy) { p.New().Delay(10*time.Second, 0) }, 0},
		{"the latest wins", func(p *redistest.Proxy) { p.Delay(10*time.Second, 0); p.Delay(d, 0) }, 2 * d},
		{"ended", func(p *redistest.Proxy) { p.Delay(10*time.Second, 0); p.Delay(0, 0) }, 0},
		{"healed in part", func(p *redistest.Proxy) { p.Delay(d, 0); p.Existing().ToServer().Heal() }, d},
	}
	_, p, c := behind(t)
	ping(t, c)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			defer p.Heal()
			tc.set(p)
			if took := ping(t, c); took < tc.want || took > tc.want+5*time.Second {
				t.Errorf("a round trip took %v, want %v", took, tc.want)
			}
		})
	}
}

// 100 commands, each in a piece of its own, on a line of 2 x 50 ms: in turn they
// would take 10 s. The answers come in order although each piece is late by a
// different time.
func TestDelayDoesNotSerialise(t *testing.T) {
	_, p, _ := behind(t)
	conn := raw(t, p.Addr())
	p.Delay(50*time.Millisecond, 20*time.Millisecond)
	began := time.Now()
	var want string
	for i := range 100 {
		word := fmt.Sprintf("%03d", i)
		want += "$3\r\n" + word + "\r\n"
		send(t, conn, "ECHO "+word+"\r\n")
		time.Sleep(100 * time.Microsecond) // so that the kernel does not join the pieces
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if took := time.Since(began); took < 100*time.Millisecond || took > 5*time.Second {
		t.Errorf("took %v, want some 140 ms", took)
	}
}

func TestHealPassesWhatWasDelayed(t *testing.T) {
	_, p, _ := behind(t)
	conn := raw(t, p.Addr())
	p.Delay(time.Hour, 0)
	send(t, conn, "PING\r\n")
	if !silent(t, conn) {
		t.Error("an answer within an hour")
	}
	p.Heal()
	if _, err := io.ReadFull(conn, make([]byte, 7)); err != nil {
		t.Error(err)
	}
}

func TestBandwidth(t *testing.T) {
	s, p, c := behind(t)
	set(t, s, "k", strings.Repeat("v", 200_000))
	ping(t, c)
	p.ToClient().Bandwidth(1_000_000)
	began := time.Now()
	if got, err := c.Get(t.Context(), "k").Result(); err != nil || len(got) != 200_000 {
		t.Fatal(len(got), err)
	}
	if took := time.Since(began); took < 195*time.Millisecond || took > 8*time.Second {
		t.Errorf("200 kB at 1 MB/s took %v", took)
	}
	p.Bandwidth(1)
	p.Bandwidth(0)
	if took := ping(t, c); took > 4*time.Second {
		t.Errorf("without a limit a round trip took %v", took)
	}
}

// A tenth of the answers is late, and the others are not.
func TestDelaySome(t *testing.T) {
	_, p, c := behind(t)
	ping(t, c)
	const late, n = 30 * time.Millisecond, 200
	p.ToClient().DelaySome(0.1, late)
	few := 0
	for range n {
		if ping(t, c) >= late {
			few++
		}
	}
	if few < 3 || few > n/2 { // 20 are expected: 3 is four standard deviations below, and a busy machine adds some
		t.Errorf("%d of %d answers were late, want some %d", few, n, n/10)
	}
	p.ToClient().DelaySome(1, late)
	if took := ping(t, c); took < late {
		t.Errorf("with a share of 1 an answer took %v", took)
	}
	p.ToClient().DelaySome(0, 0)
	began := time.Now()
	for range 50 {
		ping(t, c)
	}
	if took := time.Since(began); took >= 50*late {
		t.Errorf("ended, 50 answers took %v", took)
	}
}
