// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import "github.com/go-shelf/shelf/internal/twin"

// The twin of the scripts lives in its own package, since explorations of larger systems walk over it too. It is checked
// against the Lua here, on random states.
type (
	cell   = twin.Cell
	shelf  = twin.Shelf
	guards = twin.Guards
)

func be(v uint64) string { return twin.Bytes(v) }

func entryOf(version uint64, payload string) string { return twin.Entry(version, payload) }
