// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-shelf/shelf/client"
)

var owed = []behaviour{
	{name: "an invalidation that did not get through is repeated; its process reads past the node till then", test: owedKey},
	{name: "an invalidation that was owed voids the loads from before it", test: owedVoids},
	{name: "Clear that did not get through is repeated; its process reads past the node till then", test: owedClear},
	{name: "InvalidateTag that did not get through is repeated; its process reads past those rows till then", test: owedTag},
	{name: "more than OutboxSize are not repeated: ErrOutboxFull says which", test: outboxFull},
	{name: "Close sends what is owed", test: closeSends},
	{name: "Close names what it could not send", test: closeNames},
}

// paid waits until a process owes nothing any more. The pauses between attempts grow up to 10 s.
func (s *scene) paid(cl *client.Client) {
	s.Helper()
	s.until("nothing is owed", func() bool { return cl.Stats().Owed == 0 })
}

// owes is the error of an invalidation that failed and is kept, and how many are.
func (s *scene) owes(cl *client.Client, err error, n int) {
	s.Helper()
	if !client.NodesOnly(err) || errors.Is(err, client.ErrOutboxFull) {
		s.Fatalf("got %v; want NodeErrors, of what is repeated", err)
	}
	if st := cl.Stats(); st.Owed != n || st.OwedSince.IsZero() || st.OwedRefused != 0 {
		s.Fatalf("%d owed since %v, %d refused; want %d", st.Owed, st.OwedSince, st.OwedRefused, n)
	}
}

// gives is one GetMany and what must come of it.
func gives(s *scene, c *client.Cache[row], rows map[string]row) {
	s.Helper()
	var keys []string
	for k := range rows {
		keys = append(keys, k)
	}
	m, err := c.GetMany(s.Context(), keys)
	s.must(err)
	for k, v := range rows {
		if m[k] != v {
			s.Errorf("GetMany: %s is %v, want %v", k, m[k], v)
		}
	}
}

// owedKey: the node answers reads all along, and has the old row.
func owedKey(s *scene) {
	var w wire
	src := newSource(row{1, "old"})
	cl := s.client(s.config(w.hook))
	c, other := on(s, cl, batching(src)), open(s, batching(src))
	gives(s, c, map[string]row{"k": {1, "old"}, "l": {1, "old"}})
	w.breaks(allScripts)
	err := c.Write(s.Context(), "k", func(context.Context) error { src.set("k", row{2, "new"}); return nil })
	s.owes(cl, err, 1)
	if keys := client.UnreachedKeys(err); !slices.Equal(keys, []string{"k"}) {
		s.Errorf("UnreachedKeys: %q", keys)
	}
	src.set("l", row{2, "changed, and nobody was told"})
	for range 3 {
		want(s, other, "k", row{1, "old"}, client.LayerL2) // it cannot know better
		want(s, c, "k", row{2, "new"}, client.LayerSource)
		want(s, c, "l", row{1, "old"}, client.LayerL2)
		gives(s, c, map[string]row{"k": {2, "new"}, "l": {1, "old"}})
	}
	if n := c.Stats().Bypassed; n < 6 {
		s.Errorf("Bypassed is %d after 6 such reads", n)
	}
	w.mend()
	s.paid(cl)
	src.set("k", row{3, "newer"}) // nobody was told: what was stored before the invalidation was repeated would show
	want(s, other, "k", row{3, "newer"}, client.LayerSource)
	want(s, c, "k", row{3, "newer"}, client.LayerL2)
	gives(s, c, map[string]row{"k": {3, "newer"}, "l": {1, "old"}})
}

// owedVoids: nobody could take the lease of the load in flight.
func owedVoids(s *scene) {
	var w wire
	src := newSource(row{Text: "old"})
	cl := s.client(s.config(w.hook))
	c, other := on(s, cl, plain(src.load)), open(s, plain(src.load))
	release := src.hold()
	own, others := ask(s, c, "own"), ask(s, other, "other's")
	s.until("both have read the old rows", func() bool { return src.holding() == 2 })
	w.breaks(allScripts)
	for _, k := range []string{"own", "other's"} {
		src.set(k, row{Text: "new"})
	}
	s.owes(cl, c.InvalidateMany(s.Context(), []string{"own", "other's"}), 2)
	w.mend()
	s.paid(cl)
	release()
	for _, answer := range []func() (client.Result[row], error){own, others} {
		if r, err := answer(); err != nil || r.Value.Text != "old" {
			s.Errorf("a slow reader got %+v, %v; want what it had read", r, err)
		}
	}
	for _, k := range []string{"own", "other's"} {
		want(s, other, k, row{Text: "new"}, client.LayerSource)
		want(s, c, k, row{Text: "new"}, client.LayerL2)
	}
}

