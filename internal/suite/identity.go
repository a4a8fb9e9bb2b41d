// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
)

var engines = []behaviour{
	{name: "the engine can what it says it can, and nothing else", alone: true, test: abilities},
	{name: "the client knows kind, version and abilities of a node", test: identity},
	{name: "the client knows the node's clock", test: nodeClock},
}

// abilities: a stated lack that is none would hide behaviours.
func abilities(s *scene) {
	ctx := s.Context()
	probes := map[Ability]func() error{
		Settings:    func() error { return s.raw(0).Do(ctx, "CONFIG", "GET", "maxmemory").Err() },
		Users:       func() error { return s.raw(0).Do(ctx, "ACL", "WHOAMI").Err() },
		Pushes:      func() error { return s.raw(0).Do(ctx, "CLIENT", "TRACKING", "OFF").Err() },
		Connections: func() error { return s.raw(0).Do(ctx, "CLIENT", "LIST").Err() },
		Replicas: func() error {
			if s.servers[0].Replica == nil {
				return errors.New("no Replica")
			}
			return s.raw(0).Do(ctx, "ROLE").Err()
		},
		Restarts: func() error {
			text, err := s.raw(0).Info(ctx, "server").Result()
			if err == nil && (s.servers[0].Restart == nil || !strings.Contains(text, "run_id:")) {
				err = errors.New("no Restart, or no run id")
			}
			return err
		},
		Snapshots: func() error { return snapshot(s) },
	}
	for a, probe := range probes {
		if err, lacks := probe(), s.engine.Lacks[a] != ""; (err != nil) != lacks {
			s.Errorf("%s: the probe says %v, the engine says that it lacks it: %v", a, err, lacks)
		}
	}
	for a := range s.engine.Lacks {
		if probes[a] == nil {
			s.Errorf("the engine lacks %q, which is no ability", a)
		}
	}
}

// snapshot tries whether what SAVE keeps comes back, and nothing else does.
func snapshot(s *scene) error {
	ctx := s.Context()
	err := errors.Join(s.raw(0).Set(ctx, "kept", "1", 0).Err(), s.raw(0).Do(ctx, "SAVE").Err(), s.raw(0).Set(ctx, "lost", "1", 0).Err())
	if err == nil && s.servers[0].Restart == nil {
		err = errors.New("no Restart")
	}
	if err != nil {
		return err
	}
	s.restored()
	names, err := s.raw(0).Keys(ctx, "*").Result()
	if err == nil && !slices.Equal(names, []string{"kept"}) {
		err = fmt.Errorf("after SAVE and a restart there are %q; want \"kept\" alone", names)
	}
	return err
}

func identity(s *scene) {
	cl := s.client(s.config())
	for i, n := range cl.Stats().Nodes {
		if n.LastError != nil || (s.engine.Kind != "" && n.Engine != s.engine.Kind) || !strings.HasPrefix(n.Version, s.engine.Version) {
			s.Errorf("%s is %q %q (%v), want %q %q", n.ID, n.Engine, n.Version, n.LastError, s.engine.Kind, s.engine.Version)
		}
		err := s.raw(i).Do(s.Context(), "CLIENT", "TRACKING", "OFF").Err()
		if n.Tracking != (err == nil) {
			s.Errorf("%s: Tracking is %v, but CLIENT TRACKING OFF gives %v", n.ID, n.Tracking, err)
		}
	}
}

// nodeClock: the estimate of the node's clock, and that ages are counted on it.
func nodeClock(s *scene) {
	c := open(s, plain(newSource(row{Text: "a"}).load))
	cl := s.client(s.config())
	for i, n := range cl.Stats().Nodes {
		sent := time.Now()
		clock, err := s.raw(i).Time(s.Context()).Result()
		s.must(err)
		received := time.Now()
		if low, high := clock.Sub(received), clock.Sub(sent); n.ClockOffset < low-100*time.Millisecond || n.ClockOffset > high+100*time.Millisecond {
			s.Errorf("%s: ClockOffset is %v, TIME says between %v and %v", n.ID, n.ClockOffset, low, high)
		}
	}
	begin := time.Now()
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	loaded := time.Now()
	s.until("an age of 50 ms", func() bool { return time.Since(loaded) > 50*time.Millisecond })
	asked := time.Now()
	r, err := c.Lookup(s.Context(), "k")
	s.must(err)
	if least, most := asked.Sub(loaded)-20*time.Millisecond, time.Since(begin)+20*time.Millisecond; r.Age < least || r.Age > most {
		s.Errorf("the age is %v, want %v to %v", r.Age, least, most)
	}
}
