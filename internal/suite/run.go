// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/internal/proc"
)

// behaviour is one promise of the client, and the test of it.
type behaviour struct {
	name  string
	needs []Ability
	// alone asks for a server of its own, for behaviours that change it or break it; args are its arguments. The others share the engine's two
	// servers, which are emptied before each.
	alone bool
	args  []string
	test  func(s *scene)
}

// all are the behaviours, in the order in which they run.
var all = slices.Concat(engines, reading, writing, versions, groups, pushes, lifetimes, batches, contents, names, rawData, scripts, trouble, owed, seconds, snapshots, servers)

// Outcome is what became of one behaviour on one engine.
type Outcome string

// The outcomes. A behaviour that was not asked for (go test -run) has none.
const (
	Pass    Outcome = "pass"
	Fail    Outcome = "FAIL"
	NotHere Outcome = "not here"
)

// Report is what became of the suite on one engine.
type Report struct {
	Engine   Engine
	Version  string // what the engine's servers say they are; "" when they were not run
	Outcomes map[string]Outcome
}

// Run runs the suite on an engine, as subtests of one that is named after it.
func Run(t *testing.T, e Engine) *Report {
	t.Helper()
	r := &Report{Engine: e, Outcomes: make(map[string]Outcome)}
	t.Run(e.Name, func(t *testing.T) {
		if e.Missing != nil && e.Optional {
			t.Skip(e.Missing)
		}
		proc.Require(t, e.Missing)
		shared := []Server{e.Start(t), e.Start(t)}
		r.Version = describe(t, shared[0])
		for _, b := range all {
			if reason := b.lacking(e); reason != "" {
				r.Outcomes[b.name] = NotHere
				continue
			}
			ran := false
			ok := t.Run(b.name, func(t *testing.T) {
				ran = true
				b.run(&scene{T: t, engine: e, servers: shared})
			})
			switch {
			case !ok:
				r.Outcomes[b.name] = Fail
			case ran:
				r.Outcomes[b.name] = Pass
			}
		}
	})
	return r
}

// lacking is why a behaviour cannot be on an engine; "" if it can.
func (b *behaviour) lacking(e Engine) string {
	for _, a := range b.needs {
		if reason := e.Lacks[a]; reason != "" {
			return reason
		}
	}
	return ""
}

func (b *behaviour) run(s *scene) {
	if b.alone {
		s.servers = []Server{s.engine.Start(s, b.args...)}
	}
	for i := range s.servers {
		s.must(s.raw(i).FlushAll(s.Context()).Err())
	}
	b.test(s)
}

// describe is the server's kind and version, in its own words.
func describe(t *testing.T, srv Server) string {
	t.Helper()
	s := &scene{T: t, servers: []Server{srv}}
	text, err := s.raw(0).Info(context.Background(), "server").Result()
	if err != nil {
		return "no INFO"
	}
	kind := "redis "
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[k] = v
	}
	if v := fields["valkey_version"]; v != "" {
		return "valkey " + v
	}
	return kind + fields["redis_version"]
}
