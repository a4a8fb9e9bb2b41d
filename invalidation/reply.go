// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Drivers differ in how they hand out a bulk string (string or []byte); both are taken. Anything
// else is an error and never a guess: a reply that is not understood must not count as a lease.

func unexpected(script, what string, v any) error {
	return fmt.Errorf("invalidation: %s: %s is %T %.80q: not a reply of this script", script, what, v, fmt.Sprint(v))
}

func list(script string, reply any, n int) ([]any, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != n {
		return nil, unexpected(script, "reply", reply)
	}
	return parts, nil
}

func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// optionalBytes gives the bytes of a bulk string; nil stays nil, empty stays empty.
func optionalBytes(script, what string, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, unexpected(script, what, v)
}

func optionalVersion(script string, v any) (uint64, error) {
	if v == nil {
		return 0, nil
	}
	s, ok := text(v)
	if !ok || len(s) != 8 {
		return 0, unexpected(script, "mark", v)
	}
	return binary.BigEndian.Uint64([]byte(s)), nil
}

func flag(script, what string, v any) (bool, error) {
	switch v {
	case int64(0):
		return false, nil
	case int64(1):
		return true, nil
	}
	return false, unexpected(script, what, v)
}

func outcome(script string, reply any, allowed ...Outcome) (Outcome, error) {
	s, ok := text(reply)
	if ok {
		if i := slices.IndexFunc(allowed, func(o Outcome) bool { return o.String() == s }); i >= 0 {
			return allowed[i], nil
		}
	}
	return 0, unexpected(script, "reply", reply)
}
