// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"fmt"
	"net"
	"strconv"
	"unsafe"
)

// copied is up to where an argument is copied to the rest of its command. A longer one goes out from where it lies, as a part of the same system call.
const copied = 8 << 10

// long is an argument that is not copied: it belongs behind the first at bytes of what is.
type long struct {
	at    int
	bytes []byte
}

// send sends a command of these arguments.
func (l *wire) send(args ...string) error {
	return l.sendTo(args[0], args[1:])
}

// sendTo sends a command with its names.
func (l *wire) sendTo(command string, names []string) error {
	l.begin(1 + len(names))
	l.putText(command)
	for _, name := range names {
		l.putText(name)
	}
	return l.flush()
}

// putCall appends a script call: command is EVALSHA or EVAL, and script what it takes.
func (l *wire) putCall(command, script string, c *Call) {
	l.begin(3 + len(c.Keys) + len(c.Args))
	l.putText(command)
	l.putText(script)
	l.putNumber(int64(len(c.Keys)))
	for _, key := range c.Keys {
		l.putText(key)
	}
	for _, arg := range c.Args {
		l.put(arg)
	}
}

// putCommand appends a command of any kind.
func (l *wire) putCommand(c Command) {
	l.begin(len(c))
	for _, arg := range c {
		l.put(arg)
	}
}

// begin begins a command of so many parts, its name among them: an array of bulk strings. It goes out with those before it, by flush.
func (l *wire) begin(parts int) {
	l.putLine('*', parts)
}

// put appends an argument. What is of no type that a command may have is the error of flush, which sends nothing then.
func (l *wire) put(arg any) {
	switch arg := arg.(type) {
	case string:
		l.putText(arg)
	case []byte:
		l.putBytes(arg)
	case int64:
		l.putNumber(arg)
	case int:
		l.putNumber(int64(arg))
	case int32:
		l.putNumber(int64(arg))
	case uint32:
		l.putNumber(int64(arg))
	case uint64:
		var digits [20]byte
		l.putShort(strconv.AppendUint(digits[:0], arg, 10))
	case float64:
		var digits [32]byte
		l.putShort(strconv.AppendFloat(digits[:0], arg, 'f', -1, 64))
	default:
		l.wrong = fmt.Errorf("an argument is a %T: must be a string, bytes, an integer of 32 or 64 bits, or a float64", arg)
	}
}

func (l *wire) putNumber(n int64) {
	var digits [20]byte
	l.putShort(strconv.AppendInt(digits[:0], n, 10))
}

func (l *wire) putText(s string) {
	l.putBytes(unsafe.Slice(unsafe.StringData(s), len(s))) //nolint:gosec // they are read, never written
}

func (l *wire) putBytes(b []byte) {
	if len(b) <= copied {
		l.putShort(b)
		return
	}
	l.putLine('$', len(b))
	l.long = append(l.long, long{len(l.w), b})
	l.w = append(l.w, "\r\n"...)
}

// putShort is putBytes for what is copied.
func (l *wire) putShort(b []byte) {
	l.putLine('$', len(b))
	l.w = append(l.w, b...)
	l.w = append(l.w, "\r\n"...)
}

func (l *wire) putLine(kind byte, n int) {
	l.w = append(l.w, kind)
	l.w = strconv.AppendInt(l.w, int64(n), 10)
	l.w = append(l.w, "\r\n"...)
}

// flush sends what was appended.
func (l *wire) flush() error {
	err := l.wrong
	switch {
	case err != nil:
	case len(l.long) == 0:
		_, err = l.conn.Write(l.w)
	default:
		err = l.writeParts()
	}
	clear(l.long)
	if l.w, l.long, l.wrong = l.w[:0], l.long[:0], nil; cap(l.w) > bufferSize { // the names of a large batch, once
		l.w, l.long = nil, nil
	}
	return err
}

// writeParts is flush where not all of it lies in one place.
func (l *wire) writeParts() error {
	parts := make(net.Buffers, 0, 2*len(l.long)+1)
	sent := 0
	for _, arg := range l.long {
		parts = append(parts, l.w[sent:arg.at], arg.bytes)
		sent = arg.at
	}
	parts = append(parts, l.w[sent:])
	_, err := parts.WriteTo(plain(l.conn))
	return err
}

// plain is the connection inside: net.Buffers knows those of package net only, for which it makes one system call.
func plain(conn net.Conn) net.Conn {
	if c, ok := conn.(*watchfulConn); ok {
		return c.Conn
	}
	return conn
}
