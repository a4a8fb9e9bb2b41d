// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNotFound means that there is no PostgreSQL server on this machine.
var ErrNotFound = errors.New("pgtest: no PostgreSQL found (install it, for instance with: apt-get install postgresql)")

// Find returns the directory of initdb, postgres and psql: what POSTGRES_BIN in
// the environment names, else that of the initdb on the PATH, else the newest of
// /usr/lib/postgresql (Debian keeps the server off the PATH), else what pg_config
// names. The error is [ErrNotFound].
func Find() (dir string, err error) {
	for _, candidate := range candidates() {
		if hasPrograms(candidate) {
			return candidate, nil
		}
	}
	return "", ErrNotFound
}

func candidates() []string {
	if named := os.Getenv("POSTGRES_BIN"); named != "" {
		return []string{named}
	}
	var dirs []string
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// A link points to where the whole set is; psql beside the link may be a
		// wrapper that looks for a cluster of the distribution.
		if real, err := filepath.EvalSymlinks(initdb); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		dirs = append(dirs, filepath.Dir(initdb))
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is good
	slices.SortFunc(versions, newestFirst)
	dirs = append(dirs, versions...)
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	return dirs
}

// newestFirst orders paths as /usr/lib/postgresql/15/bin by the number: 15 comes
// before 9.6.
func newestFirst(a, b string) int {
	version := func(bin string) float64 {
		v, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(bin)), 64) // 0 sorts last
		return v
	}
	return cmp.Compare(version(b), version(a))
}

func hasPrograms(dir string) bool {
	for _, name := range []string{"initdb", "postgres", "psql"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}
