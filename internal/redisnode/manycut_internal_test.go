// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestCut: a reply is found when its last byte is there, and not before; and what comes behind it is not a part of it.
func TestCut(t *testing.T) {
	for reply, want := range map[string][]string{
		"*1\r\n$1\r\na\r\n":                         {"a"},
		"*2\r\n$0\r\n\r\n$-1\r\n":                   {"", "-"},
		"*3\r\n_\r\n$5\r\n\r\n$1\r\r\n$2\r\nok\r\n": {"-", "\r\n$1\r", "ok"},
		"*1\r\n$12\r\nabcdefghijkl\r\n":             {"abcdefghijkl"},
	} {
		into := make([]span, len(want))
		for n := range len(reply) {
			if used, more := cut([]byte(reply[:n]), into); used != 0 || !more {
				t.Errorf("%q of %q: used %d, more %v; want the rest", reply[:n], reply, used, more)
			}
		}
		for _, rest := range []string{"", "*1\r\n$1\r\nx\r\n", "-"} {
			used, _ := cut([]byte(reply+rest), into)
			if used != len(reply) {
				t.Fatalf("%q: used %d of %d bytes", reply+rest, used, len(reply))
			}
			for i, at := range into {
				got := "-"
				if at.from >= 0 {
					got = reply[at.from:at.to]
				}
				if got != want[i] {
					t.Errorf("%q: value %d is %q, want %q", reply, i, got, want[i])
				}
			}
		}
	}
}

// TestCutRefuses what is no list of so many values: no further byte makes it one.
func TestCutRefuses(t *testing.T) {
	for _, reply := range []string{
		"-ERR no", "+OK", ">3", "$1", "*1\r\n$1", "*3\r\n", "*-1\r\n", "*2\r\n$1\r\nab\n", "*2\r\n$1\r\na\rx", "*2\r\n$-2", "*2\r\n$1x", "*2\r\n$\r", "*2\r\n:1",
		"*2\r\n$12345678901", "*x", "*\r", "*2\rx", "*2\r\n_x\r", "*2\r\n$-1\rx",
	} {
		if used, more := cut([]byte(reply), make([]span, 2)); used != 0 || more {
			t.Errorf("%q: used %d, more %v; want neither", reply, used, more)
		}
	}
}

// TestWhole: however a reply comes, it is read as a whole or stays where it is.
func TestWhole(t *testing.T) {
	reply := "*2\r\n$3\r\nabc\r\n$-1\r\n"
	long := "*1\r\n$64\r\n" + strings.Repeat("x", 64) + "\r\n"
	l := &wire{r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(reply+long+"-ERR no\r\n"+reply[:9])), 32)}
	into := make([]span, 2)
	b, err := l.whole(into)
	if err != nil || string(b) != reply || into[0] != (span{8, 11}) || into[1].from != -1 {
		t.Fatalf("%q, %v, %v", b, into, err)
	}
	if _, err := l.whole(into[:1]); !errors.Is(err, errNotWhole) {
		t.Errorf("a reply that is longer than the buffer: %v", err)
	}
	values := make([][]byte, 1)
	if err := l.values(values); err != nil || len(values[0]) != 64 {
		t.Fatalf("the same, part by part: %d bytes, %v", len(values[0]), err)
	}
	if _, err := l.whole(into); !errors.Is(err, errNotWhole) {
		t.Errorf("an error reply: %v", err)
	}
	if err := l.values(values); !replied(err) {
		t.Errorf("the same, part by part: %v", err)
	}
	if _, err := l.whole(into); !errors.Is(err, io.EOF) {
		t.Errorf("a reply that breaks off: %v", err)
	}
}
