// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

func TestCutAfterToClient(t *testing.T) {
	s, p, _ := behind(t)
	set(t, s, "k", strings.Repeat("v", 1000))
	conn := raw(t, p.Addr())
	p.ToClient().CutAfter(10)
	send(t, conn, "GET k\r\n")
	if got, err := io.ReadAll(conn); err != nil || string(got) != "$1000\r\nvvv" {
		t.Errorf("%q, %v", got, err)
	}
	eventually(t, "the server to lose the client", func() bool { return clients(t, s) == 0 })

	// The count of a new connection is its own.
	conn, err := dial(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	send(t, conn, "ECHO 0123456789\r\n")
	if got, err := io.ReadAll(conn); err != nil || string(got) != "$10\r\n01234" {
		t.Errorf("%q, %v", got, err)
	}
	p.Heal()
	raw(t, p.Addr())
}

func TestCutAfterToServer(t *testing.T) {
	s, p, _ := behind(t)
	conn := raw(t, p.Addr())
	p.ToServer().CutAfter(len("SET k v\r\nSET k "))
	send(t, conn, "SET k v\r\nSET k new\r\n")
	if got, err := io.ReadAll(conn); err != nil || len(got) > len("+OK\r\n") { // the first answer may be overtaken
		t.Errorf("%q, %v", got, err)
	}
	eventually(t, "the server to lose the client", func() bool { return clients(t, s) == 0 })
	if got := get(t, s, "k"); got != "v" {
		t.Errorf("k = %q: the command that was cut ran", got)
	}
}

func TestCutAfterZeroHangsUp(t *testing.T) {
	_, p, _ := behind(t)
	old := raw(t, p.Addr())
	p.New().CutAfter(0)
	fresh, err := dial(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a new connection: %v", err)
	}
	ask(t, old, "PING", 7)
	p.Heal()
	p.Existing().CutAfter(0)
	raw(t, p.Addr()) // a later one is not hit
	if _, err := old.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an existing connection: %v", err)
	}
}

func TestReset(t *testing.T) {
	s, p, c := behind(t)
	conn := raw(t, p.Addr())
	ping(t, c)
	p.Only(func(c *redistest.ProxyConn) bool { return c.Index() == 0 }).Reset()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
	if n := len(p.Conns()); n != 1 {
		t.Errorf("%d open", n)
	}
	eventually(t, "the server to lose the client", func() bool { return clients(t, s) == 1 })
	ping(t, c)
	p.Reset()
	if n := len(p.Conns()); n != 0 {
		t.Errorf("%d open", n)
	}
	raw(t, p.Addr()) // a new one works
}

func TestBlackHole(t *testing.T) {
	s, p, _ := behind(t)
	old := raw(t, p.Addr())
	p.BlackHole()
	send(t, old, "INCR n\r\n")
	fresh, err := dial(p.Addr())
	if err != nil {
		t.Fatalf("a new connection: %v", err)
	}
	send(t, fresh, "INCR n\r\n")
	if !silent(t, old) || !silent(t, fresh) {
		t.Error("something came out of a black hole")
	}
	if n, v := clients(t, s), get(t, s, "n"); n != 1 || v != "" {
		t.Errorf("%d connections, n = %q: the server saw something", n, v)
	}
	p.Heal() // the network is back: nothing is lost
	for _, conn := range []net.Conn{old, fresh} {
		if _, err := io.ReadFull(conn, make([]byte, len(":1\r\n"))); err != nil {
			t.Error(err)
		}
	}
	if v := get(t, s, "n"); v != "2" {
		t.Errorf("n = %q", v)
	}
}

func TestBlackHoleOfAnswersOnly(t *testing.T) {
	s, p, _ := behind(t)
	conn := raw(t, p.Addr())
	p.ToClient().BlackHole()
	send(t, conn, "INCR n\r\n")
	eventually(t, "the command to run", func() bool { return get(t, s, "n") == "1" })
	if !silent(t, conn) {
		t.Error("an answer")
	}
}

func TestResetLosesWhatABlackHoleHeld(t *testing.T) {
	s, p, _ := behind(t)
	conn := raw(t, p.Addr())
	p.BlackHole()
	send(t, conn, "INCR n\r\n")
	eventually(t, "the proxy to have it", func() bool { return p.Conns()[0].Sent("INCR") })
	p.Reset()
	p.Heal()
	raw(t, p.Addr())
	if v := get(t, s, "n"); v != "" {
		t.Errorf("n = %q", v)
	}
}

func TestRefuse(t *testing.T) {
	_, p, _ := behind(t)
	old := raw(t, p.Addr())
	addr := p.Addr()
	for range 3 {
		p.Refuse()
		p.Refuse() // does nothing more
		if conn, err := dial(addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial = %v, %v", conn, err)
		}
		ask(t, old, "PING", 7)
		p.Heal()
		p.Heal()
		raw(t, addr)
	}
}

// Two clients on the same server: only the one that said who it is is hit.
func TestOnlyPicksByWhatTheClientSent(t *testing.T) {
	_, p, writer := behind(t)
	reader := through(t, p.Addr(), "Reader")
	ping(t, writer)
	ping(t, reader)
	isReader := func(c *redistest.ProxyConn) bool { return c.Sent("client", "setname", "reader") }
	p.Only(isReader).ToServer().BlackHole()
	ping(t, writer)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := reader.Ping(ctx).Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the reader's PING: %v", err)
	}
	p.Only(func(c *redistest.ProxyConn) bool { return c.Index() < 0 }).Only(isReader).Heal() // none is both
	another := through(t, p.Addr(), "reader")                                                // a later one is hit too
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := another.Ping(ctx).Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new reader's PING: %v", err)
	}
	p.Only(isReader).Heal()
	ping(t, through(t, p.Addr(), "reader"))
}

// The fault takes hold with the bytes that make the connection belong to it.
func TestOnlyHitsFromTheCommandOn(t *testing.T) {
	s, p, _ := behind(t)
	p.Only(func(c *redistest.ProxyConn) bool { return c.Sent("SUBSCRIBE") }).BlackHole()
	conn := raw(t, p.Addr())
	for range 2 {
		ask(t, conn, "PING", 7)
	}
	send(t, conn, "SUBSCRIBE news\r\n")
	if !silent(t, conn) {
		t.Error("an answer to SUBSCRIBE")
	}
	if v, err := s.Do(t.Context(), "PUBSUB", "NUMSUB", "news"); err != nil || fmt.Sprint(v) != "[news 0]" {
		t.Errorf("NUMSUB = %v, %v", v, err)
	}
	first := p.Conns()[0].First()
	if want := "PING\r\nPING\r\nPING\r\nSUBSCRIBE news\r\n"; string(first) != want {
		t.Errorf("First = %q", first)
	}
}

func TestFirstIsBounded(t *testing.T) {
	_, p, _ := behind(t)
	conn := raw(t, p.Addr())
	word := strings.Repeat("x", 3000)
	for range 3 {
		ask(t, conn, "ECHO "+word, len(word)+9)
	}
	if n := len(p.Conns()[0].First()); n != 4<<10 {
		t.Errorf("%d bytes", n)
	}
}
