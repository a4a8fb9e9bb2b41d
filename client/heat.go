// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
)

//go:embed heat.lua
var heatSource string

var heatScript = redisnode.NewScript("heat", heatSource)

// The fleet's view of hot keys. Five hundred processes that read a key 99 times a second each are a hot key that none of them sees. So each tells the key's owner
// how often it reads the key, in a counter beside the entry, and hears how often all do. What follows: a key that the fleet reads fleetHot times HotRate
// a second is kept by every process that reads it; and one whose reads reach the nodes more often than HotCopyRate is spread over several of them.
//
// A process keeps its part of the counter at its own rate. The counter halves every heatHalf, and what the process adds is the difference:
//
//	add = rate - said * 2^(-(now-then)/heatHalf)
//
// So the first telling carries the whole rate, a steady rate tops up what has decayed, a rate that falls takes back, and who dies is forgotten. The sum
// is up to 7 % low, since what was told a second ago has decayed by 13 %.
//
// What it costs a node: each process makes one call a second at most, of at most heatKeys keys (in between further ones, for keys that have jumped, but of no more keys in all), some 4 us a key. Most of
// them only look: small additions are made with the probability
//
//	p = min(1, |add| / least), and then 1/p times as large;    least = 0.13 * max(HotRate, fleet's rate / heatWrites)
//
// which is right in the mean, and makes heatWrites additions a second of a steady key, however many processes there are: 500 of 10 reads a second write some 50 times
// a second, 5 of 1,000 each write 5 times. Where a key becomes hot each process tells of it once, at once.
//
// A call that is not answered in time may be carried out all the same, and its process, which does not know that, says the same again: its part would count twice, or as often as it has
// tried. So a call says until when it is good, by the node's clock, and a node that comes to it later adds nothing. What is left is a call that was carried out in time and whose answer
// was lost: that part counts twice, and half of it is gone after heatHalf. Too much makes a key hot, or gives it a copy more, for some seconds; no key gets more copies than HotCopies.
const (
	heatLook   = 100 * time.Millisecond // how often a process looks at its own counts
	heatEvery  = time.Second            // the least time between two tellings of a key
	heatSpread = 200 * time.Millisecond // a turn comes up to so much later, at random, so that processes do not stay together
	heatKeys   = 16                     // the most keys that are told to a node between two turns
	heatWrites = 50                     // additions a second to one counter by the whole fleet, when its rate is steady
	heatHalf   = 5 * time.Second        // half-life of a counter
	heatKeep   = 30 * time.Second       // how long a counter is kept after the last addition
	heatCalm   = 10 * time.Second       // for how long fewer copies must do before there are fewer
	heatBelief = 10 * time.Second       // how long what was heard is believed
	heatRest   = time.Minute            // for how long a node that refuses the script is left alone
	heatMargin = 100 * time.Millisecond // by how much the node's clock may be estimated wrong, where a call says until when it is good

	// fleetHot is the fleet's rate, as a multiple of HotRate, from which each process that reads the key keeps it: 1,000 a second by default, which is a hundredth of what a node
	// serves. Below half of that it is let go.
	fleetHot = 10
	// heatFloor: keys below a part of HotRate are not told; they are told again from where the detector names them, an eighth.
	heatFloor = 16
)

// rates are reads a second, large values counted by their size as well.
type rates struct {
	all   float64 // counted before this process's own copies were looked at
	asked float64 // what went to a node
}

func (r rates) most() float64 { return max(r.all, r.asked) }

// heat is this process's part in it, for all caches. One loop looks and begins the calls, one for each node at a time; readers never wait for any of it.
type heat struct {
	nodes    []*redisnode.Node
	loads    *loads
	patience time.Duration                           // of a call: Config.OperationTimeout
	refusal  func(node int, refused bool, err error) // is told when a node begins to refuse the script, and when it does it again; nil: nobody wants to know
	calls    sync.WaitGroup                          // those under way

	mu     sync.Mutex
	caches []*warmth
	posts  []heatPost // one a node
	told   uint64     // keys, in all calls
	wrote  uint64     // those of them that were added to
	failed uint64     // calls
}

// heatPost is what is between this process and one node.
type heatPost struct {
	due  time.Time // of the next turn
	left int       // keys that may be told until then
	busy bool      // a call is under way
	deaf bool      // it has refused the script, the last time
}

func newHeat(nodes []*redisnode.Node, loads *loads) *heat {
	h := &heat{nodes: nodes, loads: loads, posts: make([]heatPost, len(nodes))}
	now := time.Now()
	for i := range h.posts {
		h.posts[i].due = now.Add(rand.N(heatEvery))
	}
	return h
}

// join makes a cache take part. nil: it does not.
func (h *heat) join(w *warmth) {
	if w == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.caches = append(h.caches, w)
}

// loop looks until ctx ends, and then waits for the calls under way.
func (h *heat) loop(ctx context.Context) {
	defer h.calls.Wait()
	defer h.loads.calls.Wait()
	for sleep(ctx, heatLook); ctx.Err() == nil; sleep(ctx, heatLook) {
		for node, batch := range h.look(time.Now()) {
			if len(batch) > 0 {
				h.calls.Go(func() { h.tell(ctx, node, batch) })
			}
		}
		h.loads.look(ctx, time.Now())
	}
}

