// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/invalidation"
)

// A reply that is not understood is an error and never a lease, a stored value or a delete.
func TestForeignRepliesAreErrors(t *testing.T) {
	parsers := map[string]func(any) (any, error){
		"lease": parsing(invalidation.ParseLease), "fill": parsing(invalidation.ParseFill), "release": parsing(invalidation.ParseRelease),
		"invalidate": parsing(invalidation.ParseInvalidate), "set": parsing(invalidation.ParseSet),
	}
	for name, parse := range parsers {
		for _, reply := range []any{
			nil, "", "OK", "granted", int64(2), 1, true, 3.0, []any{}, []any{nil, nil, nil}, []any{"granted", nil}, []any{"other", nil, nil},
			[]any{"granted", int64(1), nil}, []any{"granted", nil, "short"}, []any{int64(1), "short", int64(0)},
			[]any{int64(3), nil, int64(0)}, []any{int64(1), nil, "0"}, []any{"unknown", nil, nil}, map[any]any{}, fmt.Errorf("an error"),
		} {
			got, err := parse(reply)
			if err == nil {
				t.Errorf("%s: %#v was read as %+v", name, reply, got)
			} else if !strings.HasPrefix(err.Error(), "invalidation: "+name+": ") {
				t.Errorf("%s: error %q does not say where it comes from", name, err)
			}
		}
	}
	if _, err := invalidation.ParseSet("lease-lost"); err == nil {
		t.Error("set answered lease-lost, and nobody objected")
	}
}

// Drivers hand out bulk strings as string or as []byte.
func TestBothKindsOfBulkStrings(t *testing.T) {
	for _, reply := range []any{[]any{"held", "", be(7), "9 8"}, []any{[]byte("held"), []byte{}, []byte(be(7)), []byte("9 8")}} {
		got, err := invalidation.ParseLease(reply)
		if want := (invalidation.LeaseReply{Status: invalidation.Held, Data: []byte{}, Mark: 7, Generation: invalidation.Generation{Seq: 9, Cleared: 8}}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v: got %+v, %v", reply, got, err)
		}
	}
}

func TestLifetimesRoundUp(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want int64
	}{{-time.Second, 1}, {0, 1}, {1, 1}, {time.Millisecond, 1}, {time.Millisecond + 1, 2}, {time.Second, 1000}, {math.MaxInt64, 9223372036855}} {
		if got := invalidation.Lease(invalidation.Keys{}, "", invalidation.LeaseMiss, c.d).Args[2]; got != c.want {
			t.Errorf("%d ns are %v ms, want %d", c.d, got, c.want)
		}
	}
	if got := invalidation.Release(invalidation.Keys{}, "", -1).Args[2]; got != int64(0) {
		t.Errorf("a negative no-store time is %v ms, want 0", got)
	}
}
