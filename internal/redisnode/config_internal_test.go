// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import (
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
	if o.Addr != "a:1" || o.Protocol != 3 || o.MaxRetries != 0 || o.DialerRetries != 1 || o.PoolSize != 3 || o.PipelinePoolSize != -1 ||
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
		if g.parseInfo(c.text); g != c.want {
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

func TestParseRole(t *testing.T) {
	for _, c := range []struct {
		reply any
		want  Role
	}{
		{[]any{"master", int64(3), []any{}}, RolePrimary},
		{[]any{"slave", "10.0.0.1", int64(6379), "connected", int64(3)}, RoleReplica},
		{[]any{"sentinel"}, RoleUnknown},
		{[]any{}, RoleUnknown},
		{nil, RoleUnknown},
		{"master", RoleUnknown},
	} {
		if got := parseRole(c.reply); got != c.want {
			t.Errorf("%v is %q, want %q", c.reply, got, c.want)
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
	n.met(old, greeting{runID: "one", role: RoleReplica}, true)
	n.replace(old)
	n.met(n.Session(), greeting{runID: "two", role: RolePrimary}, true)
	n.met(old, greeting{runID: "one", role: RoleReplica, hasClock: true, clock: reading{server: time.Unix(1, 0)}}, false)
	if got, want := n.Info(), (Info{RunID: "two", Role: RolePrimary}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
