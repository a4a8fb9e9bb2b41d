// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redistest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
)

// roleVar makes the test binary play another program; see TestMain.
const roleVar = "SHELF_REDISTEST_ROLE"

// TestMain lets the test binary stand in for a program that launches a server
// and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "owner" {
		s, err := redistest.Launch(context.Background(), redistest.Config{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.Pid())
		select {} // until killed
	}
	os.Exit(m.Run())
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil && !os.IsNotExist(err) {
		return true
	}
	if _, missing := os.Stat("/proc/self"); missing != nil { // not Linux
		p, _ := os.FindProcess(pid)
		return p.Signal(syscall.Signal(0)) == nil
	}
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func eventually(tb testing.TB, what string, reached func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within 10 s: %s", what)
		}
	}
}

func set(tb testing.TB, s *redistest.Server, key, value string) {
	tb.Helper()
	if _, err := s.Do(tb.Context(), "SET", key, value); err != nil {
		tb.Fatal(err)
	}
}

// get returns the value, or "" for a missing key.
func get(tb testing.TB, s *redistest.Server, key string) string {
	tb.Helper()
	v, err := s.Do(tb.Context(), "GET", key)
	if errors.Is(err, redis.Nil) {
		return ""
	}
	if err != nil {
		tb.Fatal(err)
	}
	return v.(string)
}

func TestStartAnswersAtItsAddress(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	if want := "127.0.0.1:" + strconv.Itoa(s.Port()); s.Addr() != want {
		t.Errorf("Addr = %s, want %s", s.Addr(), want)
	}
	fields, err := s.Info(t.Context(), "server")
	if err != nil {
		t.Fatal(err)
	}
	if fields["process_id"] != strconv.Itoa(s.Pid()) || fields["tcp_port"] != strconv.Itoa(s.Port()) {
		t.Errorf("pid %d port %d, but the server says %v", s.Pid(), s.Port(), fields)
	}
	if !strings.Contains(s.Log(), "Ready to accept connections") {
		t.Errorf("Log = %q", s.Log())
	}
}

func TestStartNodesAreIndependent(t *testing.T) {
	nodes := redistest.StartNodes(t, 3)
	for i, n := range nodes {
		set(t, n, "who", strconv.Itoa(i))
	}
	for i, n := range nodes {
		if got := get(t, n, "who"); got != strconv.Itoa(i) {
			t.Errorf("node %d says it is %q", i, got)
		}
	}
}

func TestArgsReachTheServer(t *testing.T) {
	s := redistest.Start(t, redistest.Config{
		Args: []string{"--maxmemory", "12mb", "--maxmemory-policy", "allkeys-lru"},
	})
	v, err := s.Do(t.Context(), "CONFIG", "GET", "maxmemory")
	if err != nil || fmt.Sprint(v) != "[maxmemory 12582912]" {
		t.Errorf("CONFIG GET maxmemory = %v, %v", v, err)
	}
}

// The server overwrites its environment in memory, so a script that stands
// before it says what it got. It also shows that REDIS_SERVER is obeyed.
func TestEnvReachesTheServer(t *testing.T) {
	binary, err := redistest.Find()
	if err != nil {
		t.Skip(err)
	}
	script := filepath.Join(t.TempDir(), "wrapped-redis")
	text := fmt.Sprintf("#!/bin/sh\necho \"locale $LC_ALL, probe $SHELF_PROBE\"\nexec %q \"$@\"\n", binary)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDIS_SERVER", script)
	t.Setenv("LC_ALL", "C.UTF-8")
	s := redistest.Start(t, redistest.Config{Env: []string{"LC_ALL=C", "SHELF_PROBE=here"}})
	if want := "locale C, probe here\n"; !strings.HasPrefix(s.Log(), want) {
		t.Errorf("Log = %q, want it to begin with %q", s.Log(), want)
	}
}

func TestKillRefusesConnections(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	pid := s.Pid()
	s.Kill()
	s.Kill() // killing a dead server does nothing
	if alive(pid) {
		t.Error("alive after Kill")
	}
	conn, err := net.Dial("tcp", s.Addr())
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial = %v, %v; want connection refused", conn, err)
	}
}

