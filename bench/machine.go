// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-shelf/shelf/internal/redistest"
)

// interesting are the modules whose versions are printed.
var interesting = []string{
	"github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-redis/cache/v9", "github.com/zeromicro/go-zero", "github.com/viccon/sturdyc",
	"github.com/maypok86/otter/v2", "github.com/hashicorp/golang-lru/v2",
}

// machine says where this runs, and with what.
func machine(ctx context.Context) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d cores (%s), which clients and servers share; %s, %s, GOGC and GOMEMLIMIT as they come; %s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), processor(),
		runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, serverVersion(ctx))
	if info, ok := debug.ReadBuildInfo(); ok {
		var versions []string
		for _, m := range info.Deps {
			if slices.Contains(interesting, m.Path) {
				versions = append(versions, m.Path+" "+m.Version)
			}
		}
		fmt.Fprintf(&b, "\n%s", strings.Join(versions, ", "))
	}
	return b.String()
}

// processor is what the kernel calls it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close() //nolint:errcheck // it was read
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, _ := strings.Cut(s.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// serverVersion is what the servers say of themselves.
func serverVersion(ctx context.Context) string {
	path, err := redistest.Find()
	if err != nil {
		return err.Error()
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return path
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), " sha=")
	return version
}
