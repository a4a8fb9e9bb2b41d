// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Whatever the user's hook does, what the protocol rests on stays.
func TestPresetWinsOverTheHook(t *testing.T) {
	called := 0
	cfg := Config{ID: "a", Addr: "a:1", Timeout: time.Second, PoolSize: 3, Options: func(o *redis.Options) {
		called++
		*o = redis.Options{
			Addr: "b:2", Protocol: 2, MaxRetries: 5, DialerRetries: 7, PoolSize: 99, PipelinePoolSize: 9, MinIdleConns: 4, MaxActiveConns: 1,
			DialTimeout: time.Hour, ReadTimeout: -1, WriteTimeout: -1, PoolTimeout: time.Hour,
			ClientSideCacheConfig:    &redis.ClientSideCacheConfig{},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeEnabled},
			Username:                 "user", Password: "pw", ClientName: "me", DB: 3,
		}
	}}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	o := n.Client().Options()
	if o.Addr != "a:1" || o.Protocol != 3 || o.MaxRetries != 0 || o.DialerRetries != 1 || o.PoolSize != 2 || o.PipelinePoolSize != -1 ||
		o.MinIdleConns != 0 || o.MaxActiveConns != 0 || !o.ContextTimeoutEnabled || !o.DisableIdentity || o.ClientSideCacheConfig != nil ||
		o.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled {
		t.Errorf("%+v", o)
	}
	if o.DialTimeout != time.Second || o.ReadTimeout != time.Second || o.WriteTimeout != time.Second || o.PoolTimeout != time.Second {
		t.Errorf("timeouts: dial %v read %v write %v pool %v", o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout)
	}
	if o.Username != "user" || o.Password != "pw" || o.ClientName != "me" || o.DB != 3 {
		t.Errorf("what the user may set is lost: %+v", o)
	}
	n.replace(n.Session())
	if called != 1 || n.Client().Options().Username != "user" {
		t.Errorf("a new session called the hook again (%d), or lost what it did", called)
	}
}

func TestParseInfo(t *testing.T) {
	for _, c := range []struct {
		text string
		want greeting
	}{
		{
			"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\nuptime_in_seconds:10\r\nserver_time_usec:1700000000999999\r\n",
			greeting{version: "7.0.15", mode: "standalone", runID: "abc", engine: EngineRedis, startedAt: time.Unix(1699999991, 0)},
		},
		{
			"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nserver_mode:cluster\r\nrun_id:def\r\n",
			greeting{version: "8.0.1", mode: "cluster", runID: "def", engine: EngineValkey},
		},
		{"redis_version:5.0.0\r\nredis_mode:sentinel\r\nuptime_in_seconds:10\r\n", greeting{version: "5.0.0", mode: "sentinel", engine: EngineRedis}},
		{"", greeting{engine: EngineRedis}},
	} {
		var g greeting
		if g.parseInfo(c.text); !reflect.DeepEqual(g, c.want) {
			t.Errorf("%q\n got %+v\nwant %+v", c.text, g, c.want)
		}
	}
	g := greeting{startedAt: time.Unix(100, 0)}
	if g.boundStart(time.Unix(99, 5)); !g.startedAt.Equal(time.Unix(99, 5)) {
		t.Errorf("an answer before the end of its first second gives %v", g.startedAt)
	}
	if g.boundStart(time.Unix(200, 0)); !g.startedAt.Equal(time.Unix(99, 5)) {
		t.Errorf("a later answer gives %v", g.startedAt)
	}
}

func TestParseReplication(t *testing.T) {
	const primary = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=0\r\n" +
		"slave1:ip=::1,port=7,state=wait_bgsave,offset=40,lag=1\r\nmaster_replid:abc\r\nmaster_replid2:000\r\nmaster_repl_offset:50\r\n"
	for _, c := range []struct {
		text string
		want Replication
	}{
		{primary, Replication{Role: RolePrimary, Stream: "abc", ID: "abc", Offset: 50, Replicas: map[string]int64{"10.0.0.2:6379": 42, "[::1]:7": 0}}},
		{
			"role:slave\r\nmaster_host:10.0.0.1\r\nmaster_link_status:up\r\nslave_read_only:1\r\nslave_repl_offset:3\r\nmaster_replid:x\r\nmaster_replid2:0000\r\nmaster_repl_offset:3\r\n",
			Replication{Role: RoleReplica, Stream: "x", ID: "x", LinkUp: true, Offset: 3, Replicas: map[string]int64{}},
		},
		{"role:slave\r\nmaster_link_status:down\r\nmaster_replid:x\r\n", Replication{Role: RoleReplica, Stream: "x", ID: "x", Replicas: map[string]int64{}}},
		{"role:master\r\nmaster_replid:y\r\nmaster_replid2:x0\r\n", Replication{Role: RolePrimary, Stream: "y", ID: "y", Continues: "x0", Replicas: map[string]int64{}}},
		{"role:sentinel", Replication{Replicas: map[string]int64{}}},
		{"", Replication{Replicas: map[string]int64{}}},
	} {
		if got := parseReplication(c.text); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q is %+v, want %+v", c.text, got, c.want)
		}
	}
}

// A connection of a session that is over may finish its handshake late.
func TestNewsOfAnOldRunAreIgnored(t *testing.T) {
	n, err := New(Config{ID: "a", Addr: "a:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	old := n.Session()
	n.met(old, greeting{runID: "one", replication: Replication{Role: RoleReplica}}, true)
	n.replace(old)
	n.met(n.Session(), greeting{runID: "two", replication: Replication{Role: RolePrimary}}, true)
	n.met(old, greeting{runID: "one", replication: Replication{Role: RoleReplica}, hasClock: true, clock: reading{server: time.Unix(1, 0)}}, false)
	if got, want := n.Info(), (Info{RunID: "two", Role: RolePrimary}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
