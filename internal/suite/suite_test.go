// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package suite_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/internal/suite"
)

var update = flag.Bool("update", false, "write testdata/behaviours.txt anew")

// TestEngines runs the suite on the engines that need nothing but this module (and redis-server).
func TestEngines(t *testing.T) {
	for _, e := range []suite.Engine{suite.Embedded(), suite.Processes()} {
		suite.Run(t, e)
	}
}

// TestDifferencesAreWrittenDown: what is not the same on all engines changes in the open.
func TestDifferencesAreWrittenDown(t *testing.T) {
	const path = "testdata/behaviours.txt"
	got := suite.Table(suite.Expected(suite.Processes()), suite.Expected(suite.Embedded()))
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the suite is now (go test ./internal/suite -update writes it anew):\n%s", path, got)
	}
}

// TestRightsAreTheReadmes: the suite tries the rights that the README states, and no others.
func TestRightsAreTheReadmes(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(readme), "`", " ")), " ")
	want := fmt.Sprintf("An ACL user needs %s on", suite.Rights)
	if !strings.Contains(text, want) {
		t.Errorf("the README does not say %q", want)
	}
	if !strings.Contains(text, "the user needs "+suite.PushRights) {
		t.Errorf("the README does not say that for pushes the user needs %q", suite.PushRights)
	}
	for _, pattern := range strings.Fields(suite.NamespaceKeys) {
		if !strings.Contains(text, pattern) {
			t.Errorf("the README does not name the pattern %s", pattern)
		}
	}
}
