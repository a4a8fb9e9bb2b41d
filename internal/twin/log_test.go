// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-shelf/shelf/internal/twin"
	"github.com/go-shelf/shelf/invalidation"
)

// logPair are the real log and its twin, beside a primary's stream and a replica of it.
type logPair struct {
	t               *testing.T
	rng             *rand.Rand
	real            *invalidation.Replay
	log             twin.Log
	met             seen
	now, run, read  int // read: the run of the last reading
	offset, replica int64
	calls           []logCall
}

type logCall struct {
	twin.Sent
	run, began int
	version    uint8
}

func (p *logPair) step() {
	p.now++
	switch p.rng.IntN(7) {
	case 0: // an invalidation is sent, and carried out
		p.offset++
		p.calls = append(p.calls, logCall{run: p.run, began: p.now, version: uint8(p.rng.IntN(9))})
	case 1, 2:
		p.add()
	case 3:
		p.reading()
	case 4:
		p.offset += int64(p.rng.IntN(2)) // somebody else's
	case 5:
		p.replica = p.offset
		p.log.Replicated()
	case 6:
		if p.rng.IntN(4) == 0 {
			p.run++
			p.offset = p.replica
		}
	}
	st := p.real.Stats()
	if p.real.Has("k") != (p.log.At != twin.Absent) || (st.Void > 0) != (p.log.At == twin.Void) {
		p.t.Fatalf("at %d: %+v, the twin has %+v", p.now, st, p.log)
	}
	if v := p.real.Take(); len(v) > 0 && v[0].Version != uint64(p.log.Version) {
		p.t.Fatalf("at %d: Take gives %+v, the twin has %+v", p.now, v, p.log)
	}
}

// add ends a call.
func (p *logPair) add() {
	if len(p.calls) == 0 {
		return
	}
	i := p.rng.IntN(len(p.calls))
	c := p.calls[i]
	p.calls = append(p.calls[:i], p.calls[i+1:]...)
	p.real.Add(invalidation.Sent{Name: "k", Version: uint64(c.version), Run: fmt.Sprint(c.run), Began: at(c.began), At: at(p.now)})
	before := p.log
	renewed := p.log.Add(c.Sent, c.run == p.read, c.version)
	for i := range p.calls {
		p.calls[i].Renewed = p.calls[i].Renewed || renewed
	}
	switch {
	case !renewed && c.version < before.Version:
		p.met["announces less"]++
	case !renewed:
		p.met["does not stand for it"]++
	case before.At == twin.Void && p.log.At == twin.Open:
		p.met["replayed"]++
	case p.log.At == twin.Void:
		p.met["late"]++
	}
}

func (p *logPair) reading() {
	before := p.log.At
	p.real.Read(invalidation.Position{At: at(p.now), Run: fmt.Sprint(p.run), Offset: p.offset, Replicas: map[string]int64{"r": p.replica}})
	voided := p.log.Read(p.run == p.read, p.replica == p.offset)
	p.read = p.run
	for i := range p.calls {
		p.calls[i].Voided = p.calls[i].Voided || voided
	}
	if before == twin.Covered && p.log.At == twin.Absent {
		p.met["left"]++
	}
}

func TestLog(t *testing.T) {
	met := seen{}
	for seed := range uint64(40) {
		real, err := invalidation.NewReplay(invalidation.ReplayConfig{MinAge: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := &logPair{t: t, run: 1, rng: rand.New(rand.NewPCG(seed, 4)), real: real, met: met}
		for range steps {
			p.step()
		}
	}
	met.all(t, "announces less", "does not stand for it", "replayed", "late", "left")
}
