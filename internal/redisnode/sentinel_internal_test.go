// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode

import "testing"

// TestParseNews: the messages are those that Redis 7.0's Sentinels publish.
func TestParseNews(t *testing.T) {
	for message, want := range map[[2]string]News{
		{"+switch-master", "shelf-a 10.0.0.1 6379 10.0.0.2 6380"}:                        {Name: "shelf-a", Addr: "10.0.0.2:6380"},
		{"+switch-master", "shelf-a ::1 6379 ::2 6380"}:                                  {Name: "shelf-a", Addr: "[::2]:6380"},
		{"+switch-master", "shelf-a 10.0.0.1 6379"}:                                      {},
		{"+sdown", "master shelf-a 10.0.0.1 6379"}:                                       {Name: "shelf-a", Down: true},
		{"-sdown", "master shelf-a 10.0.0.1 6379"}:                                       {Name: "shelf-a"},
		{"+odown", "master shelf-a 10.0.0.1 6379 #quorum 2/2"}:                           {Name: "shelf-a", Down: true},
		{"+try-failover", "master shelf-a 10.0.0.1 6379"}:                                {Name: "shelf-a", Down: true},
		{"+failover-state-select-slave", "master shelf-a 10.0.0.1 6379"}:                 {Name: "shelf-a", Down: true},
		{"+selected-slave", "slave 10.0.0.2:6379 10.0.0.2 6379 @ shelf-a 10.0.0.1 6379"}: {Name: "shelf-a", Down: true},
		{"+sdown", "slave 10.0.0.2:6379 10.0.0.2 6379 @ shelf-a 10.0.0.1 6379"}:          {Name: "shelf-a"},
		{"+sdown", "sentinel 0b1c 10.0.0.2 26379 @ shelf-a 10.0.0.1 6379"}:               {Name: "shelf-a"},
		{"+slave", "slave 10.0.0.2:6379 10.0.0.2 6379 @ shelf-a 10.0.0.1 6379"}:          {Name: "shelf-a"},
		{"+new-epoch", "3"}:             {},
		{"+tilt", "#tilt mode entered"}: {},
		{"+vote-for-leader", "a3f 3"}:   {},
		{"", ""}:                        {},
	} {
		if got := parseNews(message[0], message[1]); got != want {
			t.Errorf("%q is %+v, want %+v", message, got, want)
		}
	}
}

func TestIsDown(t *testing.T) {
	for flags, want := range map[string]bool{
		"master": false, "master,disconnected": false, "": false, "s_down,master,disconnected": true, "s_down,o_down,master": true, "master,failover_in_progress": true,
	} {
		if got := saysDown(flags); got != want {
			t.Errorf("%q: %t", flags, got)
		}
	}
}
