// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-shelf/shelf/client"
	"github.com/go-shelf/shelf/internal/pgtest"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/ring"
)

// service is one process of the catalogue, as its users see it.
type service struct {
	t     *testing.T
	url   string
	store *Store
	log   *text
}

// text is a log that can be read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), s)
}

// start serves from the database and the nodes, or proxies before them, until the test ends.
func start[N interface{ Addr() string }](t *testing.T, dsn string, nodes []N, settings client.Config) *service {
	t.Helper()
	kept := &text{}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), kept), nil))
	store, err := OpenStore(t.Context(), dsn, connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if _, err := store.Seed(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	for i, n := range nodes {
		settings.Nodes = append(settings.Nodes, ring.Node{ID: fmt.Sprintf("node-%d", i), Addr: n.Addr()})
	}
	settings.OperationTimeout = time.Second // a busy machine is not what is tested here
	cl, err := client.New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := within(t.Context(), stopTimeout, cl.Close); err != nil {
			t.Error(err)
		}
	})
	server, err := NewServer(store, cl, log)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	t.Cleanup(web.Close)
	return &service{t: t, url: web.URL, store: store, log: kept}
}

// answer is what a request gave.
type answer struct {
	status int
	cache  string // X-Cache
	node   string // X-Cache-Node
	header http.Header
	body   []byte
}

func (s *service) do(method, path, body string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("X-Cache"), resp.Header.Get("X-Cache-Node"), resp.Header, text}
}

func (s *service) want(method, path, body string, status int) answer {
	s.t.Helper()
	a := s.do(method, path, body)
	if a.status != status {
		s.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	return a
}

// product reads one product and checks where it came from; any layer will do for "".
func (s *service) product(id, layer string) Product {
	s.t.Helper()
	a := s.want("GET", "/products/"+id, "", 200)
	if layer != "" && a.cache != layer {
		s.t.Fatalf("GET /products/%s came from %s, want %s", id, a.cache, layer)
	}
	return parsed[Product](s.t, a)
}

// heat reads a product, two readers at once, until this process keeps it: a hundred reads a second make it hot.
func (s *service) heat(id string) {
	s.t.Helper()
	var wg sync.WaitGroup
	end := time.Now().Add(15 * time.Second)
	for range 2 {
		wg.Go(func() {
			for s.do("GET", "/products/"+id, "").cache != "L1" && time.Now().Before(end) {
			}
		})
	}
	wg.Wait()
	if time.Now().After(end) {
		s.t.Fatalf("product %s never came from L1", id)
	}
}

func (s *service) absent(id, layer string) {
	s.t.Helper()
	if a := s.want("GET", "/products/"+id, "", 404); a.cache != layer {
		s.t.Fatalf("GET /products/%s: that it is absent came from %q, want %s", id, a.cache, layer)
	}
}

// insert makes a product of its own for a test.
func (s *service) insert(name string) Product {
	s.t.Helper()
	return parsed[Product](s.t, s.want("POST", "/products", fmt.Sprintf(`{"name": %q, "price_cents": 100, "stock": 5}`, name), 201))
}

func (s *service) batch(ids ...string) (found []string) {
	s.t.Helper()
	for _, p := range parsed[[]Product](s.t, s.want("GET", "/products?ids="+strings.Join(ids, ","), "", 200)) {
		found = append(found, p.ID)
	}
	return found
}

// reads checks how many queries the loaders send while f runs.
func (s *service) reads(want int64, f func()) {
	s.t.Helper()
	before := s.store.Reads()
	f()
	if got := s.store.Reads() - before; got != want {
		s.t.Fatalf("the database was asked %d times, want %d", got, want)
	}
}

// owed is what /stats says of invalidations that have not got through.
func (s *service) owed() int {
	s.t.Helper()
	stats := parsed[struct {
		Client struct{ Owed *int }
	}](s.t, s.want("GET", "/stats", "", 200))
	if stats.Client.Owed == nil {
		s.t.Fatal("/stats does not tell what is owed")
	}
	return *stats.Client.Owed
}

func parsed[V any](t *testing.T, a answer) (v V) {
	t.Helper()
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !reached(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not reached: " + what)
		}
	}
}

func after(t *testing.T, id string) string {
	t.Helper()
	n, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(n + 1)
}

