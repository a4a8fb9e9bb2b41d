// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/go-shelf/shelf/ring"
)

var update = flag.Bool("update", false, "write ../testdata/ring/vectors.txt anew (this moves every user's keys if it changes a line)")

var vectorsFile = filepath.Join("..", "testdata", "ring", "vectors.txt")

// vectors is what the golden file holds.
type vectors struct {
	nodes  []ring.Node
	owners [][2]string         // key, node
	walks  map[string][]string // of some of the keys
}

// The golden file must hold for ever: for this package, and for the twin with
// its own XXH64, which shares neither code nor hash library with the package.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	v := readVectors(t)
	if len(v.owners) != 1000 || len(v.walks) != 100 {
		t.Fatalf("%d owners and %d walks, want 1000 and 100", len(v.owners), len(v.walks))
	}
	r := mustNew(t, ring.Config{Nodes: v.nodes})
	tw := newTwin(ring.Config{Nodes: v.nodes, Hash: xxh64})
	for _, o := range v.owners {
		key, want := o[0], o[1]
		if got := r.Owner(key).ID; got != want {
			t.Errorf("Owner(%q) = %s, want %s", key, got, want)
		}
		if got := tw.ownerAt(xxh64(key)); got != want {
			t.Errorf("twin's owner of %q = %s, want %s", key, got, want)
		}
	}
	for key, want := range v.walks {
		if got := walkIDs(r, key); !slices.Equal(got, want) {
			t.Errorf("Walk(%q) = %v, want %v", key, got, want)
		}
		if got := tw.walk(key); !slices.Equal(got, want) {
			t.Errorf("twin's walk of %q = %v, want %v", key, got, want)
		}
	}
}

// The transcribed hash is XXH64: test values of the specification's author
// (empty) and of the library (the rest), and the library itself.
func TestTranscribedHash(t *testing.T) {
	for s, want := range map[string]uint64{
		"":    0xef46db3751d8e999,
		"a":   0xd24ec4f1a98c6e5b,
		"as":  0x1c330fb2d66be179,
		"asd": 0x631c37ce72a97393,
		"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02a2e85470d6fd96,
	} {
		if got := xxh64(s); got != want {
			t.Errorf("xxh64(%q) = %#x, want %#x", s, got, want)
		}
	}
	for n := range 200 {
		if s := strings.Repeat("\xffz", n)[:n]; xxh64(s) != xxhash.Sum64String(s) {
			t.Errorf("xxh64 differs from the library for %d bytes", n)
		}
	}
}

// vectorKeys are the golden keys: some awkward, the rest as services make
// them. Lengths fall on all branches of the hash.
func vectorKeys() []string {
	keys := []string{"", "a", "#", "cache-a#0", "\x00", "\xff\xfe", "söme kéy", "鍵", "{user}:1", " space ", "a\nb\tc"}
	for i := range 64 {
		keys = append(keys, strings.Repeat("0123456789abcdef", 5)[:i+2])
	}
	rng := rand.New(rand.NewPCG(1024, 64))
	for i := 0; len(keys) < 1000; i++ {
		switch i % 3 {
		case 0:
			keys = append(keys, fmt.Sprintf("user:%d", i))
		case 1:
			keys = append(keys, fmt.Sprintf("product:%d:v3", rng.Uint32()))
		case 2:
			keys = append(keys, "session:"+uuid(rng))
		}
	}
	return keys
}

func uuid(rng *rand.Rand) string {
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", rng.Uint32(), rng.Uint32()>>16, rng.Uint32()>>20,
		rng.Uint32()>>18|0x8000, rng.Uint64()>>16)
}

func writeVectors(t *testing.T) {
	nodes := []ring.Node{
		{ID: "cache-a", Rack: "r1"}, {ID: "cache-b", Rack: "r1", Weight: 2}, {ID: "cache-c", Rack: "r2"},
		{ID: "cache-d", Rack: "r2", Weight: 0.5}, {ID: "cache-e"}, {ID: "10.0.0.6:6379", Weight: 0.001}, {ID: "nœud", Rack: "r3", Weight: 1.7},
	}
	r := mustNew(t, ring.Config{Nodes: nodes})
	var b bytes.Buffer
	b.WriteString("# Placement of 1,000 keys at 1,024 points for weight 1. See README.md. Strings are quoted as in Go.\n")
	for _, n := range r.Nodes() {
		fmt.Fprintf(&b, "node %+q rack %+q weight %v\n", n.ID, n.Rack, n.Weight)
	}
	for i, key := range vectorKeys() {
		fmt.Fprintf(&b, "owner %+q %+q\n", key, r.Owner(key).ID)
		if i%10 == 0 {
			fmt.Fprintf(&b, "walk %+q %+q\n", key, walkIDs(r, key))
		}
	}
	if err := os.WriteFile(vectorsFile, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readVectors(t *testing.T) vectors {
	data, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	v := vectors{walks: make(map[string][]string)}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		err := error(nil)
		switch kind {
		case "#":
		case "node":
			var n ring.Node
			_, err = fmt.Sscanf(rest, "%q rack %q weight %g", &n.ID, &n.Rack, &n.Weight)
			v.nodes = append(v.nodes, n)
		case "owner":
			var o [2]string
			_, err = fmt.Sscanf(rest, "%q %q", &o[0], &o[1])
			v.owners = append(v.owners, o)
		case "walk":
			var key string
			ids := make([]string, len(v.nodes)) // all of them
			args := []any{&key}
			for i := range ids {
				args = append(args, &ids[i])
			}
			format := "%q [" + strings.TrimSuffix(strings.Repeat("%q ", len(ids)), " ") + "]"
			_, err = fmt.Sscanf(rest, format, args...)
			v.walks[key] = ids
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
		if err != nil {
			t.Fatalf("%s: %q: %v", vectorsFile, lines.Text(), err)
		}
	}
	return v
}
