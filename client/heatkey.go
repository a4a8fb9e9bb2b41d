// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"math"
	"time"
)

// warmKey is a key that this process reads often enough to tell of it.
type warmKey struct {
	key     string // the caller's
	counter string // its name on the node
	node    int

	looked time.Time // at the detectors, the latest time
	now    rates     // what they said: the mean of the past, weighed by the half-life of heatMemory
	quick  rates     // the rate since the look before
	jumped bool      // that was far above what is known of the key
	urgent bool      // so it was twice in a row: not to wait for the next turn

	toldAt time.Time // when a call with it was begun, the latest time; zero: never
	then   rates     // what the detectors said then
	said   rates     // what this process told as its rate
	share  rates     // its part of the counter, as of saidAt
	saidAt time.Time

	fleet   rates // as the node has said, at heardAt
	copies  int
	heardAt time.Time
	hot     bool // the fleet reads it often

	splitAt time.Time // when the cache was told on how many nodes the key should be, and on how many
	splitTo int
}

// heatMemory is the half-life of the detectors' rates (hotkey.Config.HalfLife).
const heatMemory = time.Second

// since is the rate between two moments, so much apart, of which the detectors' rates are known: what the old reads still count is taken out.
func since(before, now rates, passed time.Duration) rates {
	left := halved(1, passed, heatMemory)
	if left > 0.999 {
		return now
	}
	return rates{max(0, (now.all-before.all*left)/(1-left)), max(0, (now.asked-before.asked*left)/(1-left))}
}

// see takes in what the detectors say. A jump is taken for one at the second look: the first has seen only a part of its time.
func (k *warmKey) see(r rates, hotRate float64, now time.Time) {
	k.quick = r
	if !k.looked.IsZero() {
		k.quick = since(k.now, r, now.Sub(k.looked))
	}
	k.now, k.looked = r, now
	far := k.quick.all >= max(hotRate, 2*k.said.all) || k.quick.asked >= max(hotRate, 2*k.said.asked)
	k.urgent, k.jumped = far && k.jumped, far
}

// due says whether the key may be told, now that it is the node's turn, or not. One that has just jumped waits for the second look: told now, with a part of its rate,
// it would have to wait for a second.
func (k *warmKey) due(now time.Time, turn bool) bool {
	return (turn && !k.jumped || k.urgent) && (k.toldAt.IsZero() || now.Sub(k.toldAt) >= heatEvery)
}

// weight says which of two keys is told first.
func (k *warmKey) weight(now time.Time) float64 {
	if k.toldAt.IsZero() {
		return math.Inf(1)
	}
	return max(k.now.most(), k.said.most()) * now.Sub(k.toldAt).Seconds()
}

// rate is what this process tells of the key: what it has read since it told the last time. Small changes are taken in by a quarter: chance makes them,
// and each would be an addition.
func (k *warmKey) rate(now time.Time) rates {
	switch {
	case k.urgent:
		return k.quick
	case k.toldAt.IsZero():
		return k.now
	}
	r := since(k.then, k.now, now.Sub(k.toldAt))
	return rates{smooth(k.said.all, r.all), smooth(k.said.asked, r.asked)}
}

func smooth(said, r float64) float64 {
	if r == 0 || math.Abs(r-said) > max(said/2, 2*math.Sqrt(said)) {
		return r
	}
	return said + (r-said)/4
}

// draw is what is added for a rate: see heat.go. chance is from 0 to 1.
func (k *warmKey) draw(r rates, hotRate float64, now time.Time, chance float64) rates {
	passed := now.Sub(k.saidAt)
	add := rates{r.all - halved(k.share.all, passed, heatHalf), r.asked - halved(k.share.asked, passed, heatHalf)}
	least := (1 - halved(1, heatEvery, heatHalf)) * max(hotRate, k.fleet.all/heatWrites)
	p := min(1, max(math.Abs(add.all), math.Abs(add.asked))/least)
	if chance >= p {
		return rates{}
	}
	return rates{add.all / p, add.asked / p}
}

// begin notes that a call with the key begins.
func (k *warmKey) begin(now time.Time) {
	k.toldAt, k.then, k.urgent, k.jumped = now, k.now, false, false
}

// hear takes in the reply to a call in which this process has said something. A fleet that reads less than this process alone has forgotten it: the node came back empty, or the
// counter was evicted. Then no more of what was said is there than that.
func (k *warmKey) hear(said rates, h heard, hotRate float64, now time.Time) {
	k.said, k.share, k.saidAt = said, said, k.toldAt
	if said.all >= hotRate && h.all < said.all/2 {
		k.share = h.rates
	}
	k.fleet, k.copies, k.heardAt = h.rates, h.copies, now
	k.hot = h.all >= fleetHot*hotRate || k.hot && h.all >= fleetHot*hotRate/2
}

// over says that there is nothing more to be told of a key that is not read any more: that was told, or has decayed.
func (k *warmKey) over(now time.Time) bool {
	return k.now == (rates{}) && (k.said == (rates{}) || now.Sub(k.saidAt) > heatKeep)
}

// believed says whether what was heard of the key still counts.
func (k *warmKey) believed(now time.Time) bool {
	return !k.heardAt.IsZero() && now.Sub(k.heardAt) < heatBelief
}