// owedClear: on each node apart.
func owedClear(s *scene) {
	var w wire
	src := newSource(row{1, "old"})
	cl := s.client(s.config(w.hook))
	c, other := on(s, cl, batching(src)), open(s, batching(src))
	before, after := make(map[string]row), make(map[string]row)
	for _, k := range numbered(20) {
		before[k], after[k] = row{1, "old"}, row{2, "new"}
	}
	gives(s, c, before)
	w.breaks(allScripts)
	for k, r := range after {
		src.set(k, r)
	}
	err := c.Clear(s.Context())
	s.owes(cl, err, len(s.servers))
	for i := range s.servers {
		if id := s.config().Nodes[i].ID; !strings.Contains(err.Error(), id) {
			s.Errorf("Clear: %v; want %s named", err, id)
		}
	}
	gives(s, other, before)
	for range 2 {
		gives(s, c, after)
	}
	want(s, c, "key-1", row{2, "new"}, client.LayerSource)
	w.mend()
	s.paid(cl)
	gives(s, other, after)
	want(s, c, "key-1", row{2, "new"}, client.LayerL2)
}

// owedTag: rows with other tags are read from the nodes all along.
func owedTag(s *scene) {
	var w wire
	src := newSource(row{1, "even:old"})
	src.set("key-1", row{1, "odd:old"})
	cl := s.client(s.config(w.hook))
	c, other := on(s, cl, tagged(src)), open(s, tagged(src))
	before := map[string]row{"key-0": {1, "even:old"}, "key-1": {1, "odd:old"}}
	gives(s, c, before)
	w.breaks(allScripts)
	src.set("key-0", row{2, "even: changed, and nobody was told"})
	src.set("key-1", row{2, "odd:new"})
	s.owes(cl, c.InvalidateTag(s.Context(), "odd"), len(s.servers))
	after := map[string]row{"key-0": {1, "even:old"}, "key-1": {2, "odd:new"}}
	for range 2 {
		gives(s, other, before)
		gives(s, c, after)
		want(s, c, "key-0", row{1, "even:old"}, client.LayerL2)
		want(s, c, "key-1", row{2, "odd:new"}, client.LayerSource)
	}
	w.mend()
	s.paid(cl)
	gives(s, other, after)
	want(s, c, "key-1", row{2, "odd:new"}, client.LayerL2)
}

func outboxFull(s *scene) {
	var w wire
	cfg := s.config(w.hook)
	cfg.OutboxSize = 3
	cl := s.client(cfg)
	c := on(s, cl, batching(newSource(row{Text: "a"})))
	keys := numbered(5)
	w.breaks(anything)
	err := c.InvalidateMany(s.Context(), keys)
	var kept, refused []string
	joined, _ := err.(interface{ Unwrap() []error }) //nolint:errorlint // the joined errors themselves
	if joined == nil {
		s.Fatalf("InvalidateMany: %v; want errors joined", err)
	}
	for _, e := range joined.Unwrap() {
		if errors.Is(e, client.ErrOutboxFull) {
			refused = append(refused, client.UnreachedKeys(e)...)
		} else {
			kept = append(kept, client.UnreachedKeys(e)...)
		}
	}
	if st := cl.Stats(); !client.NodesOnly(err) || len(kept) != 3 || len(refused) != 2 || st.Owed != 3 || st.OwedRefused != 2 {
		s.Fatalf("kept %q, refused %q, %d owed, %d refused; want 3 and 2: %v", kept, refused, st.Owed, st.OwedRefused, err)
	}
	for _, k := range keys { // what is kept has its place
		if err := c.Invalidate(s.Context(), k); !client.NodesOnly(err) || errors.Is(err, client.ErrOutboxFull) != slices.Contains(refused, k) {
			s.Errorf("%s once more: %v", k, err)
		}
	}
	w.mend()
	s.paid(cl)
	s.must(c.InvalidateMany(s.Context(), keys))
}

// inDebt is a process of its own that owes the invalidation of "k" to a node which has the old row. Its Close is the caller's.
func inDebt(s *scene, w *wire) (cl *client.Client, p place) {
	s.Helper()
	cl, err := client.New(s.Context(), s.config(w.hook))
	s.must(err)
	c := on(s, cl, plain(newSource(row{Text: "a"}).load))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	w.breaks(anything)
	s.owes(cl, c.Invalidate(s.Context(), "k"), 1)
	if p = where(s, c, "k"); !p.has(p.data) {
		s.Fatal("the entry is gone: this will show nothing")
	}
	return cl, p
}

func closeSends(s *scene) {
	var w wire
	cl, p := inDebt(s, &w)
	time.AfterFunc(200*time.Millisecond, w.mend) // while Close waits
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := cl.Close(ctx); err != nil || p.has(p.data) {
		s.Errorf("Close: %v, entry %v; want neither", err, p.has(p.data))
	}
}

func closeNames(s *scene) {
	var w wire
	cl, p := inDebt(s, &w)
	ctx, cancel := context.WithTimeout(s.Context(), 300*time.Millisecond)
	defer cancel()
	err := cl.Close(ctx)
	var node *client.NodeError
	if !client.NodesOnly(err) || !errors.Is(err, client.ErrClosed) || !errors.As(err, &node) || node.Node == "" || !slices.Equal(client.UnreachedKeys(err), []string{p.data}) {
		s.Errorf("Close: %v; want a NodeError that names %s", err, p.data)
	}
	if !p.has(p.data) {
		s.Error("the entry is gone: nothing was owed")
	}
}
