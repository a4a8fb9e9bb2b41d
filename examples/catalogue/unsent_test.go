// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnsentIsSentAgainUntilItIsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("node down")
		var sent [][]string
		var u *unsent
		u = newUnsent(func(_ context.Context, keys []string) error {
			slices.Sort(keys)
			sent = append(sent, keys)
			switch len(sent) {
			case 1:
				return down
			case 2:
				u.add("a", down) // a later write of a, whose own invalidation failed: this one does not stand for it
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		u.add("a", down)
		u.add("b", down)
		u.add("a", down)
		time.Sleep(4*resendEvery + resendEvery/2)
		synctest.Wait()
		if want := [][]string{{"a", "b"}, {"a", "b"}, {"a"}}; !reflect.DeepEqual(sent, want) || u.len() != 0 {
			t.Errorf("sent %v, want %v; %d are left", sent, want, u.len())
		}
		u.add("c", down)
		u.close() // tries at once
		if last := sent[len(sent)-1]; !reflect.DeepEqual(last, []string{"c"}) {
			t.Errorf("sent last %v, want [c]", last)
		}
	})
}

func TestUnsentIsBounded(t *testing.T) {
	u := newUnsent(func(context.Context, []string) error { return errors.New("down") }, slog.New(slog.DiscardHandler))
	for i := range maxUnsent + 10 {
		u.add(string(rune(i)), nil)
	}
	if n := u.len(); n > maxUnsent {
		t.Errorf("%d keys, want at most %d", n, maxUnsent)
	}
	u.close()
}
