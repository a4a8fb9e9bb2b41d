// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import "sync"

// wakes are those who wait for a change of some names on a node: entries that another process is loading, and its leases.
type wakes struct {
	mu     sync.Mutex
	byName map[string]map[*wake]struct{}
}

// wake is one who waits. changed is closed when one of its names was pushed.
type wake struct {
	of      *wakes
	names   []string
	changed chan struct{}
}

// add must come before the names are read through the Tracking that is to push them: what changes after the read is then heard of.
func (w *wakes) add(names ...string) *wake {
	x := &wake{of: w, names: names, changed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byName == nil {
		w.byName = make(map[string]map[*wake]struct{})
	}
	for _, name := range names {
		if w.byName[name] == nil {
			w.byName[name] = make(map[*wake]struct{})
		}
		w.byName[name][x] = struct{}{}
	}
	return x
}

// drop ends the wait; nil has none.
func (x *wake) drop() {
	if x == nil {
		return
	}
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	x.of.remove(x)
}

// pushed wakes who waits for the name.
func (w *wakes) pushed(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.byName[name] {
		w.remove(x)
		close(x.changed)
	}
}

// all wakes everybody.
func (w *wakes) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, waiting := range w.byName {
		for x := range waiting {
			w.remove(x)
			close(x.changed)
		}
	}
}

// remove takes x off the table. w.mu is held.
func (w *wakes) remove(x *wake) {
	for _, name := range x.names {
		delete(w.byName[name], x)
		if len(w.byName[name]) == 0 {
			delete(w.byName, name)
		}
	}
}
