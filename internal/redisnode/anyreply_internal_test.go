// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// Every kind of reply, and what is none.
func TestAnyReply(t *testing.T) {
	long := strings.Repeat("x", 3*bufferSize)
	for _, c := range []struct {
		reply string
		want  any
		wrong string
	}{
		{"+OK\r\n", "OK", ""},
		{"+QUEUED\r\n", "QUEUED", ""},
		{"+O\r\n", "O", ""},
		{":42\r\n", int64(42), ""},
		{":-9223372036854775808\r\n", int64(math.MinInt64), ""},
		{"$2\r\nab\r\n", "ab", ""},
		{"$0\r\n\r\n", "", ""},
		{"$-1\r\n", nil, ""},
		{"_\r\n", nil, ""},
		{"*-1\r\n", nil, ""},
		{fmt.Sprintf("$%d\r\n%s\r\n", len(long), long), long, ""},
		{"*0\r\n", []any{}, ""},
		{"*4\r\n:1\r\n$1\r\na\r\n$-1\r\n*2\r\n_\r\n+OK\r\n", []any{int64(1), "a", nil, []any{nil, "OK"}}, ""},
		{"*2\r\n-ERR inside\r\n!4\r\nERR!\r\n", []any{replyError("ERR inside"), replyError("ERR!")}, ""},
		{"~2\r\n+a\r\n+b\r\n", []any{"a", "b"}, ""},
		{"%2\r\n+a\r\n:1\r\n:2\r\n*1\r\n+b\r\n", map[any]any{"a": int64(1), int64(2): []any{"b"}}, ""},
		{"#t\r\n", true, ""},
		{"#f\r\n", false, ""},
		{",1.5\r\n", 1.5, ""},
		{",inf\r\n", math.Inf(1), ""},
		{",-inf\r\n", math.Inf(-1), ""},
		{"(123456789012345678901234567890\r\n", func() any { n, _ := new(big.Int).SetString("123456789012345678901234567890", 10); return n }(), ""},
		{"=8\r\ntxt:some\r\n", "some", ""},
		{"=4\r\ntxt:\r\n", "", ""},
		{">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n>1\r\n+x\r\n:7\r\n", int64(7), ""},
		{"-READONLY You can't write against a read only replica.\r\n", nil, "READONLY You can't write against a read only replica."},
		{"!10\r\nSYNTAX bad\r\n", nil, "SYNTAX bad"},
		{"", nil, io.EOF.Error()},
		{"*2\r\n:1\r\n", nil, io.ErrUnexpectedEOF.Error()},
		{"$3\r\nab", nil, io.ErrUnexpectedEOF.Error()},
		{"$2\r\nabc\r\n", nil, "the end of a value"},
		{":1x\r\n", nil, "must be an integer"},
		{":99999999999999999999\r\n", nil, "must be an integer"},
		{"$x\r\n", nil, "must be a value"},
		{"*x\r\n", nil, "must be a list"},
		{"*-2\r\n", nil, "must be a list"},
		{"%-1\r\n", nil, "must be a list"},
		{"#x\r\n", nil, "must be a reply"},
		{",x\r\n", nil, "must be a reply"},
		{"(x\r\n", nil, "must be a reply"},
		{"?\r\n", nil, "must be a reply"},
		{"?1\r\n", nil, "must be a reply"},
		{"=3\r\ntxt\r\n", nil, "must be a text with its format"},
		{"=5\r\ntxt-x\r\n", nil, "must be a text with its format"},
		{"%1\r\n*1\r\n:1\r\n:1\r\n", nil, "must be a map with simple keys"},
		{"%1\r\n_\r\n:1\r\n", nil, "must be a map with simple keys"},
		{"*1\r\n>1\r\n:1\r\n", nil, "must be a reply"}, // a push comes between replies only
	} {
		v, err := wireOf(c.reply).answer()
		switch {
		case c.wrong == "" && (err != nil || !reflect.DeepEqual(v, c.want)):
			t.Errorf("%.40q: got %.40v, %v; want %.40v", c.reply, v, err, c.want)
		case c.wrong != "" && (err == nil || v != nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%.40q: got %.40v, %v; want an error with %q", c.reply, v, err, c.wrong)
		case replied(err) != (err != nil && (c.reply[:min(1, len(c.reply))] == "-" || strings.HasPrefix(c.reply, "!"))):
			t.Errorf("%.40q: %v is taken for an answer, or not: %t", c.reply, err, replied(err))
		}
	}
	if v, err := wireOf(",nan\r\n").answer(); err != nil || !math.IsNaN(v.(float64)) {
		t.Errorf("no number: %v, %v", v, err)
	}
}

// TestAnnouncedListsAreNotBelieved: what a server only speaks of costs nothing, or next to nothing, and lists in lists no stack.
func TestAnnouncedListsAreNotBelieved(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	for name, reply := range map[string]string{
		"a list":              fmt.Sprintf("*%d\r\n", maxParts),
		"a longer list":       "*9223372036854775807\r\n",
		"a map":               fmt.Sprintf("%%%d\r\n", maxParts/2),
		"a longer map":        fmt.Sprintf("%%%d\r\n", maxParts),
		"the longest map":     "%9223372036854775807\r\n",
		"a string":            "$536870912\r\nabc",
		"a longer string":     "$9999999999\r\nabc",
		"lists in each other": strings.Repeat(fmt.Sprintf("*%d\r\n", maxParts/maxDepth), maxDepth),
		"more of them":        strings.Repeat("*1\r\n", 1<<20),
		"maps in each other":  strings.Repeat("%1\r\n+k\r\n", 1<<18),
		"lists of lists":      "*1048576\r\n" + strings.Repeat("*1048576\r\n", 1000),
		"strings of strings":  "*2\r\n$3\r\nabc\r\n$536870911\r\n",
	} {
		w := &wire{r: bufio.NewReaderSize(strings.NewReader(reply), bufferSize)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if v, err := w.answer(); err == nil {
			t.Errorf("%s: got %.40v", name, v)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 2*pieces {
			t.Errorf("%s: %d bytes were allocated for %d that came", name, took, len(reply))
		}
	}
}

// TestBoundsOfAReply hold for all of it together.
func TestBoundsOfAReply(t *testing.T) {
	for reply, good := range map[string]bool{
		"*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n":             true,
		"*5\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n":       false,
		"*2\r\n*2\r\n:1\r\n:1\r\n*0\r\n":             true,
		"*2\r\n*2\r\n:1\r\n:1\r\n*1\r\n:1\r\n":       false,
		"%2\r\n:1\r\n:1\r\n:2\r\n:1\r\n":             true,
		"%3\r\n:1\r\n:1\r\n:2\r\n:1\r\n:3\r\n:1\r\n": false,
		"*1\r\n%2\r\n:1\r\n:1\r\n:2\r\n:1\r\n":       false,
		"*2\r\n$5\r\naaaaa\r\n$5\r\nbbbbb\r\n":       true,
		"*2\r\n$5\r\naaaaa\r\n$6\r\nbbbbbb\r\n":      false,
		"*2\r\n=5\r\ntxt:a\r\n!6\r\nbbbbbb\r\n":      false,
		"%1\r\n$5\r\naaaaa\r\n$6\r\nbbbbbb\r\n":      false,
		"$11\r\naaaaaaaaaaa\r\n":                     false,
	} {
		r := anyReply{wireOf(reply), 4, 10}
		v, err := r.next(0)
		if (err == nil) != good {
			t.Errorf("%q is %v, %v", reply, v, err)
		}
	}
}

// FuzzAnyReply: whatever a server sends, reading it ends, in no more memory than in proportion to what was sent; and the same comes of it if it comes byte by byte.
func FuzzAnyReply(f *testing.F) {
	for _, seed := range []string{
		"+OK\r\n", ":1\r\n", "$1\r\na\r\n", "$-1\r\n", "*2\r\n:1\r\n*1\r\n$-1\r\n", "%1\r\n+a\r\n~1\r\n#t\r\n", "_\r\n", ",1.5\r\n", "(1\r\n", "=5\r\ntxt:a\r\n", "!3\r\nERR\r\n",
		"-ERR\r\n", ">1\r\n*1\r\n%1\r\n+a\r\n:1\r\n*1\r\n_\r\n", "*1000000\r\n*1\r\n", "$536870912\r\n", "%1\r\n%0\r\n:1\r\n", "*-1\r\n", "\r\n", "+\r\n", "%1\r\n,nan\r\n:1\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		w := &wire{r: bufio.NewReaderSize(strings.NewReader(reply), bufferSize)}
		v, err := w.answer()
		again, errAgain := wireOf(reply).answer()
		if fmt.Sprint(v, err) != fmt.Sprint(again, errAgain) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q is %v, %v, and byte by byte %v, %v", reply, v, err, again, errAgain)
		}
		if s, ok := v.(string); ok && !strings.Contains(reply, s) {
			t.Errorf("%q out of %q", s, reply)
		}
	})
}
