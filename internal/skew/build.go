// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package skew

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

// wallEnv is where a process finds the offset of its wall clock, as time.ParseDuration reads it.
const wallEnv = "SHELF_WALL_SKEW"

// Env is the environment entry that gives a process's wall clock an offset.
func Env(offset time.Duration) string { return wallEnv + "=" + offset.String() }

// Step sets the wall clock of this process, if it was built by Build, to the true time plus offset. Elapsed time goes on as it was.
func Step(offset time.Duration) error { return os.Setenv(wallEnv, offset.String()) }

// The only reader of the clock in package time that tells wall time: Since, Until and timers use the monotonic one.
const (
	nowAsItIs  = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowChanged = nowAsItIs + "\tsec, nsec = skewed(sec, nsec)\n"
)

// skewedSource is one more file of package time. It reads the environment anew each time, which costs some 100 ns.
const skewedSource = `package time

import "syscall"

func skewed(sec int64, nsec int32) (int64, int32) {
	text, _ := syscall.Getenv("` + wallEnv + `")
	offset, err := ParseDuration(text)
	if err != nil {
		panic("` + wallEnv + ` is " + text + ": must be a duration")
	}
	all := int64(nsec) + int64(offset%Second)
	sec += int64(offset / Second)
	switch {
	case all < 0:
		sec, all = sec-1, all+int64(Second)
	case all >= int64(Second):
		sec, all = sec+1, all-int64(Second)
	}
	return sec, int32(all)
}
`

// Build builds the main package pkg (as the go tool names it, seen from the test's folder) with the changed standard library and returns the
// program's path; it is gone with the test. The first build on a machine compiles most of the standard library, some 20 s of
// processor time; later ones find it in the go tool's cache. Without the go tool the test is skipped.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		proc.Require(tb, fmt.Errorf("skew: %w (the Go toolchain builds the processes with a wrong clock)", err))
	}
	dir := tb.TempDir()
	overlay, err := writeOverlay(dir)
	if err != nil {
		tb.Fatal(err)
	}
	program := filepath.Join(dir, "program")
	if _, err := goTool("build", "-overlay", overlay, "-o", program, pkg); err != nil {
		tb.Fatal(err)
	}
	return program
}

// writeOverlay writes the changed files and the list that tells the go tool what they replace.
func writeOverlay(dir string) (list string, err error) {
	root, err := goTool("env", "GOROOT")
	if err != nil {
		return "", err
	}
	pkg := filepath.Join(strings.TrimSpace(root), "src", "time")
	text, err := os.ReadFile(filepath.Join(pkg, "time.go"))
	if err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	changed, err := change(string(text))
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, source := range map[string]string{"time.go": changed, "wall_skew.go": skewedSource} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			return "", fmt.Errorf("skew: %w", err)
		}
		replace[filepath.Join(pkg, name)] = path
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	list = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, b, 0o600); err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	return list, nil
}

// change makes Now add the offset. A package time that reads the clock in another way must be looked at by a human.
func change(source string) (string, error) {
	if n := strings.Count(source, "runtimeNow()\n"); n != 1 || !strings.Contains(source, nowAsItIs) {
		return "", fmt.Errorf("skew: time.go of this Go calls runtimeNow in %d places, and time.Now does not begin as expected: the change to it must be made anew (build.go)", n)
	}
	return strings.Replace(source, nowAsItIs, nowChanged, 1), nil
}

// goTool runs the go tool without cgo, which nothing here needs, and without the flags of the test that runs (-race among them).
func goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("skew: go %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}
