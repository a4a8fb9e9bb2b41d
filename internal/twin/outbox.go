// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin

// Outbox is the twin of an invalidation.Outbox as far as one key goes, without its back-off: an attempt may begin at any time.
type Outbox struct {
	In      bool // the key is there
	Flying  bool // an attempt is under way
	Again   bool // it was put again since the attempt began
	Version uint8
}

// Put records a failed invalidation.
func (o *Outbox) Put(version uint8) {
	*o = Outbox{In: true, Flying: o.Flying, Again: o.Flying, Version: max(o.Version, version)}
}

// Due begins an attempt, if one can begin.
func (o *Outbox) Due() bool {
	due := o.In && !o.Flying
	o.Flying = o.Flying || due
	return due
}

// Done ends the attempt with success.
func (o *Outbox) Done() {
	if o.Again {
		o.Flying, o.Again = false, false
		return
	}
	*o = Outbox{}
}

// Failed ends the attempt without.
func (o *Outbox) Failed() { o.Flying, o.Again = false, false }

// Later is the twin of an invalidation.Later as far as one key goes. Times are small numbers above 0.
type Later struct {
	Next, Last uint8 // 0: nothing is waiting
	Version    uint8
}

// Add schedules a second delete.
func (l *Later) Add(version, due uint8) {
	if l.Next == 0 {
		*l = Later{Next: due, Last: due, Version: version}
		return
	}
	l.Next, l.Last, l.Version = min(l.Next, due), max(l.Last, due), max(l.Version, version)
}

// Due takes out what is due at now.
func (l *Later) Due(now uint8) (version uint8, due bool) {
	if l.Next == 0 || l.Next > now {
		return 0, false
	}
	version = l.Version
	if l.Last > now {
		l.Next = l.Last
	} else {
		*l = Later{}
	}
	return version, true
}
