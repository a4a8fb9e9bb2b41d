// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

const (
	worldKeys   = 12
	worldMinAge = 10_000 // ms
)

var worldNames = func() (names [worldKeys]string) {
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	return names
}()

// server is a primary or a replica: a stream of invalidations, and for each key the newest that it
// has carried out.
type server struct {
	name   string
	run    string
	stream []worldOp
	newest map[int]int
	cutOff int  // a replica: since when it hears nothing, in ms; -1: it is connected
	before int  // the cutOff before it was connected last
	listed bool // a reading has seen it since
	hangs  bool
}

type worldOp struct{ key, id int }

func (s *server) apply(op worldOp) {
	s.stream = append(s.stream, op)
	s.newest[op.key] = max(s.newest[op.key], op.id)
}

func (s *server) offset() int64 { return 100 + 7*int64(len(s.stream)) }

// call is an invalidation on its way: sent, carried out, confirmed, added.
type call struct {
	key, id  int // id: of the write that it follows
	to       *server
	run      string
	began    time.Time
	done     bool
	answered time.Time // when the confirmation was read; zero: not yet
}

// replayWorld is a primary with replicas, a client that invalidates, and its replay log.
type replayWorld struct {
	t        *testing.T
	rng      *rand.Rand
	log      *invalidation.Replay
	now      int
	runs     int
	ids      int
	primary  *server
	former   *server // still takes writes from those who have not heard
	replicas []*server
	calls    []*call
	written  map[int]int // by key: the newest write
	added    map[int]int // by key: the newest invalidation that was added
	reading  *invalidation.Position
	served   bool
	seen     map[string]int
}

