// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"math"
	"math/big"
	"strconv"
	"unsafe"
)

// What else than a read has an answer of any shape: that of a script, or of a command that callers choose. It is given in the types that the driver gives: a string, an int64,
// a []any, a map[any]any, a float64, a bool, a *big.Int, or nil; an error inside a list is a part of it.
//
// A server that has lost its mind, or is none, gets no more memory than it sends bytes for, some times over, and no more in all than the bounds here.

const (
	// maxDepth bounds how many lists are in each other. Lua's own bound is some 200.
	maxDepth = 256
	// firstParts is how many parts of a list are made room for on the server's word.
	firstParts = 1 << 10
)

// anyReply reads a reply.
type anyReply struct {
	l     *wire
	parts int // that may come yet
	bytes int // the same
}

// answer reads the reply to one command.
func (l *wire) answer() (any, error) {
	h, err := l.head()
	if err != nil {
		return nil, err
	}
	r := anyReply{l, maxParts, largest}
	v, err := r.part(h, 0)
	if refused, ok := v.(replyError); ok {
		return nil, refused
	}
	return v, err
}

// next reads the next part of a list.
func (r *anyReply) next(depth int) (any, error) {
	h, err := r.l.text()
	if err != nil {
		return nil, unexpected(err)
	}
	return r.part(h, depth)
}

// part reads the part that begins with h.
func (r *anyReply) part(h []byte, depth int) (any, error) {
	switch text := h[1:]; h[0] {
	case '+':
		if string(text) == "OK" { // as most are
			return "OK", nil
		}
		return string(text), nil
	case '-':
		return replyError(text), nil
	case ':':
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return nil, nonsense("an integer", h)
		}
		return n, nil
	case '_':
		return nil, nil //nolint:nilnil // it is that
	case '$', '=', '!':
		return r.text(h)
	case '*', '~', '%':
		return r.list(h, depth+1)
	case '#', ',', '(':
		return scalar(h)
	default:
		return nil, nonsense("a reply", h)
	}
}

// text reads the string that begins with h, of one of three kinds.
func (r *anyReply) text(h []byte) (any, error) {
	kind := h[0] // reading on, its place is taken
	b, err := r.l.bytes(h, r.bytes)
	if b == nil || err != nil {
		return nil, err
	}
	r.bytes -= len(b)
	s := unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // nobody else has the bytes
	switch kind {
	case '!':
		return replyError(s), nil
	case '=': // three letters say what it is
		if len(s) < 4 || s[3] != ':' {
			return nil, nonsense("a text with its format", b)
		}
		return s[4:], nil
	}
	return s, nil
}

// list reads the list, the set or the map that begins with h.
func (r *anyReply) list(h []byte, depth int) (any, error) {
	n, err := strconv.Atoi(string(h[1:]))
	switch {
	case n == -1 && err == nil && h[0] == '*':
		return nil, nil //nolint:nilnil // it is that
	case err != nil || n < 0 || n > r.parts || depth > maxDepth:
		return nil, nonsense("a list, neither too long nor too deep", h)
	case h[0] == '%':
		return r.pairs(n, depth)
	}
	r.parts -= n
	list := make([]any, 0, min(n, firstParts))
	for range n {
		v, err := r.next(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (r *anyReply) pairs(n, depth int) (any, error) {
	if r.parts -= 2 * n; r.parts < 0 {
		return nil, nonsense("a map that is not too long", nil)
	}
	pairs := make(map[any]any, min(n, firstParts))
	for range n {
		k, err := r.next(depth)
		if err != nil {
			return nil, err
		}
		v, err := r.next(depth)
		if err != nil {
			return nil, err
		}
		switch k.(type) {
		case string, int64, bool, float64:
			pairs[k] = v
		default:
			return nil, nonsense("a map with simple keys", nil)
		}
	}
	return pairs, nil
}

// scalar reads what is all in its line.
func scalar(h []byte) (any, error) {
	switch text := string(h[1:]); {
	case h[0] == '#' && text == "t":
		return true, nil
	case h[0] == '#' && text == "f":
		return false, nil
	case h[0] == ',' && text == "inf":
		return math.Inf(1), nil
	case h[0] == ',' && text == "-inf":
		return math.Inf(-1), nil
	case h[0] == ',' && (text == "nan" || text == "-nan"):
		return math.NaN(), nil
	case h[0] == ',':
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f, nil
		}
	case h[0] == '(':
		if n, ok := new(big.Int).SetString(text, 10); ok {
			return n, nil
		}
	}
	return nil, nonsense("a reply", h)
}
