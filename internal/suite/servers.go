// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/client"
)

var servers = []behaviour{
	{name: "a node in cluster mode is refused", needs: []Ability{Settings}, alone: true, args: []string{"--cluster-enabled", "yes"}, test: clusterMode},
	{name: "a user with the documented rights can do everything", needs: []Ability{Users}, alone: true, test: documentedRights},
	{name: "a user of one namespace needs no other keys", needs: []Ability{Users}, alone: true, test: namespaceRights},
	{name: "a wrong password is a miss for every read, and an error of every write", needs: []Ability{Users}, alone: true, test: wrongPassword},
	{name: "Close leaves no connection", needs: []Ability{Connections}, test: closes},
	{name: "the counters say what happened", test: counters},
}

// Rights are the commands that an ACL user of the nodes needs, as the README says it, PushRights what it needs besides to hear pushes; NamespaceKeys are
// the keys that one needs who uses a namespace only.
const (
	Rights        = "+@read +@write +@scripting +info +time"
	PushRights    = "+client|tracking +client|id +client|setname +ping"
	NamespaceKeys = "~<namespace>/* ~~l:<namespace>/* ~~m:<namespace>/* ~~b:<namespace>/* ~~g:<namespace>/* ~~t:<namespace>/*"
)

func clusterMode(s *scene) {
	_, err := client.New(s.Context(), s.config())
	if !errors.Is(err, client.ErrClusterMode) || !strings.Contains(err.Error(), "node-0") || !strings.Contains(err.Error(), s.servers[0].Addr) {
		s.Errorf("New: %v; want ErrClusterMode that names node and address", err)
	}
}

// user makes an ACL user with the given rules.
func user(s *scene, rules string) {
	s.Helper()
	args := []any{"ACL", "SETUSER", "shelf", "on", ">secret", "resetkeys", "resetchannels", "-@all"}
	for _, r := range strings.Fields(rules) {
		args = append(args, r)
	}
	s.do(0, args...)
}

// asUser makes a client connect as an ACL user.
func asUser(name, password string) func(o *redis.Options) {
	return func(o *redis.Options) { o.Username, o.Password = name, password }
}

// everything does what the façade can do, and meets no error of a node.
func everything(s *scene, cfg client.Config) {
	s.Helper()
	ctx := s.Context()
	cl := s.client(cfg)
	src := newSource(row{1, "a"})
	c, t := on(s, cl, tagged(src)), on(s, cl, aTruth())
	want(s, c, "k", row{1, "a"}, client.LayerSource)
	want(s, c, "k", row{1, "a"}, client.LayerL2)
	m, many := c.GetMany(ctx, numbered(100))
	if len(m) != 100 {
		s.Errorf("GetMany: %d of 100", len(m))
	}
	_, through := c.WriteThrough(ctx, "k", func(context.Context) (row, error) { return row{2, "b"}, nil })
	s.must(errors.Join(many, through,
		c.Write(ctx, "k", func(context.Context) error { return nil }),
		c.InvalidateVersion(ctx, "k", 1), c.InvalidateMany(ctx, numbered(100)),
		t.SetMany(ctx, map[string]row{"a": {1, "a"}, "b": {1, "b"}})))
	want(s, c, "k", row{1, "a"}, client.LayerSource)
	want(s, t, "a", row{1, "a"}, client.LayerL2)
	s.must(errors.Join(c.Clear(ctx), c.InvalidateTag(ctx, "a")))
	want(s, c, "k", row{1, "a"}, client.LayerSource)
	large := plain(func(context.Context, string) (string, error) { return strings.Repeat("x", 256<<10), nil })
	large.Name = "large"
	l := on(s, cl, large)
	for range 2 {
		_, err := l.Get(ctx, "k")
		s.must(err)
	}
	noErrors(s, c)
	noErrors(s, t)
	noErrors(s, l)
	if n := l.Stats().L2Hits; n != 1 {
		s.Errorf("the large value: %d hits, want 1", n)
	}
	for _, n := range cl.Stats().Nodes {
		if n.LastError != nil || n.Version == "" {
			s.Errorf("%s: version %q, %v", n.ID, n.Version, n.LastError)
		}
	}
}

