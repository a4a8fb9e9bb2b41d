// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"maps"
	"math"
	"sync/atomic"
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

// warmth is a cache's part in the fleet's view of hot keys.
type warmth struct {
	names    naming
	owner    func(data string) int
	all      *hotkey.Detector // every read; nil but with L1Hot
	asked    *hotkey.Detector // reads that went to a node
	hotRate  float64
	copies   int // the most nodes for a key; below 2: its owner alone
	copyRate float64
	split    func(key string, k int) // nil where there are no copies

	hot atomic.Pointer[map[string]struct{}] // keys that the fleet reads often; replaced, never changed

	// Guarded by heat.mu:
	keys map[string]*warmKey // those that the detectors name, and those that were told within heatKeep
	list []hotkey.KeyRate    // of look, for the next one's use
	read map[string]rates    // the same
}

// askedCapacity is how many keys a cache follows of those that its reads ask the nodes for.
const askedCapacity = 512

// makeHeat makes the cache take part in the fleet's view, where something can follow from it.
func (c *Cache[V]) makeHeat() (err error) {
	copies := max(1, c.cfg.HotCopies)
	if c.cfg.NoFleetHot || c.hot == nil && copies == 1 {
		return nil
	}
	w := &warmth{names: c.names, owner: c.client.ring.OwnerIndex, all: c.hot, hotRate: c.cfg.HotRate, copies: copies, copyRate: c.cfg.HotCopyRate,
		keys: make(map[string]*warmKey), read: make(map[string]rates)}
	if copies > 1 {
		w.split = c.split
	}
	w.hot.Store(new(map[string]struct{}))
	if w.asked, err = hotkey.New(hotkey.Config{Enter: c.cfg.HotRate, HalfLife: heatMemory, Capacity: askedCapacity}); err != nil {
		return err
	}
	c.warmth = w
	return nil
}

// countAsked counts a read that this process could not answer by itself.
func (c *Cache[V]) countAsked(key string, size int, now time.Time) {
	if c.warmth != nil {
		c.warmth.asked.Count(key, size, now)
	}
}

// fleetHot says whether the fleet reads a key often.
func (c *Cache[V]) fleetHot(key string) bool {
	if c.warmth == nil {
		return false
	}
	_, is := (*c.warmth.hot.Load())[key]
	return is
}

// look takes in what the detectors say, and lets go of what is over. heat.mu is held, here and below.
func (w *warmth) look(now time.Time) {
	w.readings(now)
	for key, r := range w.read {
		k := w.keys[key]
		if k == nil {
			data := w.names.data(key)
			k = &warmKey{key: key, counter: heatPrefix + data, node: w.owner(data)}
			w.keys[key] = k
		}
		if k.see(r, w.hotRate, now); k.urgent { // what this process alone asks for is known at once
			w.spread(k, w.alone(k), now)
		}
	}
	for key, k := range w.keys {
		if _, is := w.read[key]; !is {
			k.see(rates{}, w.hotRate, now)
		}
		switch k.hot = k.hot && k.believed(now); {
		case k.over(now):
			delete(w.keys, key)
		case k.believed(now): // of many keys of a node it may be longer until this one's turn than a split holds
			w.spread(k, k.copies, now)
		}
	}
	w.publish()
}

// readings brings the rates that the detectors have. One of them knows a key earlier than the other; what was asked is a part of all.
func (w *warmth) readings(now time.Time) {
	clear(w.read)
	least := w.hotRate / heatFloor
	if w.all != nil {
		w.list = w.all.List(w.list[:0], least, now)
		for _, r := range w.list {
			w.read[r.Key] = rates{all: r.Rate}
		}
	}
	w.list = w.asked.List(w.list[:0], least, now)
	for _, r := range w.list {
		w.read[r.Key] = rates{max(w.read[r.Key].all, r.Rate), r.Rate}
	}
}

// alone is how many nodes a key needs for the reads of this process.
func (w *warmth) alone(k *warmKey) int {
	return max(1, min(w.copies, int(math.Ceil(k.quick.asked/w.copyRate))))
}

// publish makes readers see which keys are hot.
func (w *warmth) publish() {
	hot := make(map[string]struct{})
	for key, k := range w.keys {
		if k.hot {
			hot[key] = struct{}{}
		}
	}
	if !maps.Equal(hot, *w.hot.Load()) {
		w.hot.Store(&hot)
	}
}

// spread says on how many nodes a key should be, at most once a second unless it is more.
func (w *warmth) spread(k *warmKey, nodes int, now time.Time) {
	if w.split == nil || nodes < 2 || now.Sub(k.splitAt) < heatEvery && nodes <= k.splitTo {
		return
	}
	k.splitAt, k.splitTo = now, nodes
	w.split(k.key, nodes)
}

// fill adds what is known of the fleet to some keys of a cache.
func (h *heat) fill(w *warmth, top []KeyRate) {
	if w == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for i := range top {
		if k := w.keys[top[i].Key]; k != nil {
			top[i] = k.rated(top[i], now)
		}
	}
}

// rated adds what is known of the fleet.
func (k *warmKey) rated(r KeyRate, now time.Time) KeyRate {
	if k.believed(now) {
		r.Fleet, r.FleetNodes, r.FleetHot, r.Copies = k.fleet.all, k.fleet.asked, k.hot, k.copies
	}
	return r
}

// count is how many keys are hot by the fleet's rate.
func (w *warmth) count() int {
	if w == nil {
		return 0
	}
	return len(*w.hot.Load())
}

// figures are the numbers of Stats.
func (h *heat) figures() (told, wrote, failed uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told, h.wrote, h.failed
}
