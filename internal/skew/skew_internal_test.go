// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package skew

import (
	"strings"
	"testing"
	"time"
)

// TestChange: a package time that reads its clock elsewhere or otherwise is refused, not built unchanged.
func TestChange(t *testing.T) {
	good := "package time\n\n" + nowAsItIs + "\tif mono == 0 {\n"
	changed, err := change(good)
	if err != nil || !strings.Contains(changed, "skewed(sec, nsec)\n\tif mono") {
		t.Errorf("%q, %v", changed, err)
	}
	for name, source := range map[string]string{
		"another name of the reader": strings.Replace(good, "runtimeNow", "readClock", 1),
		"a second place":             good + "}\n\nfunc Other() {\n\tsec, _, _ := runtimeNow()\n}\n",
		"in another function":        strings.Replace(good, "func Now()", "func Today()", 1),
	} {
		if _, err := change(source); err == nil || !strings.Contains(err.Error(), "build.go") {
			t.Errorf("%s: %v; want an error that says what to do", name, err)
		}
	}
}

// TestWallClockIsWrong: a process's wall clock is off by what it was told, also by parts of a second, and can be set while it runs; elapsed time
// is not touched by either.
func TestWallClockIsWrong(t *testing.T) {
	program := Build(t, "./wrongclock")
	const slack = 5 * time.Second // between the two looks at the clock; the offsets are larger
	ask := func(p *Process, o Order) (r Report, offset time.Duration) {
		t.Helper()
		r, err := p.Do(o)
		if err != nil || r.Err != "" {
			t.Fatalf("%+v: %s, %v", o, r.Err, err)
		}
		return r, time.Until(r.Wall)
	}
	for _, offset := range []time.Duration{-5 * time.Minute, 0, time.Hour + 999*time.Millisecond, -10*time.Second - 999*time.Millisecond} {
		p := Start(t, program, offset, Setup{Addr: "127.0.0.1:1", Name: "x", TTL: time.Minute})
		before, got := ask(p, Order{Op: "clock"})
		if (got - offset).Abs() > slack {
			t.Errorf("told %v, its wall clock is off by %v", offset, got)
		}
		began := time.Now()
		ask(p, Order{Op: "step", By: -10 * time.Minute})
		after, got := ask(p, Order{Op: "clock"})
		if (got + 10*time.Minute).Abs() > slack {
			t.Errorf("set to -10m, its wall clock is off by %v", got)
		}
		if elapsed := after.Elapsed - before.Elapsed; elapsed < 0 || elapsed > time.Since(began)+slack {
			t.Errorf("%v have passed for it, %v here", elapsed, time.Since(began))
		}
	}
}
