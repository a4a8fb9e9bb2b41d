// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package proc

import (
	"net"
	"runtime"
	"sync"
	"testing"
)

func TestServerPortsStayOutOfTheEphemeralRange(t *testing.T) {
	cases := []struct {
		name                        string
		ephemeralLow, ephemeralHigh int
		wantLow, wantHigh           int
	}{
		{"Linux", 32768, 60999, 10000, 32767},
		{"macOS", 49152, 65535, 10000, 49151},
		{"low range", 1024, 32767, 32768, 65535},
		{"nearly all ports", 1024, 65000, 10000, 65535},
		{"all above the low ones", 10000, 65535, 10000, 65535},
	}
	for _, c := range cases {
		low, high := serverPorts(c.ephemeralLow, c.ephemeralHigh)
		if low != c.wantLow || high != c.wantHigh {
			t.Errorf("%s: %d to %d, want %d to %d", c.name, low, high, c.wantLow, c.wantHigh)
		}
	}
}

func TestReservePortAvoidsEphemeralPorts(t *testing.T) {
	low, high := ephemeralPorts()
	for range 50 {
		p, err := ReservePort()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release() //nolint:errcheck // asserted elsewhere
		if n := p.Number(); n >= low && n <= high {
			t.Errorf("port %d is in the ephemeral range %d to %d", n, low, high)
		}
		if !p.free() {
			t.Errorf("port %d is not free", p.Number())
		}
	}
}

func TestReservedPortIsNobodyElses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reservations need abstract Unix sockets")
	}
	p, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	if other := tryPort(p.Number()); other != nil {
		t.Fatal("reserved twice")
	}
	for range 2 { // Release may be called again
		if err := p.Release(); err != nil {
			t.Fatal(err)
		}
	}
	again := tryPort(p.Number())
	if again == nil {
		t.Fatal("not free after Release")
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestBusyPortIsNotTakenAndNotKept(t *testing.T) {
	p, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if tryPort(p.Number()) != nil {
		t.Error("took a port that a program listens on")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := tryPort(p.Number())
	if again == nil {
		t.Fatal("the failed try kept the reservation")
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentReservationsDiffer(t *testing.T) {
	var (
		mu   sync.Mutex
		seen = make(map[int]bool)
		wg   sync.WaitGroup
	)
	for range 40 {
		wg.Go(func() {
			p, err := ReservePort()
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = p.Release() })
			mu.Lock()
			defer mu.Unlock()
			if seen[p.Number()] {
				t.Errorf("port %d given twice", p.Number())
			}
			seen[p.Number()] = true
		})
	}
	wg.Wait()
}
