// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/stampede"
)

// The names that a cache's filter has on the nodes, before the cache's own.
//
// That of the feed does not hold the cache's schema: rows are the same whatever their entries look like, processes of two releases tell each other of new ones, and an addition too many
// does no harm. The others do: a build says which keys there are not, and one that knows keys by other names, as another release may give them, would say of every row that it is absent.
const (
	filterFeedPrefix   = "~k:"  // a stream: the additions
	filterNewestPrefix = "~ks:" // with the schema: the description of the newest build
	filterStripePrefix = "~kc:" // the same: its parts, by build and number
	filterLeadPrefix   = "~kl:" // the same: who is building
)

const (
	// feedEntries is how many entries the feed keeps, about. One takes some 40 bytes for one key, which makes 10 MB; 600 bytes for 64 keys, which makes 150 MB where everything comes by
	// Known in bulk. A process that reads it every half second misses nothing below 500,000 entries a second; a stored build can be used until so many have been written since.
	feedEntries = 250_000
	feedRead    = 512
	feedKeeps   = 24 * time.Hour // without a write, at least
)

// filterFeed is the feed of a cache's filter (stampede.FilterFeed): a Redis stream on the node that owns its name. Its ids are made by the server and only grow.
type filterFeed struct {
	node *redisnode.Node
	key  string
	keep time.Duration
}

func (c *Client) filterFeed(cache string, rebuildEvery time.Duration) *filterFeed {
	key := filterFeedPrefix + cache
	return &filterFeed{c.nodes[c.ring.OwnerIndex(key)], key, max(feedKeeps, 2*rebuildEvery)}
}

// Append implements stampede.FilterFeed.
func (f *filterFeed) Append(ctx context.Context, entry []byte) (stampede.FilterPosition, error) {
	results, history, err := f.node.WriteIn(ctx, []redisnode.Command{
		{"XADD", f.key, "MAXLEN", "~", feedEntries, "*", "d", entry},
		{"PEXPIRE", f.key, f.keep.Milliseconds()},
	})
	if err != nil {
		return stampede.FilterPosition{}, err
	}
	id, ok := results[0].Reply.(string)
	if !ok {
		return stampede.FilterPosition{}, fmt.Errorf("shelf: XADD: an unexpected reply: %#v", results[0].Reply)
	}
	return stampede.FilterPosition{History: history, ID: id}, nil
}

// Read implements stampede.FilterFeed.
func (f *filterFeed) Read(ctx context.Context, id string) (stampede.FilterReading, error) {
	reply, history, err := f.node.ReadIn(ctx, redisnode.Command{"XRANGE", f.key, id, "+", "COUNT", feedRead})
	if err != nil {
		return stampede.FilterReading{}, err
	}
	list, ok := reply.([]any)
	if !ok {
		return stampede.FilterReading{}, fmt.Errorf("shelf: XRANGE: an unexpected reply: %T", reply)
	}
	r := stampede.FilterReading{History: history, Entries: make([]stampede.FilterEntry, len(list)), More: len(list) == feedRead}
	for i, e := range list {
		if r.Entries[i], ok = parseFeedEntry(e); !ok {
			return stampede.FilterReading{}, fmt.Errorf("shelf: XRANGE: an unexpected entry: %#v", e)
		}
	}
	return r, nil
}

// parseFeedEntry reads [id, [field, value]]. An entry with other fields has no data, which the filter takes for one that it does not know.
func parseFeedEntry(reply any) (e stampede.FilterEntry, ok bool) {
	parts, _ := reply.([]any)
	if len(parts) != 2 {
		return e, false
	}
	fields, _ := parts[1].([]any)
	if e.ID, ok = parts[0].(string); !ok || len(fields) != 2 {
		return e, ok
	}
	data, _ := fields[1].(string)
	e.Data = []byte(data)
	return e, true
}

// filterStore keeps builds (stampede.FilterStore): the parts all over the nodes, the description and the lead where the feed is.
type filterStore struct {
	c            *Client
	node         *redisnode.Node
	builds, self string
}

// filterStore is that of a cache; builds is its name with the schema.
func (c *Client) filterStore(cache, builds string) *filterStore {
	return &filterStore{c, c.filterFeed(cache, 0).node, builds, rand.Text()}
}

// at is the node and the name of what is stored under a name of the filter's.
func (s *filterStore) at(name string) (*redisnode.Node, string) {
	if name == stampede.FilterNewest {
		return s.node, filterNewestPrefix + s.builds
	}
	full := filterStripePrefix + s.builds + ":" + name
	return s.c.nodes[s.c.ring.OwnerIndex(full)], full
}

// Put implements stampede.FilterStore.
func (s *filterStore) Put(ctx context.Context, name string, data []byte, ttl time.Duration) error {
	node, full := s.at(name)
	_, err := node.Do(ctx, redisnode.Command{"SET", full, data, "PX", ttl.Milliseconds()})
	return err
}

// Get implements stampede.FilterStore.
func (s *filterStore) Get(ctx context.Context, name string) (data []byte, left time.Duration, err error) {
	node, full := s.at(name)
	results := node.DoMany(ctx, []redisnode.Command{{"PTTL", full}, {"GET", full}})
	for _, r := range results {
		if r.Err != nil {
			return nil, 0, r.Err
		}
	}
	ms, _ := results[0].Reply.(int64)
	if text, ok := results[1].Reply.(string); ok && ms > 0 {
		return []byte(text), time.Duration(ms) * time.Millisecond, nil
	}
	return nil, 0, nil
}

// Lead implements stampede.FilterStore. Its two commands are not one step: at worst two lead, or nobody does for d.
func (s *filterStore) Lead(ctx context.Context, d time.Duration) (bool, error) {
	full := filterLeadPrefix + s.builds
	taken := ""
	if d > 0 {
		reply, err := s.node.Do(ctx, redisnode.Command{"SET", full, s.self, "NX", "PX", d.Milliseconds()})
		if err != nil || reply != nil {
			return err == nil, err
		}
	}
	reply, err := s.node.Do(ctx, redisnode.Command{"GET", full})
	if taken, _ = reply.(string); err != nil || taken != s.self {
		return false, err
	}
	command := redisnode.Command{"PEXPIRE", full, d.Milliseconds()}
	if d == 0 {
		command = redisnode.Command{"DEL", full}
	}
	_, err = s.node.Do(ctx, command)
	return d > 0 && err == nil, err
}