// TestCatalogue is the service with a real database and real nodes. Each part has nodes of its own; the database is one for all.
func TestCatalogue(t *testing.T) {
	pg := pgtest.Start(t)
	for name, part := range map[string]func(*testing.T, string){
		"reads": reads, "update": update, "another process": another, "insert after 404": insert, "delete": remove, "batch": batch,
		"requests": requests, "nodes killed": killed, "node down": down, "outbox full": full, "overload": overload,
	} {
		t.Run(name, func(t *testing.T) { part(t, pg.DSN()) })
	}
}

func reads(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 3), client.Config{})
	id := s.insert("read").ID
	s.reads(1, func() {
		p := s.product(id, "source")
		if p.Name != "read" || p.PriceCents != 100 || p.Stock != 5 || p.Version != 1 || p.UpdatedAt.IsZero() {
			t.Fatalf("got %+v", p)
		}
		if again := s.product(id, "L2"); again != p {
			t.Fatalf("from L2 %+v, from the source %+v", again, p)
		}
		if zeros := s.product("00"+id, "L2"); zeros != p { // another spelling is no other entry
			t.Fatalf("got %+v", zeros)
		}
		s.heat(id)
	})
	a := s.want("GET", "/products/"+id, "", 200)
	if _, err := time.ParseDuration(a.header.Get("X-Cache-Age")); err != nil || !strings.HasPrefix(a.node, "node-") {
		t.Errorf("X-Cache-Age %q, X-Cache-Node %q", a.header.Get("X-Cache-Age"), a.node)
	}
}

func update(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 3), client.Config{})
	id := s.insert("old").ID
	s.product(id, "source")
	s.heat(id)

	p := parsed[Product](t, s.want("PUT", "/products/"+id, `{"name": "new"}`, 200))
	if p.Name != "new" || p.PriceCents != 100 || p.Version != 2 {
		t.Fatalf("PUT gave %+v", p)
	}
	if got := s.product(id, "source"); got != p { // at once, the copy in the process included
		t.Fatalf("read %+v after writing %+v", got, p)
	}
	p = parsed[Product](t, s.want("PUT", "/products/"+id, `{"price_cents": 1}`, 200))
	if got := s.product(id, "source"); got != p || got.Name != "new" || got.PriceCents != 1 || got.Version != 3 {
		t.Fatalf("read %+v after writing %+v", got, p)
	}
	// A write that fails changes nothing, and invalidates all the same: nobody knows what a failed write has done.
	s.want("PUT", "/products/"+id, `{"price_cents": -1}`, 400)
	if got := s.product(id, "source"); got != p {
		t.Fatalf("read %+v after a refused write, was %+v", got, p)
	}
}

func another(t *testing.T, dsn string) {
	nodes := redistest.StartNodes(t, 3)
	a, b := start(t, dsn, nodes, client.Config{}), start(t, dsn, nodes, client.Config{})
	id := a.insert("shared").ID
	a.product(id, "source")
	b.reads(0, func() { b.product(id, "L2") })
	a.want("PUT", "/products/"+id, `{"price_cents": 7}`, 200)
	if p := b.product(id, "source"); p.PriceCents != 7 {
		t.Fatalf("the other process reads %+v", p)
	}
	a.reads(0, func() { a.product(id, "L2") })
}

func insert(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 3), client.Config{})
	next := after(t, s.insert("before").ID)
	s.reads(1, func() {
		s.absent(next, "source")
		s.absent(next, "L2") // remembered
	})
	a := s.want("POST", "/products", `{"name": "late", "price_cents": 1, "stock": 0}`, 201)
	if l := a.header.Get("Location"); l != "/products/"+next {
		t.Fatalf("Location %s, want the id that was asked for, %s", l, next)
	}
	if p := s.product(next, "source"); p.Name != "late" {
		t.Fatalf("got %+v", p)
	}
}

func remove(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 3), client.Config{})
	id := s.insert("short-lived").ID
	s.product(id, "source")
	s.want("DELETE", "/products/"+id, "", 204)
	s.absent(id, "source")
	s.absent(id, "L2")
	s.want("DELETE", "/products/"+id, "", 404)
	s.want("PUT", "/products/"+id, `{"name": "ghost"}`, 404)
}

