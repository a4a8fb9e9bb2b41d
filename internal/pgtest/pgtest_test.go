// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/pgtest"
)

// roleVar makes the test binary play another program; see TestMain.
const roleVar = "SHELF_PGTEST_ROLE"

// TestMain lets the test binary stand in for a program that launches a server
// and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "owner" {
		pg, err := pgtest.Launch(context.Background())
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(pg.Pid())
		select {} // until killed
	}
	os.Exit(m.Run())
}

// alive reports whether the process runs; a zombie does not. Linux only.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// family is the process and its children, as Linux lists them.
func family(pid int) []int {
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	pids := []int{pid}
	for _, word := range strings.Fields(string(list)) {
		child, _ := strconv.Atoi(word)
		pids = append(pids, child)
	}
	return pids
}

func eventually(tb testing.TB, what string, reached func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within 10 s: %s", what)
		}
	}
}

func psql(tb testing.TB, pg *pgtest.Postgres, sql string) string {
	tb.Helper()
	out, err := pg.Psql(tb.Context(), sql)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// One server for all that only asks: a start costs seconds.
func TestServer(t *testing.T) {
	pg := pgtest.Start(t)

	t.Run("settings", func(t *testing.T) {
		for name, want := range map[string]string{"wal_level": "logical", "fsync": "off", "unix_socket_directories": "", "listen_addresses": "127.0.0.1"} {
			if got := psql(t, pg, "SHOW "+name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	})

	t.Run("runs unprivileged", func(t *testing.T) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pg.Pid()))
		if err != nil {
			t.Skip("needs /proc")
		}
		if strings.Contains(string(status), "\nUid:\t0\t") || !strings.Contains(string(status), "\nUid:\t") {
			t.Errorf("the server runs as root:\n%s", status)
		}
	})

	t.Run("rows", func(t *testing.T) {
		out := psql(t, pg, `CREATE TABLE product (id int PRIMARY KEY, name text);
			INSERT INTO product VALUES (1, 'chair'), (2, 'täble');
			SELECT * FROM product ORDER BY id;`)
		if want := "1|chair\n2|täble"; out != want {
			t.Errorf("%q, want %q", out, want)
		}
	})

	t.Run("logical decoding", func(t *testing.T) {
		out := psql(t, pg, `CREATE TABLE change (id int PRIMARY KEY);
			SELECT slot_name FROM pg_create_logical_replication_slot('probe', 'test_decoding');
			INSERT INTO change VALUES (7);
			SELECT data FROM pg_logical_slot_get_changes('probe', NULL, NULL) WHERE data LIKE 'table%';`)
		if want := "table public.change: INSERT: id[integer]:7"; !strings.Contains(out, want) {
			t.Errorf("%q does not contain %q", out, want)
		}
	})

	t.Run("libpq's environment does not matter", func(t *testing.T) {
		t.Setenv("PGOPTIONS", "-c nonsense=1=2")
		t.Setenv("PGDATABASE", "elsewhere")
		if got := psql(t, pg, "SELECT current_database()"); got != "postgres" {
			t.Errorf("database %q", got)
		}
	})

	t.Run("errors", func(t *testing.T) {
		_, err := pg.Psql(t.Context(), "SELECT nonsense; CREATE TABLE after_error (id int)")
		if err == nil || !strings.HasPrefix(err.Error(), "pgtest: psql: ") || !strings.Contains(err.Error(), `column "nonsense" does not exist`) {
			t.Errorf("Psql = %v", err)
		}
		if got := psql(t, pg, "SELECT to_regclass('after_error') IS NULL"); got != "t" {
			t.Error("what follows a failed statement was executed")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := pg.Psql(ctx, "SELECT pg_sleep(60)"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Psql with a deadline = %v", err)
		}
	})
}

// The server is busy when it is ended: the shutdown must break the query off.
func TestNothingIsLeftAfterTheTest(t *testing.T) {
	var pids []int
	var dir string
	query := make(chan error, 1)
	t.Run("inner", func(t *testing.T) {
		var pg *pgtest.Postgres
		t.Cleanup(func() { // runs after the server's own cleanup
			if pg == nil {
				return // skipped, or failed to start
			}
			if log := pg.Log(); !strings.Contains(log, "fast shutdown") || strings.Contains(log, "immediate shutdown request") {
				t.Errorf("no clean shutdown:\n%s", log)
			}
			if err := pg.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
		})
		pg = pgtest.Start(t)
		dir = filepath.Dir(psql(t, pg, "SHOW data_directory"))
		go func() {
			_, err := pg.Psql(context.Background(), "SELECT pg_sleep(600)")
			query <- err
		}()
		eventually(t, "the query", func() bool {
			return psql(t, pg, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()") == "1"
		})
		pids = family(pg.Pid())
	})
	if dir == "" {
		return // skipped, or failed above
	}
	if err := <-query; err == nil {
		t.Error("the query outlived its server")
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("end of process %d of %v", pid, pids), func() bool { return !alive(pid) })
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %s: %v", dir, err)
	}
}

func TestServerDiesWithItsProgram(t *testing.T) {
	if _, err := pgtest.Find(); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("only Linux has a death signal")
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), roleVar+"=owner")
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Fatalf("the program said %q", line)
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) // nobody is left to remove it
	pids := family(pid)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("end of process %d of %v", pid, pids), func() bool { return !alive(pid) })
	}
	if filepath.Base(dir) == "data" {
		if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
			t.Error(err)
		}
	}
}

func TestLaunchHonoursItsContext(t *testing.T) {
	if _, err := pgtest.Find(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if pg, err := pgtest.Launch(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Launch = %v, %v", pg, err)
	}
}

// Runs a test in a process that finds no PostgreSQL.
func TestWithoutPostgresTestsSkipAndInCIFail(t *testing.T) {
	for ci, want := range map[string]string{"": "--- SKIP: ", "true": "--- FAIL: "} {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestServer$")
		cmd.Env = append(os.Environ(), "CI="+ci, "POSTGRES_BIN=/nonexistent")
		out, _ := cmd.CombinedOutput() // the exit code says the same as the text
		for _, part := range []string{want, "apt-get install postgresql"} {
			if !strings.Contains(string(out), part) {
				t.Errorf("CI=%q: %q is not in:\n%s", ci, part, out)
			}
		}
	}
}
