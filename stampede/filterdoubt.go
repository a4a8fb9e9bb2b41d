// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede

import (
	"errors"
	"fmt"
	"time"
)

// FilterFoundNoKeys is FilterStats.Why of a filter that is consulted though its scan found nothing: right for an empty table, and for any other one the worst that there is.
const FilterFoundNoKeys = "the scan found no keys: every key is taken for absent until it is added"

var (
	errNoKeys = errors.New("the scan found no keys")
	errEmpty  = errors.New(FilterFoundNoKeys)
)

// loadTells is for how long a row that was found says that the source is not empty: it may have been deleted since.
const loadTells = time.Minute

// doubt is a build that was not used since it had too few keys. Another one that has about as many is believed.
type doubt struct {
	id   string // "": there is none
	keys int
}

// confirms says whether another build than the doubted one has as many keys, give or take an eighth.
func (d doubt) confirms(id string, keys int) bool {
	return d.id != "" && d.id != id && max(keys-d.keys, d.keys-keys) <= max(keys, d.keys)/8
}

// knows is how many keys the present set has, or had when it was dropped.
func (f *Filter) knows() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if set := f.sets.Load().current; set != nil {
		return set.keys()
	}
	return f.known
}

// weigh says why a build with so many keys is not used: a Keys that ends early without an error would make every row that it left out absent. known is what knows said before the scan began: the scan
// must have seen those rows, or they are deleted.
func (f *Filter) weigh(id string, keys, known int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	lately := f.found.Load()
	switch {
	case keys == 0 && known > 0:
		return fmt.Errorf("%w, where there were %d before; if the table is empty, clear the cache", errNoKeys, known)
	case keys == 0 && lately > 0 && time.Since(f.base)-time.Duration(lately) < loadTells:
		return fmt.Errorf("%w, where a load has found a row less than %v ago", errNoKeys, loadTells)
	case 2*keys < f.counted && !f.doubted.confirms(id, keys):
		f.doubted = doubt{id, keys}
		return fmt.Errorf("the scan found %d keys, fewer than half of the %d of the one before: it is not used until another scan says the same", keys, f.counted)
	}
	return nil
}

// unknow forgets how many keys there were: after a Clear anything may be true. f.mu is held.
func (f *Filter) unknow() {
	f.known, f.counted, f.doubted = 0, 0, doubt{}
	f.found.Store(0)
}
