// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package proc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
)

// Port is a TCP port of the loopback interface, reserved for one server.
//
// A test's server must be able to die and come back at the same address, and
// nobody may answer there meanwhile. Ports that the kernel hands out ("port 0")
// do not give that: they come from the range of outgoing connections, where
//
//  1. the server on port p is killed
//  2. a client redials p; the kernel happens to give it p as its local port
//  3. TCP's simultaneous open connects it to itself: the dead server "accepts",
//     and it cannot bind p when it restarts
//
// So a Port is taken from outside that range, at random, and other programs that
// use this package stay away from it until it is released: on Linux the holder
// has an abstract Unix socket of that name, which the kernel removes with the
// process. Programs that do not use this package may still take it; a server
// that then cannot bind should try again with another port.
type Port struct {
	number int
	hold   net.Listener // nil where the system has no abstract sockets
}

const (
	defaultEphemeralLow  = 32768
	defaultEphemeralHigh = 60999

	lowestPort  = 10000 // below are too many well-known services
	highestPort = 65535
	fewestPorts = 2000 // a range with fewer is not worth staying in
	portTries   = 200
)

// ReservePort returns a port that is free and reserved. [Port.Release] gives it
// back. The error says that none was found in many tries.
func ReservePort() (*Port, error) {
	low, high := serverPorts(ephemeralPorts())
	for range portTries {
		if p := tryPort(low + rand.IntN(high-low+1)); p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("proc: no free port between %d and %d in %d tries", low, high, portTries)
}

// serverPorts returns the larger of the two ranges beside the ephemeral one, or
// all ports where that one leaves next to nothing.
func serverPorts(ephemeralLow, ephemeralHigh int) (low, high int) {
	below, above := ephemeralLow-lowestPort, highestPort-ephemeralHigh
	switch {
	case max(below, above) < fewestPorts:
		return lowestPort, highestPort
	case below >= above:
		return lowestPort, ephemeralLow - 1
	default:
		return ephemeralHigh + 1, highestPort
	}
}

// tryPort reserves the port, or returns nil when somebody has it. The
// reservation comes first: two programs that only looked would both find it free.
func tryPort(number int) *Port {
	p := &Port{number: number}
	if runtime.GOOS == "linux" {
		hold, err := net.Listen("unix", "@shelf-port-"+strconv.Itoa(number))
		if err != nil {
			return nil
		}
		p.hold = hold
	}
	if !p.free() {
		_ = p.Release()
		return nil
	}
	return p
}

// free reports whether a server can bind the port now.
func (p *Port) free() bool {
	l, err := net.Listen("tcp", p.Addr())
	return err == nil && l.Close() == nil
}

// Number is the port's number.
func (p *Port) Number() int { return p.number }

// Addr is the port's address, as in "127.0.0.1:16379".
func (p *Port) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Release ends the reservation. It may be called again.
func (p *Port) Release() error {
	if p.hold == nil {
		return nil
	}
	if err := p.hold.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("proc: release port %d: %w", p.number, err)
	}
	return nil
}

// UnreservedPort is the port of that number, whoever has it: for tests of what
// happens when another program took the port, and for addresses given by hand.
func UnreservedPort(number int) *Port { return &Port{number: number} }
