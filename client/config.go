// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/ring"
)

// The defaults that a zero in a configuration stands for, and the fixed bounds.
const (
	DefaultOperationTimeout = 50 * time.Millisecond
	DefaultMaxLoads         = 64
	DefaultLoadQueue        = 1024
	DefaultLoadQueueTimeout = time.Second

	DefaultSoftShare       = 0.8 // SoftTTL as a share of TTL
	DefaultJitter          = 0.1
	DefaultNegativeTTL     = 30 * time.Second
	DefaultLoadTimeout     = 3 * time.Second
	DefaultLeaseTTL        = 5 * time.Second
	DefaultMaxValueBytes   = 1 << 20
	DefaultCompressAbove   = 1 << 10
	DefaultLargeValueBytes = 64 << 10
	DefaultL1TTL           = time.Minute
	DefaultL1BlindTTL      = 2 * time.Second
	DefaultL1MaxBytes      = 64 << 20
	DefaultHotRate         = 100.0
	DefaultBeta            = 1.0

	// MaxTTL is the longest time to live: ten years. It keeps every sum of a clock and a TTL far from an overflow.
	MaxTTL = 10 * 365 * 24 * time.Hour

	maxValueBytes  = 512 << 20        // what a server takes as one string, by default
	minL1Bytes     = 4 << 10          // room for a few entries
	minLeaseMargin = time.Second      // a lease outlives the load timeout by at least this
	markTTL        = 10 * time.Second // how long an invalidation's mark is kept
	noStoreTTL     = time.Second      // how long "do not wait, this value cannot be stored" is kept
)

// Config configures a Client. Nodes must be given; every other zero means the default that its field names. A negative or
// otherwise wrong value is a *ConfigError from New, before anything starts.
type Config struct {
	// Nodes are the Redis nodes. A node's ID is its identity: keep it when the address changes, or its keys move. Replicas are not
	// used yet.
	Nodes []ring.Node

	// Namespace is put before every key, as "namespace/", so that several services can share nodes. [A-Za-z0-9_.-]+; "" is none. An
	// ACL user that may see no more needs the patterns ~namespace/* ~~l:namespace/* ~~m:namespace/* ~~b:namespace/* ~~g:namespace/* ~~t:namespace/*
	// (entries, leases, marks, bodies of large values, generations, tag logs).
	Namespace string

	// NoPush does without the nodes' pushes (client tracking), which need three more connections a node: then L1 entries live L1BlindTTL, and who waits
	// for another process's load looks every 5 to 250 ms.
	NoPush bool

	// RingPoints is the number of points on the ring for a node of weight 1; 0 means 1,024. All clients of the same nodes must agree.
	RingPoints int

	// OperationTimeout bounds every command to a node, and before that the wait for a connection and its dial; 0 means 50 ms, at least
	// 1 ms. There are no retries.
	OperationTimeout time.Duration

	// PoolSize is the most connections a node; 0 means 16. Concurrent reads share commands, so a few carry a lot. Large values
	// (CacheConfig.LargeValueBytes) have up to 3 more, which are made when there is one.
	PoolSize int

	// Redis, when not nil, is called once for each node with the driver's options, to set TLSConfig, Username and Password (ACL),
	// Dialer or OnConnect. Timeouts and retries stay as this package sets them.
	Redis func(node ring.Node, o *redis.Options)

	// MaxLoads caps the loader calls that run at once in this process, over all its caches; 0 means 64. It is what the database sees at
	// most when every node is dead. Keep it below the size of the loaders' connection pool: a load that waits for a connection uses up its
	// LoadTimeout, one that waits for a place does not.
	MaxLoads int

	// LoadQueue is how many loads may wait for a place; 0 means 1,024. Beyond it callers get ErrOverloaded at once.
	LoadQueue int

	// LoadQueueTimeout is how long a load may wait for a place before its callers get ErrOverloaded; 0 means 1 s.
	LoadQueueTimeout time.Duration

	// Logger hears of nodes whose health checks fail and succeed again, and of servers that were restarted. nil is silence.
	Logger *slog.Logger
}

