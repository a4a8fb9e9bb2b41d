// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package proc

import (
	"os"
	"testing"
)

// Require is for tests that need a program on the machine: with an error, which
// should say what to install, it skips the test. With CI=true in the environment
// it fails it, because a CI image that lacks the program would turn every such
// test green without running one.
func Require(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		tb.Fatalf("%v: in CI a skipped test is a failed one", err)
	default:
		tb.Skip(err)
	}
}
