// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/maypok86/otter/v2"
)

// otterAlone is a cache of one process, with nothing behind it but the source.
var otterAlone = contender{
	name: "otter", about: "one process's memory alone, no Redis: ExpiryWriting, room for every key",
	kinds: []string{kindL1, kindStampede}, open: openOtter,
}

func openOtter(_ context.Context, s *scene) (*opened, error) {
	c, err := otter.New(&otter.Options[string, string]{MaximumSize: 4 * max(s.Keys, 1000), ExpiryCalculator: otter.ExpiryWriting[string, string](time.Hour)})
	if err != nil {
		return nil, err
	}
	out := &opened{
		text: func(_ context.Context, key string) (string, error) {
			v, ok := c.GetIfPresent(key)
			if !ok {
				return "", errMissing
			}
			return v, nil
		},
		seed: func(_ context.Context, keys []string) error {
			for _, key := range keys {
				c.Set(key, valueOf(key))
			}
			return nil
		},
		close: func() { c.StopAllGoroutines() },
	}
	if s.Kind == kindStampede {
		load := otter.LoaderFunc[string, string](s.source.row)
		out.text = func(ctx context.Context, key string) (string, error) { return c.Get(ctx, key, load) }
	}
	return out, nil
}
