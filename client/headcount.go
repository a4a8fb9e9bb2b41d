// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client

import "time"

// headcount is how many processes live, as far as this one believes it. It believes at once that there are more, and only slowly that there are fewer.
//
// The cap of the fleet is at stake. Who counts too many takes a smaller share, and the database is safe; who counts too few takes more than its share. And
// what hides processes from each other is a network that fails, which is when the database gets the load of the cache:
//
//  1. 100 processes have 4 places each of FleetLoads 400
//  2. the nodes are cut off from 50 of them: the other 50 count 50 after the time for which a beat holds. Those cut off count nobody, and keep their 4
//  3. with 400/50 = 8 places each at once the 50 would have 400 places beside the 200 of those who are cut off
//
// So nothing changes for a minute, which is longer than most such failures; then the number falls by a tenth each beat, to the largest number that was counted
// meanwhile. A failure that stays for longer ends, at worst, with the places of those who are cut off on top of FleetLoads: less than twice. A fleet that is made
// smaller on purpose has its cap back after a minute or two, and is below it till then.
type headcount struct {
	live  int       // what is believed; 0: nothing was ever counted
	fewer time.Time // since when fewer are counted; zero: they are not
	most  int       // the largest number counted since then
}

const (
	headcountHold = time.Minute
	headcountFall = 10 // at most one in so many is given up each time
)

// take takes in what was counted, and says what is to be believed. counted is at least 1.
func (h *headcount) take(counted int, now time.Time) int {
	switch {
	case counted >= h.live:
		h.live, h.fewer, h.most = counted, time.Time{}, 0
	case h.fewer.IsZero():
		h.fewer, h.most = now, counted
	default:
		h.most = max(h.most, counted)
		if now.Sub(h.fewer) >= headcountHold {
			h.live = max(h.most, h.live-max(1, h.live/headcountFall))
		}
		if h.live == h.most { // that is reached; what is less than that begins anew
			h.fewer, h.most = time.Time{}, 0
		}
	}
	return h.live
}
