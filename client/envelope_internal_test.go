// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

var update = flag.Bool("update", false, "write the golden files of the envelope")

// golden are the envelopes in ../testdata/envelope: written once by the format's first release, read for ever after (until the format
// that follows the next one).
var golden = []struct {
	file    string
	header  header
	payload string
}{
	{"format1-json", header{codec: codecJSON, version: 1<<63 + 5, epoch: 7, created: time.UnixMilli(1_700_000_000_123), soft: 8 * time.Minute, hard: 10 * time.Minute, cost: 12345 * time.Microsecond}, `{"Name":"pen"}`},
	{"format1-bytes-empty", header{codec: codecBytes, version: 1, created: time.UnixMilli(1), soft: time.Millisecond, hard: time.Millisecond}, ""},
	{"format1-string", header{codec: codecString, created: time.UnixMilli(1_700_000_000_000), soft: time.Hour, hard: MaxTTL, cost: maxCost}, "a\x00b\xff"},
	{"format1-negative", header{codec: codecJSON, negative: true, created: time.UnixMilli(1_700_000_000_000), soft: 30 * time.Second, hard: 30 * time.Second}, ""},
	{"format1-stamp-tags", header{codec: codecJSON, version: 2, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: 2 * time.Second, stamp: 0x0102030405060708, tags: []string{"category:3", "\x00\xff"}}, "{}"},
	{"format1-user-codec", header{codec: FirstUserCodec, version: math.MaxUint64, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: 2 * time.Second}, "payload"},
	{"format1-s2", header{codec: codecJSON, version: 5, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: time.Minute, packed: packing{CompressS2, 120}}, goldenS2},
	{"format1-zstd", header{codec: codecJSON, version: 5, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: time.Minute, packed: packing{CompressZstd, 120}}, goldenZstd},
	{"format1-stub", header{codec: codecBytes, version: 7, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: time.Minute, apart: apart{bodyID{0: 1, 15: 16}, 1 << 20}}, ""},
	{"format1-stub-s2", header{codec: codecBytes, version: 7, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: time.Minute, packed: packing{CompressS2, 1 << 20}, apart: apart{bodyID{0: 1, 15: 16}, 300_000}}, ""},
	{"format1-copy", header{codec: codecJSON, version: 3, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: time.Minute, stamp: 5, source: 0x1112131415161718}, "{}"},
	{"format1-copied", header{codec: codecJSON, version: 3, created: time.UnixMilli(1_700_000_000_000), soft: time.Second, hard: time.Minute, stamp: 5, source: 0x1112131415161718, copied: time.UnixMilli(1_700_000_000_500)}, "{}"},
}

