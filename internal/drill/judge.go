// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// check is one thing that must be true of a run.
type check struct {
	text  string // what was seen, and what may be
	ok    bool
	quiet bool // it is about short times, which say nothing where others use the cores: the short form does not judge it
	// always says that it holds on whatever machine: the run is not played again when it does not.
	always bool
}

const (
	operationTimeout = 50 * time.Millisecond // client.DefaultOperationTimeout
	laterFactor      = 1.5                   // p99 once the fault is known, as a multiple of p99 before it
	fewest           = 100                   // reads of a window; fewer say nothing of a p99
	waveTime         = 3 * time.Second       // in which the first wave is over
	waveFactor       = 1.1                   // of its queries: more, later, is a second one
	backShare        = 0.95                  // of the old hit ratio: then it is back
	atCapShare       = 0.8                   // of the cap's speed: then the service goes on at the cap's speed
	refusalLimit     = time.Millisecond      // for half of those who are refused: no timer, no round trip
	gutterShare      = 0.5                   // hit ratio of a dead node's keys with a gutter
	gutterWindow     = 10 * time.Second      // at the end of the fault, in which that is looked at
	gutterLoad       = 1.6                   // reads of another node then, as a multiple of those before
)

// before are the windows of the healthy part: the last before the fault, but for a tenth of a second whose reads may be struck.
func (o *outcome) before() []span {
	width := min(window, o.struck*3/4/windows)
	return parts(o.struck-100*time.Millisecond-windows*width, width, windows)
}

// first is the first second of the fault.
func (o *outcome) first() span { return span{o.struck, min(o.struck+time.Second, o.healed)} }

// later are the windows after that.
func (o *outcome) later() []span {
	from := o.first().to
	width := min(window, (o.healed-from)/windows)
	return parts(from, width, windows)
}

func (o *outcome) p99(s span) time.Duration { return quantile(in(o.samples, s), 0.99, took) }

// measured says that every one of the windows has enough reads.
func (o *outcome) measured(spans ...span) bool {
	for _, s := range spans {
		if len(in(o.samples, s)) < fewest {
			return false
		}
	}
	return len(spans) > 0
}

// noErrors: every user got a value, and every write was done; that a node could not be told of it is not the writer's error.
func noErrors(o *outcome) check {
	bad := count(o.samples, unanswered)
	text := fmt.Sprintf("%s errors of %s reads", thousands(bad), thousands(len(o.samples)))
	if no := count(o.samples, func(s *sample) bool { return s.end == refused }); no > 0 {
		text += fmt.Sprintf(" (%s refused for want of room)", thousands(no))
	}
	writes := o.writeErrors()
	if writes > 0 {
		text += fmt.Sprintf(" and %s of writes", thousands(writes))
	}
	return check{text: text + o.firstError(), ok: bad == 0 && writes == 0 && len(o.samples) >= fewest}
}

// onlyOverload: who got no value was told that there is no room.
func onlyOverload(o *outcome) check {
	bad := count(o.samples, func(s *sample) bool { return s.end == failed })
	no := count(o.samples, func(s *sample) bool { return s.end == refused })
	return check{text: fmt.Sprintf("%s of %s reads refused, %s other errors%s", thousands(no), thousands(len(o.samples)), thousands(bad), o.firstError()),
		ok: bad == 0 && len(o.samples) >= fewest}
}

func (o *outcome) writeErrors() (n int) {
	for text, times := range o.errors {
		if strings.HasPrefix(text, "write: ") {
			n += times
		}
	}
	return n
}

// firstError is the most frequent one, as an example.
func (o *outcome) firstError() string {
	example, most := "", 0
	for text, n := range o.errors {
		if n > most || n == most && text < example {
			example, most = text, n
		}
	}
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d times: %.160s)", most, example)
}

// firstSecond: in the first second of a fault p99 is an operation's timeout longer at most.
func firstSecond(o *outcome) check {
	was, now := medianOf(o.before(), o.p99), o.p99(o.first())
	return check{text: fmt.Sprintf("p99 %s, in the first second %s (at most %s)", short(was), short(now), short(was+operationTimeout)),
		ok: now <= was+operationTimeout && o.measured(append(o.before(), o.first())...), quiet: true}
}

