// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package twin_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/internal/twin"
)

const trackers = 3

// wire is a connection to a server, of which every byte is seen.
type wire struct {
	net.Conn
	in *bufio.Reader
	id string
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Conn: c, in: bufio.NewReader(c)}
	t.Cleanup(func() { _ = c.Close() })
	w.until(t, "HELLO 3")
	w.id = strings.TrimPrefix(w.until(t, "CLIENT ID")[0], ":")
	return w
}

// until sends a command and a PING behind it, and returns all lines that come before the PING's answer.
func (w *wire) until(t *testing.T, command string) (lines []string) {
	t.Helper()
	_ = w.SetDeadline(time.Now().Add(20 * time.Second))
	if command != "" {
		command += "\r\n"
	}
	if _, err := fmt.Fprintf(w, "%sPING end-of-it\r\n", command); err != nil {
		t.Fatal(err)
	}
	for {
		l, err := w.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if l = strings.TrimRight(l, "\r\n"); l == "end-of-it" {
			return lines
		}
		lines = append(lines, l)
	}
}

// tracker is one client's two connections.
type tracker struct{ ear, fill *wire }

func (c *tracker) connect(t *testing.T, addr string) {
	t.Helper()
	c.ear, c.fill = dial(t, addr), dial(t, addr)
	if got := c.fill.until(t, "CLIENT TRACKING ON REDIRECT "+c.ear.id); got[0] != "+OK" {
		t.Fatal(got)
	}
}

// changes are commands that change the key, or would if it were there.
var changes = []struct {
	command string
	needs   bool // it is no change if the key is missing
}{{"SET k v", false}, {"SET k v PX 100000", false}, {"DEL k", true}, {"UNLINK k", true}, {"PEXPIRE k 99000", true}, {"PEXPIRE k -1", true}}

// The twin knows exactly who is told of what: every command's pushes, on every listener, between two PINGs of it. What it says of connections
// that the server closes is what nobody is told.
func TestTable(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	admin := dial(t, s.Addr())
	rng, table, there, met := rand.New(rand.NewPCG(1, 5)), twin.Table{}, false, seen{}
	var clients [trackers]tracker
	for i := range clients {
		clients[i].connect(t, s.Addr())
	}
	for n := range steps {
		i := rng.IntN(trackers)
		bit := uint8(1) << i
		var want uint8
		what := ""
		switch op := rng.IntN(20); {
		case op < 8 && table.NoFill&bit == 0:
			what = fmt.Sprintf("client %d reads, there: %t", i, there)
			clients[i].fill.until(t, "GET k")
			table.Get(i)
		case op < 16:
			c := changes[rng.IntN(len(changes))]
			what = c.command
			admin.until(t, c.command)
			if there || !c.needs {
				want = table.Change()
			}
			there = there && c.command == "PEXPIRE k 99000" || strings.HasPrefix(c.command, "SET")
		case op == 16 && table.NoFill&bit == 0:
			what = fmt.Sprintf("client %d's fill connection is closed", i)
			if table.Read&bit != 0 {
				met["what was read is forgotten"]++
			}
			kill(t, admin, clients[i].fill)
			table.KillFill(i)
		case op == 17 && table.NoListener&bit == 0:
			what = fmt.Sprintf("client %d's listener is closed", i)
			kill(t, admin, clients[i].ear)
			table.KillListener(i)
		case op == 18 && table.NoFill|table.NoListener != 0:
			what = fmt.Sprintf("client %d connects", i)
			_, _ = clients[i].ear.Close(), clients[i].fill.Close()
			clients[i].connect(t, s.Addr())
			table.Connect(i)
		}
		for i := range clients {
			if table.NoListener&(1<<i) != 0 {
				continue
			}
			got := strings.Count(strings.Join(clients[i].ear.until(t, ""), " "), "invalidate *1 $1 k")
			if got != int(want>>i&1) {
				t.Fatalf("step %d, %s: client %d was pushed %d times, the twin says %03b", n, what, i, got, want)
			}
			met[fmt.Sprint("pushed ", got)]++
		}
	}
	met.all(t, "pushed 0", "pushed 1", "what was read is forgotten")
}

// kill has the server close a connection, which waits for it.
func kill(t *testing.T, admin, w *wire) {
	t.Helper()
	if got := admin.until(t, "CLIENT KILL ID "+w.id); got[0] != ":1" {
		t.Fatal(got)
	}
	_ = w.SetDeadline(time.Now().Add(20 * time.Second))
	for {
		if _, err := w.in.ReadString('\n'); err != nil {
			return
		}
	}
}

