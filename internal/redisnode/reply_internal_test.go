// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"
)

func wireOf(reply string) *wire {
	return &wire{r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(reply)), bufferSize)}
}

// Every form in which a server may answer a GET. "nil" is a missing key; an empty value is not.
func TestValues(t *testing.T) {
	long := strings.Repeat("x", 3*bufferSize)
	for _, c := range []struct{ reply, want, wrong string }{
		{"$2\r\nab\r\n", "ab", ""},
		{"$0\r\n\r\n", "", ""},
		{"$-1\r\n", "nil", ""},
		{"_\r\n", "nil", ""},
		{"$49152\r\n" + long + "\r\n", long, ""},
		{">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n$1\r\nv\r\n", "v", ""},
		{">3\r\n+a\r\n%1\r\n:1\r\n#t\r\n_\r\n>1\r\n,1.5\r\n$1\r\nv\r\n", "v", ""},
		{"-WRONGTYPE Operation against a key\r\n", "", "WRONGTYPE Operation against a key"},
		{"$2\r\nabc\r\n", "", "the end of a value"},
		{"$2\r\na", "", io.ErrUnexpectedEOF.Error()},
		{"$2\r\nab", "", io.ErrUnexpectedEOF.Error()},
		{"", "", io.EOF.Error()},
		{":1\r\n", "", "must be a value"},
		{"$x\r\n", "", "must be a value"},
		{"$\r\n", "", "must be"},
		{"\r\n", "", "must be a reply"},
		{"$1\n", "", "must be a reply"},
		{"$99999999999999999999\r\n", "", "must be a value"},
		{"$9999999999\r\n", "", "must be a value of at most"},
		{">x\r\n", "", "must be a push"},
		{">1\r\n?\r\n", "", "must be a"},
		{strings.Repeat("a", 2*bufferSize), "", bufio.ErrBufferFull.Error()},
	} {
		v, err := wireOf(c.reply).value(largest)
		got := string(v)
		if v == nil && err == nil {
			got = "nil"
		}
		switch {
		case c.wrong == "" && (err != nil || got != c.want):
			t.Errorf("%.40q: got %.40q, %v", c.reply, got, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%.40q: got %.40q, %v; want an error with %q", c.reply, got, err, c.wrong)
		}
	}
}

func TestListsOfValues(t *testing.T) {
	for _, c := range []struct{ reply, want, wrong string }{
		{"*3\r\n$1\r\na\r\n$-1\r\n$0\r\n\r\n", "a,nil,", ""},
		{">1\r\n+hello\r\n*3\r\n_\r\n$1\r\nb\r\n_\r\n", "nil,b,nil", ""},
		{"*2\r\n$1\r\na\r\n$1\r\nb\r\n", "", "must be a list of 3 values"},
		{"$1\r\na\r\n", "", "must be a list of 3 values"},
		{"*3\r\n$1\r\na\r\n", "", io.EOF.Error()},
		{"-LOADING Redis is loading\r\n", "", "LOADING"},
	} {
		into := make([][]byte, 3)
		err := wireOf(c.reply).values(into)
		var parts []string
		for _, v := range into {
			if v == nil {
				parts = append(parts, "nil")
			} else {
				parts = append(parts, string(v))
			}
		}
		switch got := strings.Join(parts, ","); {
		case c.wrong == "" && (err != nil || got != c.want):
			t.Errorf("%q: got %q, %v", c.reply, got, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%q: got %q, %v; want an error with %q", c.reply, got, err, c.wrong)
		}
	}
}

// After an error reply the connection goes on, unless the server has said that it will hang up.
func TestReplied(t *testing.T) {
	for reply, want := range map[string]bool{"-ERR no\r\n": true, "-ERR\r\n": true, "-ERR Protocol error: too big mbulk count\r\n": false, "-NOAUTH Authentication required.\r\n": false} {
		_, err := wireOf(reply).value(1)
		if replied(&Error{Err: err}) != want {
			t.Errorf("%q: %v, want %t", reply, err, want)
		}
	}
	if replied(io.EOF) || replied(errors.New("ERR no")) {
		t.Error("what is no reply is taken for one")
	}
}

// A server that announces half a gigabyte and sends nothing costs no half gigabyte.
func TestAnnouncedLengthIsNotBelieved(t *testing.T) {
	w := wireOf("$536870912\r\nabc")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := w.value(largest); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*pieces {
		t.Errorf("%d bytes were allocated for 3 that came", took)
	}
}

// What comes in several pieces is put together.
func TestLongValue(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), (3*pieces+5)/16+1)
	w := &wire{r: bufio.NewReaderSize(io.MultiReader(strings.NewReader("$12582928\r\n"), bytes.NewReader(long[:12582928]), strings.NewReader("\r\n$1\r\na\r\n")), bufferSize)}
	v, err := w.value(largest)
	if err != nil || !bytes.Equal(v, long[:12582928]) {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if next, err := w.value(largest); string(next) != "a" || err != nil {
		t.Errorf("then %q, %v", next, err)
	}
}

// A push may hold lists in lists: however deep, they cost no stack.
func TestDeepPush(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(32 << 20))
	v, err := wireOf(">1\r\n" + strings.Repeat("*1\r\n", 1<<20) + ":1\r\n$1\r\nv\r\n").value(largest)
	if string(v) != "v" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	for _, push := range []string{">9223372036854775807\r\n", ">1\r\n%4611686018427387904\r\n", ">2000000\r\n", ">1\r\n$9223372036854775807\r\n"} {
		if v, err := wireOf(push + "$1\r\nv\r\n").value(largest); err == nil {
			t.Errorf("%q: got %q", push, v)
		}
	}
}

// FuzzReply: whatever a server sends, a read ends, and what it takes for a value was in it.
func FuzzReply(f *testing.F) {
	f.Add("*1\r\n$1\r\na\r\n")
	f.Add(">1\r\n*1\r\n%1\r\n+a\r\n:1\r\n*1\r\n_\r\n")
	f.Add("-ERR\r\n")
	f.Fuzz(func(t *testing.T, reply string) {
		into := make([][]byte, 1)
		if err := wireOf(reply).values(into); err == nil && !strings.Contains(reply, string(into[0])) {
			t.Errorf("%q out of %q", into[0], reply)
		}
	})
}
