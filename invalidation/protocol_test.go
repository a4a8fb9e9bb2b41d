// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

func lease(tb testing.TB, b backend, k invalidation.Keys, token string, mode invalidation.LeaseMode) invalidation.LeaseReply {
	tb.Helper()
	return must(tb, b, invalidation.Lease(k, token, mode, 5*time.Second), invalidation.ParseLease)
}

func fill(tb testing.TB, b backend, k invalidation.Keys, token string, version uint64) invalidation.Outcome {
	tb.Helper()
	value := []byte(entryOf(version, "by "+token))
	return must(tb, b, invalidation.Fill(k, invalidation.Filling{Token: token, Value: value, TTL: time.Minute, Version: version}), invalidation.ParseFill)
}

func invalidate(tb testing.TB, b backend, k invalidation.Keys, version uint64) invalidation.Invalidated {
	tb.Helper()
	return must(tb, b, invalidation.Invalidate(k, version, 10*time.Second, 0), invalidation.ParseInvalidate)
}

func release(tb testing.TB, b backend, k invalidation.Keys, token string, noStore time.Duration) bool {
	tb.Helper()
	return must(tb, b, invalidation.Release(k, token, noStore), invalidation.ParseRelease)
}

func equal[T comparable](tb testing.TB, what string, got, want T) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A reader loads while a writer changes the row and invalidates: the reader's fill is void.
func TestSlowReaderCannotFill(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("slow")
		equal(t, "lease", lease(t, b, k, "A", invalidation.LeaseMiss).Status, invalidation.Granted)
		equal(t, "removed", invalidate(t, b, k, 0).Removed, false)
		equal(t, "A's fill", fill(t, b, k, "A", 1), invalidation.LeaseLost)
		equal(t, "data", b.Exists(t.Context(), k.Data).Val(), 0)
	})
}

// The load outlasts its lease, another reader is granted the next one: the first reader's release
// and fill must leave it alone, and a third reader must still see it held.
func TestRB22_ReleaseByFormerHolder(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("rb22")
		equal(t, "A's lease", lease(t, b, k, "A", invalidation.LeaseMiss).Status, invalidation.Granted)
		b.Del(t.Context(), k.Lease) // it expires
		equal(t, "B's lease", lease(t, b, k, "B", invalidation.LeaseMiss).Status, invalidation.Granted)

		equal(t, "A's release", release(t, b, k, "A", 0), false)
		equal(t, "A's release with a marker", release(t, b, k, "A", time.Second), false)
		equal(t, "A's late fill", fill(t, b, k, "A", 1), invalidation.LeaseLost)
		equal(t, "C's lease", lease(t, b, k, "C", invalidation.LeaseMiss).Status, invalidation.Held)

		equal(t, "B's fill", fill(t, b, k, "B", 1), invalidation.Stored)
		if got := lease(t, b, k, "C", invalidation.LeaseMiss); got.Status != invalidation.Found || string(got.Data) != entryOf(1, "by B") {
			t.Errorf("C got %v %q, want B's value", got.Status, got.Data)
		}
		equal(t, "B's release after its fill", release(t, b, k, "B", 0), false)
	})
}

// The lease is good, but the load read a database replica that lags behind an invalidation.
func TestLaggingSourceCannotFill(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("lag")
		equal(t, "mark", invalidate(t, b, k, 1<<53+1).Mark, 1<<53+1)
		equal(t, "floor", lease(t, b, k, "A", invalidation.LeaseMiss).Mark, 1<<53+1)
		equal(t, "A's fill of 2^53", fill(t, b, k, "A", 1<<53), invalidation.BelowMark)
		equal(t, "B's lease, since A's refused fill gave its own back", lease(t, b, k, "B", invalidation.LeaseMiss).Status, invalidation.Granted)
		equal(t, "unversioned fill", fill(t, b, k, "B", 0), invalidation.BelowMark)

		lease(t, b, k, "C", invalidation.LeaseMiss)
		gone := invalidation.Fill(k, invalidation.Filling{Token: "C", Value: []byte(entryOf(1<<60, "")), TTL: time.Minute, Version: 1 << 60, Negative: true})
		equal(t, "negative fill", must(t, b, gone, invalidation.ParseFill), invalidation.BelowMark)
		lease(t, b, k, "D", invalidation.LeaseMiss)
		equal(t, "D's fill of the same row", fill(t, b, k, "D", 1<<53+1), invalidation.Stored)
	})
}

