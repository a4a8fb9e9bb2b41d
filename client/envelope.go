// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"encoding/binary"
	"math"
	"time"
)

// An entry on a node is an envelope: a binary header, then the payload. All numbers are big-endian.
//
//	offset  bytes  field
//	0       2      magic: F5 53
//	2       1      format: 1
//	3       1      codec id: 1 JSON, 2 bytes, 3 string, 128 to 255 the user's
//	4       2      flags. Bit 0: negative (the source has no such row; no payload). Bit 1: compressed (extension 3 says how). Bit 2:
//	               apart (no payload here: extension 4 says where it lies). Bits 0 to 7 must be understood: a reader that
//	               meets one it does not know takes the entry for a miss. Bits 8 to 15 may be ignored
//	6       2      header length in bytes, extensions included: where the payload starts; at least 56
//	8       8      row version, 0 for none. The scripts read it here, so it never moves
//	16      8      fill epoch: the epoch of the cluster map that the writer used; 0 while the configuration is static
//	24      8      created at: milliseconds since 1970 on the *node's* clock, when the load began
//	32      8      soft TTL in milliseconds, counted from created at: from then on the entry is refreshed
//	40      8      hard TTL in milliseconds, counted from created at: from then on it is not served
//	48      4      load cost in microseconds (at most 4294967295, some 71 minutes)
//	52      4      payload length in bytes
//	56      ...    extensions up to the header length, each: 1 byte kind, 2 bytes length, that many bytes. Kinds that a reader does
//	               not know are skipped. Kind 1: the stamp, 8 bytes: the number of the cache's generation that the entry was stored
//	               under; always there, and first, since a script writes it. Kind 2: a tag, at most 64 of them. Kind 3: compressed,
//	               5 bytes: the algorithm (1 S2 block, 2 zstd frame), and in 4 bytes the length of the payload before. Kind 4: apart,
//	               20 bytes: the body's id in 16, and in 4 the length of the payload in it; the body is another key's value: the id,
//	               then the payload (see large.go). Kind 5: of a copy on another node, 8 bytes: which history of its owner's writes it was
//	               read from (see copies.go). Kind 6: of a copy, 8 bytes: when it was made, milliseconds since 1970 on the clock of the node that holds it
//	        ...    payload
//
// A reader accepts its own format and the one before; format 1 is the first. What does not parse (another magic or format, a wrong
// length, an unknown must-understand flag, another codec) is foreign: a miss, and counted.
const (
	magic0, magic1   = 0xF5, 0x53
	formatNow        = 1
	formatOldest     = 1 // from format 3 on: formatNow - 1
	headerBytes      = 56
	extStamp         = 1
	extTag           = 2
	extPacked        = 3
	extApart         = 4
	extSource        = 5
	extCopied        = 6
	packedBytes      = 5
	apartBytes       = 20
	sourceBytes      = 8
	copiedBytes      = 8
	extHead          = 3                         // kind and length
	stampAt          = headerBytes + extHead     // where the stamp is
	minHeader        = headerBytes + extHead + 8 // of the entries that we write
	flagNegative     = 1 << 0
	flagPacked       = 1 << 1
	flagApart        = 1 << 2
	flagsKnown       = flagNegative | flagPacked | flagApart
	flagsMust        = 0x00FF
	maxCost          = math.MaxUint32 * time.Microsecond
	entryFutureSlack = 5 * time.Second // an age below zero by more than this is not a clock's jitter: a miss
)

// header is the decoded form of an envelope's header.
type header struct {
	codec    uint8
	negative bool
	version  uint64
	epoch    uint64
	created  time.Time // on the node's clock
	soft     time.Duration
	hard     time.Duration
	cost     time.Duration
	stamp    uint64 // 0: the entry has none, and belongs to no generation
	tags     []string
	packed   packing
	apart    apart
	source   uint64    // of a copy; 0: it is none, or its owner does not say which history it has
	copied   time.Time // when a copy was made, on the clock of the node that holds it; zero: it is none
}