func TestEnvelopeGolden(t *testing.T) {
	for _, g := range golden {
		path := filepath.Join("..", "testdata", "envelope", g.file+".bin")
		wrote := appendEnvelope(nil, g.header, []byte(g.payload))
		if *update {
			if err := os.WriteFile(path, wrote, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(wrote, want) {
			t.Errorf("%s: written as\n% x\nwant\n% x", g.file, wrote, want)
		}
		h, payload, ok := parseEnvelope(want)
		if !ok || !reflect.DeepEqual(h, g.header) || string(payload) != g.payload {
			t.Errorf("%s: read as %+v %q %v, want %+v %q", g.file, h, payload, ok, g.header, g.payload)
		}
	}
}

// TestEnvelopeOffsets pins the fields that the scripts read by their place, independently of the code that writes them.
func TestEnvelopeOffsets(t *testing.T) {
	b := appendEnvelope([]byte("before"), header{codec: 9, version: 0x0102030405060708}, []byte("xyz"))[len("before"):]
	if !bytes.Equal(b[:4], []byte{0xF5, 0x53, 1, 9}) {
		t.Errorf("magic, format, codec: % x", b[:4])
	}
	if !bytes.Equal(b[8:16], []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("version: % x", b[8:16])
	}
	setStamp(b, 0x1112131415161718)
	if !bytes.Equal(b[56:67], []byte{1, 0, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}) {
		t.Errorf("stamp: % x", b[56:67])
	}
	if string(b[67:]) != "xyz" || binary.BigEndian.Uint32(b[52:]) != 3 || binary.BigEndian.Uint16(b[6:]) != 67 {
		t.Errorf("payload % x after header % x", b[67:], b[:67])
	}
}

// TestEnvelopeForeign: what is not an envelope of ours, wholly, is not read at all.
func TestEnvelopeForeign(t *testing.T) {
	good := appendEnvelope(nil, header{codec: codecString, hard: time.Second}, []byte("payload"))
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for name, b := range map[string][]byte{
		"empty":               {},
		"text":                []byte("hello, this was written by another program, longer than a header is"),
		"short":               good[:headerBytes-1],
		"truncated payload":   good[:len(good)-1],
		"appended to":         append(bytes.Clone(good), '!'),
		"other magic":         edit(func(b []byte) []byte { b[1]++; return b }),
		"format 0":            edit(func(b []byte) []byte { b[2] = 0; return b }),
		"a later format":      edit(func(b []byte) []byte { b[2] = formatNow + 1; return b }),
		"unknown must-flag":   edit(func(b []byte) []byte { b[5] |= 0x80; return b }),
		"header ends early":   edit(func(b []byte) []byte { b[7] = headerBytes - 1; return b }),
		"header ends outside": edit(func(b []byte) []byte { b[6] = 0xFF; return b }),
		"TTL beyond reason":   edit(func(b []byte) []byte { b[40] = 0x7F; return b }),
		"broken extension":    withExtension(good, []byte{200, 0, 200}),
		"packed, not how":     edit(func(b []byte) []byte { b[5] |= flagPacked; return b }),
		"how, but not packed": withExtension(good, []byte{extPacked, 0, 5, 1, 0, 0, 0, 7}),
		"apart, not where":    edit(func(b []byte) []byte { b[5] |= flagApart; return b }),
		"apart and here":      flagged(withExtension(good, append([]byte{extApart, 0, 20, 1}, make([]byte, 19)...)), flagApart),
		"how is too short":    flagged(withExtension(good, []byte{extPacked, 0, 4, 1, 0, 0, 7}), flagPacked),
		"negative and packed": flagged(withExtension(good, []byte{extPacked, 0, 5, 1, 0, 0, 0, 7}), flagPacked|flagNegative),
	} {
		if h, _, ok := parseEnvelope(b); ok {
			t.Errorf("%s: read as %+v", name, h)
		}
	}
}

// TestEnvelopeExtensions: a later writer may add extensions and may-ignore flags; this reader skips them.
func TestEnvelopeExtensions(t *testing.T) {
	good := appendEnvelope(nil, header{codec: codecString, version: 3, hard: time.Second}, []byte("payload"))
	b := withExtension(good, []byte{200, 0, 2, 'a', 'b', 201, 0, 0})
	b[4] = 0x80 // a flag among those that may be ignored
	h, payload, ok := parseEnvelope(b)
	if !ok || h.version != 3 || string(payload) != "payload" {
		t.Errorf("read as %+v %q %v", h, payload, ok)
	}
}

func flagged(envelope []byte, flags byte) []byte {
	envelope[5] |= flags
	return envelope
}

func withExtension(envelope, ext []byte) []byte {
	b := append(bytes.Clone(envelope[:minHeader]), ext...)
	binary.BigEndian.PutUint16(b[6:], uint16(minHeader+len(ext)))
	return append(b, envelope[minHeader:]...)
}

// TestAge: an age a little below zero is the clocks' disagreement; far below, the entry is not to be trusted.
func TestAge(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for _, tc := range []struct {
		ahead time.Duration
		age   time.Duration
		ok    bool
	}{
		{-time.Minute, time.Minute, true},
		{0, 0, true},
		{2 * time.Second, 0, true},
		{5 * time.Second, 0, true},
		{5*time.Second + time.Millisecond, 0, false},
		{time.Hour, 0, false},
	} {
		h := header{created: now.Add(tc.ahead)}
		if age, ok := h.age(now); age != tc.age || ok != tc.ok {
			t.Errorf("created %v ahead: age %v, %v; want %v, %v", tc.ahead, age, ok, tc.age, tc.ok)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	for _, g := range golden {
		f.Add(appendEnvelope(nil, g.header, []byte(g.payload)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, ok := parseEnvelope(b)
		if !ok {
			return
		}
		// What was read can be written and read again, the same but for extensions.
		again, payload2, ok := parseEnvelope(appendEnvelope(nil, h, payload))
		if !ok || !reflect.DeepEqual(again, h) || !bytes.Equal(payload, payload2) {
			t.Errorf("% x: read as %+v, written and read again as %+v", b, h, again)
		}
	})
}

// TestNames: no two different inputs share an entry, whatever bytes keys hold, and no data key can be another's companion.
func TestNames(t *testing.T) {
	keys := []string{"k", "k:v1", "k:v1:v1", "b:k", "x/y:k", "~l:k", "~m:n:k:v1", "", ":", "{k}", "k\x00", "k\r\nDEL x", "\xff\xfe", "\u00e9", "e\u0301"}
	seen := make(map[string]string)
	for _, space := range []string{"", "n", "m"} {
		for _, name := range []string{"n", "m", "n.m"} {
			for _, schema := range []int{0, 1, 11} {
				for _, key := range keys {
					what := space + "|" + name + "|" + key + "|" + string(rune('0'+schema))
					names := newNaming(space, name, schema)
					k := names.keys(key)
					for _, physical := range []string{k.Data, k.Lease, k.Mark, k.Body, stagedName(k.Body, bodyID{1})} {
						if other, twice := seen[physical]; twice {
							t.Errorf("%q is a name of both %q and %q", physical, other, what)
						}
						seen[physical] = what
					}
				}
			}
		}
	}
	if got, want := newNaming("", "product", 3).data("4411"), "product:4411:v3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := newNaming("shop", "product", 3).data("a{b}c"), "shop/product:a{b}c:v3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEarlyRefreshOfTheFuture: what is left of clock estimation makes the age of a new entry negative, sometimes. It counts as zero: such an entry is
// refreshed early by exactly the readers that would refresh one of age zero, neither always nor never.
func TestEarlyRefreshOfTheFuture(t *testing.T) {
	const draws = 1000
	node, err := redisnode.New(redisnode.Config{ID: "n", Addr: "127.0.0.1:1"}) // never asked: its clock is this one
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = node.Close() }()
	next := 0.0
	c := &Cache[string]{cfg: CacheConfig[string]{Codec: defaultCodec[string](), Beta: 1}, draw: func() float64 { next++; return (next - 1) / draws }}
	elected := func(ahead time.Duration) (n int) {
		next = 0
		for range draws {
			h := header{codec: c.cfg.Codec.ID(), created: time.Now().Add(ahead), soft: time.Hour, hard: 2 * time.Hour, cost: 20 * time.Minute, stamp: 1}
			e, f := c.judge(appendEnvelope(nil, h, []byte("v")), node, invalidation.Generation{Seq: 1, Cleared: 1})
			if f == softened {
				n++
			}
			if f == unusable || e.ageAt(time.Now()) > time.Second {
				t.Fatalf("%v ahead: judged %v, age %v", ahead, f, e.ageAt(time.Now()))
			}
		}
		return n
	}
	// exp(-3) of the readers: the draws within 1/1000 of the formula, and a test machine that needs a while for a thousand of them
	want := int(draws * math.Exp(-3))
	for _, ahead := range []time.Duration{0, time.Second, 4 * time.Second} {
		if n := elected(ahead); n < want-1 || n > want+1 {
			t.Errorf("%v ahead: %d of %d readers refresh, want %d", ahead, n, draws, want)
		}
	}
}