// pushed are the names that a node has pushed.
type pushed struct {
	mu    sync.Mutex
	names map[string]int
}

func (p *pushed) push(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range names {
		p.names[n]++
	}
}

func (p *pushed) take(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.names[name]
	delete(p.names, name)
	return n
}

// trackedNode is a node with a Tracking.
type trackedNode struct {
	*redisnode.Node
	*pushed
	name string // of its connections
	now  *redisnode.Tracking
}

func startTracked(t *testing.T, addr, name string) *trackedNode {
	t.Helper()
	n := &trackedNode{pushed: &pushed{names: map[string]int{}}, name: name}
	var err error
	n.Node, err = redisnode.New(redisnode.Config{
		ID: "a", Addr: addr, Timeout: 20 * time.Second, Push: n.push, Options: func(o *redis.Options) { o.ClientName = name },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait(); _ = n.Close() })
	n.track(t)
	return n
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// track waits for a Tracking that is not the last one.
func (n *trackedNode) track(t *testing.T) {
	t.Helper()
	last := n.now
	eventually(t, "a Tracking", func() bool { n.now = n.Tracking(); return n.now != nil && n.now != last })
}

func (n *trackedNode) get(t *testing.T, key string) {
	t.Helper()
	if _, _, err := n.now.Get(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
}

// The same with the Tracking that the client uses, whose two fill connections are one client to the twin: whether Push is called for the key,
// and that a connection which the server closes ends the Tracking, since nobody is told of what it had read.
func TestTableByTracking(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	admin := dial(t, s.Addr())
	rng, table, there, met := rand.New(rand.NewPCG(2, 6)), twin.Table{}, false, seen{}
	var nodes [trackers]*trackedNode
	for i := range nodes {
		nodes[i] = startTracked(t, s.Addr(), fmt.Sprint("node", i))
	}
	for n := range 400 {
		i := rng.IntN(trackers)
		var want uint8
		what := ""
		switch op := rng.IntN(40); {
		case op < 20:
			what = fmt.Sprintf("node %d reads, there: %t", i, there)
			nodes[i].get(t, "k")
			table.Get(i)
		case op == 39:
			what = fmt.Sprintf("a connection of node %d is closed", i)
			loseOne(t, admin, nodes[i], rng)
			table.Connect(i)
			met["lost"]++
		default:
			c := changes[rng.IntN(len(changes))]
			what = c.command
			admin.until(t, c.command)
			if there || !c.needs {
				want = table.Change()
			}
			there = there && c.command == "PEXPIRE k 99000" || strings.HasPrefix(c.command, "SET")
		}
		fence := fmt.Sprint("fence", n) // its push stands behind all others
		for _, n := range nodes {
			n.get(t, fence)
		}
		admin.until(t, "SET "+fence+" v")
		for i, node := range nodes {
			eventually(t, what+": the fence is pushed", func() bool { return node.take(fence) > 0 })
			got := node.take("k")
			if got > 0 != (want>>i&1 > 0) {
				t.Fatalf("step %d, %s: node %d was pushed %d times, the twin says %03b", n, what, i, got, want)
			}
			met[fmt.Sprint("pushed ", min(got, 1))]++
		}
	}
	met.all(t, "pushed 0", "pushed 1", "lost")
}

// loseOne has the server close one of a node's tracking connections, and waits for the next Tracking.
func loseOne(t *testing.T, admin *wire, n *trackedNode, rng *rand.Rand) {
	t.Helper()
	fill, listener := 0, 0
	for _, l := range admin.until(t, "CLIENT LIST") {
		fields := map[string]string{}
		for f := range strings.FieldsSeq(l) {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		id, _ := strconv.Atoi(fields["id"])
		redirect, _ := strconv.Atoi(fields["redir"])
		if fields["name"] == n.name && redirect > 0 && id > fill { // the last one: others may be on their way out
			fill, listener = id, redirect
		}
	}
	victim := []int{fill, listener}[rng.IntN(2)]
	if got := admin.until(t, fmt.Sprint("CLIENT KILL ID ", victim)); got[0] != ":1" {
		t.Fatalf("%s, connection %d: %s", n.name, victim, got)
	}
	lost := n.now
	n.track(t)
	if !lost.Over() || lost.Fresh(time.Now()) {
		t.Error("a Tracking that has lost a connection is not over")
	}
}
