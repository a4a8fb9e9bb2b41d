// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-shelf/shelf/internal/redistest"
)

// behind starts a server, a proxy before it, and a client of the proxy.
func behind(tb testing.TB) (*redistest.Server, *redistest.Proxy, *redis.Client) {
	tb.Helper()
	s := redistest.Start(tb, redistest.Config{})
	p := redistest.StartProxy(tb, s.Addr())
	return s, p, through(tb, p.Addr(), "")
}

// through is a client of one connection at most, which gives up after 10 s.
func through(tb testing.TB, addr, name string) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, ClientName: name, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	tb.Cleanup(func() { c.Close() })
	return c
}

func ping(tb testing.TB, c *redis.Client) time.Duration {
	tb.Helper()
	began := time.Now()
	if err := c.Ping(tb.Context()).Err(); err != nil {
		tb.Fatal(err)
	}
	return time.Since(began)
}

// raw is a bare connection, on which the server has answered once.
func raw(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		tb.Fatal(err)
	}
	if got := ask(tb, conn, "PING", len("+PONG\r\n")); got != "+PONG\r\n" {
		tb.Fatalf("PING = %q", got)
	}
	return conn.(*net.TCPConn)
}

func send(tb testing.TB, conn net.Conn, text string) {
	tb.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		tb.Fatal(err)
	}
}

// ask sends a line and reads an answer of n bytes.
func ask(tb testing.TB, conn net.Conn, line string, n int) string {
	tb.Helper()
	send(tb, conn, line+"\r\n")
	reply := make([]byte, n)
	if _, err := io.ReadFull(conn, reply); err != nil {
		tb.Fatal(err)
	}
	return string(reply)
}

// silent reports whether nothing at all comes from the connection for a while.
func silent(tb testing.TB, conn net.Conn) bool {
	tb.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		tb.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		tb.Fatal(err)
	}
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// clients is how many connections the server has beside the one that asks.
func clients(tb testing.TB, s *redistest.Server) int {
	tb.Helper()
	list, err := s.Do(tb.Context(), "CLIENT", "LIST")
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Count(list.(string), "\n") - 1
}

func TestProxyPassesBytesUnchanged(t *testing.T) {
	s, p, c := behind(t)
	value := make([]byte, 3<<20)
	for i := range value {
		value[i] = byte(i * i >> 3)
	}
	if err := c.Set(t.Context(), "k", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), "k").Bytes()
	if err != nil || !bytes.Equal(got, value) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	conns := p.Conns()
	if len(conns) != 1 || p.Accepted() != 1 || conns[0].Index() != 0 {
		t.Fatalf("%v", p)
	}
	for _, d := range []redistest.Direction{redistest.ToServer, redistest.ToClient} {
		if n := conns[0].Passed(d); n < 3<<20 || n > 3<<20+1000 {
			t.Errorf("%d bytes %v", n, d)
		}
	}
	for _, part := range []string{p.Addr(), s.Addr(), "1 open", `"hello 3`} {
		if !strings.Contains(p.String(), part) {
			t.Errorf("%q is not in %q", part, p)
		}
	}
	if p.Target() != s.Addr() {
		t.Errorf("Target = %s", p.Target())
	}
}

// The end of a stream passes in order, behind what was sent before it, and a
// reset as a reset.
func TestProxyPassesEndings(t *testing.T) {
	s, p, _ := behind(t)
	conn := raw(t, p.Addr())
	p.ToClient().Delay(20*time.Millisecond, 0) // the answer is under way when the client's end passes
	send(t, conn, "ECHO last\r\n")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "$4\r\nlast\r\n" {
		t.Errorf("%q, %v", got, err)
	}

	p.Heal()
	conn = raw(t, p.Addr())
	if got := ask(t, conn, "QUIT", 5); got != "+OK\r\n" {
		t.Error(got)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the server hung up: %v", err)
	}
	conn.Close()

	conn = raw(t, p.Addr())
	if err := conn.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	eventually(t, "the server to lose the clients", func() bool { return clients(t, s) == 0 })
	eventually(t, "no open connection", func() bool { return len(p.Conns()) == 0 })

	conn = raw(t, p.Addr())
	s.Kill()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("no end after the server was killed")
	}
	conn, err := dial(p.Addr())
	if err == nil { // else the reset was faster
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("before a dead server: %v", err)
	}
}

