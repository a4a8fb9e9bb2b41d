// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/go-shelf/shelf/internal/proc"
)

// A program that makes no reservation can take the port after it was found free.
func TestPortClashTakesTheNextPort(t *testing.T) {
	if _, err := Find(); err != nil {
		t.Skip(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // a test's listener
	_, taken, _ := net.SplitHostPort(silent.Addr().String())
	number, _ := strconv.Atoi(taken)

	tries := 0
	pg, err := launch(t.Context(), func() (*proc.Port, error) {
		if tries++; tries == 1 {
			return proc.UnreservedPort(number), nil
		}
		return proc.ReservePort()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close() //nolint:errcheck // asserted elsewhere
	if one, err := pg.Psql(t.Context(), "SELECT 1"); tries != 2 || one != "1" {
		t.Errorf("%d tries; SELECT 1 = %q, %v", tries, one, err)
	}
}

func TestPortClashesEndInAnError(t *testing.T) {
	other := Start(t)
	tries := 0
	pg, err := launch(t.Context(), func() (*proc.Port, error) {
		tries++
		return proc.UnreservedPort(other.port.Number()), nil
	})
	if !errors.Is(err, errPortTaken) || tries != portTries {
		t.Errorf("launch = %v, %v after %d tries", pg, err, tries)
	}
}

func TestNewestFirst(t *testing.T) {
	bins := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/9/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/old/bin", "/usr/lib/postgresql/17/bin"}
	slices.SortStableFunc(bins, newestFirst)
	want := []string{"/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/9/bin", "/usr/lib/postgresql/old/bin"}
	if !slices.Equal(bins, want) {
		t.Errorf("%v", bins)
	}
}

func TestFindTakesOnlyACompleteDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("POSTGRES_BIN", dir)
	for _, name := range []string{"initdb", "postgres", "psql"} {
		if got, err := Find(); !errors.Is(err, ErrNotFound) {
			t.Errorf("before %s: %q, %v", name, got, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Find(); got != dir || err != nil {
		t.Errorf("complete: %q, %v", got, err)
	}
}

func TestReachableTemp(t *testing.T) {
	closed := t.TempDir()
	inner := filepath.Join(closed, "inner")
	if err := os.Mkdir(inner, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", inner)
	if got := reachableTemp(&proc.User{UID: 1, GID: 1}); got != "/tmp" {
		t.Errorf("another user is sent into %s, below a closed directory", got)
	}
	if got := reachableTemp(nil); got != inner {
		t.Errorf("this user gets %s, want %s", got, inner)
	}
}
