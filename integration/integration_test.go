// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/internal/suite"
)

// TestEngines runs the suite on every kind of node that is supported, and prints what holds where.
func TestEngines(t *testing.T) {
	missing := available("redis:7", "redis:8", "valkey/valkey:8")
	var reports []*suite.Report
	for _, e := range []suite.Engine{
		suite.Embedded(),
		suite.Processes(),
		inContainers("redis:7", "redis", "7.", "redis-server", missing["redis:7"]),
		inContainers("redis:8", "redis", "8.", "redis-server", missing["redis:8"]),
		inContainers("valkey/valkey:8", "valkey", "8.", "valkey-server", missing["valkey/valkey:8"]),
	} {
		reports = append(reports, suite.Run(t, e))
	}
	fmt.Printf("\n%s\n", suite.Table(reports...))
}

// TestMissingImagesSayWhy: whatever is missing, the table names it, and nothing waits for it.
func TestMissingImagesSayWhy(t *testing.T) {
	const image = "127.0.0.1:1/shelf/no-such-image:0"
	_, noEngine := docker()
	err := available(image)[image]
	switch {
	case err == nil:
		t.Error("an image that is nowhere is available")
	case noEngine == nil && !strings.Contains(err.Error(), image):
		t.Errorf("got %v, want the image's name", err)
	case noEngine != nil && !strings.Contains(err.Error(), "no Docker engine"):
		t.Errorf("got %v, want that there is no engine", err)
	}
	table := suite.Table(suite.Run(t, inContainers(image, "redis", "7.", "redis-server", err)))
	if !strings.Contains(table, image+": NOT RUN: ") || strings.Contains(table, string(suite.Pass)+"\n") {
		t.Errorf("the table does not say that the engine was not run:\n%s", table)
	}
}