// thenAsBefore: once the fault is known, p99 is nearly as it was before.
func thenAsBefore(o *outcome) check {
	was, now := medianOf(o.before(), o.p99), medianOf(o.later(), o.p99)
	limit := time.Duration(laterFactor * float64(was))
	return check{text: fmt.Sprintf("then %s (at most %s)", short(now), short(limit)), ok: now <= limit && o.measured(append(o.before(), o.later()...)...), quiet: true}
}

// capKept: the database never had more queries at once than it may.
func capKept(o *outcome) check {
	return check{text: fmt.Sprintf("database at most %d at once (cap %d)", o.highest, o.limit), ok: o.highest > 0 && o.highest <= o.limit, always: true}
}

// fresh: no answer was older than the rules of freshness allow.
func fresh(o *outcome) check {
	var broken uint64
	example := ""
	for i := range o.report.Rules {
		r := &o.report.Rules[i]
		broken += r.Broken
		if example == "" && len(r.Examples) > 0 {
			example = ": " + r.Examples[0]
		}
	}
	if o.report.Wrong > 0 {
		example = ": " + o.report.WrongExamples[0]
	}
	return check{text: fmt.Sprintf("%s of %s answers too old or wrong%s", thousands(int(broken+o.report.Wrong)), thousands(int(o.report.Reads)), example),
		ok: broken+o.report.Wrong == 0 && o.report.Reads >= fewest, always: true}
}

func (o *outcome) hits(s span) float64 { return share(in(o.samples, s), (*sample).hit) }

func (o *outcome) freshHits(s span) float64 { return share(in(o.samples, s), (*sample).fresh) }

// hitsBack: the hit ratio is again what it was, nearly, so long after the end of the fault. Entries past their time do not count.
func hitsBack(within time.Duration) func(o *outcome) check {
	return func(o *outcome) check {
		old := medianOf(o.before(), o.freshHits)
		at, found := o.backAt(old * backShare)
		c := check{text: fmt.Sprintf("hit ratio %s again %s after the end (at most %s)", percent(old*backShare), short(at), short(within)), ok: found && at <= within && old > 0}
		if !found {
			c.text = fmt.Sprintf("hit ratio not at %s again within %s: %s in the last second", percent(old*backShare), short(o.over-o.healed), percent(o.freshHits(span{o.over - time.Second, o.over})))
		}
		return c
	}
}

// backAt is when, after the end of the fault, the hit ratio has come back to what is wanted, in steps of a second: two seconds in a row.
func (o *outcome) backAt(want float64) (time.Duration, bool) {
	good := 0
	for _, s := range parts(o.healed, time.Second, int((o.over-o.healed)/time.Second)) {
		if len(in(o.samples, s)) == 0 || o.freshHits(s) < want {
			good = 0
			continue
		}
		if good++; good == 2 {
			return s.from - time.Second - o.healed, true
		}
	}
	return o.over - o.healed, false
}

// queries is the rate of the database's queries, a second.
func (o *outcome) queries(s span) float64 {
	var first, last *tick
	for i := range o.source {
		if t := &o.source[i]; t.at >= s.from && t.at <= s.to {
			if first == nil {
				first = t
			}
			last = t
		}
	}
	if first == nil || last.at == first.at {
		return 0
	}
	return float64(last.queries-first.queries) / (last.at - first.at).Seconds()
}

// atTheCap: when every read must go to the database, it gets as many as the cap lets through, a query taking latency.
func atTheCap(latency time.Duration) func(o *outcome) check {
	return func(o *outcome) check {
		speed := float64(o.limit) / latency.Seconds()
		got := medianOf(o.later(), o.queries)
		return check{text: fmt.Sprintf("%s queries a second (the cap's speed is %s, at least %s)", thousands(int(got)), thousands(int(speed)), percent(atCapShare)), ok: got > 0 && got >= atCapShare*speed}
	}
}

// refusedAtOnce: who is over the cap learns it without waiting for anything.
func refusedAtOnce(o *outcome) check {
	var no []sample
	for i := range o.samples {
		if s := &o.samples[i]; s.end == refused && s.at > o.first().to && s.at < o.healed {
			no = append(no, *s)
		}
	}
	half := quantile(no, 0.5, func(s *sample) time.Duration { return s.took - s.late })
	return check{text: fmt.Sprintf("half of the %s refused learnt it within %s (at most %s)", thousands(len(no)), short(half), short(refusalLimit)), ok: len(no) >= fewest && half <= refusalLimit}
}