func TestProxyPassesAReset(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p := redistest.StartProxy(t, server.Addr().String())
	for _, d := range []redistest.Direction{redistest.ToServer, redistest.ToClient} {
		client, err := dial(p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		accepted, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		from, to := client, accepted.(*net.TCPConn)
		if d == redistest.ToClient {
			from, to = to, from
		}
		if err := errors.Join(from.SetLinger(0), from.Close(), to.SetDeadline(time.Now().Add(20*time.Second))); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: %v, want a reset", d, err)
		}
	}
}

func dial(addr string) (*net.TCPConn, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), conn.SetDeadline(time.Now().Add(20 * time.Second))
}

func TestRecord(t *testing.T) {
	_, p, c := behind(t)
	ping(t, c)
	r := p.Record()
	if err := c.Set(t.Context(), "k", strings.Repeat("v", 100_000), 0).Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := c.Get(t.Context(), strconv.Itoa(i)).Err(); !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	if n := r.Count("get"); n != 20 || r.Count() != 21 || r.Count("SET", "k") != 1 {
		t.Errorf("%d GET of %d", n, r.Count())
	}
	commands := r.Commands()
	if first := commands[0]; first.Conn != 0 || len(first.Args) != 3 || len(first.Args[2]) != 100_000 || !first.Is("SET", "K") {
		t.Errorf("%.100v", first)
	}
	var answers string
	for _, got := range r.Passages() {
		if got.Passed.Before(got.Arrived) {
			t.Errorf("passed at %v, arrived at %v", got.Passed, got.Arrived)
		}
		if got.Direction == redistest.ToClient {
			answers += string(got.Data)
		}
	}
	if want := "+OK\r\n" + strings.Repeat("_\r\n", 20); answers != want {
		t.Errorf("answers %q", answers)
	}
	r.Stop()
	ping(t, c)
	if n := r.Count(); n != 21 {
		t.Errorf("%d commands after Stop", n)
	}
}

// What is held back has not passed; when it passes its time shows the delay.
func TestRecordHasWhatPassed(t *testing.T) {
	_, p, _ := behind(t)
	conn := raw(t, p.Addr())
	r := p.Record()
	p.BlackHole()
	send(t, conn, "INCR n\r\nINC")
	if !silent(t, conn) || r.Count() != 0 || len(r.Passages()) != 0 {
		t.Errorf("passed a black hole: %v", r.Passages())
	}
	p.Heal()
	if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if n := r.Count("INCR", "n"); n != 1 || len(r.Commands()) != 1 {
		t.Errorf("%v", r.Commands())
	}
	if got := r.Passages()[0]; got.Passed.Sub(got.Arrived) < 50*time.Millisecond {
		t.Errorf("arrived %v, passed %v", got.Arrived, got.Passed)
	}
	if got := ask(t, conn, "R n", 4); got != ":2\r\n" || r.Count("INCR") != 2 {
		t.Errorf("%q, %v", got, r.Commands())
	}
}