// packing says how a payload is compressed; the zero: it is not.
type packing struct {
	how  Compression
	size uint32 // of the payload before
}

// apart says where a payload lies that is not behind its header; the zero: it is.
type apart struct {
	id   bodyID
	size uint32 // of the payload as it lies there
}

// bodyID names one body; it is drawn at random and never used again.
type bodyID [16]byte

// appendEnvelope appends header and payload to dst.
func appendEnvelope(dst []byte, h header, payload []byte) []byte {
	var b [headerBytes]byte
	b[0], b[1], b[2], b[3] = magic0, magic1, formatNow, h.codec
	var flags uint16
	if h.negative {
		flags |= flagNegative
	}
	if h.packed != (packing{}) {
		flags |= flagPacked
	}
	if h.apart != (apart{}) {
		flags |= flagApart
	}
	binary.BigEndian.PutUint16(b[4:], flags)
	length := minHeader
	for _, tag := range h.tags {
		length += extHead + len(tag)
	}
	if h.packed != (packing{}) {
		length += extHead + packedBytes
	}
	if h.apart != (apart{}) {
		length += extHead + apartBytes
	}
	if h.source != 0 {
		length += extHead + sourceBytes
	}
	if !h.copied.IsZero() {
		length += extHead + copiedBytes
	}
	binary.BigEndian.PutUint16(b[6:], uint16(length))
	binary.BigEndian.PutUint64(b[8:], h.version)
	binary.BigEndian.PutUint64(b[16:], h.epoch)
	binary.BigEndian.PutUint64(b[24:], uint64(h.created.UnixMilli()))
	binary.BigEndian.PutUint64(b[32:], uint64(h.soft.Milliseconds()))
	binary.BigEndian.PutUint64(b[40:], uint64(h.hard.Milliseconds()))
	binary.BigEndian.PutUint32(b[48:], uint32(min(max(h.cost, 0), maxCost).Microseconds()))
	binary.BigEndian.PutUint32(b[52:], uint32(len(payload)))
	dst = h.appendExtensions(append(dst, b[:]...))
	return append(dst, payload...)
}

// appendExtensions appends the extensions, the stamp first.
func (h *header) appendExtensions(dst []byte) []byte {
	dst = append(dst, extStamp, 0, 8)
	dst = binary.BigEndian.AppendUint64(dst, h.stamp)
	for _, tag := range h.tags {
		dst = append(dst, extTag)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(tag)))
		dst = append(dst, tag...)
	}
	if h.packed != (packing{}) {
		dst = append(dst, extPacked, 0, packedBytes, byte(h.packed.how))
		dst = binary.BigEndian.AppendUint32(dst, h.packed.size)
	}
	if h.apart != (apart{}) {
		dst = append(dst, extApart, 0, apartBytes)
		dst = append(dst, h.apart.id[:]...)
		dst = binary.BigEndian.AppendUint32(dst, h.apart.size)
	}
	if h.source != 0 {
		dst = append(dst, extSource, 0, sourceBytes)
		dst = binary.BigEndian.AppendUint64(dst, h.source)
	}
	if !h.copied.IsZero() {
		dst = append(dst, extCopied, 0, copiedBytes)
		dst = binary.BigEndian.AppendUint64(dst, uint64(h.copied.UnixMilli()))
	}
	return dst
}

// setStamp writes the stamp into an entry that appendEnvelope made.
func setStamp(wire []byte, stamp uint64) { binary.BigEndian.PutUint64(wire[stampAt:], stamp) }

// setCreated does so with created-at.
func setCreated(wire []byte, created time.Time) {
	binary.BigEndian.PutUint64(wire[24:], uint64(created.UnixMilli()))
}

// parseEnvelope reads an envelope. The payload is a part of data. ok is false for foreign bytes.
func parseEnvelope(data []byte) (h header, payload []byte, ok bool) {
	if payload, ok = h.parse(data); !ok {
		return header{}, nil, false
	}
	return h, payload, true
}

