// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/invalidation"
)

// What a first writer of each algorithm made of goldenText.
const (
	goldenS2   = "x8{\"name\":\"pen\"},\x11\x0f\x15\x00Y"
	goldenZstd = "(\xb5/\xfd\x04\x00\xbd\x00\x00x{\"name\":\"pen\"},\x01T\x0f\x04*F\x02\x847\xbe\f"
)

var goldenText = strings.Repeat(`{"name":"pen"},`, 8)

// TestCompressionGolden: what was once written is read for ever.
func TestCompressionGolden(t *testing.T) {
	for how, packed := range map[Compression]string{CompressS2: goldenS2, CompressZstd: goldenZstd} {
		if b, ok := decompress(make([]byte, 0, 120), []byte(packed), packing{how, 120}); !ok || string(b) != goldenText {
			t.Errorf("%v: %q, %v", how, b, ok)
		}
	}
}

// parseFirst is how the first readers of format 1 read it, which knew neither compression nor bodies.
func parseFirst(data []byte) (payload []byte, ok bool) {
	const known = 1 << 0
	if len(data) < 56 || data[0] != 0xF5 || data[1] != 0x53 || data[2] != 1 {
		return nil, false
	}
	flags, start, length := binary.BigEndian.Uint16(data[4:]), int(binary.BigEndian.Uint16(data[6:])), int(binary.BigEndian.Uint32(data[52:]))
	if flags&0x00FF&^known != 0 || start < 56 || start > len(data) || len(data)-start != length {
		return nil, false
	}
	return data[start:], true
}

// TestOldReadersFailSoftly: to them the new forms are a miss, and what is written plainly is what it was.
func TestOldReadersFailSoftly(t *testing.T) {
	for _, g := range golden {
		plain := g.header.packed == packing{} && g.header.apart == apart{}
		payload, ok := parseFirst(appendEnvelope(nil, g.header, []byte(g.payload)))
		if ok != plain || (ok && string(payload) != g.payload) {
			t.Errorf("%s: an old reader takes it for %q, %v", g.file, payload, ok)
		}
	}
}

// judged is what the cache says of an entry that was stored under its present generation.
func judged(c *Cache[[]byte], wire []byte, n *redisnode.Node) (entry[[]byte], freshness) {
	setStamp(wire, 1)
	return c.judge(wire, n, invalidation.Generation{Seq: 1, Cleared: 1})
}

