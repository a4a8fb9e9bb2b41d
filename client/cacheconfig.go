// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"time"
)

// L1Mode says which keys a cache keeps in process.
type L1Mode int

const (
	// L1Hot keeps the keys that this process reads at HotRate or more; the default.
	L1Hot L1Mode = iota
	// L1All keeps every key that is read, within L1MaxBytes.
	L1All
	// L1Off keeps none.
	L1Off
)

// CacheConfig configures one cache. Name, TTL and a loader must be given; every other zero means the default that its field
// names. A wrong value is a *ConfigError from NewCache.
type CacheConfig[V any] struct {
	// Name is the first part of every key on the nodes: [A-Za-z0-9_.-]+. Name and Schema together are unique in a Client.
	Name string

	// Schema is the last part of every key. Raise it when the encoding of V changes in a way that old readers or new readers
	// cannot take: old and new processes then use different entries.
	Schema int

	// TTL is how long an entry may be served, counted from the moment its load began: the bound that holds whatever else
	// fails. At least 1 ms, at most MaxTTL. The nodes enforce it too.
	TTL time.Duration

	// SoftTTL is the age from which an entry is refreshed: the reader that gets the lease loads it behind its caller's back, and
	// everybody is served the old entry meanwhile. 0 means 0.8 of TTL; equal to TTL switches it off.
	SoftTTL time.Duration

	// Jitter spreads expiry: each entry's TTLs are shortened by a random share between 0 and Jitter. 0 means 0.1; at most 1.
	// The mean TTL is TTL*(1-Jitter/2).
	Jitter float64
	// NoJitter makes every entry live exactly TTL.
	NoJitter bool

	// Beta scales probabilistic early refresh (XFetch): above 1 is earlier, below is later; 0 means 1.
	Beta float64
	// NoEarlyRefresh leaves refreshing to SoftTTL alone.
	NoEarlyRefresh bool

	// NegativeTTL is how long "the source has no such row" is remembered, at most: Jitter shortens it as it does TTL; 0 means 30 s, or TTL where that is
	// shorter. At most TTL. In a cache that is itself the truth it is for what a loader that is given at the call (GetWith) says.
	NegativeTTL time.Duration
	// NoNegative remembers no absent rows: every read of one asks the loader.
	NoNegative bool

	// NegativeRate bounds what absences take on the nodes, whatever keys are asked for: a process stores the absences of so many keys a second of this cache, and 10 seconds' worth at once; and
	// as many again of keys whose absence was not stored and that it is asked for once more a moment later. Others are returned, not stored, and counted (CacheStats.NegativesOver). So a process has at most
	// 2*NegativeRate*(NegativeTTL + 10 s) of them on the nodes, some 200 bytes and its key each: by default 4,000 and 1 MB; and for a second a small marker of each that was not stored. 0 means 50; at least 1.
	// Of keys that are asked for over and over a process remembers at most about NegativeRate*NegativeTTL, 1,500 by default, and 10 s' worth more: against a bot that has more of them take Filter.
	NegativeRate float64

	// Filter is a Bloom filter of all known keys, for caches that are asked for many absent ones. nil: none.
	Filter *FilterConfig

	// Load reads one row from the source. Keys are bytes: "7" and "007" are two entries, even if the source takes them for one row. It returns
	// ErrNotFound (wrapped or not) when there is none. Its context ends after LoadTimeout and carries the values of the first caller's context, not its cancellation: callers may leave, the work goes on.
	Load func(ctx context.Context, key string) (V, error)

	// LoadMany reads many rows at once; keys that are missing from the map do not exist (a nil map: none of them does), keys that were not asked for are ignored.
	// It is used by GetMany, and by Get where Load is nil. Each key occurs once. With an error the map is not used, and every key of the call has
	// failed; ErrNotFound is a mistake here. Its context is as Load's. Without it, GetMany calls Load for each key, 16 at once.
	LoadMany func(ctx context.Context, keys []string) (map[string]V, error)

	// MaxLoadKeys is the most keys that one LoadMany call gets; 0 means 1,000. Only with LoadMany.
	MaxLoadKeys int

	// Truth marks a cache with no source behind it (sessions, flags): there is no loader, Set and SetMany write it, a missing
	// key is ErrNotFound. Only such caches may Set. Their entries live exactly TTL unless Jitter is given; mind that with L1 another
	// process serves what it has until the node's push, or for L1BlindTTL where there are none.
	Truth bool

	// LoadTimeout is when a load is given up; 0 means 3 s, at least 1 ms.
	LoadTimeout time.Duration

	// LeaseTTL is how long a process may keep others from loading a key; 0 means 5 s, or LoadTimeout + 1 s where that is
	// longer. At least LoadTimeout + 1 s.
	LeaseTTL time.Duration

	// WaitTimeout is how long a miss waits for another process's load before it loads for itself, without storing; 0 means LeaseTTL, at
	// least 1 ms.
	WaitTimeout time.Duration

	// ErrorBackoff is how long a key is left alone after its load has failed (an error but ErrNotFound, a timeout, a panic): readers meanwhile get the error that it failed
	// with, wrapped (errors.Is and errors.As find it; the span that its text names began with the failure), or the old value where StaleIfError has one. It doubles from one failure to the next, up to 30 s, and a random half of it is taken off. 0 means 1 s; from 1 ms
	// to 30 s. A success or an invalidation of the key by this process ends it at once, and so does a source that is well again. Each process remembers up to 4,096 such keys a cache, and their errors. A GetOptions.Refresh is not held back.
	ErrorBackoff time.Duration
	// NoErrorBackoff tries a key again with the next read, whatever came of the last.
	NoErrorBackoff bool

	// NoSourceBreaker does without the breaker on the loader. With it, when at least 10 of this cache's loader calls have failed in this process within 10 s, and these are half of them or more, the loader
	// is left alone for a second (then up to 5 s; a random half taken off): who needs it gets ErrSourceDown, or the old value where StaleIfError has one. Then one call at a time probes; after three
	// that succeed 1, 2, 4, ... calls at a time are let through, doubling each 250 ms until that is MaxLoads.
	NoSourceBreaker bool

	// SourceFailure says whether an error of the loader, other than ErrNotFound, is a failure of the source, for ErrorBackoff, StaleIfError and the breaker. nil: all are. "You may not see this row"
	// is an answer: false for that. Timeouts and panics are failures without being asked about. Called concurrently; it must not panic.
	SourceFailure func(error) bool

	// StaleIfError is for how long beyond its TTL a value may be served when the load that should replace it fails: the loader's error or timeout, ErrOverloaded, ErrSourceDown, or
	// a key that is left alone (ErrorBackoff). Its reader gets no error; Lookup marks it Stale and says its Age and, in LoadErr, why. From the second try on nobody waits for the load. Where the owner does not answer
	// it may come from this process's own copy, and then be older than an invalidation by another process that this one has not heard of: the bound on that is TTL
	// + StaleIfError. Never a value that this process has invalidated, or that the owner has lost. The nodes (and L1) hold entries for so much longer. 0, the
	// default, is off: an answer is then never older than TTL; else from 1 ms to MaxTTL. Not for a cache that is itself the truth.
	StaleIfError time.Duration

	// HotCopies is the most nodes that a hot key is spread over, its owner counted: copies of its entry lie on the next nodes of the ring's walk (other racks first), and readers that keep no
	// copy of their own (L1) ask one of the nodes, by chance. How many depends on the rate at which all processes read the key. More than there are nodes means all of
	// them. For keys too hot, or too large, for one node and for L1 alone: with L1Hot a hot key is usually kept in every process, and then not spread.
	//
	// Only processes that read the key at an eighth of HotRate or more, 12.5 a second by default, are counted: with very many processes lower HotRate to 8 times what one of them reads.
	//
	// A copy lives 10 s at most and never longer than the entry, softens when the entry does, and is brought anew from the owner. What is known to be absent is copied as well. A value that takes more than 5 s to
	// its copy's node has none. An invalidation voids it before it
	// returns, whatever the number of copies is or was; one that does not reach a copy's node returns a *NodeError ("invalidate copy"), and is repeated until it does. A key that is not split
	// costs an invalidation nothing; one that is, one more round trip, to its copies' nodes at the same time. A Clear or an InvalidateTag goes over the nodes twice.
	// So no reader gets from a copy what an invalidation that returned nil has voided. Only if the owner's memory is so short that it evicts the note of where copies are, a copy may
	// outlive an invalidation for those 10 s.
	//
	// 0 is none. 1 reads and makes no copies, but voids those of other processes: a fleet goes from 0 to 1 everywhere, and then up; and down the same way, 10 s at 1.
	// An ACL user of a namespace needs ~~c:namespace/* ~~cl:namespace/* ~~cm:namespace/* ~~cb:namespace/* ~~s:namespace/* ~~h:namespace/* too. Not for a cache that is itself the truth.
	HotCopies int

	// Copies is on how many nodes each entry is, its owner counted: for nodes without replicas, whose death is to cost no loads. A process that has filled an entry at its owner brings
	// the copies behind its caller's back; they live as long as the entry. Reads go to the owner, and to a copy while the owner is down or does not answer (Result.Node says
	// where). What a copy has is the entry as it was when it was last copied: it may be older than what the owner had, by a refresh that was not copied yet, but never
	// than an invalidation that returned nil. One that finds the owner down voids the copies and is owed to the owner; one that finds a copy's node down is owed to that, and both return a *NodeError: so
	// with Copies each invalidation needs all the nodes of its key. Each copy costs a fill three round trips more and the memory of an entry. Absences have no copies: they are asked for anew. 0 or 1: no copies; more than there
	// are nodes: all of them. ACLs and Truth as with HotCopies.
	Copies int

	// CopiesVoided is on how many nodes of a key, its owner counted, invalidations expect copies; 0 means Copies, and it is at least that. It is for changing Copies while processes run: one that expects
	// fewer than others make would leave copies behind. So raise CopiesVoided everywhere first, and then Copies; lower Copies first, and CopiesVoided when TTL has passed.
	CopiesVoided int

	// Version gives a value's row version: a number that only grows, such as a row's version column. Entries never go back to
	// an older version. nil means that values have none. 0 from it means that this value has none.
	Version func(V) uint64

	// SecondDelete repeats each invalidation of a key (Invalidate and its kin, Write, a WriteThrough that could not store; not Clear or InvalidateTag) so much
	// after it got through, from a bounded schedule: for loaders that read a database replica which lags, where values have no Version. What such a loader has stored after the first delete goes with the second. 0, the
	// default, is none; some 500 ms, or what the replica usually lags, are usual; at least 1 ms, at most a minute. Not for a cache that is itself the truth.
	SecondDelete time.Duration

	// Tags gives the tags of a value, by which InvalidateTag finds it: at most 64, each of 1 to 256 bytes. It is called with what is
	// stored, absent rows have none. A value with other tags is returned, not stored, and counted (Unencodable). nil: no tags.
	Tags func(V) []string

	// Codec encodes values; nil means Bytes for []byte, String for string, JSON for all other types.
	Codec Codec[V]

	// Clone copies a value. nil: []byte is always copied; values of other types are *shared* between callers, the in-process
	// cache and the loader's result, and must not be modified.
	Clone func(V) V

	// MaxValueBytes is the largest encoded value that is stored; 0 means 1 MiB, at most 512 MiB. It counts what the codec made, before compression: so
	// whether a value is stored does not depend on how well it compresses, and a reader knows how much memory one can take. A larger one is returned
	// to its callers, not stored, and counted. A compressed or large entry that claims to be larger is foreign: a miss.
	MaxValueBytes int

	// Compression compresses encoded values of CompressAbove bytes or more; the zero is CompressNone. What does not become smaller by an eighth at
	// least is stored as it is.
	Compression Compression
	// CompressAbove is the smallest encoded value that is compressed; 0 means 1 KiB.
	CompressAbove int

	// LargeValueBytes is how many bytes of value (encoded, and compressed where that is on) lie in the entry itself; 0 means 64 KiB. A larger
	// value's lie in a key of their own, and are moved over up to 3 connections a node of their own, so that small reads of the same node do not wait for
	// them. That costs a large value one more round trip when it is read and one when it is stored. A transfer may take OperationTimeout plus its length at
	// 20 MiB/s, and wait for its turn as long before. A value as large as MaxValueBytes switches it off.
	LargeValueBytes int

	// L1 says which keys are kept in process; the default is the hot ones.
	L1 L1Mode

	// L1TTL is how long, at most, this process serves its own copy of an entry that the node watches for it (client tracking: the node pushes each change, within
	// a round trip; a copy is not served any more when the node has been silent for a second). 0 means 1 minute, at
	// least 1 ms.
	L1TTL time.Duration

	// L1BlindTTL is how long it serves its copy where the node cannot push, or may not (Config.NoPush): the bound on how long an update by another process
	// can go unseen here. 0 means 2 s, or L1TTL where that is shorter; at least 1 ms, at most L1TTL.
	L1BlindTTL time.Duration

	// L1MaxBytes bounds the in-process cache; 0 means 64 MiB, at least 4 KiB. An entry counts with its key, its encoded size, its tags and
	// some 250 bytes.
	L1MaxBytes int64

	// HotRate is the rate, in reads a second in this process, from which a key is hot; 0 means 100. Each 4 KiB of a value counts as one more. Above some
	// 100,000 reads a second of the cache in all, reads are counted by sampling, and the rate is 7 in 100,000 of that at least. Only with L1Hot, or with HotCopies of 2 or more, which learn of
	// keys from an eighth of it on. See Pin for keys that are known beforehand.
	//
	// A key that all processes together read ten times as often (until it is half of that) is hot in each of them that reads it at an eighth of HotRate: see NoFleetHot.
	HotRate float64

	// NoFleetHot does without the fleet's view of hot keys: then only what this process reads makes a key hot. With it, processes tell the nodes how often they read
	// the keys that they read most, from an eighth of HotRate on: one script call a node and second, with at most 16 keys, some 4 us each of the node's time; behind the readers' backs. The counter of a key is a
	// string beside its entry, ~h: and the entry's name, which is gone 30 s after the last. An ACL user of a namespace needs ~~h:namespace/* for it; a node that refuses it is asked again after a
	// minute.
	NoFleetHot bool

	// HotCopyRate is how many reads of one key a second a node should serve, over all processes, before the key is spread over more (HotCopies); 0 means 2,000. Each 4 KiB of a value counts as one
	// more: one of 300 KiB that is read once a second has a rate of 76. The default is a fiftieth of what one node serves, or 8 MiB a second. Only with HotCopies.
	HotCopyRate float64
}

