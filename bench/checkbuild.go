// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// probeFiles are the sources of the probe and of what it stands on: both builds are made from these, whatever their trees have in bench.
//
//go:embed probe/*.go meter/*.go child/*.go
var probeFiles embed.FS

// root is the working tree's top folder.
func root(ctx context.Context) (string, error) { return git(ctx, ".", "rev-parse", "--show-toplevel") }

// git runs git in a folder and returns what it prints.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	var errText bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = dir, &errText
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("bench: git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errText.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// baseOf is the commit to compare a working tree with: what is asked for, else where this branch has left origin's main branch or main. Where that is the present commit: the present
// commit if files have changed since, else its parent.
func baseOf(ctx context.Context, top, asked string) (string, error) {
	if asked != "" {
		return git(ctx, top, "rev-parse", "--verify", asked+"^{commit}")
	}
	head, err := git(ctx, top, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"origin/HEAD", "origin/main", "main"} {
		if base, err := git(ctx, top, "merge-base", "HEAD", name); err == nil && base != head {
			return base, nil
		}
	}
	changed, err := git(ctx, top, "status", "--porcelain", "--", "*.go", "*.lua", "go.mod")
	if err != nil {
		return "", err
	}
	if changed != "" {
		return head, nil
	}
	return git(ctx, top, "rev-parse", "--verify", "HEAD~1")
}

// checkout puts a commit's files into a folder: a worktree of the repository, which remove takes away again.
func checkout(ctx context.Context, top, commit, dir string) (remove func() error, err error) {
	if _, err := git(ctx, top, "worktree", "add", "--detach", "--force", dir, commit); err != nil {
		return nil, err
	}
	return func() error {
		_, err := git(context.WithoutCancel(ctx), top, "worktree", "remove", "--force", dir)
		return err
	}, nil
}

var moduleLine = regexp.MustCompile(`(?m)^module .*$`)

// buildProbe builds the probe against the library in tree, with exactly the versions of other modules that this tree asks for. It needs a folder of its own, and returns the
// program's path.
func buildProbe(ctx context.Context, tree, dir string) (string, error) {
	if err := os.CopyFS(dir, probeFiles); err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	mod, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	text := moduleLine.ReplaceAllString(string(mod), "module github.com/go-shelf/shelf/bench") +
		"\nrequire github.com/go-shelf/shelf v0.0.0\n\nreplace github.com/go-shelf/shelf => " + tree + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600); err != nil { //nolint:gosec // the folder is ours
		return "", fmt.Errorf("bench: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(tree, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("bench: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600); err != nil { //nolint:gosec // the folder is ours
		return "", fmt.Errorf("bench: %w", err)
	}
	program := filepath.Join(dir, "probe.bin")
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-trimpath", "-buildvcs=false", "-o", program, "./probe")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("bench: building the probe against %s: %w: %s", tree, err, bytes.TrimSpace(out))
	}
	return program, nil
}
