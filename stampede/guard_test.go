// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package stampede_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-shelf/shelf/stampede"
)

// TestCall_HangingLoad: the caller is sent away at the limit, but the load
// counts, and keeps what after stands for, until it has really ended.
func TestCall_HangingLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g stampede.Guard
		start, freed := time.Now(), make(chan time.Duration, 2)
		_, err := stampede.Call(t.Context(), &g, time.Second, func(context.Context) (string, error) {
			time.Sleep(10 * time.Second) // heeds no context
			return "too late", nil
		}, func() { freed <- time.Since(start) })
		if !errors.Is(err, stampede.ErrLoadTimeout) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1s") {
			t.Errorf("got %v, want ErrLoadTimeout that wraps DeadlineExceeded and names 1s", err)
		}
		if took := time.Since(start); took != time.Second || g.Running() != 1 {
			t.Errorf("came back after %v with %d running; want 1s, 1", took, g.Running())
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Close(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 still running") {
			t.Errorf("Close: %v", err)
		}
		mustClose(t, &g)
		if at := <-freed; at != 10*time.Second || len(freed) != 0 {
			t.Errorf("after ran at %v and %d times more; want once, at 10s", at, len(freed))
		}
	})
}

func TestCall_WaysOut(t *testing.T) {
	heeds := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	for _, c := range []struct {
		name string
		stop error // the context is over before, with this cause
		fn   func(context.Context) (string, error)
		want error
	}{
		{"value", nil, func(context.Context) (string, error) { return "v", nil }, nil},
		{"own error", nil, func(context.Context) (string, error) { return "", errBoom }, errBoom},
		{"load that heeds its context", nil, heeds, stampede.ErrLoadTimeout},
		{"context over before", errBoom, heeds, errBoom},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g stampede.Guard
				after := 0
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				if c.stop != nil {
					stop(c.stop)
				}
				v, err := stampede.Call(ctx, &g, time.Second, c.fn, func() { after++ })
				mustClose(t, &g)
				if !errors.Is(err, c.want) || (err == nil) != (v == "v") {
					t.Errorf("got %q, %v, want error %v", v, err, c.want)
				}
				if after != 1 {
					t.Errorf("after ran %d times, want 1", after)
				}
			})
		})
	}
}

func TestCall_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g stampede.Guard
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stampede.ErrClosed) })
		_, err := stampede.Call(ctx, &g, time.Minute, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, func() {})
		if !errors.Is(err, stampede.ErrClosed) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

func TestCall_Closed(t *testing.T) {
	var g stampede.Guard
	mustClose(t, &g)
	after := 0
	_, err := stampede.Call(t.Context(), &g, time.Second, func(context.Context) (string, error) {
		t.Error("the load was called")
		return "", nil
	}, func() { after++ })
	if !errors.Is(err, stampede.ErrClosed) || after != 1 {
		t.Errorf("got %v, after ran %d times; want ErrClosed, 1", err, after)
	}
}
