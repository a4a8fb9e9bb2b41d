// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The replies that a wire understands: those of GET, MGET and SET, in RESP2 and RESP3 (https://redis.io/docs/latest/develop/reference/protocol-spec/). What else
// comes is an error after which the connection is of no use.

// replyError is an error reply of the server. It is a redis.Error, as the driver's own are.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}

// replied says that a command's outcome is an error reply after which the connection goes on. One that is to be authenticated does not: the next one is, with the
// password of then, and this one would be refused for ever.
func replied(err error) bool {
	var e replyError
	return errors.As(err, &e) && !strings.HasPrefix(string(e), string(protocolError[1:])) && !strings.HasPrefix(string(e), "NOAUTH")
}

// nonsense is a reply that does not follow the protocol, or is none that the command can have.
func nonsense(what string, got []byte) error {
	const most = 64
	return fmt.Errorf("the server answered with %q: must be %s", got[:min(len(got), most)], what)
}

// head reads the line that begins a reply, without its end, and passes over what the server pushes in between. It is valid until the next read.
func (l *wire) head() ([]byte, error) {
	for {
		h, err := l.text()
		if err != nil || h[0] != '>' {
			return h, err
		}
		if err := l.skip(h); err != nil {
			return nil, err
		}
	}
}

// answeredTwice says that more has come than the reply that was read, and is no push.
func (l *wire) answeredTwice() bool {
	if l.r.Buffered() == 0 {
		return false
	}
	more, err := l.r.Peek(1)
	return err != nil || more[0] != '>'
}

// text reads a line of the protocol, of at least its type, without its end.
func (l *wire) text() ([]byte, error) {
	h, err := l.r.ReadSlice('\n')
	if err != nil {
		return nil, err // also if it is longer than the buffer, which none of ours is
	}
	if len(h) < 3 || h[len(h)-2] != '\r' {
		return nil, nonsense("a reply", h)
	}
	return h[:len(h)-2], nil
}

// maxParts bounds a list in a push.
const maxParts = 1 << 20

// skip passes over a push that begins with h: lists of values, and lists in them. Without recursion: however deep they are, they take no memory.
func (l *wire) skip(h []byte) error {
	for left := 1; ; {
		parts, err := l.skipPart(h)
		if left += parts - 1; err != nil || left == 0 {
			return err
		}
		if h, err = l.text(); err != nil {
			return err
		}
	}
}

// skipPart passes over the part that begins with h, and says how many there are in it.
func (l *wire) skipPart(h []byte) (parts int, err error) {
	switch h[0] {
	case '+', '-', ':', '_', '#', ',', '(':
		return 0, nil
	}
	n, err := strconv.Atoi(string(h[1:]))
	if err != nil || n > largest {
		return 0, nonsense("a push", h)
	}
	switch h[0] {
	case '$', '=', '!':
		if n >= 0 {
			_, err = l.r.Discard(n + 2)
		}
		return 0, err
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return 0, nonsense("a push", h)
	}
	if n > maxParts {
		return 0, nonsense("a push", h)
	}
	return max(n, 0), nil
}

// values reads the reply of an MGET for as many keys as into has room: a missing key, and one that is not a string, is nil.
func (l *wire) values(into [][]byte) error {
	h, err := l.reply()
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(string(h[1:])); h[0] != '*' || err != nil || n != len(into) {
		return nonsense(fmt.Sprintf("a list of %d values", len(into)), h)
	}
	for i := range into {
		if h, err = l.text(); err == nil {
			into[i], err = l.bulk(h, largest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// value reads the reply of a GET: a missing key is nil.
func (l *wire) value(most int) ([]byte, error) {
	h, err := l.reply()
	if err != nil {
		return nil, err
	}
	return l.bulk(h, most)
}

// ok reads the reply of a command that has nothing to say.
func (l *wire) ok() error {
	h, err := l.reply()
	if err != nil {
		return err
	}
	if h[0] != '+' {
		return nonsense("OK", h)
	}
	return nil
}

// reply is head, where an error reply of the server is an error.
func (l *wire) reply() ([]byte, error) {
	h, err := l.head()
	if err == nil && h[0] == '-' {
		return nil, replyError(h[1:])
	}
	return h, err
}

// bulk reads the rest of a bulk string that began with h. Its bytes are the caller's.
func (l *wire) bulk(h []byte, most int) ([]byte, error) {
	if h[0] == '_' {
		return nil, nil
	}
	n, err := length(h)
	if err != nil || n < 0 {
		return nil, err
	}
	if n > most {
		return nil, nonsense(fmt.Sprintf("a value of at most %d bytes", most), h)
	}
	if n+2 <= l.r.Buffered() { // as most are
		rest, _ := l.r.Peek(n + 2)
		if rest[n] != '\r' || rest[n+1] != '\n' {
			return nil, nonsense("the end of a value", rest[n:])
		}
		v := make([]byte, n)
		copy(v, rest)
		_, err = l.r.Discard(n + 2)
		return v, err
	}
	v, err := l.take(n)
	if err != nil {
		return nil, err
	}
	end, err := l.r.Peek(2)
	if err != nil {
		return nil, unexpected(err)
	}
	if end[0] != '\r' || end[1] != '\n' {
		return nil, nonsense("the end of a value", end)
	}
	_, err = l.r.Discard(2)
	return v, err
}

// length is that of a bulk string; -1: there is none.
func length(h []byte) (int, error) {
	if h[0] != '$' || len(h) < 2 || len(h) > 11 {
		return 0, nonsense("a value", h)
	}
	if string(h) == "$-1" {
		return -1, nil
	}
	n := 0
	for _, digit := range h[1:] {
		if digit < '0' || digit > '9' {
			return 0, nonsense("a value", h)
		}
		n = 10*n + int(digit-'0')
	}
	return n, nil
}

// pieces is how much memory is taken at most on a server's word that so much will come.
const pieces = 4 << 20

// take reads n bytes.
func (l *wire) take(n int) ([]byte, error) {
	v := make([]byte, min(n, pieces))
	_, err := io.ReadFull(l.r, v)
	for err == nil && len(v) < n {
		have := len(v)
		v = append(v, make([]byte, min(n-have, max(have, pieces)))...)
		_, err = io.ReadFull(l.r, v[have:])
	}
	if err != nil {
		return nil, unexpected(err)
	}
	return v, nil
}

// unexpected is the end of a connection in the midst of a reply.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