// noSecondWave: the database is asked most right after the end of the fault, when nodes are found to be back and filled; then it becomes less, and not more again.
func noSecondWave(o *outcome) check {
	until := o.healed + waveTime
	first, later := o.most(o.healed, until), o.most(until, o.over)
	return check{text: fmt.Sprintf("%s queries a second at most in the %s after the end, then %s", thousands(int(first)), short(waveTime), thousands(int(later))),
		ok: first > 0 && later > 0 && later <= first*waveFactor}
}

// most is the largest number of queries in a second of a span.
func (o *outcome) most(from, to time.Duration) (most float64) {
	for _, s := range parts(from, time.Second, int((to-from)/time.Second)) {
		most = max(most, o.queries(s))
	}
	return most
}

// hotAnswered: whatever the database does, users of the hottest keys get an answer. One in a thousand may not: while a node does not answer in time either, since the machine stood
// still for a moment, there is nobody left to ask.
func hotAnswered(o *outcome) check {
	hot := o.hot()
	text := fmt.Sprintf("%s of %s reads of hot keys not answered (at most %s)", thousands(count(hot, unanswered)), thousands(len(hot)), thousands(len(hot)/1000))
	if count(hot, unanswered) > 0 {
		text += o.firstError()
	}
	return check{text: text, ok: len(hot) >= fewest && count(hot, unanswered) <= len(hot)/1000}
}

// hotStale: while the database does not answer at all, those are old answers that say so, with their age.
func hotStale(o *outcome) check {
	hot := o.hot()
	stale := slices.DeleteFunc(slices.Clone(hot), func(s sample) bool { return s.end != fromStale })
	oldest := quantile(stale, 1, func(s *sample) time.Duration { return s.age })
	return check{text: fmt.Sprintf("%s of them past their time, which is %s, and %s old at most", percent(share(hot, func(s *sample) bool { return s.end == fromStale })), short(o.ttl), short(oldest)),
		ok: len(stale) > 0 && oldest > o.ttl}
}

// hot are the reads of the hottest keys in the fault, but for its first second.
func (o *outcome) hot() []sample {
	return slices.DeleteFunc(slices.Clone(in(o.samples, span{o.first().to, o.healed})), func(s sample) bool { return s.rank >= hottest })
}

func unanswered(s *sample) bool { return !s.answered() }

// noHerd: in no second after the database is back is a hot key asked for more than twice by each process.
func noHerd(processes int) func(o *outcome) check {
	return func(o *outcome) check {
		most := 0
		for _, n := range o.loads {
			most = max(most, n)
		}
		return check{text: fmt.Sprintf("afterwards a hot key loaded %d times in a second at most (%d)", most, 2*processes), ok: most <= 2*processes && len(o.loads) > 0}
	}
}

// gutterHits: the keys of the node that is dead are in the cache again, on other nodes.
func gutterHits(o *outcome) check {
	var its []sample
	for _, s := range in(o.samples, span{max(o.first().to, o.healed-gutterWindow), o.healed}) {
		if int(s.node) == o.targeted {
			its = append(its, s)
		}
	}
	hits := share(its, (*sample).hit)
	return check{text: fmt.Sprintf("hit ratio of the dead node's keys %s in the last %s of %s (above %s)", percent(hits), short(gutterWindow), short(o.healed-o.struck), percent(gutterShare)),
		ok: len(its) >= fewest && hits > gutterShare}
}

// evenReads: no other node is asked for much more than before.
func evenReads(o *outcome) check {
	b := o.before()
	before, struck := span{b[0].from, b[len(b)-1].to}, span{o.first().to, o.healed}
	worst, which := 0.0, 0
	for i := range o.size {
		if was := o.asked(i, before); i != o.targeted && was > 0 && o.asked(i, struck)/was > worst {
			worst, which = o.asked(i, struck)/was, i
		}
	}
	return check{text: fmt.Sprintf("%s gets %.2f of its reads before (at most %.1f)", nodeID(which), worst, gutterLoad), ok: worst > 0 && worst <= gutterLoad}
}

// asked is how many reads a node is asked for, a second.
func (o *outcome) asked(node int, s span) float64 {
	return float64(count(in(o.samples, s), func(s *sample) bool { return int(s.from) == node })) / (s.to - s.from).Seconds()
}

// connectAnew: so many connections were made in the fault, or it has tested nothing.
func connectAnew(least int) func(o *outcome) check {
	return func(o *outcome) check {
		return check{text: fmt.Sprintf("%s connections made anew (at least %s)", thousands(o.connects), thousands(least)), ok: o.connects >= least}
	}
}