func batch(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 3), client.Config{})
	var ids []string
	for range 5 {
		ids = append(ids, s.insert("one of many").ID)
	}
	missing := after(t, ids[4])
	asked := []string{ids[3], missing, ids[0], ids[4], ids[3], ids[1], ids[2]}
	want := []string{ids[3], ids[0], ids[4], ids[1], ids[2]} // as asked for, each once
	for _, queries := range []int64{1, 0} {
		s.reads(queries, func() {
			if got := s.batch(asked...); !reflect.DeepEqual(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
		})
	}
	s.reads(0, func() { s.product(ids[2], "L2") })
	s.want("PUT", "/products/"+ids[2], `{"name": "other"}`, 200)
	s.reads(1, func() { s.batch(asked...) })
	s.reads(0, func() {
		if p := s.product(ids[2], "L2"); p.Name != "other" {
			t.Fatalf("got %+v", p)
		}
	})
}

func requests(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 1), client.Config{})
	id := s.insert("fixed").ID
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/products/abc", "", 400},
		{"GET", "/products/0", "", 400},
		{"GET", "/products/-1", "", 400},
		{"GET", "/products/99999999999999999999", "", 400},
		{"GET", "/products/9223372036854775807", "", 404},
		{"GET", "/products", "", 400},
		{"GET", "/products?ids=1,x", "", 400},
		{"GET", "/products?ids=1" + strings.Repeat(",1", maxBatch), "", 400},
		{"PUT", "/products/" + id, `{"name": ""}`, 400},
		{"PUT", "/products/" + id, `{"name": "\u0000"}`, 400},
		{"PUT", "/products/" + id, `{"stock": 5}`, 400},
		{"PUT", "/products/" + id, `{`, 400},
		{"PUT", "/products/" + id, `{"name": "` + strings.Repeat("x", maxBody) + `"}`, 400},
		{"PUT", "/products/9223372036854775807", `{"name": "x"}`, 404},
		{"POST", "/products", `{"price_cents": 5}`, 400},
		{"POST", "/products", `{"name": "x", "stock": -1}`, 400},
		{"DELETE", "/products/x", "", 400},
		{"PATCH", "/products/" + id, "", 405},
	} {
		s.want(c.method, c.path, c.body, c.status)
	}
	if a := s.want("GET", "/products", "", 400); !strings.Contains(string(a.body), "/products?ids=1,2") {
		t.Errorf("without ids: %s", a.body)
	}
	if p := s.product(id, ""); p.Version != 1 || p.Name != "fixed" {
		t.Errorf("refused requests have changed the row: %+v", p)
	}
}

// killed: without any node the service is slower, and that is all.
func killed(t *testing.T, dsn string) {
	nodes := redistest.StartNodes(t, 3)
	s := start(t, dsn, nodes, client.Config{})
	a, b := s.insert("a").ID, s.insert("b").ID
	s.batch(a, b)
	for _, n := range nodes {
		n.Kill()
	}
	s.reads(4, func() {
		s.product(a, "source")
		s.product(a, "source")
		if got := s.batch(a, b); len(got) != 2 {
			t.Fatalf("got %v", got)
		}
		s.want("PUT", "/products/"+a, `{"price_cents": 9}`, 200)
		if p := s.product(a, "source"); p.PriceCents != 9 {
			t.Fatalf("read %+v after writing 9", p)
		}
	})
	eventually(t, "the stats say why", func() bool {
		return strings.Contains(string(s.want("GET", "/stats", "", 200).body), `"LastError":"redisnode: node-0: TIME: `)
	})
	next := after(t, b)
	s.absent(next, "source")
	if got := s.insert("c").ID; got != next {
		t.Fatalf("inserted %s, want %s", got, next)
	}
	s.product(next, "source")
	s.want("DELETE", "/products/"+b, "", 204)
	s.absent(b, "source")
	if n := s.owed(); n != 3 {
		t.Errorf("%d invalidations wait for a node, want 3", n)
	}
	eventually(t, "health tells of the nodes", func() bool {
		return !bytes.Contains(s.want("GET", "/healthz", "", 200).body, []byte(`"node-0":"ok"`))
	})

	for _, n := range nodes {
		n.Restart()
	}
	eventually(t, "all invalidations sent", func() bool { return s.owed() == 0 })
	eventually(t, "L2 again", func() bool { return s.do("GET", "/products/"+a, "").cache == "L2" })
	if p := s.product(a, ""); p.PriceCents != 9 {
		t.Errorf("got %+v", p)
	}
	s.absent(b, "source")
}

