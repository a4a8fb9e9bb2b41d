// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
)

var seconds = []behaviour{
	{name: "a second delete removes what a loader has stored that lagged, and is counted", test: secondDelete},
	{name: "Close waits for the second deletes that are due in time", test: closeWaitsForSeconds},
	{name: "Close sends second deletes early where its time ends, and says so", test: closeHurriesSeconds},
}

const (
	// later is when second deletes come that are waited for: long enough for a busy machine to read and store in between.
	later = 2 * time.Second
	// muchLater is when they come that are not.
	muchLater = time.Minute
)

// lagged is a process of its own that has invalidated "k" and "l", after which a loader that lags has stored the old row of "k" again. Its Close is the
// caller's. The second deletes are due so much after begin.
func lagged(s *scene, after time.Duration) (cl *client.Client, c *client.Cache[row], src *source, p place, begin time.Time) {
	s.Helper()
	cl, err := client.New(s.Context(), s.config())
	s.must(err)
	src = newSource(row{Text: "old"})
	cfg := plain(src.load)
	cfg.SecondDelete = after
	c = on(s, cl, cfg)
	other := open(s, plain(src.load)) // now: who meets a server in its first second trusts nothing from before
	begin = time.Now()
	s.must(c.InvalidateMany(s.Context(), []string{"k", "l"}))
	want(s, c, "k", row{Text: "old"}, client.LayerSource)
	want(s, other, "k", row{Text: "old"}, client.LayerL2)
	if n := cl.Stats().SecondDeletes; n != 2 {
		s.Errorf("%d second deletes wait, want 2", n)
	}
	src.set("k", row{Text: "new"})
	return cl, c, src, where(s, c, "k"), begin
}

func secondDelete(s *scene) {
	cl, c, src, p, begin := lagged(s, later)
	s.until("the second delete", func() bool { return !p.has(p.data) })
	if d := time.Since(begin); d < later {
		s.Errorf("the entry was gone after %v, SecondDelete is %v", d, later)
	}
	want(s, c, "k", row{Text: "new"}, client.LayerSource)
	want(s, open(s, plain(src.load)), "k", row{Text: "new"}, client.LayerL2)
	s.until("both were carried out", func() bool { return c.Stats().SecondDeletes == 2 })
	if st := c.Stats(); st.SecondRemoved != 1 || st.SecondRefused != 0 || cl.Stats().SecondDeletes != 0 {
		s.Errorf("%d removed something, %d refused, %d wait; want 1, 0, 0", st.SecondRemoved, st.SecondRefused, cl.Stats().SecondDeletes)
	}
	s.must(cl.Close(s.Context()))
}

func closeWaitsForSeconds(s *scene) {
	cl, _, _, p, begin := lagged(s, later)
	ctx, cancel := context.WithTimeout(s.Context(), 3*patience) // a quarter of it is kept for what would be late
	defer cancel()
	s.must(cl.Close(ctx))
	if d := time.Since(begin); d < later || p.has(p.data) {
		s.Errorf("Close returned after %v, entry %v; want no entry, and %v at least", d, p.has(p.data), later)
	}
}

func closeHurriesSeconds(s *scene) {
	cl, _, _, p, begin := lagged(s, muchLater)
	ctx, cancel := context.WithTimeout(s.Context(), later)
	defer cancel()
	err := cl.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "2 second deletes") || p.has(p.data) || time.Since(begin) > muchLater {
		s.Errorf("Close: %v after %v, entry %v; want that 2 came early, and no entry", err, time.Since(begin), p.has(p.data))
	}
}
