// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

// askLimit is how long a server may take to tell its figures; a stopped one never does.
const askLimit = 200 * time.Millisecond

// hottest are how many keys are looked at one by one.
const hottest = 20

func cores() float64 { return float64(runtime.NumCPU()) }

// cpu is the time of cores that this process and the servers have used.
func (w *world) cpu(ctx context.Context) time.Duration {
	total := ownCPU()
	for _, fields := range w.figures(ctx, "cpu") {
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			s, _ := strconv.ParseFloat(fields[name], 64)
			total += time.Duration(s * float64(time.Second))
		}
	}
	return total
}

// connects is how many connections the servers have accepted since their start.
func (w *world) connects(ctx context.Context) (n int) {
	for _, fields := range w.figures(ctx, "stats") {
		one, _ := strconv.Atoi(fields["total_connections_received"])
		n += one
	}
	return n
}

// figures asks all servers for a section of INFO. It has nothing of those that do not answer.
func (w *world) figures(ctx context.Context, section string) map[*redistest.Server]map[string]string {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	all := make(map[*redistest.Server]map[string]string)
	var mu sync.Mutex // guards all
	var wg sync.WaitGroup
	for i := range w.servers {
		for _, s := range w.group(i) {
			if !s.Running() { // the driver logs each dial that is refused
				continue
			}
			wg.Go(func() {
				if fields, err := s.Info(ctx, section); err == nil {
					mu.Lock()
					defer mu.Unlock()
					all[s] = fields
				}
			})
		}
	}
	wg.Wait()
	return all
}

// hotLoads is how often each of the hottest keys was asked of the database.
func (w *world) hotLoads() map[int]int {
	loads := make(map[int]int, hottest)
	for rank := range hottest {
		loads[rank] = int(w.db.Reads(w.ids[rank]))
	}
	return loads
}
