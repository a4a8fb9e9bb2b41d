// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stalecheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config configures a Checker.
type Config struct {
	// Processes is how many processes report, 1 to 1,000. They are numbered from 0.
	Processes int

	// Rules are what is promised; at least one, each with a name of its own.
	Rules []Rule

	// History is how long a version is remembered after it was superseded; 0 means 5 min. A read of an older one is judged as one of the oldest
	// that is remembered, so make it longer than every rule's bound.
	History time.Duration

	// FailedCountsAsOwn: also after an invalidation that failed its own process must not see older versions: it remembers that it failed, and does without
	// copies of these keys.
	FailedCountsAsOwn bool
}

// DefaultHistory is what a zero Config.History means.
const DefaultHistory = 5 * time.Minute

const maxProcesses = 1000

func (c Config) withDefaults() (Config, error) {
	if c.Processes < 1 || c.Processes > maxProcesses {
		return c, fmt.Errorf("stalecheck: Config.Processes is %d: must be from 1 to %d", c.Processes, maxProcesses)
	}
	if c.History < 0 {
		return c, fmt.Errorf("stalecheck: Config.History is %v: must not be negative", c.History)
	}
	if c.History == 0 {
		c.History = DefaultHistory
	}
	if len(c.Rules) == 0 {
		return c, errors.New("stalecheck: Config.Rules is empty: without a rule nothing is checked")
	}
	names := make(map[string]bool)
	for i, r := range c.Rules {
		switch {
		case r.Name == "" || names[r.Name]:
			return c, fmt.Errorf("stalecheck: Config.Rules[%d].Name is %q: each rule needs a name of its own", i, r.Name)
		case r.Bound < 0 || r.Bound >= c.History:
			return c, fmt.Errorf("stalecheck: Config.Rules[%d].Bound is %v: must be from 0 to below History (%v)", i, r.Bound, c.History)
		case r.Since < Confirmed || r.Since > Committed:
			return c, fmt.Errorf("stalecheck: Config.Rules[%d].Since is %d: must be Confirmed, OwnConfirmed or Committed", i, r.Since)
		}
		names[r.Name] = true
	}
	return c, nil
}

// Checker judges reads as their time comes: when every process has reported all that began before the read ended. It is safe for concurrent use.
type Checker struct {
	cfg Config

	mu        sync.Mutex
	upto      []time.Duration // each process's promise
	keys      map[string]*history
	seen      map[string][]sight // by key, for each rule
	invs      []waitingInvalidation
	reads     []Read
	phases    []phase
	tallies   map[tallyKey]*Tally
	report    Report
	forgotten time.Duration // when versions were last forgotten
}

type waitingInvalidation struct {
	Invalidation
	process int
}

type phase struct {
	name string
	from time.Duration
}

type tallyKey struct {
	rule  int
	phase string
}

// sight is the newest version that a rule's reads have seen, and when such a read had first ended.
type sight struct {
	version uint64
	at      time.Duration
}

// New makes a Checker.
func New(cfg Config) (*Checker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Checker{
		cfg: cfg, upto: make([]time.Duration, cfg.Processes), keys: make(map[string]*history),
		seen: make(map[string][]sight), tallies: make(map[tallyKey]*Tally),
	}, nil
}

// Phase says that a new part of the run begins: reads that begin from now on count in it too. Phases are named in the order of their times; a name
// may come again.
func (c *Checker) Phase(name string, from time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phases = append(c.phases, phase{name, from})
	if !slices.Contains(c.report.Phases, name) {
		c.report.Phases = append(c.report.Phases, name)
	}
}

// Add takes what a process has recorded. A process that has ended is to be given a last Batch whose Upto is Forever, or nothing is judged any more.
func (c *Checker) Add(process int, b Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if process < 0 || process >= len(c.upto) {
		return fmt.Errorf("stalecheck: process is %d: must be from 0 to %d", process, len(c.upto)-1)
	}
	for _, w := range b.Writes {
		c.write(w)
	}
	for _, i := range b.Invalidations {
		c.invs = append(c.invs, waitingInvalidation{i, process})
	}
	for _, r := range b.Reads {
		r.process = process
		c.reads = append(c.reads, r)
	}
	c.upto[process] = max(c.upto[process], b.Upto)
	c.advance(slices.Min(c.upto))
	return nil
}

func (c *Checker) write(w Write) {
	h := c.keys[w.Key]
	if h == nil {
		h = &history{}
		c.keys[w.Key] = h
		c.seen[w.Key] = make([]sight, len(c.cfg.Rules))
	}
	c.report.Writes++
	if w.Version == 0 || !h.add(w, c.cfg.Processes) {
		c.wrong("key %s: two writes of version %d", w.Key, w.Version)
	}
}

