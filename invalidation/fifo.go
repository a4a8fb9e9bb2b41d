// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

// fifo is a doubly linked list whose links lie inside the values: moving a value from one list to
// another, or taking it out of the middle, allocates nothing. It is not safe for concurrent use.
type fifo[T any] struct {
	first, last *link[T]
	len         int
}

// link is a value's place in one list at a time; a value that is in two lists has two.
type link[T any] struct {
	in         *fifo[T]
	prev, next *link[T]
	of         T
}

// push puts k, which must be in no list, at the end.
func (l *fifo[T]) push(k *link[T]) {
	k.in, k.prev, k.next = l, l.last, nil
	if l.last == nil {
		l.first = k
	} else {
		l.last.next = k
	}
	l.last = k
	l.len++
}

// leave takes k out of the list that it is in, if any.
func (k *link[T]) leave() {
	l := k.in
	if l == nil {
		return
	}
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.in, k.prev, k.next = nil, nil, nil
	l.len--
}
