// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// ErrNotFound means that there is no redis-server on this machine.
var ErrNotFound = errors.New("redistest: no redis-server found (install it, for instance with: apt-get install redis-server)")

// Find returns the path of the server's binary: what REDIS_SERVER in the
// environment names, else redis-server, else valkey-server on the PATH. The error
// wraps [ErrNotFound].
func Find() (string, error) {
	if name := os.Getenv("REDIS_SERVER"); name != "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", fmt.Errorf("%w: REDIS_SERVER: %w", ErrNotFound, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotFound
}
