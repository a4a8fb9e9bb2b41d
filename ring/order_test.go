// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package ring_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/go-shelf/shelf/ring"
)

// childEnv tells the test binary to be one of the processes of
// TestRB26_SeparateProcesses: it holds the seed of the nodes' order.
const childEnv = "SHELF_RING_TEST_CHILD"

// members are five nodes with weights and racks.
func members() []ring.Node {
	return []ring.Node{
		{ID: "cache-1", Addr: "10.0.0.1:6379", Rack: "r1"},
		{ID: "cache-2", Addr: "10.0.0.2:6379", Rack: "r2", Weight: 2},
		{ID: "cache-3", Addr: "10.0.0.3:6379", Rack: "r1", Weight: 0.5},
		{ID: "cache-4", Addr: "10.0.0.4:6379", Weight: 1},
		{ID: "cache-5", Addr: "10.0.0.5:6379", Rack: "r2", Weight: 3},
	}
}

// memberHashes are the default and one with 1,024 values, under which the
// 7,680 points of the members collide seven times over.
var memberHashes = map[string]func(string) uint64{
	"default":      nil,
	"1,024 values": func(s string) uint64 { return xxhash.Sum64String(s) % 1024 << 54 },
}

func memberKeys() []string {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%d", i)
	}
	return keys
}

// answers is everything that a ring says about keys: owner and fallback order
// of each, by the last byte of the nodes' IDs.
func answers(tb testing.TB, cfg ring.Config, keys []string) []byte {
	r := mustNew(tb, cfg)
	nodes := r.Nodes()
	out := make([]byte, 0, len(keys)*(r.Len()+1))
	for _, key := range keys {
		owner := nodes[r.OwnerIndex(key)].ID
		out = append(out, owner[len(owner)-1])
		for n := range r.Walk(key) {
			out = append(out, n.ID[len(n.ID)-1])
		}
	}
	return out
}

// detour comes to the members by a long way: a list to which others are added
// and from which some are removed, with a ring built at every step, as
// a service does whose nodes come and go. It ends in some order.
func detour(tb testing.TB, rng *rand.Rand) []ring.Node {
	nodes := shuffled(rng, members())
	step := func(changed []ring.Node) {
		nodes = changed
		mustNew(tb, ring.Config{Nodes: nodes, Points: 8})
	}
	for i := range 3 {
		step(append(nodes, ring.Node{ID: fmt.Sprintf("guest-%d", i), Weight: float64(i)}))
		gone := nodes[0]
		step(slices.Clone(nodes[1:]))
		gone.Addr = "elsewhere:6379"
		step(slices.Insert(nodes, rng.IntN(len(nodes)), gone))
	}
	step(slices.DeleteFunc(slices.Clone(nodes), func(n ring.Node) bool { return strings.HasPrefix(n.ID, "guest") }))
	return nodes
}

// Clients that list the same nodes in another order, take them from a map, or
// came to them by adding and removing must agree on owner and fallback order
// of every key, or they write and invalidate different copies. 200 rings of
// five weighted nodes, 10,000 keys; again with points that collide. The race
// detector makes it ten times slower and has nothing to find in it, so it gets
// 20 rings.
func TestRB26_SameMembersSameRing(t *testing.T) {
	keys, builds := memberKeys(), 200
	if raceDetector() {
		builds = 20
	}
	for name, hash := range memberHashes {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(26, 0))
			want := answers(t, ring.Config{Nodes: members(), Hash: hash}, keys)
			for build := range builds {
				var nodes []ring.Node
				switch build % 3 {
				case 0:
					nodes = shuffled(rng, members())
				case 1:
					byID := make(map[string]ring.Node)
					for _, n := range members() {
						byID[n.ID] = n
					}
					for _, n := range byID {
						nodes = append(nodes, n)
					}
				case 2:
					nodes = detour(t, rng)
				}
				if got := answers(t, ring.Config{Nodes: nodes, Hash: hash}, keys); !slices.Equal(got, want) {
					t.Fatalf("build %d, of %v, differs", build, nodes)
				}
			}
		})
	}
}

// raceDetector reports whether the test binary was built with -race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// The same in processes of their own, where anything seeded once a process
// (map order, a hash) would show: the test binary runs itself.
func TestRB26_SeparateProcesses(t *testing.T) {
	seed, isChild := os.LookupEnv(childEnv)
	digest := func(order func([]ring.Node) []ring.Node) string {
		sum := sha256.New()
		for _, name := range []string{"default", "1,024 values"} {
			sum.Write(answers(t, ring.Config{Nodes: order(members()), Hash: memberHashes[name]}, memberKeys()))
		}
		return fmt.Sprintf("digest %x", sum.Sum(nil))
	}
	if isChild {
		rng := rand.New(rand.NewPCG(xxhash.Sum64String(seed), 0))
		fmt.Println(digest(func(nodes []ring.Node) []ring.Node { return shuffled(rng, nodes) }))
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := digest(func(nodes []ring.Node) []ring.Node { return nodes })
	for _, seed := range []string{"one", "two", "three"} {
		child := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), childEnv+"="+seed)
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("process %s: error %v, want the output to have %q:\n%s", seed, err, want, out)
		}
	}
}

// The node's identity is its configured name: what it resolves to, its
// replicas, rack and place in the list do not move a key.
func TestRB26_IdentityIsTheName(t *testing.T) {
	keys := memberKeys()
	before := mustNew(t, ring.Config{Nodes: members()})
	moved := members()
	for i := range moved {
		moved[i].Addr, moved[i].Replicas, moved[i].Rack = moved[len(moved)-1-i].Addr, []string{"10.9.9.9:6379"}, "elsewhere"
	}
	after := mustNew(t, ring.Config{Nodes: moved})
	for _, key := range keys {
		if before.Owner(key).ID != after.Owner(key).ID {
			t.Fatalf("%s moved from %s to %s with the addresses", key, before.Owner(key).ID, after.Owner(key).ID)
		}
	}
}