func TestFailedStepsOfAProxy(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	cases := []struct {
		name, want string
		step       func(*testing.T, *redistest.Proxy)
	}{
		{"delay", "delay proxy 127.0.0.1:", func(_ *testing.T, p *redistest.Proxy) { p.Delay(-1, 0) }},
		{"jitter", "argument -2: must not be negative", func(_ *testing.T, p *redistest.Proxy) { p.Delay(0, -2) }},
		{"delay some", "argument -1: must not be negative", func(_ *testing.T, p *redistest.Proxy) { p.DelaySome(1.1, 0) }},
		{"delay some by less than nothing", "delay some proxy", func(_ *testing.T, p *redistest.Proxy) { p.DelaySome(0.5, -1) }},
		{"bandwidth", "bandwidth proxy", func(_ *testing.T, p *redistest.Proxy) { p.Bandwidth(-1) }},
		{"cut", "cut after proxy", func(_ *testing.T, p *redistest.Proxy) { p.CutAfter(-1) }},
		{"heal when closed", "closed", func(t *testing.T, p *redistest.Proxy) {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			p.Heal()
		}},
		{"no command", "connection 0: \"!!!\" is not the beginning of a command", func(t *testing.T, p *redistest.Proxy) {
			conn := raw(t, p.Addr())
			r := p.Record()
			send(t, conn, "!!!\r\n")
			eventually(t, "bytes to pass", func() bool { return len(r.Passages()) > 0 })
			if got := r.Commands(); len(got) != 0 {
				t.Error(got)
			}
		}},
		{"recording too large", "more than 33554432 bytes", func(t *testing.T, p *redistest.Proxy) {
			r := p.Record()
			c := through(t, p.Addr(), "")
			for range 9 {
				if err := c.Set(t.Context(), "k", make([]byte, 4<<20), 0).Err(); err != nil {
					t.Error(err)
				}
			}
			eventually(t, "the failure", func() bool { return p.Err() != nil })
			if n := r.Count("SET"); n != 7 {
				t.Errorf("%d commands of 4 MiB fit", n)
			}
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := redistest.LaunchProxy(s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			c.step(t, p)
			if err := p.Err(); err == nil || !strings.HasPrefix(err.Error(), "redistest: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Err = %v, want %q", err, c.want)
			}
			if err := p.Close(); err == nil {
				t.Error("Close does not say so")
			}
		})
	}
	if p, err := redistest.LaunchProxy("nowhere"); err == nil || !strings.Contains(err.Error(), `"nowhere" must be host:port`) {
		t.Errorf("LaunchProxy = %v, %v", p, err)
	}
}

// A server that reads nothing slows the client down, and so does a black hole:
// the proxy does not swallow without end.
func TestProxyIsBounded(t *testing.T) {
	s, p, _ := behind(t)
	const limit = 64 << 20
	cases := map[string]func(){"hung server": s.Stop, "black hole": p.BlackHole}
	for name, fault := range cases {
		t.Run(name, func(t *testing.T) {
			conn := raw(t, p.Addr())
			fault()
			defer s.Cont()
			defer p.Heal()
			n, piece := 0, make([]byte, 256<<10)
			for err := error(nil); err == nil && n < limit; {
				if err := conn.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				var written int
				written, err = conn.Write(piece)
				n += written
			}
			if n < 1<<20 || n > 32<<20 {
				t.Errorf("%d bytes went in", n)
			}
			p.Reset()
		})
	}
}

// Whatever state a test leaves its proxy in, nothing remains of it.
func TestNothingIsLeftOfAProxy(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	for name, enter := range map[string]func(*redistest.Proxy){
		"healthy": func(*redistest.Proxy) {}, "black hole": func(p *redistest.Proxy) { p.BlackHole() },
		"late": func(p *redistest.Proxy) { p.Delay(time.Hour, 0) }, "refusing": (*redistest.Proxy).Refuse,
		"slow": func(p *redistest.Proxy) { p.Bandwidth(1) },
	} {
		t.Run(name, func(t *testing.T) {
			p, err := redistest.LaunchProxy(s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			conn := raw(t, p.Addr())
			enter(p)
			send(t, conn, "PING\r\n")
			if name != "refusing" {
				if _, err := dial(p.Addr()); err != nil {
					t.Error(err)
				}
			}
			stacks := make([]byte, 1<<20)
			err = p.Close()
			stacks = stacks[:runtime.Stack(stacks, true)]
			if err := errors.Join(err, p.Close()); err != nil {
				t.Error(err)
			}
			if conn, err := dial(p.Addr()); err == nil {
				t.Errorf("dial = %v", conn)
			}
			for _, method := range []string{"(*ProxyConn).", "(*Proxy).accept"} {
				if bytes.Contains(stacks, []byte(method)) {
					t.Errorf("a goroutine is left in %s", method)
				}
			}
			if n := len(p.Conns()); n != 0 {
				t.Errorf("%d open", n)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the client's connection is still open")
			}
		})
	}
	eventually(t, "the server to lose the clients", func() bool { return clients(t, s) == 0 })
}
