// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/go-shelf/shelf/internal/proc"
)

// serverUser is who shall run the server: nil, this process's user, unless that
// is root.
func serverUser() (*proc.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &proc.User{UID: uint32(uid), GID: uint32(gid)}, nil
		}
	}
	return nil, errors.New("pgtest: this is root, PostgreSQL refuses root, and there is neither a user postgres nor nobody")
}

// makeDir creates a directory that is owned by who, and that who can reach.
func makeDir(who *proc.User) (string, error) {
	dir, err := os.MkdirTemp(reachableTemp(who), "shelf-pg-")
	if err != nil {
		return "", fmt.Errorf("pgtest: %w", err)
	}
	if who == nil {
		return dir, nil
	}
	if err := os.Chown(dir, int(who.UID), int(who.GID)); err != nil {
		return "", fmt.Errorf("pgtest: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	return dir, nil
}

// reachableTemp is the directory for temporary files, or /tmp when another user
// than this process's has no way into it (TMPDIR below /root, say).
func reachableTemp(who *proc.User) string {
	dir, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "/tmp"
	}
	if who == nil {
		return dir
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || info.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}
