// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/ring"
)

// Config configures a Client. Nodes or Sentinel must be given; every other zero means the default that its field names. A negative or
// otherwise wrong value is a *ConfigError from New, before anything starts.
type Config struct {
	// Nodes are the Redis nodes. A node's ID is its identity: keep it when the address changes, or its keys move. An Addr is host:port, the port a
	// number, and so are Replicas (see ReadFrom). With Sentinel, Nodes may be left out; those that are given have the names of primaries as IDs, and
	// bring weights and racks, but no addresses.
	Nodes []ring.Node

	// Sentinel, when not nil, says that the nodes are what Redis Sentinels watch, and that promotions are followed.
	Sentinel *SentinelConfig

	// ReadFrom says from which servers of a node the caches read: ReadPrimary, the default; ReadPrimaryPreferred: from a replica while the primary does not
	// answer; ReadReplica: from the replicas, in turn, and from the primary what they do not have or what is to be kept in this process (L1). Replicas are
	// those of Nodes, or, with Sentinel, those that the primary itself lists; where there are none this changes nothing.
	//
	// What a replica answers is marked (Result.Replica). It may lack what another process invalidated within the last ReplicaMaxLag; never what this process
	// has invalidated. It is returned to its reader and to nobody else: it is kept nowhere. A replica is read only while it says that it is one, and is known to have what its primary had
	// ReplicaMaxLag ago. Where it has no entry the primary is asked, or the loader. Raw operations, and caches that are themselves the truth, use primaries only.
	ReadFrom ReadFrom

	// ReplicaMaxLag is by how much an answer of a replica may be out of date; 0 means 10 s, at least 3 s, since replicas and primaries are asked once a second how far they are.
	// It is also for how long the replicas of a primary that has died are read: longer than a failover of your Sentinels takes, so that its reads do not go to the loader meanwhile. After that they do.
	ReplicaMaxLag time.Duration

	// Namespace is put before every key, as "namespace/", so that several services can share nodes. [A-Za-z0-9_.-]+; "" is none. Of
	// the caches alone: the names of raw operations (Client.Set, Incr, ...) are used as they are given. An
	// ACL user that may see no more needs the patterns ~namespace/* ~~l:namespace/* ~~m:namespace/* ~~b:namespace/* ~~g:namespace/* ~~t:namespace/* ~~w:namespace/*
	// (entries, leases, marks, bodies of large values, generations, tag logs, the name by which a node is asked whether it takes writes), and ~~h:namespace/* unless
	// every cache does without it (CacheConfig.NoFleetHot); with Gutter also
	// ~~u:namespace/* ~~ul:namespace/* ~~um:namespace/* ~~ub:namespace/*, and with FleetLoads those that it names.
	Namespace string

	// NoPush does without the nodes' pushes (client tracking), which need three more connections a node: then L1 entries live L1BlindTTL, and who waits
	// for another process's load looks every 5 to 250 ms.
	NoPush bool

	// RingPoints is the number of points on the ring for a node of weight 1; 0 means 1,024. All clients of the same nodes must agree.
	RingPoints int

	// OperationTimeout bounds every command to a node, and before that the wait for a connection and its dial; 0 means 50 ms, at least
	// 1 ms. There are no retries. A read of one key waits for less: for four times the 99th percentile of the node's replies of late, from two fifths of this
	// (20 ms of the 50) up to all of it; then the value is loaded, and only what becomes of the command in all of this time counts against the node. And where some replies of the node
	// are far slower than most, a read asks anew over another connection after four times the median, at least 1 ms. A node that answers nobody is down (NodeStats.State) after
	// 200 ms and four timeouts, or within a second when nobody asks it. With more than 100 ms it takes longer.
	OperationTimeout time.Duration

	// PoolSize is the most connections a node; 0 means 16. Concurrent reads share commands, so a few carry a lot. Large values
	// (CacheConfig.LargeValueBytes) have up to 3 more, which are made when there is one.
	PoolSize int

	// Redis, when not nil, is called once for each node with the driver's options, to set TLSConfig, Username and Password (ACL),
	// Dialer or OnConnect. Timeouts and retries stay as this package sets them. It is called again for each replica, and with Sentinel for each
	// server that is asked whether it is the primary, with the node's ID and that server's Addr, from other goroutines than New's: what it sets, passwords among it, goes to every
	// address that one of the Sentinels names. With Sentinel it is called first with a node whose Addr is empty (whatever o.Addr says: the Dialer is given the address that was
	// learnt), and TLSConfig needs a ServerName that all servers of the node have.
	Redis func(node ring.Node, o *redis.Options)

	// MaxLoads caps the loader calls that run at once in this process, over all its caches; 0 means 64. It is what the database sees at
	// most when every node is dead. Keep it below the size of the loaders' connection pool: a load that waits for a connection uses up its
	// LoadTimeout, one that waits for a place does not.
	MaxLoads int

	// AdaptiveLoads lets the cap move between a tenth of MaxLoads and MaxLoads by how long the loader's calls take: when they take more than twice as long as at their
	// best, a fifth of the places goes; when there are too few and they do not, one is added, each 100 ms at most. stampede.Gauge has the formula. Stats.LoadsCap is where it is.
	AdaptiveLoads bool

	// FleetLoads caps the loads of all processes of this namespace together; 0 is no such cap. Each takes its share, FleetLoads divided by the number of live processes as it was last known,
	// rounded down but at least 1 (so with more processes than FleetLoads it is not kept), and never more than MaxLoads. They count each other through a heartbeat on up to five nodes every 2 s, one
	// script of some 20 us each. Who appears is counted at the next beat; a share grows again only after a minute in which others were missing, by a tenth each beat, so that nodes out of reach of
	// half the fleet do not double the load. A process that has never reached a node has one place. All must be given the same FleetLoads and nodes. An ACL user of a
	// namespace needs ~~f:namespace ~~a:namespace too.
	FleetLoads int

	// LoadQueue is how many loads may wait for a place; 0 means 1,024. Beyond it callers get ErrOverloaded at once.
	LoadQueue int

	// LoadQueueTimeout is how long a load may wait for a place before its callers get ErrOverloaded; 0 means 1 s, at least 1 ms.
	LoadQueueTimeout time.Duration

	// OutboxSize is how many invalidations that did not reach their node are kept, one a key (and one a Clear or tag and node), over all nodes, to be repeated until they do; 0 means 10,000. Beyond it the error
	// of an invalidation that fails is ErrOutboxFull too. Those that a node may have lost in a failover take a place as well; for which there is none, this process
	// trusts nothing that the node has from before. Each takes some 300 bytes and its key.
	OutboxSize int

	// SecondDeleteQueue is how many second deletes (CacheConfig.SecondDelete) may wait; 0 means 100,000. An invalidation beyond it is done, and its error says that no
	// second one will come.
	SecondDeleteQueue int

	// Gutter lets entries whose owner is down live on the next node of the ring (of another rack, where there is one), under names of their own and for 10 s at most each, so
	// that their keys cost few loads meanwhile. Another process that does not find the owner down invalidates there only: what this one reads in the gutter may be 10 s
	// older than such an invalidation. This process's own invalidations void both places. No effect with a single node, nor on caches
	// that are themselves the truth. An ACL user of a namespace needs ~~u:namespace/* ~~ul:namespace/* ~~um:namespace/* ~~ub:namespace/* too.
	Gutter bool

	// TrustSnapshots trusts what a node holds after a restart. Without it, entries from before a primary's start are misses: a snapshot or an append-only file brings
	// back what was deleted since it was written. It is for those who restart nodes warm on purpose and accept that such an entry may live
	// until its TTL. Caches that are themselves the truth always trust their node.
	TrustSnapshots bool

	// Logger hears of nodes that go down and are up again (at debug level of their other states too), of loaders that fail so often that they are left alone (CacheConfig.NoSourceBreaker) and that they are well again, of nodes that have another primary, of replicas that cannot be used, of servers that were restarted or may have lost their latest writes, of second
	// deletes that will not come, of filters of known keys that are not consulted or cannot be built anew (CacheConfig.Filter), of nodes that refuse the counters of hot keys, and, at most once a minute and node, of a command that a node refuses although it answers (no memory, no permission).
	// It hears of Sentinels when no majority of them says who a primary is, and not of a single one that is dead, nor of replicas that are: see NodeStats.SentinelError and
	// ReplicaStats. nil is silence.
	Logger *slog.Logger

	// OnEvent is called with what happens to nodes, by the goroutine that has found out, the events of one node in their order. It must return quickly, may be called for
	// several nodes at once, and must not use the client. nil: nobody wants to know.
	OnEvent func(Event)
}