func TestStoppedServerAcceptsAndAnswersNothing(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	set(t, s, "k", "v")
	s.Stop()

	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatalf("a stopped server refuses: %v", err)
	}
	defer conn.Close() //nolint:errcheck // a test's connection
	fmt.Fprint(conn, "GET k\r\n")
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 64)
	if n, err := conn.Read(reply); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a stopped server answered %q, %v", reply[:n], err)
	}

	s.Cont()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(reply); err != nil || string(reply[:n]) != "$1\r\nv\r\n" {
		t.Errorf("after Cont: %q, %v", reply[:n], err)
	}
}

func TestDoHonoursItsContextWhileStopped(t *testing.T) {
	s := redistest.Start(t, redistest.Config{})
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	if v, err := s.Do(ctx, "PING"); err == nil {
		t.Errorf("Do = %v", v)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Do returned after %v", took)
	}
}

func TestRestart(t *testing.T) {
	cases := []struct {
		name, want string
		persist    bool
		save       bool
		before     func(*redistest.Server)
	}{
		{name: "comes back empty", save: true, before: (*redistest.Server).Kill},
		{name: "a running server too", before: func(*redistest.Server) {}},
		{name: "a stopped server too", before: (*redistest.Server).Stop},
		{name: "with its snapshot", persist: true, save: true, want: "v", before: (*redistest.Server).Kill},
		{name: "nothing is saved unasked", persist: true, before: (*redistest.Server).Kill},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := redistest.Start(t, redistest.Config{Persist: c.persist})
			addr, pid := s.Addr(), s.Pid()
			set(t, s, "k", "v")
			if c.save {
				if _, err := s.Do(t.Context(), "SAVE"); err != nil {
					t.Fatal(err)
				}
			}
			c.before(s)
			s.Restart()
			if s.Addr() != addr || s.Pid() == pid || alive(pid) {
				t.Errorf("address %s, was %s; pid %d, was %d (alive %v)", s.Addr(), addr, s.Pid(), pid, alive(pid))
			}
			if got := get(t, s, "k"); got != c.want {
				t.Errorf("k = %q, want %q", got, c.want)
			}
		})
	}
}

// An append-only file is as much a memory of the past as a snapshot is.
func TestRestartForgetsTheAppendOnlyFileToo(t *testing.T) {
	s := redistest.Start(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	set(t, s, "k", "v")
	s.Restart()
	if got := get(t, s, "k"); got != "" {
		t.Errorf("k = %q after a restart without Persist", got)
	}
}

func TestReplicaIsInSync(t *testing.T) {
	for _, password := range []string{"", "correct horse"} {
		t.Run("password "+strconv.Quote(password), func(t *testing.T) {
			primary := redistest.Start(t, redistest.Config{Password: password})
			for i := range 100 {
				set(t, primary, strconv.Itoa(i), strings.Repeat("v", 1000))
			}
			replica := primary.Replica(t, redistest.Config{})
			if n, err := replica.Do(t.Context(), "DBSIZE"); err != nil || n != int64(100) {
				t.Errorf("DBSIZE of the replica = %v, %v", n, err)
			}
			role, err := primary.Do(t.Context(), "ROLE")
			if want := fmt.Sprintf("[127.0.0.1 %d ", replica.Port()); err != nil || !strings.Contains(fmt.Sprint(role), want) {
				t.Errorf("ROLE of the primary = %v, %v", role, err)
			}
			if n, err := primary.Do(t.Context(), "WAIT", 1, 1000); err != nil || n != int64(1) {
				t.Errorf("WAIT = %v, %v", n, err)
			}
			if _, err := replica.Do(t.Context(), "SET", "k", "v"); !redis.HasErrorPrefix(err, "READONLY") {
				t.Errorf("SET on the replica: %v", err)
			}
			replica.Restart()
			eventually(t, "link after the replica's restart", func() bool {
				fields, err := replica.Info(t.Context(), "replication")
				return err == nil && fields["master_link_status"] == "up"
			})
		})
	}
}

func TestPasswordIsRequired(t *testing.T) {
	s := redistest.Start(t, redistest.Config{Password: "secret"})
	set(t, s, "k", "v") // the server's own client has it
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close() //nolint:errcheck // a test's client
	if err := c.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("PING without a password: %v", err)
	}
}

