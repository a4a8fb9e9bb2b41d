// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-shelf/shelf/bench/meter"
)

// demand is a figure with its limit.
type demand struct {
	name   string
	figure string
	limit  string
	ok     bool
}

func (d demand) line() string {
	word := "PASS"
	if !d.ok {
		word = "FAIL"
	}
	return fmt.Sprintf("%s  %s: %s (%s)", word, d.name, d.figure, d.limit)
}

// confidence is that of the intervals.
const confidence = 0.95

// The cells that demands are made of.
func l1Cell(keys, cores int) cell {
	return cell{Kind: kindL1, Nodes: 1, Keys: keys, Size: small, Goroutines: cores, Procs: cores}
}

func l2Cell(nodes, size, goroutines int) cell {
	return cell{Kind: kindL2, Nodes: nodes, Keys: 10_000, Size: size, Goroutines: goroutines}
}

// judge compares what was measured with what is demanded. A demand whose cell was not measured is left out.
func (r results) judge() []demand {
	return slices.Concat(r.judgeL1(), r.judgeL2(), r.judgeMisses(), r.judgeMany(), r.judgeParts())
}

func (r results) judgeL1() (all []demand) {
	c := l1Cell(1000, 1)
	slots := r.slots(c, shelf.name)
	if len(slots) == 0 {
		return nil
	}
	name := kindL1 + ", " + c.name()
	all = append(all,
		atMost(name+", processor time (this machine's)", medianOf(slots, cpuPerOp), 120, "ns"),
		atMost(name+", allocations", round1(medianOf(slots, mallocs)), 0, ""),
		r.faster(c, rueidisCache.name, 10))
	for _, peer := range []string{goRedisCache.name, redisCache.name, sturdy.name} {
		all = append(all, r.faster(c, peer, 1))
	}
	return all
}

func (r results) judgeL2() (all []demand) {
	if slots := r.slots(l2Cell(1, small, 64), shelf.name); len(slots) > 0 {
		at64, at256 := l2Cell(1, small, 64), l2Cell(1, small, 256)
		all = append(all,
			r.faster(at64, rueidisPlain.name, 1.5), r.faster(at64, goRedis.name, 2.5), r.faster(at64, batcher.name, 0.9), r.faster(at256, rueidisPlain.name, 2),
			r.reaches(l2Cell(1, small, 1), goRedis.name, 0.95), r.reaches(l2Cell(1, small, 4), goRedis.name, 0.95),
			atMost(kindL2+", "+at64.name()+", allocations", round1(medianOf(slots, mallocs)), 4, ""))
		// Of the first round: later more may be open from when there were 256 callers.
		if n := slots[0].Connections; n > 0 {
			all = append(all, atMost(kindL2+", "+at64.name()+", connections in all", float64(n), 8, ""))
		}
	}
	for _, n := range []int{64, 256} {
		if c := l2Cell(8, small, n); len(r.slots(c, shelf.name)) > 0 {
			all = append(all, r.faster(c, rueidisPlain.name, 1.5))
		}
	}
	return all
}

// missesMore is what a miss may take beside the load and three round trips, and stampedeMore what ten thousand callers may take beside the load.
const missesMore, stampedeMore = 200e3, 50e6

func (r results) judgeMisses() (all []demand) {
	c := missGroup().cells[0]
	if slots := r.slots(c, shelf.name); len(slots) > 0 {
		trips := r.slots(c, threeTrips.name)
		var more []float64
		for i, s := range slots {
			more = append(more, beyondLoad(s)-beyondLoad(trips[i]))
		}
		all = append(all, demand{"miss, beyond the load (" + short(medianOf(slots, loadTime)) + ") and three round trips (" + short(medianOf(trips, beyondLoad)) + ")",
			short(median(more)), "at most " + short(missesMore), median(more) <= missesMore})
	}
	c = stampedeGroup().cells[0]
	if slots := r.slots(c, shelf.name); len(slots) > 0 {
		var more, loads []float64
		for _, s := range slots {
			more, loads = append(more, nanos(s.Wall)-nanos(s.Load)), append(loads, float64(s.Loads))
		}
		all = append(all,
			demand{"stampede, " + c.name() + ", beyond the load", short(median(more)), "at most " + short(stampedeMore), median(more) <= stampedeMore},
			demand{"stampede, loads in the worst round", digits(slices.Max(loads)), "1", slices.Max(loads) == 1 && slices.Min(loads) == 1})
	}
	return all
}