// withDefaults validates and fills in what is zero. The ring validates the nodes themselves.
func (c Config) withDefaults() (Config, error) {
	if c.Namespace != "" {
		if err := checkName("Config.Namespace", c.Namespace); err != nil {
			return c, err
		}
	}
	if err := c.checkServers(); err != nil {
		return c, err
	}
	err := firstError(
		orDefaultInt("Config.RingPoints", &c.RingPoints, ring.DefaultPoints),
		orDefaultInt("Config.PoolSize", &c.PoolSize, 16),
		orDefaultInt("Config.MaxLoads", &c.MaxLoads, DefaultMaxLoads),
		orDefaultInt("Config.LoadQueue", &c.LoadQueue, DefaultLoadQueue),
		orDefaultInt("Config.OutboxSize", &c.OutboxSize, DefaultOutboxSize),
		orDefaultInt("Config.SecondDeleteQueue", &c.SecondDeleteQueue, DefaultSecondDeleteQueue),
		orDefaultDuration("Config.OperationTimeout", &c.OperationTimeout, DefaultOperationTimeout),
		orDefaultDuration("Config.LoadQueueTimeout", &c.LoadQueueTimeout, DefaultLoadQueueTimeout),
		orDefaultDuration("Config.ReplicaMaxLag", &c.ReplicaMaxLag, DefaultReplicaMaxLag),
	)
	if err == nil && c.RingPoints > ring.MaxPoints {
		err = &ConfigError{"Config.RingPoints", c.RingPoints, fmt.Sprintf("must be at most %d", ring.MaxPoints)}
	}
	if err == nil && c.FleetLoads < 0 {
		err = &ConfigError{"Config.FleetLoads", c.FleetLoads, "must not be negative (0 means no cap for the fleet)"}
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
		if err := checkAddr(field, n.Addr); err != nil {
			return err
		}
		if j, twice := addrs[n.Addr]; twice {
			return &ConfigError{field, strconv.Quote(n.Addr), fmt.Sprintf("is the address of Nodes[%d] too: two nodes cannot be one server", j)}
		}
		addrs[n.Addr] = i
	}
	return nil
}