func documentedRights(s *scene) {
	user(s, "~* "+Rights)
	everything(s, s.config(asUser("shelf", "secret")))
}

func namespaceRights(s *scene) {
	user(s, strings.ReplaceAll(NamespaceKeys, "<namespace>", "mine")+" "+Rights)
	cfg := s.config(asUser("shelf", "secret"))
	cfg.Namespace = "mine"
	everything(s, cfg)
	cfg.Namespace = "theirs"
	cl := s.client(cfg)
	c := on(s, cl, plain(newSource(row{Text: "a"}).load))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	unreached(s, c.Invalidate(s.Context(), "k"), "permission")
	user(s, "~* "+Rights) // else Close would report what is owed
	s.paid(cl)
}

func wrongPassword(s *scene) {
	user(s, "~* "+Rights)
	cl := s.client(s.config(asUser("shelf", "wrong")))
	c := on(s, cl, plain(newSource(row{Text: "a"}).load))
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	want(s, c, "k", row{Text: "a"}, client.LayerSource)
	unreached(s, c.Invalidate(s.Context(), "k"), "WRONGPASS")
	if err := cl.Stats().Nodes[0].LastError; err == nil {
		s.Error("LastError is nil")
	}
	s.do(0, "ACL", "SETUSER", "shelf", ">wrong") // now it is right
	s.paid(cl)
}

func closes(s *scene) {
	name := func(o *redis.Options) { o.ClientName = "to-be-closed" }
	cl, err := client.New(s.Context(), s.config(name))
	s.must(err)
	c := on(s, cl, plain(newSource(row{Text: "a"}).load))
	_, err = c.GetMany(s.Context(), numbered(100))
	s.must(err)
	open := func() (n int) {
		for i := range s.servers {
			list, _ := s.do(i, "CLIENT", "LIST").(string)
			n += strings.Count(list, "name=to-be-closed")
		}
		return n
	}
	if n := open(); n < len(s.servers) {
		s.Errorf("%d connections of the client are listed, want one for each of %d nodes at least", n, len(s.servers))
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	s.must(cl.Close(ctx))
	s.until("the nodes list no connection of the client", func() bool { return open() == 0 })
	if _, err := c.Get(s.Context(), "k"); !errors.Is(err, client.ErrClosed) {
		s.Errorf("after Close: %v, want ErrClosed", err)
	}
}

func counters(s *scene) {
	ctx := s.Context()
	src := newSource(row{3, "a"})
	cl := s.client(s.config())
	cfg := batching(src)
	cfg.TTL = time.Hour
	c := on(s, cl, cfg)
	_, e1 := c.Get(ctx, "k")                 // a load, a fill
	_, e2 := c.Get(ctx, "k")                 // a hit
	_, e3 := c.GetMany(ctx, numbered(9))     // a load, nine fills
	_, e4 := c.GetMany(ctx, numbered(10))    // nine hits, a load, a fill
	e5 := c.InvalidateVersion(ctx, "k", 4)   // an invalidation
	_, e6 := c.Get(ctx, "k")                 // two loads, both stale: the fill is not even tried
	e7 := c.InvalidateMany(ctx, numbered(2)) // two more
	s.must(errors.Join(e1, e2, e3, e4, e5, e6, e7))
	st := c.Stats()
	got := client.CacheStats{L1Misses: st.L1Misses, L2Hits: st.L2Hits, Loads: st.Loads, LoadsStale: st.LoadsStale, Fills: st.Fills, Invalidations: st.Invalidations}
	expected := client.CacheStats{L1Misses: 3 + 19, L2Hits: 10, Loads: 5, LoadsStale: 1, Fills: 11, Invalidations: 3}
	if got != expected {
		s.Errorf("the counters are\n%+v, want\n%+v", got, expected)
	}
	noErrors(s, c)
	if shared := cl.Stats(); shared.LoadsRunning != 0 || shared.LoadsQueued != 0 || shared.LoadsHighest < 1 || shared.LoadsRejected != 0 {
		s.Errorf("%+v", shared)
	}
}
