// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"unsafe"
)

// contender is one way to do the work.
type contender struct {
	name  string
	about string   // how it is set up, where that matters
	kinds []string // what it can do
	open  func(context.Context, *scene) (*opened, error)
	limit bool // no cache, nor a client: what the machine can do at most
}

// opened is a contender at work on a scene. What it has no function for is nil.
type opened struct {
	// One of the two reads what is there, or loads what is not (kindMiss, kindStampede, kindZipf). Text belongs to nobody, bytes to the caller.
	text  func(ctx context.Context, key string) (string, error)
	bytes func(ctx context.Context, key string) ([]byte, error)
	// many reads what is there, and calls each with every key that it has found.
	many func(ctx context.Context, keys []string, each func(key, value string)) error
	// write changes a row and sees that its copies go.
	write func(ctx context.Context, key string) error
	// seed stores the right values of keys, by the contender's own writing.
	seed func(ctx context.Context, keys []string) error
	// settle is called when all keys are stored and were read once.
	settle func(ctx context.Context) error
	close  func()
}

// reads gets a key's value and says how long it is. A contender that returns anything but a value of the right length has failed; that the bytes are the right ones is checked once
// (verify).
func (o *opened) reads(ctx context.Context, key string, size int) error {
	var n int
	if o.bytes != nil {
		v, err := o.bytes(ctx, key)
		if err != nil {
			return err
		}
		n = len(v)
	} else {
		v, err := o.text(ctx, key)
		if err != nil {
			return err
		}
		n = len(v)
	}
	if n != size {
		return wrongLength(key, n, size)
	}
	return nil
}

func wrongLength(key string, n, size int) error {
	return fmt.Errorf("bench: %s: %d bytes instead of %d", key, n, size)
}

// value gets a key's value as text.
func (o *opened) value(ctx context.Context, key string) (string, error) {
	if o.bytes == nil {
		return o.text(ctx, key)
	}
	v, err := o.bytes(ctx, key)
	return asText(v), err
}

// verify reads keys, all at once where the contender can, and compares each byte.
func (o *opened) verify(ctx context.Context, keys []string) error {
	found := make(map[string]string, len(keys))
	if o.many != nil {
		if err := o.many(ctx, keys, func(key, value string) { found[key] = value }); err != nil {
			return err
		}
	} else {
		for _, key := range keys {
			v, err := o.value(ctx, key)
			if err != nil {
				return fmt.Errorf("bench: %s: %w", key, err)
			}
			found[key] = v
		}
	}
	for _, key := range keys {
		if found[key] != valueOf(key) {
			return fmt.Errorf("bench: %s: %q instead of %q", key, found[key], valueOf(key))
		}
	}
	return nil
}

// asText is bytes as text, without a copy: they must not change any more.
func asText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) } //nolint:gosec // see above

// eachPart calls do with at most n keys at a time.
func eachPart(keys []string, n int, do func([]string) error) error {
	for len(keys) > 0 {
		part := keys[:min(n, len(keys))]
		if err := do(part); err != nil {
			return err
		}
		keys = keys[len(part):]
	}
	return nil
}

// contenders are all, Shelf first.
func contenders() []contender {
	return []contender{
		shelf, goRedis, goRedisPipelining, goRedisCache, goRedisRing, rueidisPlain, rueidisDelay, rueidisCache,
		redisCache, goZero, sturdy, otterAlone, batcher, lruAlone, threeTrips,
	}
}

func names() (all []string) {
	for _, c := range contenders() {
		all = append(all, c.name)
	}
	return all
}

// contenderOf finds one by its name.
func contenderOf(name string) (contender, error) {
	for _, c := range contenders() {
		if c.name == name {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("bench: no contender is called %q", name)
}

var errMissing = errors.New("bench: a key that is there was not found")
