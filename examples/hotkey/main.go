// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Hotkey shows what one key that everybody wants does to a node, and what a bot that asks for keys that do not exist does to a database:
//
//	go run ./examples/hotkey [-short] [-svg hotkey.svg]
//
// Four real redis-server processes, and four clients that stand for four processes of a service. After a calm second and a half one key gets 80 % of the reads, as many as
// the machine gives. That is run three times: with nothing against it, with each process's own copies (L1), and with copies on other nodes (HotCopies). The chart is the
// busiest node's share of all reads. It takes some 40 s, with -short some 12, and then asks for less; the last line is "hotkey: PASS" or "hotkey: FAIL", and so is the exit code.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-shelf/shelf/client"
)

func main() {
	short := flag.Bool("short", false, "a quarter of the time, on a machine that may be busy")
	svg := flag.String("svg", "", "write the chart to this file too")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := &longCourse
	if *short {
		c = &shortCourse
	}
	failed, err := run(ctx, c, *svg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || failed {
		fmt.Println("hotkey: FAIL")
		os.Exit(1) //nolint:gocritic // nothing is left that cancel would end
	}
	fmt.Println("hotkey: PASS")
}

// run runs everything and says whether something was not as it should be.
func run(ctx context.Context, c *course, svg string) (failed bool, err error) {
	nodes, err := startNodes(ctx)
	if err != nil {
		return true, err
	}
	defer func() { err = errors.Join(err, nodes.stop()) }()
	var runs []*spike
	for _, s := range []*spike{
		{course: c, name: "nothing", set: func(c *client.CacheConfig[string]) { c.L1 = client.L1Off }},
		{course: c, name: "L1", set: func(*client.CacheConfig[string]) {}},
		{course: c, name: "copies", set: func(c *client.CacheConfig[string]) { c.L1, c.HotCopies, c.HotCopyRate = client.L1Off, 4, 500 }},
	} {
		if err := s.run(ctx, nodes); err != nil {
			return true, fmt.Errorf("%s: %w", s.name, err)
		}
		runs = append(runs, s)
	}
	fmt.Println()
	fmt.Print(textChart(runs))
	fmt.Println("(Nodes and clients share this machine: copies even out the load, they do not make more of it; and reads that are spread share fewer commands, so that each costs its reader more.)")
	if svg != "" {
		if err := os.WriteFile(svg, []byte(svgChart(runs)), 0o644); err != nil { //nolint:gosec // a picture for everybody
			return true, err
		}
	}
	bots, err := runBots(ctx, nodes, c.bots)
	if err != nil {
		return true, err
	}
	return judge(c, runs, bots), nil
}

// judge prints what was not as it should be.
func judge(c *course, runs []*spike, bots []*bot) (failed bool) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			failed = true
			fmt.Printf("not as it should be: "+format+"\n", args...)
		}
	}
	nothing, l1, copies := runs[0], runs[1], runs[2]
	check(nothing.steady() > 0.7, "with nothing the busiest node answers %.0f %% of the reads: no hot key", 100*nothing.steady())
	check(l1.steady() < 0.1, "with L1 the busiest node answers %.0f %% of the reads, want its part of the other keys", 100*l1.steady())
	check(copies.steady() < evenly*c.uneven, "with copies the busiest node answers %.0f %% of the reads, want at most %v of the mean", 100*copies.steady(), c.uneven)
	for _, s := range runs[1:] {
		relief, ok := s.relief()
		check(ok && relief <= c.relief, "with %s the busiest node is relieved after %v, want at most %v", s.name, relief, c.relief)
	}
	for _, s := range runs {
		check(s.failed == 0, "with %s %d reads failed", s.name, s.failed)
	}
	for _, b := range bots {
		check(b.nothing > b.asked*9/10, "%s: %d queries for %d reads with nothing", b.name, b.nothing, b.asked)
		check(b.filter <= b.asked/50, "%s: %d queries get past the filter, want about a hundredth", b.name, b.filter)
	}
	few := bots[1]
	check(few.negative <= few.keys, "%s: %d queries with negative entries, want one a key", few.name, few.negative)
	return failed
}
