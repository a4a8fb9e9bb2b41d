// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/proc"
)

// repository is a git repository with a commit for each name.
func repository(t *testing.T, commits ...string) string {
	t.Helper()
	_, err := exec.LookPath("git")
	proc.Require(t, err)
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"}, args...)
		if _, err := git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "-q", "-b", "main")
	for _, c := range commits {
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("// "+c), 0o600); err != nil {
			t.Fatal(err)
		}
		run("add", ".")
		run("commit", "-q", "-m", c)
	}
	return dir
}

func TestBaseOf(t *testing.T) {
	dir := repository(t, "one", "two")
	subject := func(asked string) string {
		t.Helper()
		base, err := baseOf(t.Context(), dir, asked)
		if err != nil {
			return err.Error()
		}
		s, err := git(t.Context(), dir, "log", "-1", "--format=%s", base)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := subject(""); got != "one" {
		t.Errorf("on the main branch without changes: %s, want the parent", got)
	}
	if got := subject("main"); got != "two" {
		t.Errorf("asked for main: %s", got)
	}
	if got := subject("nowhere"); !strings.Contains(got, "nowhere") {
		t.Errorf("asked for nowhere: %s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("// changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := subject(""); got != "two" {
		t.Errorf("with changed files: %s, want the present commit", got)
	}
	for _, args := range [][]string{{"checkout", "-q", "-b", "work"}, {"-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-a", "-m", "three"}} {
		if _, err := git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	if got := subject(""); got != "two" {
		t.Errorf("on a branch: %s, want where it left main", got)
	}
}

func TestCheckout(t *testing.T) {
	top, dir := repository(t, "one", "two"), filepath.Join(t.TempDir(), "tree")
	remove, err := checkout(t.Context(), top, "HEAD~1", dir)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a.go")); err != nil || string(text) != "// one" {
		t.Errorf("%s, %v", text, err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the worktree is still there")
	}
}

// TestCheckOfTwoBuilds builds the probe against this tree and against a copy in which every read takes a microsecond longer: that is found in the path where it is more than a tenth, by
// the real course of things, with a few pairs of processes.
func TestCheckOfTwoBuilds(t *testing.T) {
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	slowTree(t, top, tree)
	same, err := buildProbe(t.Context(), top, filepath.Join(dir, "same"))
	if err != nil {
		t.Fatal(err)
	}
	slow, err := buildProbe(t.Context(), tree, filepath.Join(dir, "slow"))
	if err != nil {
		t.Fatal(err)
	}
	c := config{only: "L1 hit", limit: 20 * time.Second}
	for _, tc := range []struct {
		program string
		want    string
	}{{slow, pathFail}, {same, pathPass}} {
		var out bytes.Buffer
		found, err := c.alternate(t.Context(), &out, build{"base", same, 0}, build{"new", tc.program, 0})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", &out)
		// On a machine that is too busy to tell, nothing wrong may be said either.
		if got := found[0].word(); got != tc.want && (got != pathUnsure || tc.want == pathFail) {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

// slowTree copies the root module's sources, and makes Cache.Get slower.
func slowTree(t *testing.T, top, to string) {
	t.Helper()
	for _, name := range []string{"client", "go.mod", "go.sum", "hotkey", "localcache", "ring", "stampede", "invalidation", "internal/redisnode"} {
		info, err := os.Stat(filepath.Join(top, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(top, name)))
		} else {
			var text []byte
			if text, err = os.ReadFile(filepath.Join(top, name)); err == nil {
				err = os.WriteFile(filepath.Join(to, name), text, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	get := filepath.Join(to, "client", "get.go")
	text, err := os.ReadFile(get)
	if err != nil {
		t.Fatal(err)
	}
	const head = "func (c *Cache[V]) Get(ctx context.Context, key string) (V, error) {\n"
	if !bytes.Contains(text, []byte(head)) {
		t.Fatal("Cache.Get is not where this test looks for it")
	}
	text = bytes.Replace(text, []byte(head), []byte(head+"\tfor began := time.Now(); time.Since(began) < time.Microsecond; {\n\t}\n"), 1)
	if err := os.WriteFile(get, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