// proxied are nodes that can go away and come back with all that they held.
func proxied(t *testing.T, n int) []*redistest.Proxy {
	t.Helper()
	var proxies []*redistest.Proxy
	for _, node := range redistest.StartNodes(t, n) {
		proxies = append(proxies, redistest.StartProxy(t, node.Addr()))
	}
	return proxies
}

// goDown is a node that is gone: nothing of what is sent from now on will reach it, not later either.
func goDown(p *redistest.Proxy) {
	p.Refuse()
	p.Reset()
}

// down: a node that misses an invalidation, and is back with the old row, is told of it then: no process goes on with that row.
func down(t *testing.T, dsn string) {
	nodes := proxied(t, 3)
	a, b := start(t, dsn, nodes, client.Config{}), start(t, dsn, nodes, client.Config{})
	id := a.insert("kept by a node").ID
	a.product(id, "source")
	b.product(id, "L2")
	owner := b.want("GET", "/products/"+id, "", 200).node
	i, err := strconv.Atoi(strings.TrimPrefix(owner, "node-"))
	if err != nil {
		t.Fatal(err)
	}
	goDown(nodes[i])
	a.want("PUT", "/products/"+id, `{"price_cents": 3}`, 200)
	if n := a.owed(); n != 1 || !a.log.has("it is repeated") {
		t.Errorf("%d invalidations are owed, want 1; the log has it: %v", n, a.log.has("it is repeated"))
	}
	if p := a.product(id, "source"); p.PriceCents != 3 {
		t.Fatalf("read %+v after writing 3", p)
	}
	// The database's answer is the caller's, and nothing but that.
	if refused := a.want("PUT", "/products/"+id, `{"price_cents": -1}`, 400); bytes.Contains(refused.body, []byte(owner)) {
		t.Errorf("a caller is told of a node: %s", refused.body)
	}
	nodes[i].Heal()
	eventually(t, "the other process has the new row from the node", func() bool {
		got := b.want("GET", "/products/"+id, "", 200)
		return got.cache == "L2" && parsed[Product](t, got).PriceCents == 3
	})
	eventually(t, "the invalidation sent", func() bool { return a.owed() == 0 })
	if p := a.product(id, ""); p.PriceCents != 3 {
		t.Fatalf("read %+v after writing 3", p)
	}
}

// full: where there is no room for one more, the write succeeds all the same, and the log says what that costs.
func full(t *testing.T, dsn string) {
	nodes := proxied(t, 1)
	s := start(t, dsn, nodes, client.Config{OutboxSize: 1})
	first, second := s.insert("first").ID, s.insert("second").ID
	goDown(nodes[0])
	s.want("PUT", "/products/"+first, `{"price_cents": 3}`, 200)
	if s.log.has("not repeated") {
		t.Error("there was room for one")
	}
	s.want("PUT", "/products/"+second, `{"price_cents": 3}`, 200)
	if !s.log.has(`"invalidation not repeated: old until the TTL" id=`+second) || s.owed() != 1 {
		t.Errorf("the log does not say that %s is not repeated; %d are owed, want 1", second, s.owed())
	}
	nodes[0].Heal()
	eventually(t, "the invalidation sent", func() bool { return s.owed() == 0 })
}

// overload: a database that is slower than what is asked of it makes for 503, not for a pile.
func overload(t *testing.T, dsn string) {
	s := start(t, dsn, redistest.StartNodes(t, 1), client.Config{MaxLoads: 1, LoadQueue: 1})
	var ids []string
	for range 6 {
		ids = append(ids, s.insert("wanted").ID)
	}
	tx, err := s.store.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE products IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	answers := make(chan answer, len(ids))
	for _, id := range ids {
		wg.Go(func() { answers <- s.do("GET", "/products/"+id, "") })
	}
	for range len(ids) - 2 { // one loads, one waits in the queue
		if a := <-answers; a.status != 503 || a.header.Get("Retry-After") != "1" {
			t.Errorf("got %d, Retry-After %q, want 503 and 1: %s", a.status, a.header.Get("Retry-After"), a.body)
		}
	}
	s.want("GET", "/healthz", "", 200)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for range 2 {
		if a := <-answers; a.status != 200 {
			t.Errorf("got %d: %s", a.status, a.body)
		}
	}
}
