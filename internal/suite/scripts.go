// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"github.com/go-shelf/shelf/client"
)

var scripts = []behaviour{
	{name: "after SCRIPT FLUSH reads, fills and invalidations go on", alone: true, test: scriptFlush},
	{name: "after SCRIPT FLUSH pipelines of scripts go on", alone: true, test: scriptFlushMany},
}

// flushScripts makes the next EVALSHA a NOSCRIPT.
func flushScripts(s *scene) { s.do(0, "SCRIPT", "FLUSH") }

func scriptFlush(s *scene) {
	src := newSource(row{1, "a"})
	c := open(s, versioned(src.load))
	want(s, c, "k", row{1, "a"}, client.LayerSource)
	flushScripts(s)
	s.must(c.InvalidateVersion(s.Context(), "k", 2))
	if p := where(s, c, "k"); p.has(p.data) || !p.has(p.mark) {
		s.Errorf("entry %v, mark %v; want the mark alone", p.has(p.data), p.has(p.mark))
	}
	src.set("k", row{2, "b"})
	release := src.hold()
	flushScripts(s)
	answer := ask(s, c, "k")
	s.until("the load runs", func() bool { return src.holding() == 1 })
	flushScripts(s)
	release()
	if r, err := answer(); err != nil || r.Value.Text != "b" {
		s.Errorf("%+v, %v", r, err)
	}
	want(s, c, "k", row{2, "b"}, client.LayerL2)
	noErrors(s, c)
}

func scriptFlushMany(s *scene) {
	src := newSource(row{1, "a"})
	c := open(s, batching(src))
	release := src.hold()
	flushScripts(s)
	ended := make(chan error, 1)
	go func() {
		_, err := c.GetMany(s.Context(), numbered(100))
		ended <- err
	}()
	s.until("the load runs", func() bool { return src.holding() == 1 })
	flushScripts(s)
	release()
	s.must(<-ended)
	if n := c.Stats().Fills; n != 100 {
		s.Errorf("%d fills, want 100", n)
	}
	flushScripts(s)
	s.must(c.InvalidateMany(s.Context(), numbered(100)))
	s.empty("after InvalidateMany")
	t := open(s, aTruth())
	flushScripts(s)
	s.must(t.SetMany(s.Context(), map[string]row{"a": {1, "a"}, "b": {1, "b"}}))
	want(s, t, "b", row{1, "b"}, client.LayerL2)
	noErrors(s, c)
}

// noErrors: nothing went wrong on a node.
func noErrors[V any](s *scene, c *client.Cache[V]) {
	s.Helper()
	if st := c.Stats(); st.NodeErrors+st.FillErrors+st.MarksFailed != 0 {
		s.Errorf("NodeErrors %d, FillErrors %d, MarksFailed %d; want none", st.NodeErrors, st.FillErrors, st.MarksFailed)
	}
}