// telling is one key on its way to its node.
type telling struct {
	w    *warmth
	k    *warmKey
	said rates // this process's rates
	add  rates // to the counter
}

// look takes in what was read since the last look, and says what is to be told to each node.
func (h *heat) look(now time.Time) [][]telling {
	h.mu.Lock()
	defer h.mu.Unlock()
	batches := make([][]telling, len(h.posts))
	turns := make([]bool, len(h.posts))
	for i := range h.posts {
		if p := &h.posts[i]; !now.Before(p.due) {
			turns[i], p.left, p.due = true, heatKeys, now.Add(heatEvery+rand.N(heatSpread))
		}
	}
	for _, w := range h.caches {
		w.look(now)
		for _, k := range w.keys {
			if p := &h.posts[k.node]; !p.busy && p.left > 0 && k.due(now, turns[k.node]) {
				batches[k.node] = append(batches[k.node], telling{w: w, k: k})
			}
		}
	}
	for i := range batches {
		batches[i] = h.choose(i, batches[i], now)
	}
	return batches
}

// choose takes, of the keys that could be told to a node, those that matter most or have waited longest, as many as may be, and draws what they add.
func (h *heat) choose(node int, batch []telling, now time.Time) []telling {
	p := &h.posts[node]
	if len(batch) > p.left {
		slices.SortFunc(batch, func(a, b telling) int { return cmp.Compare(b.k.weight(now), a.k.weight(now)) })
		batch = batch[:p.left]
	}
	p.left -= len(batch)
	p.busy = len(batch) > 0
	for i := range batch {
		t := &batch[i]
		t.said = t.k.rate(now)
		t.add = t.k.draw(t.said, t.w.hotRate, now, rand.Float64())
		t.k.begin(now)
	}
	return batch
}

// tell makes one call.
func (h *heat) tell(ctx context.Context, node int, batch []telling) {
	n := h.nodes[node]
	reply, err := n.Eval(ctx, heatCall(batch, n.Now(time.Now()).Add(h.patience+heatMargin)))
	if changed := h.take(node, batch, reply, err, time.Now()); changed && h.refusal != nil {
		h.refusal(node, err != nil, err)
	}
}

// take takes in what came of a call. true: the node has begun to refuse it, or does it again.
func (h *heat) take(node int, batch []telling, reply any, err error, now time.Time) (changed bool) {
	heard, ok := parseHeat(reply, len(batch))
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.posts[node]
	p.busy = false
	if err != nil || !ok {
		h.failed++
		if refusesHeat(err) {
			p.left, p.due = 0, now.Add(heatRest)
			changed, p.deaf = !p.deaf, true
		}
		return changed
	}
	for i, t := range batch {
		t.k.hear(t.said, heard[i], t.w.hotRate, now)
		t.w.spread(t.k, t.k.copies, now)
		if h.told++; t.add != (rates{}) {
			h.wrote++
		}
	}
	for _, w := range h.caches {
		w.publish()
	}
	changed, p.deaf = p.deaf, false
	return changed
}

// refusesHeat says whether a node will not do what it is asked, and that will not be otherwise in a second: it lacks permission or memory.
func refusesHeat(err error) bool {
	reply := redis.Error(nil)
	return errors.As(err, &reply) && (redis.HasErrorPrefix(reply, "NOPERM") || redis.HasErrorPrefix(reply, "OOM"))
}

// logHeat tells of a node that does not count what is read, and that it does again.
func (c *Client) logHeat(node int, refused bool, err error) {
	if refused {
		c.cfg.Logger.Warn("shelf: node refuses the counters of hot keys: its keys are hot, and have copies, by this process's own reads alone", "node", c.nodeID(node), "error", err)
	} else {
		c.cfg.Logger.Info("shelf: node counts hot keys again", "node", c.nodeID(node))
	}
}

// heatCall is the script's call for some keys of one node, which adds nothing after a moment of the node's clock; the zero time is never.
func heatCall(batch []telling, by time.Time) redisnode.Call {
	until := int64(0)
	if !by.IsZero() {
		until = by.UnixMilli()
	}
	c := redisnode.Call{Script: heatScript, Args: []any{heatHalf.Milliseconds(), heatKeep.Milliseconds(), heatCalm.Milliseconds(), until}}
	for _, t := range batch {
		c.Keys = append(c.Keys, t.k.counter)
		c.Args = append(c.Args, t.add.all, t.add.asked, t.w.copyRate, t.w.copies)
	}
	return c
}

// heard is what a node says of a key.
type heard struct {
	rates
	copies int
}

func parseHeat(reply any, keys int) ([]heard, bool) {
	values, ok := reply.([]any)
	if !ok || len(values) != 3*keys {
		return nil, false
	}
	all := make([]heard, keys)
	for i := range all {
		a, ok1 := values[3*i].(int64)
		n, ok2 := values[3*i+1].(int64)
		k, ok3 := values[3*i+2].(int64)
		if !ok1 || !ok2 || !ok3 {
			return nil, false
		}
		all[i] = heard{rates{float64(a), float64(n)}, int(k)}
	}
	return all, true
}

// halved is what is left of x after some time.
func halved(x float64, passed, halfLife time.Duration) float64 {
	return x * math.Exp2(-passed.Seconds()/halfLife.Seconds())
}