func (c CacheConfig[V]) withDefaults() (CacheConfig[V], error) {
	if err := checkName("CacheConfig.Name", c.Name); err != nil {
		return c, err
	}
	if c.Schema < 0 {
		return c, &ConfigError{"CacheConfig.Schema", c.Schema, "must not be negative"}
	}
	if err := c.checkLoaders(); err != nil {
		return c, err
	}
	if err := c.checkIdle(); err != nil { // before any default is set
		return c, err
	}
	if err := c.checkTTLs(); err != nil {
		return c, err
	}
	if c.Codec == nil {
		c.Codec = defaultCodec[V]()
	}
	if c.MaxValueBytes > maxValueBytes {
		return c, &ConfigError{"CacheConfig.MaxValueBytes", c.MaxValueBytes, fmt.Sprintf("must be at most %d", maxValueBytes)}
	}
	return c, firstError(
		checkCodec(c.Codec),
		c.checkLease(),
		c.checkSecondDelete(),
		c.checkErrors(),
		c.checkCopies(),
		c.checkShares(),
		c.checkNegatives(),
		c.checkFilter(),
		orDefaultInt("CacheConfig.MaxLoadKeys", &c.MaxLoadKeys, 1000),
		orDefaultInt("CacheConfig.MaxValueBytes", &c.MaxValueBytes, DefaultMaxValueBytes),
		c.checkCompression(),
		orDefaultInt("CacheConfig.LargeValueBytes", &c.LargeValueBytes, DefaultLargeValueBytes),
		c.checkL1(),
	)
}

