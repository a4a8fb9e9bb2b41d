// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import "errors"

// span is where a value lies in a reply; from is -1 where there is none.
type span struct{ from, to int }

// cut finds the values of the reply of an MGET for len(into) keys at the beginning of b, if all of it is there: used is its length then. Else used is 0, and more says
// whether it may only be that the rest has not come yet. It is also 0 for what is no such reply (an error, a push, nonsense): that is for those who read part by part,
// and say what is wrong with it. So nothing is taken out of the connection's buffer before it is certain that nobody has to wait in the midst of a reply.
func cut(b []byte, into []span) (used int, more bool) {
	n, at, more := number(b, 0, '*')
	if at == 0 || n != len(into) {
		return 0, more
	}
	for i := range into {
		if at < len(b) && b[at] == '_' { // there is none, in RESP3
			if at+3 > len(b) {
				return 0, true
			}
			if b[at+1] != '\r' || b[at+2] != '\n' {
				return 0, false
			}
			into[i] = span{from: -1}
			at += 3
			continue
		}
		n, start, more := number(b, at, '$')
		if start == 0 {
			return 0, more
		}
		if n < 0 {
			into[i] = span{from: -1}
			at = start
			continue
		}
		end := start + n
		if end+2 > len(b) {
			return 0, true
		}
		if b[end] != '\r' || b[end+1] != '\n' {
			return 0, false
		}
		into[i] = span{start, end}
		at = end + 2
	}
	return at, false
}

// number reads the line at b[at:] that begins with kind: a number, which is -1 or has ten digits at most. next is where the next line begins; 0: the line is not all there (more), or is none.
func number(b []byte, at int, kind byte) (n, next int, more bool) {
	if at >= len(b) {
		return 0, 0, true
	}
	if b[at] != kind {
		return 0, 0, false
	}
	const digits = 10
	for i := at + 1; i < len(b); i++ {
		switch c := b[i]; {
		case c >= '0' && c <= '9' && i-at <= digits:
			n = 10*n + int(c-'0')
		case c == '-' && i == at+1:
			return minusOne(b, at+1)
		case c == '\r' && i > at+1:
			if i+1 == len(b) {
				return 0, 0, true
			}
			if b[i+1] != '\n' {
				return 0, 0, false
			}
			return n, i + 2, false
		default:
			return 0, 0, false
		}
	}
	return 0, 0, true
}

// minusOne is number for what begins with a minus.
func minusOne(b []byte, at int) (n, next int, more bool) {
	const line = "-1\r\n"
	have := b[at:min(len(b), at+len(line))]
	if string(have) != line[:len(have)] {
		return 0, 0, false
	}
	if len(have) < len(line) {
		return 0, 0, true
	}
	return -1, at + len(line), false
}

// errNotWhole says that a reply cannot be read without waiting in the midst of it: it has not all come, is too long for the buffer, or is no list of values.
var errNotWhole = errors.New("not a whole reply")

// whole reads the reply of an MGET for len(into) keys, if it comes as a whole: its bytes, in which into says where the values are. They are valid until the next read. Until the
// deadline it waits for what is missing. With errNotWhole, or a timeout, nothing has been taken out of the buffer.
func (l *wire) whole(into []span) ([]byte, error) {
	for {
		have, _ := l.r.Peek(l.r.Buffered())
		used, more := cut(have, into)
		if used > 0 {
			_, err := l.r.Discard(used)
			return have[:used], err
		}
		if !more || len(have) == l.r.Size() {
			return nil, errNotWhole
		}
		if _, err := l.r.Peek(len(have) + 1); err != nil {
			return nil, err
		}
	}
}
