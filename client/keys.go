// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-shelf/shelf/invalidation"
)

// MaxKeyBytes is the longest key, in bytes, that a cache takes: 64 KiB.
const MaxKeyBytes = 64 << 10

// The names of the companions of a key, or of a cache. They start with a character that no cache name and no namespace can start with, so that a
// companion can never be some other key's data.
const (
	leasePrefix      = "~l:"
	markPrefix       = "~m:"
	bodyPrefix       = "~b:" // of a large value: see large.go
	generationPrefix = "~g:" // of a whole cache, one on each node
	tagsPrefix       = "~t:" // the same
	writeCheckPrefix = "~w:" // nothing: see writeCheckName
	heatPrefix       = "~h:" // how often the fleet reads it: see heat.go
	fleetPrefix      = "~f:" // of a namespace: which processes live, on a few nodes; see fleet.go
	aboutPrefix      = "~a:" // the same: what they say of themselves

	// In the gutter, on the node that stands in for a key's owner: see gutter.go.
	gutterPrefix      = "~u:"
	gutterLeasePrefix = "~ul:"
	gutterMarkPrefix  = "~um:"
	gutterBodyPrefix  = "~ub:"

	// Copies on other nodes than the owner, and beside the entry at its owner how far they can exist: see copies.go.
	copyPrefix      = "~c:"
	copyLeasePrefix = "~cl:"
	copyMarkPrefix  = "~cm:"
	copyBodyPrefix  = "~cb:"
	splitPrefix     = "~s:"
)

// writeCheckName is the name that is removed now and then to see whether a node takes writes. Nothing is ever stored there.
func writeCheckName(namespace string) string {
	if namespace != "" {
		namespace += "/"
	}
	return writeCheckPrefix + namespace + "check"
}

// checkKey is the one rule for keys: any bytes, 1 to MaxKeyBytes of them, kept exactly.
func checkKey(key string) error {
	switch {
	case validKey(key):
		return nil
	case key == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidKey)
	}
	return fmt.Errorf("%w: %s: at most %d bytes", ErrInvalidKey, shortKey(key), MaxKeyBytes)
}

func validKey(key string) bool { return len(key) > 0 && len(key) <= MaxKeyBytes }

// checkName is the rule for cache names and namespaces: [A-Za-z0-9_.-]+.
func checkName(field, name string) error {
	if name == "" {
		return &ConfigError{field, `""`, "must be given"}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default:
			return &ConfigError{field, strconv.Quote(name), "only letters, digits, '_', '.' and '-' may be in it"}
		}
	}
	return nil
}

// naming builds the physical names of one cache's keys.
//
// The data key is `<name>:<key>:v<schema>`, after `<namespace>/` where there is one. Names hold neither ':' nor '/', and a schema is
// digits: so the parts can be told apart from both ends whatever bytes the key holds, and no two inputs share an entry.
type naming struct {
	prefix, suffix string
	of             invalidation.Group // the cache's own companions, on every node
}

func newNaming(namespace, name string, schema int) naming {
	n := naming{prefix: name + ":", suffix: ":v" + strconv.Itoa(schema)}
	if namespace != "" {
		n.prefix = namespace + "/" + n.prefix
	}
	cache := strings.TrimSuffix(n.prefix, ":") + n.suffix
	n.of = invalidation.Group{Generation: generationPrefix + cache, Tags: tagsPrefix + cache}
	return n
}

// data is the name of the entry; it also decides which node owns the key, so that all companions live where the data lives.
func (n naming) data(key string) string { return n.prefix + key + n.suffix }

// key reads the key off the name of an entry; false for a name that is not one of this cache's.
func (n naming) key(data string) (string, bool) {
	key, ok1 := strings.CutPrefix(data, n.prefix)
	key, ok2 := strings.CutSuffix(key, n.suffix)
	return key, ok1 && ok2
}

// entry is key also for the name of an entry in the gutter, and for that under which a copy is owed.
func (n naming) entry(name string) (key string, beside, ok bool) {
	if _, data, is := copyOwed(name); is {
		key, ok = n.key(data)
		return key, true, ok
	}
	name, beside = strings.CutPrefix(name, gutterPrefix)
	key, ok = n.key(name)
	return key, beside, ok
}

// keys is all the names of a key, cut out of one string: a batch makes very many.
func (n naming) keys(key string) invalidation.Keys {
	names := markPrefix + n.prefix + key + n.suffix + leasePrefix + n.prefix + key + n.suffix + bodyPrefix + n.prefix + key + n.suffix
	data := len(n.prefix) + len(key) + len(n.suffix)
	m, l := len(markPrefix)+data, len(leasePrefix)+data
	return invalidation.Keys{Data: names[len(markPrefix):m], Lease: names[m : m+l], Mark: names[:m], Body: names[m+l:], Of: n.of}
}