func (c *CacheConfig[V]) checkLoaders() error {
	has := c.Load != nil || c.LoadMany != nil
	if c.Truth && has {
		return &ConfigError{"CacheConfig.Load", "set", "a cache that is itself the truth (Truth) has no loader"}
	}
	if !c.Truth && !has {
		return &ConfigError{"CacheConfig.Load", "nil", "Load or LoadMany must be given (or Truth, for a cache without a source)"}
	}
	return nil
}

// checkIdle refuses settings that would do nothing because another one switches off what they are for: one of the two is a mistake.
func (c *CacheConfig[V]) checkIdle() error {
	const off = "must be 0 where L1 is L1Off"
	for _, s := range []struct {
		field string
		value any
		idle  bool
		rule  string
	}{
		{"SoftTTL", c.SoftTTL, c.SoftTTL != 0 && c.Truth, "must be 0 in a cache that is itself the truth (Truth): nothing could refresh an entry"},
		{"Beta", c.Beta, c.Beta != 0 && c.Truth, "must be 0 in a cache that is itself the truth (Truth): nothing could refresh an entry"},
		{"Beta", c.Beta, c.Beta != 0 && c.NoEarlyRefresh, "must be 0 where NoEarlyRefresh is set"},
		{"StaleIfError", c.StaleIfError, c.StaleIfError != 0 && c.Truth, "must be 0 in a cache that is itself the truth (Truth): an entry there ends when it was told to"},
		{"ErrorBackoff", c.ErrorBackoff, c.ErrorBackoff != 0 && c.NoErrorBackoff, "must be 0 where NoErrorBackoff is set"},
		{"NegativeTTL", c.NegativeTTL, c.NegativeTTL != 0 && c.NoNegative, "must be 0 where NoNegative is set"},
		{"NegativeRate", c.NegativeRate, c.NegativeRate != 0 && c.NoNegative, "must be 0 where NoNegative is set"},
		{"MaxLoadKeys", c.MaxLoadKeys, c.MaxLoadKeys != 0 && c.LoadMany == nil, "must be 0 where LoadMany is nil"},
		{"L1TTL", c.L1TTL, c.L1TTL != 0 && c.L1 == L1Off, off},
		{"L1BlindTTL", c.L1BlindTTL, c.L1BlindTTL != 0 && c.L1 == L1Off, off},
		{"L1MaxBytes", c.L1MaxBytes, c.L1MaxBytes != 0 && c.L1 == L1Off, off},
		{"HotRate", c.HotRate, c.HotRate != 0 && c.L1 == L1Off && c.HotCopies < 2, off + " and HotCopies is 0 or 1"},
		{"HotRate", c.HotRate, c.HotRate != 0 && c.L1 == L1All && c.HotCopies < 2, "must be 0 where L1 is L1All and HotCopies is 0 or 1: every key is kept, hot or not"},
		{"HotCopyRate", c.HotCopyRate, c.HotCopyRate != 0 && c.HotCopies < 2, "must be 0 where HotCopies is 0 or 1"},
		{"HotCopies", c.HotCopies, c.HotCopies > 1 && c.NoFleetHot, "must be 0 or 1 where NoFleetHot is set: it is the fleet's rate that says when a key is copied"},
	} {
		if s.idle {
			return &ConfigError{"CacheConfig." + s.field, s.value, s.rule}
		}
	}
	return nil
}

