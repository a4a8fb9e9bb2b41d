// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin

// Place is where the entry of a key is in the replay log.
type Place uint8

// The places.
const (
	Absent  Place = iota
	Open          // confirmed by the present run; no reading since
	Placed        // a reading has given it a place in the primary's stream
	Covered       // and the replica has come that far
	Void          // to be repeated
)

// Log is the twin of an invalidation.Replay as far as one key, and one replica that is always listed, go. MinAge is
// nought: an entry leaves as soon as a reading allows. Offsets are left out: Replicated says that the replica has everything.
type Log struct {
	At      Place
	Version uint8
}

// Sent is an invalidation under way, which must hear of what happens to the log meanwhile.
type Sent struct {
	Voided  bool // the log was made void since it began
	Renewed bool // the key was added since it began
}

// Add records a confirmation that has just been read; current says that it comes from the run of the last reading.
// It returns whether calls that are under way must be told that the key was renewed.
func (l *Log) Add(s Sent, current bool, version uint8) (renewed bool) {
	less := version < l.Version
	l.Version = max(l.Version, version)
	current = current && !s.Voided
	if current && l.At == Void && (s.Renewed || less) {
		return false
	}
	l.At = Void
	if current {
		l.At = Open
	}
	return true
}

// Read takes in a reading of the primary; same says that it is of the run of the last one, synced that the replica
// has all that the primary has. It returns whether calls that are under way must be told that the log was made void.
func (l *Log) Read(same, synced bool) (voided bool) {
	switch {
	case !same && l.At != Absent:
		l.At = Void
	case !same, l.At == Void:
	case l.At == Covered:
		*l = Log{}
	case l.At == Open && synced:
		l.At = Covered
	case l.At == Open:
		l.At = Placed
	}
	return !same
}

// Replicated says that the replica has received everything up to now.
func (l *Log) Replicated() {
	if l.At == Placed {
		l.At = Covered
	}
}
