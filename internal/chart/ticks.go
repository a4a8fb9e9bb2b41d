// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
)

// ticks are the numbers along an axis: few enough that their labels never meet.
func (a Axis) ticks(low, high float64) []plot.Tick {
	switch a.Scale {
	case Log:
		return a.logTicks(low, high)
	case Time:
		return timeTicks(low, high)
	}
	step := niceStep((high - low) / 5)
	var ticks []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: a.format(i*step, high)})
	}
	return ticks
}

// logTicks has the powers of ten, each or every n-th; within less than two of them also what is between. The rest are lines without a label.
func (a Axis) logTicks(low, high float64) []plot.Tick {
	first, last := int(math.Floor(math.Log10(low)+1e-9)), int(math.Ceil(math.Log10(high)-1e-9))
	every := (last-first)/7 + 1
	few := math.Log10(high/low) < 1.9
	var ticks []plot.Tick
	for p := first; p <= last; p++ {
		for digit := 1; digit <= 9; digit++ {
			t := plot.Tick{Value: float64(digit) * math.Pow(10, float64(p))}
			if t.Value < low*(1-1e-9) || t.Value > high*(1+1e-9) {
				continue
			}
			if digit == 1 && (p-first)%every == 0 || few && (digit == 2 || digit == 5) {
				t.Label = a.format(t.Value, t.Value)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

var timeSteps = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 365 * day,
}

const day = 24 * time.Hour

// timeTicks are at round times of day, UTC.
func timeTicks(low, high float64) []plot.Tick {
	step := timeSteps[len(timeSteps)-1].Seconds()
	for _, s := range timeSteps {
		if (high-low)/s.Seconds() <= 6 {
			step = s.Seconds()
			break
		}
	}
	step = max(step, niceStep((high-low)/6)) // beyond years
	layout := "2006-01-02"
	switch {
	case step < 1:
		layout = "15:04:05.000"
	case step < 60:
		layout = "15:04:05"
	case step < day.Seconds():
		layout = "15:04"
	}
	var ticks []plot.Tick
	for i := math.Ceil(low / step); i*step <= high; i++ {
		at := time.UnixMilli(int64(math.Round(i * step * 1000))).UTC()
		ticks = append(ticks, plot.Tick{Value: i * step, Label: at.Format(layout)})
	}
	return ticks
}

// niceStep is the next of 1, 2, 5, 10, ... at or above a step, times a power of ten.
func niceStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if step <= m*power*(1+1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// format writes a value as on an axis whose largest is of. Seconds take the prefix of the largest, so that neighbours have the same one.
func (a Axis) format(v, of float64) string {
	if a.Unit != "s" {
		return number(v)
	}
	if v == 0 {
		return "0"
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}} {
		if math.Abs(of) >= u.size*(1-1e-9) {
			return number(v/u.size) + " " + u.name
		}
	}
	return number(v/1e-9) + " ns"
}

// number writes a value with three or more digits, as 0.25, 12,000 or 1.5 M.
func number(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1e12:
		return trim(v/1e12, 3) + " T"
	case size >= 1e9:
		return trim(v/1e9, 3) + " G"
	case size >= 1e6:
		return trim(v/1e6, 3) + " M"
	case size >= 999.5:
		return thousands(fmt.Sprintf("%.0f", v))
	case size == 0:
		return "0"
	case size < 1e-4:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case size < 1:
		return trim(v, int(2-math.Floor(math.Log10(size))))
	}
	return trim(v, int(2-math.Floor(math.Log10(max(1, math.Abs(v))))))
}

// trim writes at most so many decimals.
func trim(v float64, decimals int) string {
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// thousands puts commas into a whole number.
func thousands(s string) string {
	digits := strings.TrimPrefix(s, "-")
	sign := s[:len(s)-len(digits)]
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