func (c *CacheConfig[V]) checkTTLs() error {
	if c.TTL == 0 {
		return &ConfigError{"CacheConfig.TTL", c.TTL, "must be given"}
	}
	if err := checkTTL("CacheConfig.TTL", c.TTL); err != nil {
		return err
	}
	if c.SoftTTL == 0 {
		c.SoftTTL = max(time.Millisecond, time.Duration(float64(c.TTL)*DefaultSoftShare))
	}
	if c.NegativeTTL == 0 {
		c.NegativeTTL = min(DefaultNegativeTTL, c.TTL)
	}
	if c.Truth { // nothing could refresh an entry, and a session ends when it was told to
		c.SoftTTL, c.NoEarlyRefresh, c.NoJitter = c.TTL, true, c.NoJitter || c.Jitter == 0
	}
	if err := checkTTL("CacheConfig.SoftTTL", c.SoftTTL); err != nil {
		return err
	}
	if c.SoftTTL > c.TTL {
		return &ConfigError{"CacheConfig.SoftTTL", c.SoftTTL, fmt.Sprintf("must not be longer than TTL (%v)", c.TTL)}
	}
	if c.NegativeTTL > c.TTL {
		return &ConfigError{"CacheConfig.NegativeTTL", c.NegativeTTL, fmt.Sprintf("must not be longer than TTL (%v)", c.TTL)}
	}
	return checkTTL("CacheConfig.NegativeTTL", c.NegativeTTL)
}

