// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/go-shelf/shelf/internal/proc"
)

// A program that makes no reservation can take the port after it was found
// free. Whoever answers there meanwhile must not be taken for the new server.
func TestPortClashTakesTheNextPort(t *testing.T) {
	other := Start(t, Config{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // a test's listener

	occupied := map[string]string{"by another Redis": other.Addr(), "by a silent program": listener.Addr().String()}
	for name, addr := range occupied {
		t.Run(name, func(t *testing.T) {
			tries := 0
			s, err := launch(t.Context(), Config{}, func() (*proc.Port, error) {
				tries++
				if tries <= 2 {
					return clash(addr), nil
				}
				return proc.ReservePort()
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // asserted elsewhere
			if tries != 3 || s.Addr() == addr {
				t.Errorf("%d tries, address %s", tries, s.Addr())
			}
		})
	}
}

func TestPortClashesEndInAnError(t *testing.T) {
	other := Start(t, Config{})
	tries := 0
	s, err := launch(t.Context(), Config{}, func() (*proc.Port, error) {
		tries++
		return clash(other.Addr()), nil
	})
	if !errors.Is(err, errPortTaken) || tries != portTries {
		t.Errorf("launch = %v, %v after %d tries", s, err, tries)
	}
}

// clash is a port that somebody listens on.
func clash(addr string) *proc.Port {
	var number int
	_, port, _ := net.SplitHostPort(addr)
	_, _ = fmt.Sscan(port, &number)
	return proc.UnreservedPort(number)
}