func newReplayWorld(t *testing.T, seed uint64) *replayWorld {
	log, err := invalidation.NewReplay(invalidation.ReplayConfig{MinAge: worldMinAge * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w := &replayWorld{t: t, rng: rand.New(rand.NewPCG(seed, 4)), log: log, written: map[int]int{}, added: map[int]int{}, seen: map[string]int{}}
	w.primary = w.server()
	w.primary.run = w.newRun()
	for range 3 {
		r := w.server()
		r.cutOff = -1
		w.replicas = append(w.replicas, r)
	}
	return w
}

func (w *replayWorld) newRun() string { w.runs++; return fmt.Sprint("run", w.runs) }

func (w *replayWorld) server() *server {
	return &server{name: fmt.Sprint("server", w.rng.Uint32()), newest: map[int]int{}}
}

func (w *replayWorld) step() {
	w.now += w.rng.IntN(400)
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	switch p := w.rng.IntN(1000); {
	case p < 150:
		w.write(w.rng.IntN(worldKeys), w.rng.IntN(10) == 0)
	case p < 600:
		for range 3 {
			w.hear()
		}
	case p < 760:
		w.read()
	case p < 900:
		w.replicate(r)
	case p < 910:
		r.hangs = !r.hangs
	case p < 925:
		if r.cutOff < 0 {
			w.cut(r)
		}
	case p < 950:
		w.connect(r)
	case p < 953:
		w.failover(r)
	}
	w.check()
}

// write changes the row of a key and sends the invalidation to the primary, or to the former one.
func (w *replayWorld) write(key int, late bool) {
	w.ids++
	w.written[key] = w.ids
	to := w.primary
	if late && w.former != nil {
		to = w.former
	}
	w.invalidate(key, to)
}

func (w *replayWorld) invalidate(key int, to *server) {
	w.calls = append(w.calls, &call{key: key, id: w.written[key], to: to, run: to.run, began: at(w.now)})
}

// hear takes one call a step further. What a server carries out stands for every write before that
// moment.
func (w *replayWorld) hear() {
	if len(w.calls) == 0 {
		return
	}
	i := w.rng.IntN(len(w.calls))
	c := w.calls[i]
	switch {
	case !c.done:
		c.done = true
		c.to.apply(worldOp{c.key, w.written[c.key]})
	case c.answered.IsZero():
		c.answered = at(w.now)
	default:
		w.log.Add(invalidation.Sent{Name: worldNames[c.key], Version: uint64(c.id), Run: c.run, Began: c.began, At: c.answered})
		w.added[c.key] = max(w.added[c.key], c.id)
		w.calls = slices.Delete(w.calls, i, i+1)
		if c.run != w.primary.run {
			w.seen["late"]++
		}
	}
}

// read takes the reading a step further: sent, answered by the primary of that moment, and taken
// into account.
func (w *replayWorld) read() {
	switch {
	case w.reading == nil:
		w.reading, w.served = &invalidation.Position{At: at(w.now)}, false
	case !w.served:
		w.served = true
		w.reading.Run, w.reading.Offset, w.reading.Replicas = w.primary.run, w.primary.offset(), map[string]int64{}
		for _, r := range w.replicas {
			if r.cutOff < 0 {
				w.reading.Replicas[r.name] = r.offset()
				r.listed = true
			}
		}
	default:
		w.take(w.log.Read(*w.reading), w.reading.Run == w.primary.run)
		w.reading = nil
	}
}

// take looks at what is void, which after a reading of the present primary must be all that it
// lacks, and replays it now or after a later reading.
func (w *replayWorld) take(void int, current bool) {
	taken := map[int]bool{}
	for _, s := range w.log.Take() {
		var key int
		fmt.Sscan(s.Name, &key)
		taken[key] = true
	}
	if len(taken) != void {
		w.t.Fatalf("Read says that %d are void, Take gives %d", void, len(taken))
	}
	for key, id := range w.added {
		if current && w.primary.newest[key] < id && !taken[key] {
			w.t.Fatalf("at %d: %s lacks invalidation %d of key %d, which is not to be replayed", w.now, w.primary.run, id, key)
		}
	}
	if void == 0 || w.rng.IntN(2) == 0 {
		return
	}
	w.seen["replays"]++
	for _, key := range slices.Sorted(maps.Keys(taken)) {
		if w.rng.IntN(4) > 0 { // else this one failed
			w.invalidate(key, w.primary)
		}
	}
}

func (w *replayWorld) replicate(r *server) {
	if r.cutOff >= 0 || r.hangs {
		return
	}
	for n := w.rng.IntN(8); n > 0 && len(r.stream) < len(w.primary.stream); n-- {
		r.apply(w.primary.stream[len(r.stream)])
	}
}

// cut ends a replica's connection. One that no reading has seen does not count: it is beyond what
// the log can know.
func (w *replayWorld) cut(r *server) {
	r.cutOff = w.now
	if !r.listed {
		r.cutOff = r.before
	}
}

// connect brings a replica back: it goes on where it was, or copies everything if it had followed
// another stream or was away for long. (A replica that comes back after MinAge and is promoted
// before it has received what it missed is beyond what the log can know.)
func (w *replayWorld) connect(r *server) {
	if r.cutOff < 0 {
		return
	}
	long := !w.promotable(r)
	r.before, r.cutOff, r.listed = r.cutOff, -1, false
	if long || len(r.stream) > len(w.primary.stream) || !slices.Equal(r.stream, w.primary.stream[:len(r.stream)]) {
		r.stream, r.newest = slices.Clone(w.primary.stream), maps.Clone(w.primary.newest)
	}
}

// promotable says what Sentinel would: not a replica that was cut off for long.
func (w *replayWorld) promotable(r *server) bool { return r.cutOff < 0 || w.now-r.cutOff < worldMinAge }

func (w *replayWorld) failover(r *server) {
	if !w.promotable(r) {
		return
	}
	if len(r.stream) < len(w.primary.stream) {
		w.seen["losses"]++
	}
	if r.cutOff >= 0 {
		w.seen["cut off"]++
	}
	w.former, w.primary = w.primary, r
	r.run, r.cutOff, r.hangs = w.newRun(), -1, false
	for i, o := range w.replicas {
		if o == r {
			w.replicas[i] = w.server() // an empty one instead
			w.replicas[i].cutOff = w.now - worldMinAge
			continue
		}
		if o.cutOff < 0 {
			w.cut(o)
		}
		if w.rng.IntN(2) == 0 {
			w.connect(o)
		} else {
			o.cutOff = min(o.cutOff, w.now-worldMinAge) // follows a primary that is gone: not promoted before it comes over
		}
	}
}

// check is the promise: an invalidation that was added and that the primary, or a replica that may
// be promoted, does not have, is in the log.
func (w *replayWorld) check() {
	for key, id := range w.added {
		if w.log.Has(worldNames[key]) {
			continue
		}
		if w.primary.newest[key] < id {
			w.t.Fatalf("at %d: %s lacks invalidation %d of key %d, which has left the log", w.now, w.primary.run, id, key)
		}
		for _, r := range w.replicas {
			if w.promotable(r) && r.newest[key] < id {
				w.t.Fatalf("at %d: %s, cut off since %d, lacks invalidation %d of key %d, which has left the log", w.now, r.name, r.cutOff, id, key)
			}
		}
	}
}

// RB-37: a position that is acknowledged too early loses an invalidation for good, too late keeps
// everything for ever. Failovers that lose what replicas had not heard, replicas that hang, are cut
// off and promoted all the same, replies and readings that are late: nothing leaves the log too
// early; and when all is quiet, it empties by readings alone.
func TestRB37ReplayWorld(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(30) {
		w := newReplayWorld(t, seed)
		for range 4000 {
			w.step()
		}
		w.quiet()
		for what, n := range w.seen {
			seen[what] += n
		}
		seen["left"] += int(w.log.Stats().Left)
		seen["replayed"] += int(w.log.Stats().Replayed)
	}
	for what, least := range map[string]int{"late": 300, "replays": 300, "losses": 100, "cut off": 10, "left": 1000, "replayed": 1000} {
		if seen[what] < least {
			t.Errorf("%s: %d times, less than %d: this test has not met what it is for", what, seen[what], least)
		}
	}
}

// quiet ends all that is under way, lets the replicas catch up, and reads until the log should be
// empty.
func (w *replayWorld) quiet() {
	w.former = nil
	for range 100 {
		w.now += 500
		for i := 0; i < 300 && len(w.calls) > 0; i++ {
			w.hear()
		}
		for _, r := range w.replicas {
			r.hangs = false
			w.connect(r)
			for len(r.stream) < len(w.primary.stream) {
				w.replicate(r)
			}
		}
		w.read()
		w.check()
	}
	if st := w.log.Stats(); st.Depth != 0 {
		w.t.Fatalf("50 s after the last event the log has %+v", st)
	}
}
