// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import "time"

// The numbers of an adaptive limiter. Windows are short against what people notice and long against a query.
const (
	paceWindow    = 100 * time.Millisecond // at least so much lies between two moves of the cap
	paceLoads     = 8                      // and at least so many loads that ended
	paceKind      = 4                      // a kind of load with fewer of them waits for the next window
	paceTolerance = 2.0                    // times as long as at its best is too long
	paceCut       = 0.8                    // what is left of the cap then
	paceForget    = time.Minute            // how fast the best is forgotten
)

// Gauge measures one kind of load for an adaptive limiter ([LimiterConfig.Adaptive]). Loads that are
// comparable share one, those that are not (one row, a thousand rows) have one each:
// a load is compared with the best of its own kind. Methods are safe for concurrent
// use. On a limiter that is not adaptive it does nothing.
//
// The cap moves by additive increase and multiplicative decrease, as a TCP
// sender's window does: Chiu and Jain, "Analysis of the Increase and Decrease
// Algorithms for Congestion Avoidance in Computer Networks" (1989), who show that
// of such rules this one brings those who share a resource, here the processes
// that share a database, to equal shares. The sign of congestion is that of TCP
// Vegas (Brakmo, O'Malley, Peterson, 1994), a latency that has grown against the
// lowest one seen. Once a window of at least 100 ms and 8 loads, with
//
//	b = the lowest mean of a kind in a window, which drifts to the present mean by 1/e a minute
//	r = the mean of (mean of the kind in this window / its b), weighted by loads
//
// it is: if r > 2, cap = 0.8 cap (at least 1 less, never below Floor), and not again until
// the loads that ran at that moment have had time to end; else, if somebody found no place in
// the window, cap = cap + 1 (never above Max or what SetMost says).
//
// The drift is for a source that has become slower for good: it is taken for normal
// after a minute or two. What is slow from the first load on is not seen.
type Gauge struct {
	limiter *Limiter

	// Guarded by limiter.mu.
	sum  time.Duration
	n    int
	best float64 // seconds; 0 before the first window
	seen time.Time
}

// pace is an adaptive limiter's state between two moves of the cap.
type pace struct {
	gauges []*Gauge
	began  time.Time // of the window
	ended  int       // loads in it
	short  bool      // somebody found no place in it
	until  time.Time // no further cut before
}

// NewGauge returns the measure of a new kind of load. An adaptive limiter keeps it for as long as it lives, and looks at all
// that it has once a window: for some hundreds of kinds.
func (l *Limiter) NewGauge() *Gauge {
	g := &Gauge{limiter: l}
	if l.config.Adaptive {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pace.gauges = append(l.pace.gauges, g)
	}
	return g
}

// Ended takes in that a load has ended at now which has taken so long: an answer,
// or a load that was given up. An error that came quickly says nothing, and is not
// to be told. It costs a lock.
func (g *Gauge) Ended(took time.Duration, now time.Time) {
	l := g.limiter
	if !l.config.Adaptive {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	g.sum += max(took, 0)
	g.n++
	p := &l.pace
	if p.ended == 0 {
		p.began = now.Add(-took)
	}
	p.ended++
	if p.ended < paceLoads || now.Sub(p.began) < paceWindow {
		return
	}
	l.setCap(p.move(l.cap, l.config.Floor, now))
}

// move ends a window and says what the cap is to be.
func (p *pace) move(limit, floor int, now time.Time) int {
	ratio, slowest := p.ratio(now)
	short := p.short
	p.ended, p.short = 0, false
	switch {
	case ratio > paceTolerance && !now.Before(p.until):
		p.until = now.Add(slowest) // what runs now was let in under the old cap: it must not cut the new one
		return max(min(floor, limit), min(limit-1, int(paceCut*float64(limit))))
	case ratio > 0 && ratio <= paceTolerance && short:
		return limit + 1
	}
	return limit
}

// ratio is r in the comment of Gauge, 0 where nothing is known, and the longest mean.
func (p *pace) ratio(now time.Time) (ratio float64, slowest time.Duration) {
	loads := 0
	for _, g := range p.gauges {
		if g.n < paceKind {
			continue
		}
		mean := g.sum.Seconds() / float64(g.n)
		if g.best == 0 || mean < g.best {
			g.best = mean
		} else {
			g.best += (mean - g.best) * min(1, now.Sub(g.seen).Seconds()/paceForget.Seconds())
		}
		if g.best > 0 {
			ratio += float64(g.n) * mean / g.best
			loads += g.n
		}
		slowest = max(slowest, g.sum/time.Duration(g.n))
		g.sum, g.n, g.seen = 0, 0, now
	}
	if loads > 0 {
		ratio /= float64(loads)
	}
	return ratio, slowest
}
