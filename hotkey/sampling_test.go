// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package hotkey_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-shelf/shelf/hotkey"
)

// TestCountAgainstExact counts a Zipf trace at a rate that makes Count draw samples, and compares with exact counts: rates are right within four standard deviations, all keys
// well above the threshold are found, and no cold one is called hot.
func TestCountAgainstExact(t *testing.T) {
	for _, perSecond := range []int{50_000, 1_000_000} {
		rng := rand.New(rand.NewPCG(3, 5))
		zipf := rand.NewZipf(rng, 1.1, 1, 1_000_000-1)
		d := mustNew(t, hotkey.Config{})
		twin := decayed{count: map[string]float64{}, at: map[string]time.Time{}}
		now, asked, falseHot := time.Now(), 0, 0
		for i := range 3 * perSecond {
			now = now.Add(time.Second / time.Duration(perSecond))
			key := fmt.Sprint("k", zipf.Uint64())
			d.Count(key, 0, now)
			twin.observe(key, now)
			if i%97 == 0 {
				if asked++; d.Hot(key, now) && twin.rate(key, now) < 25 {
					falseHot++
				}
			}
		}
		found, missed := 0, 0
		for key := range twin.count {
			if twin.rate(key, now) > 200 {
				if found++; !d.Hot(key, now) {
					missed++
				}
			}
		}
		noisy := false
		for _, kr := range d.Top(30, now) {
			exact := twin.rate(kr.Key, now)
			noisy = noisy || kr.Noise > 0
			if off := math.Abs(kr.Rate - exact); off > 4*kr.Noise+0.03*exact {
				t.Errorf("%d a second: %s is measured as %.0f (noise %.0f), exact %.0f", perSecond, kr.Key, kr.Rate, kr.Noise, exact)
			}
			if exact > kr.AtMost*1.03+4*kr.Noise {
				t.Errorf("%d a second: %s is at most %.0f, exact %.0f", perSecond, kr.Key, kr.AtMost, exact)
			}
		}
		t.Logf("%d a second: %d keys above 200, %d missed; of %d reads %d were of cold keys called hot", perSecond, found, missed, asked, falseHot)
		if noisy != (perSecond > 100_000) {
			t.Errorf("%d a second: sampled: %t", perSecond, noisy)
		}
		if found < 10 || missed > found/50 {
			t.Errorf("%d a second: %d of %d hot keys missed", perSecond, missed, found)
		}
		if falseHot > asked/1000 {
			t.Errorf("%d a second: %d of %d reads were of cold keys called hot", perSecond, falseHot, asked)
		}
	}
}

// TestCountSettles: how many reads a sample stands for follows the rate of all reads, up and down again.
func TestCountSettles(t *testing.T) {
	d := mustNew(t, hotkey.Config{})
	now := time.Now()
	noise := func(perSecond int, long time.Duration) float64 {
		for range int(long.Seconds() * float64(perSecond)) {
			now = now.Add(time.Second / time.Duration(perSecond))
			d.Count("k", 0, now)
		}
		top := d.Top(1, now)
		if len(top) != 1 {
			t.Fatal(top)
		}
		if off := math.Abs(top[0].Rate - float64(perSecond)); off > 0.15*float64(perSecond) {
			t.Errorf("measured %.0f of %d", top[0].Rate, perSecond)
		}
		return top[0].Noise
	}
	if n := noise(50_000, 8*time.Second); n != 0 {
		t.Errorf("noise %.0f where all can be counted", n)
	}
	if n := noise(2_000_000, 8*time.Second); n == 0 {
		t.Error("two million reads a second are all counted")
	}
	if n := noise(50_000, 12*time.Second); n != 0 {
		t.Errorf("noise %.0f after the rush", n)
	}
}

// TestOneCountedReadIsNotHot: in a rush one counted read in 512 stands for 512. The one that chance gives to a cold key makes it hot neither for its large value, nor when the rush is over.
func TestOneCountedReadIsNotHot(t *testing.T) {
	for _, bytes := range []int{0, 64 << 10} {
		d := mustNew(t, hotkey.Config{})
		now := time.Now()
		for range 20_000 { // 50 million a second
			now = now.Add(20 * time.Nanosecond)
			d.Count("busy", 0, now)
		}
		const cold = 20_000
		hot := func() (n int) {
			for i := range cold {
				if d.Hot(fmt.Sprint("cold", i), now) {
					n++
				}
			}
			return n
		}
		for i := range cold {
			d.Count(fmt.Sprint("cold", i), bytes, now)
		}
		if n := hot(); n > 0 || !d.Hot("busy", now) {
			t.Errorf("%d bytes: %d keys are hot that were read once; busy: %t", bytes, n, d.Hot("busy", now))
		}
		if top := d.Top(1, now); len(top) != 1 || top[0].Noise == 0 {
			t.Fatalf("the scene is not set: nothing is sampled: %+v", top)
		}
		for range 10_000 { // two seconds' worth of calm, until all are counted again
			now = now.Add(200 * time.Microsecond)
			if d.Count("calm", 0, now); d.Top(1, now)[0].Noise == 0 {
				break
			}
		}
		if n := hot(); n > 0 {
			t.Errorf("%d bytes: %d keys are hot after the rush that were read once in it", bytes, n)
		}
	}
}

// TestBytes: a large value is hot at fewer reads.
func TestBytes(t *testing.T) {
	d := mustNew(t, hotkey.Config{})
	now := time.Now()
	for range 50 {
		now = now.Add(100 * time.Millisecond) // ten reads a second each
		d.Count("small", 100, now)
		d.Count("large", 512<<10, now)
	}
	if d.Hot("small", now) || !d.Hot("large", now) {
		t.Errorf("small hot %t, large hot %t", d.Hot("small", now), d.Hot("large", now))
	}
	if top := d.Top(1, now); len(top) != 1 || top[0].Key != "large" || top[0].Rate < 1000 || top[0].Rate > 1400 {
		t.Errorf("%+v: want 10 reads of 129 units", top)
	}
}

func TestPin(t *testing.T) {
	d := mustNew(t, hotkey.Config{})
	now := time.Now()
	d.Pin("a", "b")
	d.Unpin("b", "c")
	if !d.Hot("a", now) || d.Hot("b", now) || !d.Observe("a", now) || d.Observe("b", now) {
		t.Error("a must be hot, b not")
	}
}