func TestBadArgumentNamesTheReason(t *testing.T) {
	redistest.Start(t, redistest.Config{}) // skips where there is no server
	s, err := redistest.Launch(t.Context(), redistest.Config{Args: []string{"--no-such-option", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Fatalf("Launch = %v, %v", s, err)
	}
}

func TestLaunchHonoursItsContext(t *testing.T) {
	redistest.Start(t, redistest.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := redistest.Launch(ctx, redistest.Config{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Launch = %v, %v", s, err)
	}
}

// Whatever state a test leaves its server in, nothing remains of it.
func TestNothingIsLeftAfterTheTest(t *testing.T) {
	states := map[string]func(*redistest.Server){
		"running": func(*redistest.Server) {},
		"stopped": (*redistest.Server).Stop,
		"killed":  (*redistest.Server).Kill,
		"saving": func(s *redistest.Server) {
			for i := range 100 {
				set(t, s, strconv.Itoa(i), "v")
			}
			for _, do := range [][]any{{"CONFIG", "SET", "rdb-key-save-delay", 10_000_000}, {"BGSAVE"}} {
				if _, err := s.Do(t.Context(), do...); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for name, enter := range states {
		t.Run(name, func(t *testing.T) {
			var pid int
			var dir, children string
			t.Run("inner", func(t *testing.T) {
				s := redistest.Start(t, redistest.Config{})
				pid = s.Pid()
				v, err := s.Do(t.Context(), "CONFIG", "GET", "dir")
				if err != nil {
					t.Fatal(err)
				}
				dir = v.([]any)[1].(string)
				enter(s)
				list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
				children = string(list)
			})
			if alive(pid) {
				t.Errorf("process %d is alive after its test", pid)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("directory %s: %v", dir, err)
			}
			if name == "saving" && children == "" {
				t.Log("this system does not list children")
			}
			for _, child := range strings.Fields(children) {
				n, _ := strconv.Atoi(child)
				eventually(t, "end of the saving child", func() bool { return !alive(n) })
			}
		})
	}
}

func TestServerDiesWithItsProgram(t *testing.T) {
	redistest.Start(t, redistest.Config{})
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("only Linux has a death signal")
	}
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), roleVar+"=owner", "TMPDIR="+t.TempDir())
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
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed
	eventually(t, "end of the server", func() bool { return !alive(pid) })
}

func TestStepsThatFailAreReported(t *testing.T) {
	redistest.Start(t, redistest.Config{})
	s, err := redistest.Launch(t.Context(), redistest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Stop() // there is nothing to stop
	if err := s.Err(); !errors.Is(err, os.ErrProcessDone) || !strings.HasPrefix(err.Error(), "redistest: stop 127.0.0.1:") {
		t.Errorf("Err = %v", err)
	}
	if err := s.Close(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Close = %v", err)
	}
	pid := s.Pid()
	s.Restart()
	if s.Pid() != pid {
		t.Error("a closed server restarted")
	}
}

func TestFind(t *testing.T) {
	binary, err := redistest.Find()
	if err != nil {
		t.Skip(err)
	}
	cases := []struct {
		name, path, named, want string
	}{
		{"on the PATH", os.Getenv("PATH"), "", binary},
		{"named", t.TempDir(), binary, binary},
		{"not on the PATH", t.TempDir(), "", ""},
		{"named, but missing", os.Getenv("PATH"), "/nonexistent/redis", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv("REDIS_SERVER", c.named)
			got, err := redistest.Find()
			if got != c.want || (c.want == "") != errors.Is(err, redistest.ErrNotFound) {
				t.Errorf("Find = %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// Runs one of the tests above in a process that has no server.
func TestWithoutServerTestsSkipAndInCIFail(t *testing.T) {
	for ci, want := range map[string]string{"": "--- SKIP: ", "true": "--- FAIL: "} {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestStartNodesAreIndependent$")
		cmd.Env = append(os.Environ(), "CI="+ci, "REDIS_SERVER=/nonexistent/redis")
		out, _ := cmd.CombinedOutput() // the exit code says the same as the text
		for _, part := range []string{want, "apt-get install redis-server"} {
			if !strings.Contains(string(out), part) {
				t.Errorf("CI=%q: %q is not in:\n%s", ci, part, out)
			}
		}
	}
}