// A writer that stores what it has written says so to those who load from a source that lags once its entry is gone. Without a version it says nothing.
func TestWriterLeavesAMark(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("writer")
		write := func(token string, version uint64) invalidation.Outcome {
			lease(t, b, k, token, invalidation.LeaseForce)
			return must(t, b, invalidation.Fill(k, invalidation.Filling{Token: token, Value: []byte(entryOf(version, "")), TTL: time.Minute, Version: version, Mark: time.Minute}), invalidation.ParseFill)
		}
		absent := func(token string) invalidation.Outcome {
			lease(t, b, k, token, invalidation.LeaseForce)
			return must(t, b, invalidation.Fill(k, invalidation.Filling{Token: token, Value: []byte(entryOf(0, "")), TTL: time.Minute, Negative: true}), invalidation.ParseFill)
		}
		equal(t, "a write without a version", write("V", 0), invalidation.Stored)
		equal(t, "it left no mark: absence", absent("N"), invalidation.Stored)
		equal(t, "a write", write("W", 3), invalidation.Stored)
		equal(t, "an unversioned invalidation by another writer keeps the mark", invalidate(t, b, k, 0).Mark, 3)
		lease(t, b, k, "A", invalidation.LeaseMiss)
		equal(t, "a reader of a source that lags", fill(t, b, k, "A", 2), invalidation.BelowMark)
		equal(t, "an older write", write("O", 2), invalidation.BelowMark)
		equal(t, "a newer one", write("P", 4), invalidation.Stored)
		equal(t, "the mark", invalidate(t, b, k, 0).Mark, 4)
	})
}

// Invalidations that cross on their way, and one that knows no version, keep the larger mark.
func TestLargerMarkWins(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("marks")
		for _, step := range []struct{ version, mark uint64 }{{0, 0}, {3, 3}, {2, 3}, {0, 3}, {1<<64 - 1, 1<<64 - 1}, {1, 1<<64 - 1}} {
			equal(t, "mark", invalidate(t, b, k, step.version).Mark, step.mark)
		}
	})
}

func TestNoStoreMarkerAnswersAndExpires(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("nostore")
		for _, token := range []string{"n", "", "t", "A"} { // no token is the marker
			lease(t, b, k, token, invalidation.LeaseMiss)
			raw, _ := b.Get(t.Context(), k.Lease).Bytes()
			equal(t, "a token looks like the marker", invalidation.IsNoStore(raw), false)
			equal(t, "release", release(t, b, k, token, time.Second), true)
			raw, _ = b.Get(t.Context(), k.Lease).Bytes()
			equal(t, "IsNoStore", invalidation.IsNoStore(raw), true)
			equal(t, "next lease", lease(t, b, k, "B", invalidation.LeaseMiss).Status, invalidation.NoStore)
			equal(t, "fill without a lease", fill(t, b, k, "n", 1), invalidation.LeaseLost)
			equal(t, "forced lease", lease(t, b, k, "W", invalidation.LeaseForce).Status, invalidation.Granted)
			invalidate(t, b, k, 0)
		}
		lease(t, b, k, "A", invalidation.LeaseMiss)
		release(t, b, k, "A", time.Second)
		if ttl := b.PTTL(t.Context(), k.Lease).Val(); ttl <= 0 || ttl > time.Second {
			t.Errorf("marker lives for %v, want at most 1s", ttl)
		}
	})
}

// A node without memory must lose a fill, a lease or a mark, but never a delete.
func TestOutOfMemory(t *testing.T) {
	s := redistest.Start(t, redistest.Config{Args: []string{"--maxmemory-policy", "noeviction"}})
	b := backend{"redis", connect(t, s.Addr())}
	k := keysOf("oom")
	lease(t, b, k, "A", invalidation.LeaseMiss)
	fill(t, b, k, "A", 1)
	lease(t, b, k, "B", invalidation.LeaseRefresh)
	if err := b.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}

	_, err := b.run(t.Context(), invalidation.Fill(k, invalidation.Filling{Token: "B", Value: []byte(entryOf(2, "")), TTL: time.Minute, Version: 2}))
	if !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("fill: %v, want OOM", err)
	}
	equal(t, "lease after the failed fill", b.Exists(t.Context(), k.Lease).Val(), 0)
	if _, err = b.run(t.Context(), invalidation.Lease(k, "C", invalidation.LeaseRefresh, time.Second)); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("lease: %v, want OOM", err)
	}
	if _, err = b.run(t.Context(), invalidation.Set(k, []byte(entryOf(2, "")), time.Minute, 2, 0)); !redis.HasErrorPrefix(err, "OOM") {
		t.Errorf("set: %v, want OOM", err)
	}
	equal(t, "removed", invalidate(t, b, k, 2).Removed, true)
	equal(t, "data", b.Exists(t.Context(), k.Data).Val(), 0)
}