// sealer is a cache that only seals and judges.
func sealer(t testing.TB, edit func(*CacheConfig[[]byte])) (*Cache[[]byte], *redisnode.Node) {
	cfg := CacheConfig[[]byte]{Name: "x", TTL: time.Minute, Truth: true}
	if edit != nil {
		edit(&cfg)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	n, err := redisnode.New(redisnode.Config{ID: "none", Addr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return &Cache[[]byte]{cfg: cfg, draw: func() float64 { return 0.5 }}, n
}

func TestCompression(t *testing.T) {
	plain, n := sealer(t, nil)
	for _, how := range []Compression{CompressS2, CompressZstd} {
		c, _ := sealer(t, func(cfg *CacheConfig[[]byte]) { cfg.Compression, cfg.LargeValueBytes = how, 1<<20 })
		for _, tc := range []struct {
			name    string
			payload []byte
			packed  bool
		}{
			{"empty", []byte{}, false},
			{"below the size", jsonRows(900)[:1023], false},
			{"of the size", bytes.Repeat([]byte("ab"), 512), true},
			{"rows", jsonRows(64 << 10), true},
			{"the largest", bytes.Repeat([]byte("abcdefgh"), 128<<10), true},
			{"random", randomBytes(100_000), false},
			{"smaller by a tenth", append(randomBytes(90_000), make([]byte, 10_000)...), false},
			{"smaller by a fifth", append(randomBytes(80_000), make([]byte, 20_000)...), true},
		} {
			e := c.seal(tc.payload, false, n, time.Now(), 0, SetOptions{})
			if packed := (e.packed != packing{}); packed != tc.packed || (packed && len(e.wire) >= len(tc.payload)) {
				t.Errorf("%v, %s: packed %v, %d bytes of %d", how, tc.name, packed, len(e.wire), len(tc.payload))
			}
			if e.size != headerBytes+len(tc.payload) {
				t.Errorf("%v, %s: counts as %d bytes", how, tc.name, e.size)
			}
			for _, reader := range []*Cache[[]byte]{c, plain} {
				got, f := judged(reader, e.wire, n)
				if f != fresh || !bytes.Equal(got.value, tc.payload) || got.size != e.size {
					t.Errorf("%v, %s: read as %d bytes, %v", how, tc.name, len(got.value), f)
				}
			}
		}
	}
}

// TestMaxValueBytesCountsTheOriginal, on both sides: the writer does not store what compresses below it, and the reader does not unpack what
// claims to be above it.
func TestMaxValueBytesCountsTheOriginal(t *testing.T) {
	small := func(cfg *CacheConfig[[]byte]) { cfg.Compression, cfg.MaxValueBytes = CompressZstd, 10_000 }
	writer, n := sealer(t, func(cfg *CacheConfig[[]byte]) { cfg.Compression, cfg.MaxValueBytes = CompressZstd, 10_001 })
	c, _ := sealer(t, small)
	if e := c.seal(make([]byte, 10_000), false, n, time.Now(), 0, SetOptions{}); e.wire == nil {
		t.Error("a value of MaxValueBytes was not stored")
	}
	if e := c.seal(make([]byte, 10_001), false, n, time.Now(), 0, SetOptions{}); e.wire != nil || c.counters.oversized.Load() != 1 {
		t.Error("a value above MaxValueBytes was stored")
	}
	e := writer.seal(make([]byte, 10_001), false, n, time.Now(), 0, SetOptions{})
	if _, f := judged(c, e.wire, n); f != unusable || c.counters.foreign.Load() != 1 {
		t.Errorf("an entry above MaxValueBytes was read: %v", f)
	}
}

// TestBombs: what claims more than the limit, or turns out to be more than it claims, is refused, and costs no memory beyond the limit.
func TestBombs(t *testing.T) {
	c, n := sealer(t, nil)
	zeros := make([]byte, 64<<20)
	h := header{codec: codecBytes, created: time.Now(), soft: time.Minute, hard: time.Minute}
	for _, how := range []Compression{CompressS2, CompressZstd} {
		packed, _ := compress(make([]byte, 0, maxCompressed(len(zeros))), zeros, how)
		for _, claim := range []uint32{64 << 20, math.MaxUint32, 1 << 20, 1000, 1} {
			h.packed = packing{how, claim}
			wire := appendEnvelope(nil, h, packed)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, f := judged(c, wire, n)
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; f != unusable || grown > 3<<20 {
				t.Errorf("%v of 64 MiB that claims %d: %v, %d bytes allocated", how, claim, f, grown)
			}
		}
	}
	h.packed, h.apart = packing{}, apart{bodyID{1}, 64 << 20}
	if _, f := judged(c, appendEnvelope(nil, h, nil), n); f != unusable {
		t.Errorf("a stub of a body of 64 MiB: %v", f)
	}
}

// TestCorruptPayloads: each is a miss, and counted; so is an algorithm of a later version.
func TestCorruptPayloads(t *testing.T) {
	c, n := sealer(t, nil)
	h := header{codec: codecBytes, created: time.Now(), soft: time.Minute, hard: time.Minute}
	foreign := uint64(0)
	refused := func(name string, how Compression, size int, packed []byte) {
		h.packed = packing{how, uint32(size)}
		foreign++
		if _, f := judged(c, appendEnvelope(nil, h, packed), n); f != unusable || c.counters.foreign.Load() != foreign {
			t.Errorf("%s: %v, %d counted", name, f, c.counters.foreign.Load())
		}
	}
	text := jsonRows(4 << 10)
	for _, how := range []Compression{CompressS2, CompressZstd} {
		packed, _ := compress(make([]byte, 0, maxCompressed(len(text))), text, how)
		refused(how.String()+" cut off", how, len(text), packed[:len(packed)/2])
		refused(how.String()+" empty", how, len(text), nil)
		refused(how.String()+" of another length", how, len(text)+1, packed)
		refused(how.String()+" twice", how, len(text), append(bytes.Clone(packed), packed...))
	}
	packed, _ := compress(make([]byte, 0, maxCompressed(len(text))), text, CompressZstd)
	for i := range packed { // the checksum finds what the format does not
		bad := bytes.Clone(packed)
		bad[i] ^= 0x10
		if b, ok := decompress(make([]byte, 0, len(text)), bad, packing{CompressZstd, uint32(len(text))}); ok && !bytes.Equal(b, text) {
			t.Fatalf("byte %d changed: nobody noticed", i)
		}
	}
	refused("an unknown algorithm", 77, len(text), s2.Encode(nil, text))
}

// TestCompressionLeavesNothing: many at once, each with its own result, and no goroutine afterwards.
func TestCompressionLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 16 {
		c, n := sealer(t, func(cfg *CacheConfig[[]byte]) { cfg.Compression = CompressS2 + Compression(i%2) })
		wg.Go(func() {
			for j := range 50 {
				v := bytes.Repeat([]byte(fmt.Sprint(i, "-", j, " ")), 400)
				e := c.seal(v, false, n, time.Now(), 0, SetOptions{})
				if got, f := judged(c, e.wire, n); f != fresh || !bytes.Equal(got.value, v) {
					t.Errorf("%d-%d: %v", i, j, f)
				}
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// FuzzOpen: whatever lies on a node, it is read within the limit or not at all.
func FuzzOpen(f *testing.F) {
	for _, g := range golden {
		g.header.codec, g.header.created, g.header.hard, g.header.stamp = codecBytes, time.Now(), MaxTTL, 1
		f.Add(appendEnvelope(nil, g.header, []byte(g.payload)))
	}
	c, n := sealer(f, func(cfg *CacheConfig[[]byte]) { cfg.MaxValueBytes = 4 << 10 })
	f.Fuzz(func(t *testing.T, b []byte) {
		e, fr := c.judge(b, n, invalidation.Generation{Seq: 1, Cleared: 1})
		if (fr == fresh || fr == softened) && e.packed != (packing{}) && len(e.value) > 4<<10 {
			t.Errorf("% x: %d bytes", b, len(e.value))
		}
	})
}
