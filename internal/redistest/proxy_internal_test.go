// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The link takes the time as an argument, so its arithmetic is tested without
// waiting.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func queued(l *link, at time.Duration, text string) {
	l.push(chunk{data: []byte(text), arrived: after(at), luck: rand.Float64()})
}

func nothing(chunk) {}

// taken runs next until it would wait, as a goroutine at that time would.
func taken(l *link, at time.Duration) (text string, end ending, wait time.Duration) {
	for {
		piece, end, wait := l.next(after(at), nothing)
		if piece == nil {
			return text, end, wait
		}
		text += string(piece)
	}
}

func TestLinkPassesAtOnceWithoutFaults(t *testing.T) {
	l := newLink()
	queued(l, 0, "ab")
	queued(l, 0, "c")
	l.push(chunk{arrived: start, end: finish})
	if text, end, _ := taken(l, 0); text != "abc" || end != finish || l.count() != 3 {
		t.Errorf("%q, ending %d, %d passed", text, end, l.count())
	}
}

// Two chunks that came in within the delay are delivered that far apart, not one
// delay after the other; an ending is delayed too.
func TestLinkDelaysDoNotAddUp(t *testing.T) {
	l := newLink()
	l.set(faults{delay: 10 * time.Millisecond}, start)
	queued(l, 0, "a")
	queued(l, 3*time.Millisecond, "b")
	l.push(chunk{arrived: after(4 * time.Millisecond), end: finish})
	for _, c := range []struct {
		at, wait time.Duration
		want     string
	}{{9 * time.Millisecond, time.Millisecond, ""}, {10 * time.Millisecond, 3 * time.Millisecond, "a"}, {13 * time.Millisecond, time.Millisecond, "b"}} {
		if text, end, wait := taken(l, c.at); text != c.want || end != open || wait != c.wait {
			t.Errorf("at %v: %q, ending %d, wait %v; want %q, wait %v", c.at, text, end, wait, c.want, c.wait)
		}
	}
	if _, end, _ := taken(l, 14*time.Millisecond); end != finish {
		t.Errorf("ending %d", end)
	}
}

func TestLinkJitterKeepsTheOrder(t *testing.T) {
	l := newLink()
	l.set(faults{delay: time.Millisecond, jitter: 50 * time.Millisecond}, start)
	var want, got string
	for i := range 200 {
		word := fmt.Sprint(i, " ")
		want += word
		queued(l, time.Duration(i)*time.Millisecond, word)
	}
	var gaps []time.Duration
	for at := time.Duration(0); got != want && at < time.Second; at += time.Millisecond {
		text, _, _ := taken(l, at)
		if text != "" {
			gaps = append(gaps, at)
		}
		got += text
	}
	if got != want {
		t.Errorf("got %q", got)
	}
	if len(gaps) > 150 || len(gaps) < 5 { // without jitter there are 200
		t.Errorf("%d moments of delivery: no jitter", len(gaps))
	}
}

func TestLinkBandwidth(t *testing.T) {
	cases := []struct {
		name  string
		rate  int64
		bytes int
		want  time.Duration
	}{
		{"fast", 1000, 500, 500 * time.Millisecond},
		{"one byte a second", 1, 3, 3 * time.Second},
		{"slower than its pieces", 30, 60, 2 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLink()
			// The chunk waited in a black hole for an hour, which buys nothing.
			l.set(faults{hole: true}, start)
			queued(l, 0, strings.Repeat("x", c.bytes))
			l.set(faults{rate: c.rate}, after(time.Hour))
			at := time.Hour
			for l.count() < int64(c.bytes) {
				piece, _, wait := l.next(after(at), nothing)
				if len(piece) > max(1, int(c.rate/pacesPerSecond)) {
					t.Fatalf("a piece of %d bytes", len(piece))
				}
				at += wait
			}
			if took := at - time.Hour; took < c.want-time.Millisecond || took > c.want+time.Millisecond {
				t.Errorf("took %v, want %v", took, c.want)
			}
		})
	}
}

func TestLinkCut(t *testing.T) {
	l := newLink()
	queued(l, 0, "before")
	if text, _, _ := taken(l, 0); text != "before" {
		t.Fatal(text)
	}
	l.set(faults{cutRule: 1, cutAfter: 4}, start)
	queued(l, 0, "ab")
	if text, _, _ := taken(l, 0); text != "ab" {
		t.Fatal(text)
	}
	queued(l, 0, "c")
	queued(l, 0, "def")
	l.set(faults{cutRule: 1, cutAfter: 4, delay: 1}, start) // the same cut goes on counting
	if text, end, _ := taken(l, time.Second); text != "cd" || end != cut {
		t.Errorf("%q, ending %d", text, end)
	}
	l = newLink()
	l.set(faults{cutRule: 1, hole: true}, start)
	if _, end, _ := taken(l, 0); end != cut || l.holed() {
		t.Errorf("cut after 0 in a black hole: ending %d", end)
	}
}

