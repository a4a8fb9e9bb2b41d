// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"testing"

	"github.com/go-shelf/shelf/internal/redistest"
)

func TestParseLoad(t *testing.T) {
	for text, want := range map[string]Load{
		"# Stats\r\ninstantaneous_ops_per_sec:120\r\ninstantaneous_input_kbps:7\r\ninstantaneous_output_kbps:2.50\r\n": {Commands: 120, Sent: 2560},
		"# Stats\r\ntotal_commands_processed:120\r\n":                                                                  {},
		"instantaneous_ops_per_sec:-1\r\ninstantaneous_output_kbps:NaN\r\n":                                            {},
		"instantaneous_ops_per_sec:many\r\ninstantaneous_output_kbps\r\n":                                              {},
		"instantaneous_ops_per_sec:1\r\n":                                                                              {},
	} {
		l, err := parseLoad(text)
		if l != want && err == nil || (want == Load{}) != errors.Is(err, ErrNoLoad) {
			t.Errorf("%q: %+v, %v; want %+v", text, l, err, want)
		}
	}
}

// TestLoad: a real server says how busy it is.
func TestLoad(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: redistest.Start(t, redistest.Config{}).Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if _, err := n.Load(t.Context()); !errors.Is(err, ErrNoLoad) {
		t.Errorf("a server that was never met is asked: %v", err)
	}
	if _, err := n.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, err := n.Load(t.Context()); err != nil || l.Commands < 0 || l.Sent < 0 {
		t.Errorf("%+v, %v", l, err)
	}
}
