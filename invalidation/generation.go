// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"fmt"
	"math"
	"strconv"
)

// Group names what one cache keeps on a node beside its entries so that they can be invalidated together, without a scan:
// all of them ([Clear]) or those with a tag ([InvalidateTag]). The zero Group is none. Both names are shared by all keys of the
// cache on the node, and belong to nothing else.
//
// An entry of a group carries a stamp: the number of the generation that its lease was granted under. It is
// the first extension of the header: the bytes 01 00 08 at offset 56, then 8 big-endian bytes. [Set] writes it by itself; for [Fill] the
// caller does. Readers ask for the entry and Generation in one command and check [Generation.Holds], and then the
// entry's tags.
type Group struct {
	Generation string // "seq cleared" in decimal
	Tags       string // a sorted set: tag -> number of its latest invalidation
}

// Generation is the state of a group on a node. Numbers start at the node's time in microseconds and grow by one with each tag
// invalidation, and at least to the time with each clearing. So a generation that was lost (evicted, a node that
// came back empty) is followed by one above all its numbers.
type Generation struct {
	Seq     uint64 // of the latest clearing or tag invalidation
	Cleared uint64 // entries with a smaller stamp are gone
}

// Holds says whether an entry with this stamp is still there, its tags aside. The zero Generation, none, holds nothing.
func (g Generation) Holds(stamp uint64) bool {
	return stamp != 0 && g.Cleared <= stamp && stamp <= g.Seq
}

// ParseGeneration reads the bytes of Group.Generation. What is not one (nil, foreign bytes) is the zero Generation.
func ParseGeneration(b []byte) Generation {
	g, _ := parseGeneration(b)
	return g
}

func generation(script string, v any) (Generation, error) {
	s, _ := text(v)
	g, ok := parseGeneration(s)
	if !ok {
		return Generation{}, unexpected(script, "generation", v)
	}
	return g, nil
}

// parseGeneration allocates nothing: it is on the path of every read.
func parseGeneration[B []byte | string](b B) (Generation, bool) {
	seq, n := leadingNumber(b)
	if n == 0 || n == len(b) || b[n] != ' ' {
		return Generation{}, false
	}
	cleared, m := leadingNumber(b[n+1:])
	if m == 0 || n+1+m != len(b) {
		return Generation{}, false
	}
	return Generation{Seq: seq, Cleared: cleared}, true
}

// leadingNumber is the number that b begins with, and how long it is; of one that is too large the length is 0.
func leadingNumber[B []byte | string](b B) (number uint64, length int) {
	for ; length < len(b) && '0' <= b[length] && b[length] <= '9'; length++ {
		digit := uint64(b[length] - '0')
		if number > (math.MaxUint64-digit)/10 {
			return 0, 0
		}
		number = 10*number + digit
	}
	return number, length
}

// Clear makes all entries of a group on a node unreadable, and refuses every fill whose lease was granted before. It costs the
// same however many there are; their memory comes back as they expire or are evicted.
func Clear(g Group) Call {
	return Call{Script: clearScript, Keys: []string{g.Generation, g.Tags}, Args: []any{int64(0)}}
}

// ClearBefore is [Clear] for a group that was not cleared since a time of the node's clock, in microseconds since 1970; elsewhere it
// changes nothing. It is for a node that came back from a snapshot at that time: whoever notices sends it, and the first one clears. 0 is Clear.
func ClearBefore(g Group, micros uint64) Call {
	return Call{Script: clearScript, Keys: []string{g.Generation, g.Tags}, Args: []any{strconv.FormatUint(micros, 10)}}
}

// ParseClear reads the reply to [Clear]: the new generation.
func ParseClear(reply any) (Generation, error) { return generation("clear", reply) }

// InvalidateTag is [Clear] for the entries that carry a tag. The node notes at most maxTags tags a group; beyond
// that the oldest are forgotten, and with them go all entries that are older than their invalidation.
func InvalidateTag(g Group, tag string, maxTags int) Call {
	return Call{Script: tagScript, Keys: []string{g.Generation, g.Tags}, Args: []any{tag, int64(maxTags)}}
}

// ParseInvalidateTag reads the reply to [InvalidateTag]: the new generation.
func ParseInvalidateTag(reply any) (Generation, error) { return generation("tag", reply) }

// Tagged asks for the tag invalidations with a larger number than since.
func Tagged(g Group, since uint64) Call {
	return Call{Script: taggedScript, Keys: []string{g.Generation, g.Tags}, Args: []any{strconv.FormatUint(since, 10)}}
}

// TagLog is what [Tagged] answers.
type TagLog struct {
	Generation Generation        // the log is complete up to its Seq; zero when there is none
	Tags       map[string]uint64 // tag -> number of its latest invalidation
}

// ParseTagged reads the reply to [Tagged].
func ParseTagged(reply any) (TagLog, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts)%2 == 0 {
		return TagLog{}, unexpected("tagged", "reply", reply)
	}
	var l TagLog
	if parts[0] != nil {
		g, err := generation("tagged", parts[0])
		if err != nil {
			return TagLog{}, err
		}
		l.Generation = g
	}
	l.Tags = make(map[string]uint64, len(parts)/2)
	for i := 1; i < len(parts); i += 2 {
		tag, ok1 := text(parts[i])
		number, ok2 := text(parts[i+1])
		n, err := strconv.ParseUint(number, 10, 64)
		if !ok1 || !ok2 || err != nil {
			return TagLog{}, fmt.Errorf("invalidation: tagged: pair %d is %.80q, %.80q: not a tag and its number", i/2, parts[i], parts[i+1])
		}
		l.Tags[tag] = n
	}
	return l, nil
}
