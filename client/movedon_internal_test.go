// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
)

// readOnly is the reply of a replica to a write.
type readOnly struct{}

func (readOnly) Error() string { return "READONLY You can't write against a read only replica." }
func (readOnly) RedisError()   {}

// TestMovedBeforeTheAnswer: the old primary refuses a command, and by the time the answer is looked at the node has moved. The command is sent again at once: there is no
// further move to wait for, and it is not the new primary that is a replica.
func TestMovedBeforeTheAnswer(t *testing.T) {
	sh := bareShard(t, "127.0.0.1:9")
	c := sh.c
	c.shards, c.sentinels = []*shard{sh}, redisnode.NewSentinels(redisnode.SentinelConfig{})
	t.Cleanup(c.sentinels.Close)
	c.cfg.OperationTimeout = 20 * time.Millisecond
	sh.moveTo(t.Context(), serverB, redisnode.Replication{Role: redisnode.RolePrimary, ID: "of B", Continues: "of A"}, "")
	refused := []redisnode.Result{{Err: &redisnode.Error{Node: "a", Op: "EVALSHA", Err: readOnly{}}}}
	if !c.movedOn(0, serverA, refused) {
		t.Error("a command that the old primary has refused is not sent again")
	}
	if sh.demoted {
		t.Error("the new primary is taken for a replica, for what the old one has said")
	}
	if c.movedOn(0, serverB, refused) || !sh.demoted {
		t.Error("the one that the node has says that it is a replica, and nothing comes of it")
	}
}

// TestLiarNamesMany: a Sentinel that names very many servers does not keep a look from the one that was promoted, and fills no memory.
func TestLiarNamesMany(t *testing.T) {
	sh := bareShard(t, "s1", "s2", "s3")
	now := time.Now()
	for i := range 10_000 {
		sh.heardOf(redisnode.News{Sentinel: "s1", Name: "a", Addr: fmt.Sprintf("10.0.%d.%d:1", i/250, i%250)}, now)
	}
	sh.majority = serverB
	sh.isPromoted(serverC)
	got := sh.candidates(now)
	if len(got) > maxAsked || got[0] != serverC || got[1] != serverB {
		t.Errorf("%d servers are asked: %v", len(got), got)
	}
	if len(sh.named) > maxTried+1 {
		t.Errorf("%d are kept", len(sh.named))
	}
}
