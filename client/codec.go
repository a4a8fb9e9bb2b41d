// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"encoding/json"
	"fmt"
)

// Codec turns values into bytes and back. A codec must be safe for concurrent use.
//
// The ID is written into every entry: an entry that another codec wrote is not decoded, it counts as a miss and is loaded
// again, so a codec can be changed in a rolling deployment. IDs from FirstUserCodec to 255 are the users'; the ones below belong to
// this package.
type Codec[V any] interface {
	ID() uint8
	// Append appends the encoding of v to dst and returns the longer slice. It must not keep dst.
	Append(dst []byte, v V) ([]byte, error)
	// Decode reads a value. The bytes belong to the caller: a codec that keeps them must copy.
	Decode(data []byte) (V, error)
}

// The ids of the codecs.
const (
	codecJSON   uint8 = 1
	codecBytes  uint8 = 2
	codecString uint8 = 3

	// FirstUserCodec is the smallest id that a codec from outside this package may have.
	FirstUserCodec uint8 = 128
)

// JSON is the codec for any type that encoding/json can handle; the default for all types but []byte and string.
type JSON[V any] struct{}

// ID implements Codec.
func (JSON[V]) ID() uint8 { return codecJSON }

// Append implements Codec.
func (JSON[V]) Append(dst []byte, v V) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return dst, err
	}
	return append(dst, b...), nil
}

// Decode implements Codec.
func (JSON[V]) Decode(data []byte) (V, error) {
	var v V
	err := json.Unmarshal(data, &v)
	return v, err
}

// Bytes is the codec for []byte, and its default: the bytes as they are. A nil slice comes back empty.
type Bytes struct{}

// ID implements Codec.
func (Bytes) ID() uint8 { return codecBytes }

// Append implements Codec.
func (Bytes) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }

// Decode implements Codec.
func (Bytes) Decode(data []byte) ([]byte, error) { return append([]byte{}, data...), nil }

// String is the codec for string, and its default: the bytes as they are.
type String struct{}

// ID implements Codec.
func (String) ID() uint8 { return codecString }

// Append implements Codec.
func (String) Append(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

// Decode implements Codec.
func (String) Decode(data []byte) (string, error) { return string(data), nil }

// defaultCodec is Bytes for []byte, String for string, and JSON for everything else.
func defaultCodec[V any]() Codec[V] {
	if c, ok := any(Bytes{}).(Codec[V]); ok {
		return c
	}
	if c, ok := any(String{}).(Codec[V]); ok {
		return c
	}
	return JSON[V]{}
}

// checkCodec refuses codecs from outside that use an id of this package: two codecs with one id would read each other's bytes.
func checkCodec[V any](c Codec[V]) error {
	switch any(c).(type) {
	case JSON[V], Bytes, String:
		return nil
	}
	if id := c.ID(); id < FirstUserCodec {
		return &ConfigError{"CacheConfig.Codec", fmt.Sprintf("%T with id %d", c, id),
			fmt.Sprintf("unknown codec: an own codec needs an id of %d to 255", FirstUserCodec)}
	}
	return nil
}
