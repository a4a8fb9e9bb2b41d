// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

//go:build unix

package proc_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

// roleVar makes the test binary play another program; see TestMain.
const roleVar = "SHELF_PROC_TEST_ROLE"

// TestMain lets the test binary stand in for a program that starts a child and
// is then killed itself.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) == "owner" {
		p, err := proc.Start(proc.Command{Path: "sleep", Args: []string{"300"}})
		fmt.Println(p.Pid(), err)
		select {} // until killed
	}
	os.Exit(m.Run())
}

func start(tb testing.TB, name string, args ...string) *proc.Process {
	tb.Helper()
	p, err := proc.Start(proc.Command{Path: name, Args: args})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Kill(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// alive reports whether a process with that id runs; a zombie does not.
func alive(pid int) bool {
	if runtime.GOOS == "linux" {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

func eventually(tb testing.TB, what string, reached func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestStartReportsWhatTheProgramDid(t *testing.T) {
	dir := t.TempDir()
	p, err := proc.Start(proc.Command{
		Path: "sh", Args: []string{"-c", `echo "$WORD"; pwd >&2; exit 3`},
		Env: []string{"WORD=one", "WORD=two"}, Dir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Running() {
		t.Error("Running after Done")
	}
	if p.Err() == nil || !strings.Contains(p.Err().Error(), "exit status 3") {
		t.Errorf("Err = %v, want exit status 3", p.Err())
	}
	real, _ := filepath.EvalSymlinks(dir)
	if want := "two\n" + real + "\n"; p.Output() != want {
		t.Errorf("Output = %q, want %q", p.Output(), want)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("Kill of a process that is gone: %v", err)
	}
	if p.Stop() == nil || p.Cont() == nil {
		t.Error("stopping or continuing a process that is gone is no error")
	}
}

func TestStartOfWhatIsNotThere(t *testing.T) {
	p, err := proc.Start(proc.Command{Path: "/nonexistent/server"})
	if err == nil || !strings.HasPrefix(err.Error(), "proc: start /nonexistent/server: ") {
		t.Fatalf("Start = %v, %v", p, err)
	}
}

func TestKillWaitsUntilGone(t *testing.T) {
	p := start(t, "sleep", "300")
	if !alive(p.Pid()) || p.Err() != nil {
		t.Fatal("does not run after Start")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if alive(p.Pid()) {
		t.Error("alive after Kill")
	}
	if p.Err() == nil || !strings.Contains(p.Err().Error(), "killed") {
		t.Errorf("Err = %v, want killed", p.Err())
	}
}

func TestStopFreezesAndContGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ticks")
	p := start(t, "sh", "-c", `while :; do echo . >> "$0"; sleep 0.002; done`, file)
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	eventually(t, "first tick", func() bool { return size() > 0 })
	for range 2 { // stopping a stopped process does nothing
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	frozen := size()
	time.Sleep(50 * time.Millisecond) // the time in which nothing may happen
	if got := size(); got != frozen {
		t.Errorf("%d ticks while stopped", got-frozen)
	}
	for range 2 {
		if err := p.Cont(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a tick after Cont", func() bool { return size() > frozen })
}

func TestStoppedProcessCanBeEnded(t *testing.T) {
	cases := []struct {
		name string
		end  func(*proc.Process) error
		want string
	}{
		{"Kill", (*proc.Process).Kill, "killed"},
		{"End", func(p *proc.Process) error { return p.End(5*time.Second, syscall.SIGTERM) }, "terminated"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, "sleep", "300")
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := c.end(p); err != nil || alive(p.Pid()) {
				t.Fatalf("alive %v, error %v", alive(p.Pid()), err)
			}
			if got := fmt.Sprint(p.Err()); !strings.Contains(got, c.want) {
				t.Errorf("it ended by %q, want %q", got, c.want)
			}
		})
	}
}

func TestEndAsksFirst(t *testing.T) {
	cases := []struct{ name, script, wantOutput string }{
		{"first signal is enough", `trap 'echo int; exit' INT; echo up; while :; do sleep 0.01; done`, "up\nint\n"},
		{"second signal", `trap 'echo int' INT; trap 'echo term; exit' TERM; echo up; while :; do sleep 0.01; done`, "up\nint\nterm\n"},
		{"deaf", `trap '' INT TERM; echo up; while :; do sleep 0.01; done`, "up\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, "sh", "-c", c.script)
			eventually(t, "up", func() bool { return p.Output() == "up\n" })
			if err := p.End(200*time.Millisecond, syscall.SIGINT, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if alive(p.Pid()) || p.Output() != c.wantOutput {
				t.Errorf("alive %v, output %q, want %q", alive(p.Pid()), p.Output(), c.wantOutput)
			}
		})
	}
}

// A server that is killed while a child that it forked works for it must not
// leave that child behind.
func TestWhatTheProcessForkedGoesWithIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux lets a waiter look at an end without reaping it")
	}
	p := start(t, "sh", "-c", `sleep 300 & echo $!; wait`)
	eventually(t, "the fork", func() bool { return strings.HasSuffix(p.Output(), "\n") })
	child, err := strconv.Atoi(strings.TrimSpace(p.Output()))
	if err != nil || !alive(child) {
		t.Fatalf("no child: %q", p.Output())
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the fork", func() bool { return !alive(child) })
}

// The owner is killed with kill -9, so that no code of it runs any more.
func TestChildDiesWithItsOwner(t *testing.T) {
	if runtime.GOOS != "linux" {
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
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil || !alive(pid) {
		t.Fatalf("the owner said %q", line)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // killed
	eventually(t, "the end of the child", func() bool { return !alive(pid) })
}

// The death signal comes when a thread ends. A goroutine that returns while it is
// locked ends its thread; a child that it started must not notice.
func TestChildSurvivesTheThreadThatStartedIt(t *testing.T) {
	started := make(chan *proc.Process)
	threads := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		threads <- threadID()
		p, err := proc.Start(proc.Command{Path: "sleep", Args: []string{"300"}})
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if p == nil {
		return
	}
	defer p.Kill() //nolint:errcheck // asserted elsewhere
	if tid := <-threads; tid != 0 {
		eventually(t, "the end of the thread", func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
			return err != nil
		})
	}
	select {
	case <-p.Done():
		t.Errorf("the child died with the thread: %v", p.Err())
	case <-time.After(50 * time.Millisecond):
	}
}

func TestOutputKeepsTheEnd(t *testing.T) {
	p := start(t, "sh", "-c", `i=0; while [ $i -lt 40000 ]; do echo "line $i"; i=$((i+1)); done`)
	<-p.Done()
	out := p.Output()
	if len(out) != 64<<10 || !strings.HasSuffix(out, "line 39998\nline 39999\n") {
		t.Errorf("%d bytes, ending in %q", len(out), out[max(0, len(out)-30):])
	}
}
