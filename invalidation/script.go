// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation

import (
	"crypto/sha1" //nolint:gosec // the name under which Redis files a script, not a secret
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
)

var (
	// What several scripts need: comparing versions, reading an entry, reading a mark, the cache's generation, an entry's stamp, moving a body.
	//
	//go:embed older.lua
	olderSource string
	//go:embed entry.lua
	entrySource string
	//go:embed floor.lua
	floorSource string
	//go:embed generation.lua
	generationSource string
	//go:embed stamp.lua
	stampSource string
	//go:embed body.lua
	bodySource string

	//go:embed lease.lua
	leaseSource string
	//go:embed fill.lua
	fillSource string
	//go:embed release.lua
	releaseSource string
	//go:embed invalidate.lua
	invalidateSource string
	//go:embed set.lua
	setSource string
	//go:embed mark.lua
	markSource string
	//go:embed clear.lua
	clearSource string
	//go:embed tag.lua
	tagSource string
	//go:embed tagged.lua
	taggedSource string
	//go:embed split.lua
	splitSource string
)

// Computed once: a call must not pay for hashing its script.
var (
	leaseScript      = newScript("lease", entrySource, floorSource, generationSource, leaseSource)
	fillScript       = newScript("fill", olderSource, entrySource, floorSource, markSource, generationSource, bodySource, fillSource)
	releaseScript    = newScript("release", releaseSource)
	invalidateScript = newScript("invalidate", olderSource, floorSource, markSource, invalidateSource)
	setScript        = newScript("set", olderSource, entrySource, floorSource, generationSource, stampSource, bodySource, setSource)
	clearScript      = newScript("clear", generationSource, clearSource)
	tagScript        = newScript("tag", generationSource, tagSource)
	taggedScript     = newScript("tagged", generationSource, taggedSource)
	splitScript      = newScript("split", generationSource, splitSource)
)

// Script is one Lua script: its name (for logs), its text, and the hex SHA-1 of the text, under
// which EVALSHA finds it once it was loaded (https://redis.io/docs/latest/commands/evalsha/).
type Script struct {
	Name, Source, SHA1 string
}

func newScript(name string, parts ...string) Script {
	source := strings.Join(parts, "\n")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return Script{Name: name, Source: source, SHA1: hex.EncodeToString(sum[:])}
}

// Scripts returns all scripts of the package in a new slice, for loading them into a node.
func Scripts() []Script {
	return []Script{leaseScript, fillScript, releaseScript, invalidateScript, setScript, clearScript, tagScript, taggedScript, splitScript}
}

// Keys are the names that belong to one cache key on its node. The caller chooses them; they must
// differ from each other and from the names of every other key.
type Keys struct {
	Data  string // the entry
	Lease string // who may fill it
	Mark  string // the row version that an invalidation left

	// Of is the cache that the key is of, where it can be cleared as a whole or by tags.
	Of Group

	// Body is where the body of a large value lies, which the entry under Data only names. "" where
	// there are no such values. [Invalidate] removes it.
	Body string
	// Staged is where the caller has put the body of the value that it brings to [Fill] or [Set], under a
	// name that is used once; "" where the value has no body apart. It moves to Body in the step that stores
	// the entry, and is removed in the step that refuses it. It needs Body and Of.
	Staged string

	// Split is where it is noted how far copies of the entry on other nodes can exist (see [Split]). "" where there are no copies.
	// [Invalidate] reads it. It needs Body.
	Split string
}

// all gives the names as KEYS of a script: those of the group, and of a body, last, and only where there are any.
func (k *Keys) all() []string {
	switch {
	case k.Of.Generation == "":
		return []string{k.Data, k.Lease, k.Mark}
	case k.Staged == "":
		return []string{k.Data, k.Lease, k.Mark, k.Of.Generation, k.Of.Tags}
	default:
		return []string{k.Data, k.Lease, k.Mark, k.Of.Generation, k.Of.Tags, k.Body, k.Staged}
	}
}

// Call is one script call, ready for EVALSHA (or EVAL): the script, its KEYS and its ARGV. The
// arguments are strings, byte slices and int64 values.
type Call struct {
	Script Script
	Keys   []string
	Args   []any
}

// The values a lease key can hold. Tokens carry a prefix, so that no token, whatever its bytes,
// can be mistaken for the no-store marker or the other way round.
const (
	tokenPrefix   = "t"
	noStoreMarker = "n"
)

// IsNoStore reports whether value, read from a lease key, is the no-store marker: the last reader
// could not store what it loaded (too large, not encodable, ...), so waiting for it is pointless.
func IsNoStore(value []byte) bool { return string(value) == noStoreMarker }

// versionBytes gives v as the 8 big-endian bytes in which versions and epochs travel.
func versionBytes(v uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return string(b[:])
}

// millis gives d for PX, rounded up: a lifetime below a millisecond (or none at all) is 1 ms,
// because Redis refuses PX 0.
func millis(d time.Duration) int64 {
	if d <= time.Millisecond {
		return 1
	}
	return int64((d-1)/time.Millisecond) + 1
}