// checkTTL is the one rule for times to live: 1 ms, which is what a node can count, to MaxTTL.
func checkTTL(field string, d time.Duration) error {
	if d < time.Millisecond || d > MaxTTL {
		return &ConfigError{field, d, fmt.Sprintf("must be from 1ms to %v", MaxTTL)}
	}
	return nil
}

func (c *CacheConfig[V]) checkLease() error {
	if err := orDefaultDuration("CacheConfig.LoadTimeout", &c.LoadTimeout, DefaultLoadTimeout); err != nil {
		return err
	}
	err := firstError(
		orDefaultDuration("CacheConfig.LeaseTTL", &c.LeaseTTL, max(DefaultLeaseTTL, c.LoadTimeout+minLeaseMargin)),
		orDefaultDuration("CacheConfig.WaitTimeout", &c.WaitTimeout, c.LeaseTTL),
	)
	if err != nil {
		return err
	}
	if c.LeaseTTL < c.LoadTimeout+minLeaseMargin {
		return &ConfigError{"CacheConfig.LeaseTTL", c.LeaseTTL,
			fmt.Sprintf("must be at least %v longer than LoadTimeout (%v)", minLeaseMargin, c.LoadTimeout)}
	}
	return nil
}

func (c *CacheConfig[V]) checkSecondDelete() error {
	switch {
	case c.SecondDelete == 0:
		return nil
	case c.Truth:
		return &ConfigError{"CacheConfig.SecondDelete", c.SecondDelete, "must be 0 in a cache that is itself the truth (Truth): it would delete what was Set since"}
	case c.SecondDelete < time.Millisecond || c.SecondDelete > maxSecondDelete:
		return &ConfigError{"CacheConfig.SecondDelete", c.SecondDelete, fmt.Sprintf("must be from 1ms to %v", maxSecondDelete)}
	}
	return nil
}