func (r results) judgeMany() (all []demand) {
	for _, c := range manyGroup().cells {
		for _, peer := range able(kindMany) {
			if peer != shelf.name && len(r.slots(c, shelf.name)) > 0 {
				all = append(all, r.faster(c, peer, 1))
			}
		}
	}
	return all
}

func (r results) judgeParts() (all []demand) {
	for _, c := range partsGroup().cells {
		slots := r.slots(c, shelf.name)
		if len(slots) == 0 {
			continue
		}
		limit := map[string]float64{partOwner8: 20, partOwner100: 20, partCount: 15, partBuild: 50e6}[c.Part]
		v := medianOf(slots, cpuPerOp) // one goroutine: the time that it takes where nobody else wants the core
		all = append(all, demand{c.Part + ", processor time (this machine's)", short(v), "at most " + short(limit), v <= limit})
	}
	return all
}

// faster demands that Shelf does at least so many times as much as a peer.
func (r results) faster(c cell, peer string, times float64) demand {
	e := r.ratio(c, shelf.name, peer)
	return demand{fmt.Sprintf("%s, %s: times %s", c.Kind, c.name(), peer), e.String(), "at least " + limitText(times), e.Mid >= times}
}

// reaches demands that the interval goes up to so many times.
func (r results) reaches(c cell, peer string, times float64) demand {
	e := r.ratio(c, shelf.name, peer)
	return demand{fmt.Sprintf("%s, %s: times %s", c.Kind, c.name(), peer), e.String(), "the interval reaches " + limitText(times), e.High >= times}
}

func atMost(name string, v, limit float64, unit string) demand {
	return demand{name, strings.TrimSpace(digits(v) + " " + unit), strings.TrimSpace("at most " + limitText(limit) + " " + unit), v <= limit}
}

func limitText(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.2f", v), ".00") }

// ratio is how many times as much a does as b, in a cell.
func (r results) ratio(c cell, a, b string) estimate {
	return ratio(ratesOf(r.slots(c, a)), ratesOf(r.slots(c, b)), confidence)
}

func ratesOf(slots []meter.Slot) (rates []float64) {
	for _, s := range slots {
		rates = append(rates, rate(s))
	}
	return rates
}

// Figures of a slot. All durations are nanoseconds.
func rate(s meter.Slot) float64       { return float64(s.Ops) / s.Wall.Seconds() }
func perOp(s meter.Slot) float64      { return nanos(s.Wall) / float64(s.Ops) }
func cpuPerOp(s meter.Slot) float64   { return nanos(s.CPU) / float64(s.Ops) }
func kernel(s meter.Slot) float64     { return nanos(s.Kernel) / float64(s.Ops) }
func server(s meter.Slot) float64     { return nanos(s.Servers) / float64(s.Ops+s.Warmed) }
func mallocs(s meter.Slot) float64    { return float64(s.Mallocs) / float64(s.Ops) }
func p50(s meter.Slot) float64        { return nanos(s.P50) }
func p99(s meter.Slot) float64        { return nanos(s.P99) }
func wall(s meter.Slot) float64       { return nanos(s.Wall) }
func loadTime(s meter.Slot) float64   { return nanos(s.Load) }
func beyondLoad(s meter.Slot) float64 { return p50(s) - loadTime(s) }
func loads(s meter.Slot) float64      { return float64(s.Loads) }
func opsOf(s meter.Slot) float64      { return float64(s.Ops) }

func medianOf(slots []meter.Slot, figure func(meter.Slot) float64) float64 {
	values := make([]float64, 0, len(slots))
	for _, s := range slots {
		values = append(values, figure(s))
	}
	return median(values)
}

// round1 rounds to a tenth: what is left of allocations beyond that is the runtime's and the heartbeats'.
func round1(v float64) float64 { return math.Round(v*10) / 10 }

// passed says whether all demands are met.
func passed(all []demand) bool {
	return !slices.ContainsFunc(all, func(d demand) bool { return !d.ok })
}