func TestLinkBlackHoleHoldsBack(t *testing.T) {
	l := newLink()
	l.set(faults{hole: true}, start)
	queued(l, 0, "late")
	l.push(chunk{arrived: start, end: reset})
	if text, end, wait := taken(l, time.Hour); text != "" || end != open || wait != forever {
		t.Errorf("%q, ending %d, wait %v", text, end, wait)
	}
	l.set(faults{}, after(time.Hour))
	if text, end, _ := taken(l, time.Hour); text != "late" || end != reset {
		t.Errorf("%q, ending %d", text, end)
	}
}

func TestLinkIsBounded(t *testing.T) {
	for _, size := range []int{1, readBytes} {
		l := newLink()
		n, data := 0, make([]byte, size)
		for l.push(chunk{data: data, arrived: start}) {
			n++
		}
		if got, want := n, linkBytes/(size+chunkCost); got != want {
			t.Errorf("%d chunks of %d bytes, want %d", got, size, want)
		}
		if text, _, _ := taken(l, 0); len(text) != n*size || l.held != 0 {
			t.Errorf("%d bytes taken, then %d held", len(text), l.held)
		}
		for l.push(chunk{data: data, arrived: start}) {
		}
		if !l.push(chunk{arrived: start, end: finish}) {
			t.Error("no room for the ending")
		}
		select {
		case <-l.room:
		default:
			t.Error("nobody is told that there is room")
		}
	}
}

// A connection that was accepted just before the proxy was told to refuse, and
// looked at just after, is refused too: nothing new is there once Refuse returns.
func TestRefuseIsFinal(t *testing.T) {
	p := StartProxy(t, "127.0.0.1:1")
	p.mu.Lock()
	listener := p.listener
	p.mu.Unlock()
	p.Refuse()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // a test's listener
	client, err := net.Dial("tcp", other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // a test's connection
	conn, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.adopt(listener, conn.(*net.TCPConn))
	if n := p.Accepted(); n != 0 {
		t.Errorf("%d accepted", n)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
}

func TestRules(t *testing.T) {
	some := func(*ProxyConn) bool { return true }
	var rules []rule
	p := &Proxy{report: func(err error) { t.Error(err) }}
	every := Traffic{proxy: p, dirs: bothDirections}
	kinds := func() (k []ruleKind) {
		for _, r := range p.rules {
			k = append(k, r.kind)
		}
		return k
	}
	for range 3 { // the same fault again and again is one rule
		every.Delay(1, 1)
		every.BlackHole()
	}
	every.ToClient().Delay(2, 0)
	every.Only(some).Heal()
	if got, want := kinds(), []ruleKind{delayRule, holeRule, delayRule, healRule}; !slices.Equal(got, want) {
		t.Errorf("rules %v, want %v", got, want)
	}
	every.Delay(3, 0)
	if got, want := kinds(), []ruleKind{holeRule, healRule, delayRule}; !slices.Equal(got, want) {
		t.Errorf("rules %v, want %v", got, want)
	}
	every.Heal()
	if rules = p.rules; len(rules) != 0 {
		t.Errorf("rules %v after Heal", rules)
	}
}

func TestParseCommands(t *testing.T) {
	cases := []struct {
		name, stream, want string
		used               int
		fails              bool
	}{
		{"none", "", "[]", 0, false},
		{"two", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n", "[[GET k] [PING]]", 34, false},
		{"inline", "PING\r\n\r\nget k\n", "[[PING] [get k]]", 14, false},
		{"binary and empty arguments", "*3\r\n$1\r\nA\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n", "[[A  \r\n*1]]", 27, false},
		{"incomplete length", "*1\r\n$4\r\nPING\r\n*1\r\n$4", "[[PING]]", 14, false},
		{"incomplete argument", "*1\r\n$4\r\nPING\r", "[]", 0, false},
		{"no command", "*1\r\n$4\r\nPING\r\n$3\r\nfoo\r\n", "[[PING]]", 14, true},
		{"no length", "*1\r\n+OK\r\n", "[]", 0, true},
		{"negative length", "*1\r\n$-1\r\n", "[]", 0, true},
		{"a length beyond any server's", "*1\r\n$9999999999\r\n", "[]", 0, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			commands, used, err := parseCommands([]byte(c.stream))
			if fmt.Sprint(commands) != c.want || used != c.used || (err != nil) != c.fails {
				t.Errorf("%v, %d used, %v; want %s, %d", commands, used, err, c.want, c.used)
			}
		})
	}
}