// withDefaults validates and fills in what is zero. The ring validates the nodes themselves.
func (c Config) withDefaults() (Config, error) {
	if c.Namespace != "" {
		if err := checkName("Config.Namespace", c.Namespace); err != nil {
			return c, err
		}
	}
	if err := checkNodes(c.Nodes); err != nil {
		return c, err
	}
	err := firstError(
		orDefaultInt("Config.RingPoints", &c.RingPoints, ring.DefaultPoints),
		orDefaultInt("Config.PoolSize", &c.PoolSize, 16),
		orDefaultInt("Config.MaxLoads", &c.MaxLoads, DefaultMaxLoads),
		orDefaultInt("Config.LoadQueue", &c.LoadQueue, DefaultLoadQueue),
		orDefaultDuration("Config.OperationTimeout", &c.OperationTimeout, DefaultOperationTimeout),
		orDefaultDuration("Config.LoadQueueTimeout", &c.LoadQueueTimeout, DefaultLoadQueueTimeout),
	)
	if err == nil && c.OperationTimeout < time.Millisecond {
		err = &ConfigError{"Config.OperationTimeout", c.OperationTimeout, "must be at least 1ms (a number without a unit is nanoseconds)"}
	}
	if err == nil && c.RingPoints > ring.MaxPoints {
		err = &ConfigError{"Config.RingPoints", c.RingPoints, fmt.Sprintf("must be at most %d", ring.MaxPoints)}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, err
}

// checkNodes checks what the ring cannot: that every node can be dialled. (Ids and weights are the ring's to check.)
func checkNodes(nodes []ring.Node) error {
	if len(nodes) == 0 {
		return &ConfigError{"Config.Nodes", "empty", "at least one node must be given"}
	}
	addrs := make(map[string]int, len(nodes))
	for i, n := range nodes {
		field := fmt.Sprintf("Config.Nodes[%d].Addr", i)
		if host, port, err := net.SplitHostPort(n.Addr); err != nil || host == "" || port == "" {
			return &ConfigError{field, strconv.Quote(n.Addr), "must be given as host:port"}
		}
		if j, twice := addrs[n.Addr]; twice {
			return &ConfigError{field, strconv.Quote(n.Addr), fmt.Sprintf("is the address of Nodes[%d] too: two nodes cannot be one server", j)}
		}
		addrs[n.Addr] = i
	}
	return nil
}

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
	// shorter. At most TTL.
	NegativeTTL time.Duration
	// NoNegative remembers no absent rows: every read of one asks the loader.
	NoNegative bool

	// Load reads one row from the source. Keys are bytes: "7" and "007" are two entries, even if the source takes them for one row. It returns
	// ErrNotFound (wrapped or not) when there is none. Its context ends after LoadTimeout and carries the values of the first caller's context, not its cancellation: callers may leave, the work goes on.
	Load func(ctx context.Context, key string) (V, error)

	// LoadMany reads many rows at once; keys that are missing from the map do not exist (a nil map: none of them does), keys that were not asked for are ignored.
	// It is used by GetMany, and by Get where Load is nil. Each key occurs once. With an error the map is not used, and every key of the call has
	// failed; ErrNotFound is a mistake here. Its context is as Load's. Without it, GetMany calls Load for each key, 16 at once.
	LoadMany func(ctx context.Context, keys []string) (map[string]V, error)

	// MaxLoadKeys is the most keys that one LoadMany call gets; 0 means 1,000.
	MaxLoadKeys int

	// Truth marks a cache with no source behind it (sessions, flags): there is no loader, Set and SetMany write it, a missing
	// key is ErrNotFound. Only such caches may Set. Their entries live exactly TTL unless Jitter is given; mind that with L1 another
	// process serves what it has until the node's push, or for L1BlindTTL where there are none.
	Truth bool

	// LoadTimeout is when a load is given up; 0 means 3 s.
	LoadTimeout time.Duration

	// LeaseTTL is how long a process may keep others from loading a key; 0 means 5 s, or LoadTimeout + 1 s where that is
	// longer. At least LoadTimeout + 1 s.
	LeaseTTL time.Duration

	// WaitTimeout is how long a miss waits for another process's load before it loads for itself, without storing; 0 means LeaseTTL.
	WaitTimeout time.Duration

	// Version gives a value's row version: a number that only grows, such as a row's version column. Entries never go back to
	// an older version. nil means that values have none. 0 from it means that this value has none.
	Version func(V) uint64

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
	// a round trip; a copy is not served any more when the node has been silent for a second). 0 means 1 minute.
	L1TTL time.Duration

	// L1BlindTTL is how long it serves its copy where the node cannot push, or may not (Config.NoPush): the bound on how long an update by another process
	// can go unseen here. 0 means 2 s, or L1TTL where that is shorter.
	L1BlindTTL time.Duration

	// L1MaxBytes bounds the in-process cache; 0 means 64 MiB, at least 4 KiB. An entry counts with its key, its encoded size and some 250 bytes.
	L1MaxBytes int64

	// HotRate is the rate, in reads a second in this process, from which a key is hot; 0 means 100.
	HotRate float64
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
		c.checkShares(),
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
	return orDefaultDuration("CacheConfig.L1BlindTTL", &c.L1BlindTTL, min(DefaultL1BlindTTL, c.L1TTL))
}

// orDefaultDuration and its siblings are the one rule for optional fields: zero is the default, negative is an error.
func orDefaultDuration(field string, d *time.Duration, def time.Duration) error {
	if *d < 0 || *d > MaxTTL {
		return &ConfigError{field, *d, fmt.Sprintf("must be from 0 (meaning %v) to %v", def, MaxTTL)}
	}
	if *d == 0 {
		*d = def
	}
	return nil
}

func orDefaultInt(field string, n *int, def int) error {
	if *n < 0 {
		return &ConfigError{field, *n, fmt.Sprintf("must not be negative (0 means %d)", def)}
	}
	if *n == 0 {
		*n = def
	}
	return nil
}

func orDefaultFloat(field string, f *float64, def float64) error {
	if !(*f >= 0 && *f <= 1e9) { // also catches NaN and Inf
		return &ConfigError{field, *f, fmt.Sprintf("must be from 0 (meaning %v) to 1e9", def)}
	}
	if *f == 0 {
		*f = def
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
