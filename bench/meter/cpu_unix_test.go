// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix

package meter_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-shelf/shelf/bench/meter"
)

// TestMeasureProcessorTime: a core that is busy is seen, a goroutine that sleeps is not.
func TestMeasureProcessorTime(t *testing.T) {
	plan := meter.Plan{For: 100 * time.Millisecond}
	idle, err := meter.Measure(t.Context(), plan, always(func(context.Context, *meter.Turn) (int, error) {
		time.Sleep(time.Millisecond)
		return 1, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	plan.Spin = 1e6
	busy, err := meter.Measure(t.Context(), plan, always(func(context.Context, *meter.Turn) (int, error) { return 1, nil }))
	if err != nil {
		t.Fatal(err)
	}
	// A spin of 1 ms takes that much of a core, and more where its clock is lower than when it was calibrated.
	if each := busy.CPU / time.Duration(busy.Ops); each < 500*time.Microsecond || each > 5*time.Millisecond {
		t.Errorf("%v of processor time each, want 1 ms", each)
	}
	if share := float64(idle.CPU) / float64(idle.Wall); share > 0.5 {
		t.Errorf("who sleeps has used %.0f %% of a core", 100*share)
	}
}
