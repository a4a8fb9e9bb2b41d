// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A read that is not answered within medianTimes the median time, and at least minSlow, is slow.
	medianTimes = 6
	minSlow     = 3 * time.Millisecond
	// Callers leave slow reads where at least limpFrom of all are slow, and fewSlow of them, until less than limpTo are.
	limpFrom = 0.01
	limpTo   = 0.002
	fewSlow  = 3
	// Where replies are slow, callers leave earlier than what counts as slow, after leaveTimes the median and at least minPatience: who is unlucky twice has waited three times that.
	leaveTimes  = 4
	minPatience = time.Millisecond
	// Where a node's replies are all alike, callers wait for tailTimes the 99th percentile, at least leastWait of the timeout, once enoughTail replies are known.
	tailTimes  = 4
	leastWait  = 0.4
	enoughTail = 50
	// tailKeep is paceKeep for that percentile: it forgets half in five seconds.
	tailKeep = 0.97
	// paceKeep is what is kept of the counts from one heartbeat to the next: the estimate forgets half in a second.
	paceKeep = 0.875
	// paceBuckets of a quarter of an octave each, from 16 us to 4 s, and one for what was not answered.
	paceBuckets = 69
	unanswered  = paceBuckets - 1
)

// pace estimates how long the reads of a node take. While they are all alike it says how long a reply may take until the node has probably failed: a caller then goes to the
// source, and need not have waited for the whole timeout. Where a few
// take much longer than most, it says after which time another command is the better bet: the next connection will probably be quicker.
//
// It goes by the median, which a tail does not move: of a node that delays each tenth reply by 50 ms the 99th percentile is those 50 ms. If the whole
// node becomes slow the median follows, and nobody leaves what would have been answered. What is measured is commands, not callers' waits, to
// their real end or the timeout: that somebody has left does not make a command look quicker.
//
// Safe for concurrent use. A command costs it one atomic addition and two readings of the clock.
type pace struct {
	timeout time.Duration
	waits   func(limit time.Duration) float64 // which part of the process's goroutines has waited for a processor for longer, lately
	most    atomic.Int64                      // after which time a caller asks anew; 0: it does not
	tail    atomic.Int64                      // how long a caller waits in all; 0: until the timeout
	counts  [paceBuckets]atomic.Uint32

	mu     sync.Mutex
	sums   [paceBuckets]float64
	tails  [paceBuckets]float64 // of what was answered
	recent [paceBuckets]float64 // sums with half kept: for the median, which must follow a node that has become slow before callers leave it in vain
}

// patience is after which time a caller should ask anew; 0: it should not.
func (p *pace) patience() time.Duration { return time.Duration(p.most.Load()) }

// wait is how long a reply is waited for in all, at most the timeout. The command itself goes on: whether the node is to blame is another question, and the
// reply counts for the next estimate however late it is.
func (p *pace) wait() time.Duration {
	if tail := p.tail.Load(); tail > 0 {
		return time.Duration(tail)
	}
	return p.timeout
}

// least is how long it is waited for at least.
func (p *pace) least() time.Duration { return time.Duration(leastWait * float64(p.timeout)) }

// ended notes that a command has ended that was sent at that time. One that was not answered took longer than any; but a connection that is refused, or
// closed, or a command that was not sent, says nothing.
func (p *pace) ended(sent time.Time, err error) {
	switch {
	case err == nil:
		p.counts[min(bucketOf(time.Since(sent)), unanswered-1)].Add(1)
	case IsTimeout(err) && !IsPoolTimeout(err):
		p.counts[unanswered].Add(1)
	}
}

// roll takes in what was noted since the last call: about a heartbeat ago. Of the slow replies it leaves out as many as there would be if all were quick, and had to wait for a processor of
// this process as other goroutines had: a process in which ten thousand callers become ready at once sees late replies of every node, and to send more commands is no help.
func (p *pace) roll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var noted [paceBuckets]float64
	sum, total, lately := 0.0, 0.0, 0.0
	for i := range noted {
		noted[i] = float64(p.counts[i].Swap(0))
		p.recent[i] = p.recent[i]/2 + noted[i]
		p.tails[i] *= tailKeep
		if i != unanswered {
			p.tails[i] += noted[i]
		}
		sum, lately = sum+noted[i], lately+p.recent[i]
	}
	p.follow()
	middle := quantile(&p.recent, lately/2)
	limit := max(minSlow, medianTimes*middle)
	ours := p.waits(limit) * sum
	slow := 0.0
	for i := paceBuckets - 1; i >= 0; i-- {
		late := i > bucketOf(limit)
		if late {
			less := min(noted[i], ours)
			noted[i], ours = noted[i]-less, ours-less
		}
		p.sums[i] = p.sums[i]*paceKeep + noted[i]
		total += p.sums[i]
		if late {
			slow += p.sums[i]
		}
	}
	limping := p.most.Load() > 0
	switch {
	case limit >= p.timeout, slow < limpTo*total, total < 1:
		p.most.Store(0)
	case limping, slow >= fewSlow && slow >= limpFrom*total:
		p.most.Store(int64(max(minPatience, leaveTimes*middle)))
	}
}

// follow takes the present tail for how long callers wait. The caller holds mu.
func (p *pace) follow() {
	total := 0.0
	for _, n := range p.tails {
		total += n
	}
	wait := p.timeout
	if total >= enoughTail {
		wait = min(wait, max(p.least(), tailTimes*quantile(&p.tails, 0.99*total)))
	}
	p.tail.Store(int64(wait))
}

// quantile is the upper end of the bucket in which the count reaches so many.
func quantile(counts *[paceBuckets]float64, reached float64) time.Duration {
	below := 0.0
	for i, n := range counts {
		if below += n; below >= reached {
			return bucketEnd(i)
		}
	}
	return 0
}

// bucketUnit is the width of the first four buckets.
const bucketUnit = 14 // 2^14 ns: 16 us

// bucketOf is the number of d's bucket: each octave has four of the same width, and the last has no end.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 0)) >> bucketUnit
	if v < 4 {
		return int(v)
	}
	octave := bits.Len64(v) - 3
	return min(4*octave+int(v>>octave), unanswered-1)
}

// bucketEnd is the shortest time that is longer than those of a bucket.
func bucketEnd(i int) time.Duration {
	if i < 4 {
		return time.Duration(i+1) << bucketUnit
	}
	octave := i/4 - 1
	return time.Duration(i%4+5) << octave << bucketUnit
}