// A release that may not leave its marker still removes the lease: others must not wait for it.
func TestReleaseWithoutMemoryForTheMarker(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	b := backend{"redis", connect(t, s.Addr())}
	k := keysOf("full")
	lease(t, b, k, "A", invalidation.LeaseMiss)
	if err := b.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	equal(t, "release", release(t, b, k, "A", time.Second), true)
	equal(t, "lease", b.Exists(t.Context(), k.Lease).Val(), 0)
}

// The mark cannot be written: data and lease are gone all the same, and the caller is told.
func TestMarkFails(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	admin := connect(t, s.Addr())
	k := keysOf("acl")
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "noset", "on", ">pw", "~*", "+@all", "-set").Err(); err != nil {
		t.Fatal(err)
	}
	full := backend{"redis", admin}
	lease(t, full, k, "A", invalidation.LeaseMiss)
	fill(t, full, k, "A", 1)
	lease(t, full, k, "B", invalidation.LeaseRefresh)

	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "noset", Password: "pw", DisableIdentity: true})
	defer func() { _ = c.Close() }()
	b := backend{"redis", c}
	equal(t, "reply", invalidate(t, b, k, 2), invalidation.Invalidated{Removed: true, MarkFailed: true})
	equal(t, "keys left", admin.Exists(t.Context(), k.Data, k.Lease, k.Mark).Val(), 0)

	admin.Set(t.Context(), k.Mark, be(9), time.Minute)
	equal(t, "reply with an old mark", invalidate(t, b, k, 10), invalidation.Invalidated{Mark: 9, MarkFailed: true})
}

// Keys of another type, left by some other program, are overwritten and do not stop a delete.
func TestForeignTypes(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, b backend) {
		k := keysOf("types")
		b.HSet(t.Context(), k.Data, "f", "v")
		equal(t, "lease over a hash", lease(t, b, k, "A", invalidation.LeaseMiss).Status, invalidation.Granted)
		equal(t, "fill over a hash", fill(t, b, k, "A", 1), invalidation.Stored)
		b.Del(t.Context(), k.Lease)
		b.HSet(t.Context(), k.Lease, "f", "v")
		if _, err := b.run(t.Context(), invalidation.Fill(k, invalidation.Filling{Token: "A", Value: nil, TTL: time.Minute, Version: 2})); err == nil {
			t.Error("fill over a lease that is a hash: no error")
		}
		b.HSet(t.Context(), k.Mark, "f", "v")
		equal(t, "invalidate", invalidate(t, b, k, 7), invalidation.Invalidated{Removed: true, Mark: 7})
		equal(t, "data and lease", b.Exists(t.Context(), k.Data, k.Lease).Val(), 0)
		equal(t, "mark", b.Get(t.Context(), k.Mark).Val(), be(7))
	})
}

// A replica refuses, and the error tells it apart from a refused value.
func TestReadOnlyReplica(t *testing.T) {
	primary := redistest.Start(t, redistest.Config{})
	b := backend{"replica", connect(t, primary.Replica(t, redistest.Config{}).Addr())}
	k := keysOf("ro")
	for _, c := range []invalidation.Call{
		invalidation.Lease(k, "A", invalidation.LeaseMiss, time.Second),
		invalidation.Invalidate(k, 1, time.Second, 0),
		invalidation.Set(k, []byte("v"), time.Second, 0, 0),
	} {
		if _, err := b.run(t.Context(), c); !redis.IsReadOnlyError(err) {
			t.Errorf("%s on a replica: %v, want READONLY", c.Script.Name, err)
		}
	}
}

func TestScriptsSayWhatTheyAreFor(t *testing.T) {
	for _, s := range invalidation.Scripts() {
		for _, want := range []string{"-- KEYS", "-- ARGV", "-- reply", "nterleaving", "\n-- " + s.Name + ": "} {
			if !strings.Contains(s.Source, want) {
				t.Errorf("%s.lua has no %q in its header", s.Name, want)
			}
		}
		if len(s.SHA1) != 40 {
			t.Errorf("%s: SHA1 is %q", s.Name, s.SHA1)
		}
	}
}
