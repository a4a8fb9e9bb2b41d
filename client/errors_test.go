// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-shelf/shelf/client"
)

// TestNodeErrorText: it fits into a log, whatever the keys are; and without keys, as of Clear, it speaks of none.
func TestNodeErrorText(t *testing.T) {
	for text, keys := range map[string][]string{
		`shelf: clear on node a failed: refused`:                                                     nil,
		`shelf: clear on node a failed for "k": refused`:                                             {"k"},
		`shelf: clear on node a failed for "k" "l\n" "m": refused`:                                   {"k", "l\n", "m"},
		`shelf: clear on node a failed for "k" "l" "m" and 2 more: refused`:                          {"k", "l", "m", "n", "o"},
		`shelf: clear on node a failed for "` + strings.Repeat("k", 64) + `"... (70 bytes): refused`: {strings.Repeat("k", 70)},
	} {
		if got := (&client.NodeError{Node: "a", Op: "clear", Keys: keys, Err: errors.New("refused")}).Error(); got != text {
			t.Errorf("%s, want %s", got, text)
		}
	}
}
