// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The kinds of work.
const (
	kindL1       = "L1 hit"
	kindL2       = "L2 hit"
	kindMiss     = "miss"
	kindMany     = "GetMany"
	kindStampede = "stampede"
	kindZipf     = "Zipf 0.99, 5 % writes"
	kindParts    = "parts"
)

// scene is what a contender is opened for: one kind of work over some servers.
type scene struct {
	Contender string
	Kind      string
	Addrs     []string      // of the servers
	Keys      int           // that are there, of each size
	Sizes     []int         // of values, in bytes
	Loading   time.Duration // how long the source takes for a row
	number    int           // of the contender
	source    *source
}

// keys are the names of all keys of a size.
func (s *scene) keys(size int) []string {
	keys := make([]string, s.Keys)
	for i := range keys {
		keys[i] = s.key(size, strconv.Itoa(i))
	}
	return keys
}

// key is a key of this contender alone: each stores its values in its own form, and all use the same servers.
func (s *scene) key(size int, id string) string {
	return keyOf(size, fmt.Sprintf("%02d-%s", s.number, id))
}

// keyOf is a key's name: the size of its value, and what tells it from others of that size.
func keyOf(size int, id string) string { return strconv.Itoa(size) + ":product-" + id }

// sizeOf is the size of a key's value.
func sizeOf(key string) int {
	text, _, _ := strings.Cut(key, ":")
	size, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("bench: key %q does not begin with a size", key))
	}
	return size
}

// valueOf is the one right value of a key: its name, over and over. It is printable, so that a library that stores JSON is not at a disadvantage.
func valueOf(key string) string {
	size := sizeOf(key)
	var b strings.Builder
	b.Grow(size + len(key) + 1)
	for b.Len() < size {
		b.WriteString(key)
		b.WriteByte('|')
	}
	return b.String()[:size]
}

// source stands for the database: every key has a row, which takes a while.
type source struct {
	loading time.Duration
	loads   atomic.Int64
	mu      sync.Mutex
	took    []float64 // nanoseconds, since the last reset
}

var errNoRow = errors.New("bench: no such row")

func (s *source) row(ctx context.Context, key string) (string, error) {
	began := time.Now()
	s.loads.Add(1)
	if s.loading > 0 {
		select {
		case <-time.After(s.loading):
		case <-ctx.Done():
			return "", ctx.Err()
		}
		s.mu.Lock()
		s.took = append(s.took, float64(time.Since(began)))
		s.mu.Unlock()
	}
	return valueOf(key), nil
}

// taken is how often the source was asked since the last call, and how long a row took: the timer's own lateness is a part of that.
func (s *source) taken() (loads int64, load time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.took) > 0 {
		load = time.Duration(median(s.took))
	}
	s.took = nil
	return s.loads.Swap(0), load
}