// checkErrors checks what is for a source that fails.
func (c *CacheConfig[V]) checkErrors() error {
	if c.StaleIfError != 0 {
		if err := checkTTL("CacheConfig.StaleIfError", c.StaleIfError); err != nil {
			return err
		}
	}
	if c.ErrorBackoff > maxBackoff {
		return &ConfigError{"CacheConfig.ErrorBackoff", c.ErrorBackoff, fmt.Sprintf("must be at most %v", maxBackoff)}
	}
	return orDefaultDuration("CacheConfig.ErrorBackoff", &c.ErrorBackoff, DefaultErrorBackoff)
}

func (c *CacheConfig[V]) checkShares() error {
	if !(c.Jitter >= 0 && c.Jitter <= 1) { // also catches NaN
		return &ConfigError{"CacheConfig.Jitter", c.Jitter, "must be from 0 to 1 (100 %)"}
	}
	if c.NoJitter && c.Jitter > 0 {
		return &ConfigError{"CacheConfig.Jitter", c.Jitter, "must be 0 where NoJitter is set"}
	}
	if !c.NoJitter && c.Jitter == 0 {
		c.Jitter = DefaultJitter
	}
	return firstError(
		orDefaultFloat("CacheConfig.Beta", &c.Beta, DefaultBeta),
		orDefaultFloat("CacheConfig.HotRate", &c.HotRate, DefaultHotRate),
		orDefaultFloat("CacheConfig.HotCopyRate", &c.HotCopyRate, DefaultHotCopyRate),
	)
}

func (c *CacheConfig[V]) checkCompression() error {
	if c.Compression > CompressZstd {
		return &ConfigError{"CacheConfig.Compression", uint8(c.Compression), "must be CompressNone, CompressS2 or CompressZstd"}
	}
	if c.Compression == CompressNone && c.CompressAbove > 0 {
		return &ConfigError{"CacheConfig.CompressAbove", c.CompressAbove, "must be 0 where Compression is CompressNone"}
	}
	return orDefaultInt("CacheConfig.CompressAbove", &c.CompressAbove, DefaultCompressAbove)
}

func (c *CacheConfig[V]) checkL1() error {
	if c.L1 < L1Hot || c.L1 > L1Off {
		return &ConfigError{"CacheConfig.L1", int(c.L1), "must be L1Hot, L1All or L1Off"}
	}
	if c.L1MaxBytes < 0 {
		return &ConfigError{"CacheConfig.L1MaxBytes", c.L1MaxBytes, "must not be negative"}
	}
	if c.L1MaxBytes == 0 {
		c.L1MaxBytes = DefaultL1MaxBytes
	}
	if c.L1MaxBytes < minL1Bytes {
		return &ConfigError{"CacheConfig.L1MaxBytes", c.L1MaxBytes, fmt.Sprintf("must be at least %d (or L1Off)", minL1Bytes)}
	}
	if err := orDefaultDuration("CacheConfig.L1TTL", &c.L1TTL, DefaultL1TTL); err != nil {
		return err
	}
	if err := orDefaultDuration("CacheConfig.L1BlindTTL", &c.L1BlindTTL, min(DefaultL1BlindTTL, c.L1TTL)); err != nil {
		return err
	}
	if c.L1BlindTTL > c.L1TTL {
		return &ConfigError{"CacheConfig.L1BlindTTL", c.L1BlindTTL, fmt.Sprintf("must not be longer than L1TTL (%v)", c.L1TTL)}
	}
	return nil
}
