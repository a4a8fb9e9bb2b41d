// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Compression says how a cache compresses what it stores. It is a matter of the writer: every reader reads all of them, whatever its own
// configuration says, so it can be changed in a rolling deployment. The values are on the wire and never change their meaning.
type Compression uint8

const (
	// CompressNone stores payloads as the codec made them; the default.
	CompressNone Compression = iota
	// CompressS2 costs the least time: the one to begin with where nodes are short of memory or bandwidth (https://github.com/klauspost/compress/tree/master/s2).
	CompressS2
	// CompressZstd takes two to ten times as long and saves the most (RFC 8878, at its fastest level).
	CompressZstd
)

func (c Compression) String() string {
	switch c {
	case CompressNone:
		return "none"
	case CompressS2:
		return "S2"
	case CompressZstd:
		return "zstd"
	}
	return fmt.Sprintf("compression %d", uint8(c))
}

// minSaving: what is not smaller by an eighth at least is stored as it is. The saving would not pay for what every reader spends on it.
const minSaving = 8

// maxScratch bounds the buffers that are kept for reuse.
const maxScratch = 2 << 20

// scratch holds buffers for payloads between the codec and the wire, in both directions.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// withScratch lends f an empty buffer of at least size bytes' capacity. f must not keep it.
func withScratch(size int, f func(buf []byte)) {
	p := scratch.Get().(*[]byte)
	if cap(*p) < size {
		*p = make([]byte, 0, size)
	}
	f((*p)[:0])
	if cap(*p) <= maxScratch {
		scratch.Put(p)
	}
}

// The zstd coders serve the whole process; their EncodeAll and DecodeAll are safe for concurrent use and start no goroutines.
var (
	zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
		// The options are constant and right, so there is no error. The frame's checksum is kept: it costs little and finds corrupt bytes.
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
		return e
	})
	zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(zstdWindow))
		return d
	})
)

// zstdWindow is how far back zstd looks for repetition, and so what it needs in memory for each core.
const zstdWindow = 1 << 20

// compress appends the compressed payload to dst, whose capacity should be maxCompressed. ok is false where it is not worth it.
func compress(dst, payload []byte, how Compression) (packed []byte, ok bool) {
	switch how {
	case CompressS2:
		packed = s2.Encode(dst[:cap(dst)], payload)
	case CompressZstd:
		packed = zstdEncoder().EncodeAll(payload, dst)
	default:
		return nil, false
	}
	return packed, len(packed) <= len(payload)-len(payload)/minSaving
}

// maxCompressed is the capacity that compress needs at most.
func maxCompressed(size int) int { return size + size/64 + 4096 }

// decompress puts the original payload into dst, whose capacity must be p.size, and never more: a payload that turns out to be longer or
// shorter than p says is corrupt, or a bomb.
func decompress(dst, packed []byte, p packing) (payload []byte, ok bool) {
	size := int(p.size)
	var err error
	switch p.how {
	case CompressS2:
		if n, err := s2.DecodedLen(packed); err != nil || n != size {
			return nil, false
		}
		payload, err = s2.Decode(dst[:0:size], packed)
	case CompressZstd:
		payload, err = zstdDecoder().DecodeAll(packed, dst[:0:size])
	default:
		return nil, false // of a later version
	}
	return payload, err == nil && len(payload) == size
}