// advance judges what can be judged: all that began before upto is known.
func (c *Checker) advance(upto time.Duration) {
	c.invs = slices.DeleteFunc(c.invs, func(i waitingInvalidation) bool {
		if i.Returned > upto {
			return false
		}
		c.invalidate(&i)
		return true
	})
	var due []Read
	c.reads = slices.DeleteFunc(c.reads, func(r Read) bool {
		if r.Ended > upto {
			return false
		}
		due = append(due, r)
		return true
	})
	slices.SortFunc(due, func(a, b Read) int { return cmp.Compare(a.Began, b.Began) })
	for i := range due {
		c.judge(&due[i])
	}
	if upto < Forever && upto-c.forgotten > time.Second {
		c.forgotten = upto
		for _, h := range c.keys {
			h.forget(upto - c.cfg.History)
		}
	}
}

func (c *Checker) invalidate(i *waitingInvalidation) {
	c.report.Invalidations++
	if i.Failed {
		c.report.Failed++
	}
	if i.Keys == nil {
		for k, h := range c.keys {
			if strings.HasPrefix(k, i.Prefix) {
				h.cover(&i.Invalidation, i.process, c.cfg.FailedCountsAsOwn)
			}
		}
	}
	for _, k := range i.Keys {
		if h := c.keys[k]; h != nil {
			h.cover(&i.Invalidation, i.process, c.cfg.FailedCountsAsOwn)
		}
	}
}

// judge counts a read for each rule that covers it.
func (c *Checker) judge(r *Read) {
	c.report.Reads++
	c.report.Layers[r.Layer]++
	h := c.keys[r.Key]
	if h == nil {
		h = &history{}
	}
	v, ok := c.identify(h, r)
	if !ok {
		return
	}
	next, found := h.find(v) // the first that is newer
	if found {
		next++
	}
	phase := c.phaseAt(r.Began)
	near := h.near(r)
	for i := range c.cfg.Rules {
		rule := &c.cfg.Rules[i]
		if rule.Covers != nil && !rule.Covers(r, phase) {
			continue
		}
		stale := time.Duration(0)
		if next < len(h.versions) {
			stale = r.Began - since(&h.versions[next], rule.Since, r.process)
		}
		back := c.sighted(i, r, v)
		if c.tally(i, phase).count(r, stale, rule.Bound, near, back) {
			c.broken(rule, r, v, h, stale, back)
		}
	}
}

func since(v *version, s Since, process int) time.Duration {
	switch s {
	case OwnConfirmed:
		return v.own[process]
	case Committed:
		return v.committed
	default:
		return v.confirmed
	}
}

// identify is the version that a read has seen. false: the read is wrong, whatever the rules say, or nothing is known of its key.
func (c *Checker) identify(h *history, r *Read) (uint64, bool) {
	if r.Absent {
		return h.newestAbsence(r.Ended), true
	}
	i, found := h.find(r.Version)
	switch {
	case !found && r.Version <= h.forgotten && r.Version > 0:
		return r.Version, true
	case !found:
		c.wrong("key %s: process %d read version %d (value %d) from %v, which nobody wrote", r.Key, r.process, r.Version, r.Value, r.Layer)
		return 0, false
	}
	w := &h.versions[i].Write
	switch {
	case w.Absent || w.Value != r.Value:
		c.wrong("key %s: process %d read version %d from %v with the value %d, which is not that of its write", r.Key, r.process, r.Version, r.Layer, r.Value)
		return 0, false
	case w.Began > r.Ended:
		c.wrong("key %s: process %d read version %d from %v before its write began", r.Key, r.process, r.Version, r.Layer)
		return 0, false
	}
	return r.Version, true
}

// sighted notes what a rule's reads see, and says whether a newer version than v had been seen by one that ended before this one began.
func (c *Checker) sighted(rule int, r *Read, v uint64) bool {
	all := c.seen[r.Key]
	if all == nil {
		return false
	}
	s := &all[rule]
	if v > s.version {
		*s = sight{v, r.Ended}
	}
	return v < s.version && s.at < r.Began
}

func (c *Checker) phaseAt(t time.Duration) string {
	for i := len(c.phases) - 1; i >= 0; i-- {
		if c.phases[i].from <= t {
			return c.phases[i].name
		}
	}
	return ""
}

func (c *Checker) tally(rule int, phase string) *Tally {
	k := tallyKey{rule, phase}
	if c.tallies[k] == nil {
		c.tallies[k] = new(Tally)
	}
	return c.tallies[k]
}