// parse is parseEnvelope into a header that is zero; of foreign bytes it may leave something there.
func (h *header) parse(data []byte) (payload []byte, ok bool) {
	if len(data) < headerBytes || data[0] != magic0 || data[1] != magic1 || data[2] < formatOldest || data[2] > formatNow {
		return nil, false
	}
	flags := binary.BigEndian.Uint16(data[4:])
	start := int(binary.BigEndian.Uint16(data[6:]))
	length := int(binary.BigEndian.Uint32(data[52:]))
	if flags&flagsMust&^flagsKnown != 0 || start < headerBytes || start > len(data) || len(data)-start != length {
		return nil, false
	}
	soft, okSoft := millis(binary.BigEndian.Uint64(data[32:]))
	hard, okHard := millis(binary.BigEndian.Uint64(data[40:]))
	if !okSoft || !okHard {
		return nil, false
	}
	h.codec = data[3]
	h.negative = flags&flagNegative != 0
	h.version = binary.BigEndian.Uint64(data[8:])
	h.epoch = binary.BigEndian.Uint64(data[16:])
	h.created = time.UnixMilli(int64(binary.BigEndian.Uint64(data[24:])))
	h.soft, h.hard = soft, hard
	h.cost = time.Duration(binary.BigEndian.Uint32(data[48:])) * time.Microsecond
	if !h.parseExtensions(data[headerBytes:start]) || !h.agrees(flags, length) {
		return nil, false
	}
	return data[start:], true
}

// parseExtensions walks the extensions. Those that are not known are skipped, but their lengths must add up.
func (h *header) parseExtensions(b []byte) bool {
	for len(b) > 0 {
		if len(b) < extHead {
			return false
		}
		n := extHead + int(binary.BigEndian.Uint16(b[1:]))
		if n > len(b) {
			return false
		}
		switch kind, content := b[0], b[extHead:n]; {
		case kind == extStamp && len(content) == 8:
			h.stamp = binary.BigEndian.Uint64(content)
		case kind == extTag:
			h.tags = append(h.tags, string(content))
		case kind == extPacked && len(content) == packedBytes:
			h.packed = packing{Compression(content[0]), binary.BigEndian.Uint32(content[1:])}
		case kind == extApart && len(content) == apartBytes:
			h.apart = apart{bodyID(content), binary.BigEndian.Uint32(content[16:])}
		case kind == extSource && len(content) == sourceBytes:
			h.source = binary.BigEndian.Uint64(content)
		case kind == extCopied && len(content) == copiedBytes:
			h.copied = time.UnixMilli(int64(binary.BigEndian.Uint64(content)))
		case kind == extPacked, kind == extApart:
			return false
		}
		b = b[n:]
	}
	return true
}

// agrees says whether flags, extensions and payload fit each other.
func (h *header) agrees(flags uint16, length int) bool {
	packed, elsewhere := flags&flagPacked != 0, flags&flagApart != 0
	return packed == (h.packed != packing{}) && elsewhere == (h.apart != apart{}) &&
		!(h.negative && (packed || elsewhere)) && !(elsewhere && length > 0)
}

// isStub says, without reading the rest, whether the bytes look like an entry whose payload lies apart.
func isStub[B []byte | string](data B) bool {
	return len(data) >= headerBytes && data[0] == magic0 && data[1] == magic1 && data[5]&flagApart != 0
}

// millis is a duration of n milliseconds, unless that is beyond MaxTTL, which no writer of ours writes.
func millis(n uint64) (time.Duration, bool) {
	if n > uint64(MaxTTL/time.Millisecond) {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

// age is how old the entry is on the node's clock. An age a little below zero is what is left of clock estimation, and is
// zero; further in the future than that, ok is false.
func (h *header) age(nodeNow time.Time) (age time.Duration, ok bool) {
	age = nodeNow.Sub(h.created)
	if age < -entryFutureSlack {
		return 0, false
	}
	return max(age, 0), true
}
