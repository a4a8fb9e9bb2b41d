// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

// Package archtest keeps the structure of the project: who may import whom, that every package says what it is, and how much the
// client brings along.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/go-shelf/shelf"

const root = "../.."

// allowed says, for each package, which of ours and which of others' it may import outside its tests, and why it stops there.
var allowed = map[string]struct {
	imports []string
	why     string
}{
	"ring":         {[]string{"github.com/cespare/xxhash/v2"}, "a leaf: placement must be usable, and provable, without a server"},
	"hotkey":       {[]string{}, "a leaf: counting reads needs nothing of ours"},
	"localcache":   {nil, "a leaf: the one concurrency hazard is solved by its tickets, so it need not know who invalidates"},
	"stampede":     {[]string{"golang.org/x/sync/singleflight", "golang.org/x/time/rate", "github.com/bits-and-blooms/bloom/v3", "github.com/cespare/xxhash/v2"}, "a leaf: it knows a Shelf by its interface, not Redis"},
	"invalidation": {[]string{}, "a leaf: scripts, calls and replies are data; sending them is the node's business"},
	"internal/redisnode": {[]string{"github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/logging", "github.com/redis/go-redis/v9/maintnotifications",
		"github.com/redis/go-redis/v9/push"},
		"the only code that drives the Redis driver, so that it can be exchanged; it imports nothing of ours"},
	"client": {[]string{
		"golang.org/x/sync/singleflight", "golang.org/x/time/rate", module + "/ring", module + "/hotkey", module + "/localcache", module + "/stampede", module + "/invalidation", module + "/internal/redisnode",
		"github.com/redis/go-redis/v9", "github.com/klauspost/compress/s2", "github.com/klauspost/compress/zstd",
	}, "the façade: it knows the five leaves and the node, and names the driver's types where users hand them in; never miniredis"},
	"client/clienttest": {[]string{module + "/client", module + "/ring", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2"},
		"for users' tests: it stands on the public façade, and it alone brings miniredis"},
	"internal/explore": {[]string{module + "/internal/twin", module + "/invalidation"},
		"the test harness: every interleaving of the protocol. It is made of twins, and knows no server"},
	"internal/proc":      {[]string{"golang.org/x/sys/unix"}, "the test harness's processes"},
	"internal/redistest": {[]string{module + "/internal/proc", "github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/maintnotifications"}, "the test harness: real servers"},
	"internal/pgtest":    {[]string{module + "/internal/proc"}, "the test harness: a real PostgreSQL, without a driver in the root module"},
	"internal/skew":      {[]string{module + "/internal/proc"}, "the test harness: processes whose wall clock is wrong. It knows no cache"},
	"internal/skew/wrongclock": {[]string{module + "/client", module + "/internal/skew", module + "/ring"},
		"the process that package skew starts: a user of the public façade"},
	"internal/twin": {[]string{module + "/invalidation"},
		"the test harness: small twins of what keeps copies fresh. Only its tests import what they are compared with"},
	"internal/workload": {[]string{}, "the test harness: load and a database stand-in, the same for every client under test"},
	"internal/suite": {[]string{module + "/client", module + "/client/clienttest", module + "/ring", module + "/internal/proc", module + "/internal/redistest",
		"github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/maintnotifications"},
		"the test harness: the client's behaviour on any engine. It uses the façade as its users do; never the packages behind it"},
	"internal/stalecheck": {[]string{"golang.org/x/sys/unix"}, "the test harness: it judges a record of reads and writes, whoever made it. It knows no cache"},
	"internal/archtest":   {[]string{}, "a test"},
	"examples/hotkey":     {[]string{module + "/client", module + "/ring", module + "/internal/redistest"}, "an example uses what a user can use, and the harness for real servers"},
	"examples/quickstart": {[]string{module + "/client", module + "/client/clienttest", module + "/ring", module + "/internal/redistest"}, "an example uses what a user can use, and the harness for real servers"},
}

// TestImports keeps the import table. It reads the files itself, so that the go tool knows when to run it again.
func TestImports(t *testing.T) {
	seen := make(map[string]bool)
	for dir, files := range packages(t) {
		rule, known := allowed[dir]
		if !known {
			t.Errorf("package %s is not in the import table: say there what it may import, and why", dir)
			continue
		}
		seen[dir] = true
		for _, f := range files {
			if strings.HasSuffix(f.name, "_test.go") {
				continue
			}
			for _, spec := range f.ast.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				if !strings.Contains(strings.SplitN(path, "/", 2)[0], ".") {
					continue // the standard library
				}
				if !slices.Contains(rule.imports, path) {
					t.Errorf("%s imports %s: not allowed. %s: %s", f.name, path, dir, rule.why)
				}
			}
		}
	}
	for dir := range allowed {
		if !seen[dir] {
			t.Errorf("package %s is in the import table but does not exist", dir)
		}
	}
}

// TestPackageDocs: every package has a comment of its own, and the licence header is not it.
func TestPackageDocs(t *testing.T) {
	for dir, files := range packages(t) {
		documented := 0
		for _, f := range files {
			if strings.HasSuffix(f.ast.Name.Name, "_test") {
				continue
			}
			if doc := f.ast.Doc.Text(); doc != "" {
				documented++
				if strings.Contains(doc, "SPDX") {
					t.Errorf("%s: the licence header has become the package comment: put an empty line after it", f.name)
				}
			}
		}
		if documented != 1 {
			t.Errorf("package %s has %d package comments, want 1", dir, documented)
		}
	}
}

// TestHeaders: every Go and Lua file starts with the two lines that say whose it is and under which licence.
func TestHeaders(t *testing.T) {
	walk(t, func(path string) {
		prefix := map[string]string{".go": "// ", ".lua": "-- "}[filepath.Ext(path)]
		if prefix == "" {
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := prefix + "SPDX-FileCopyrightText: The Shelf Authors\n" + prefix + "SPDX-License-Identifier: MIT\n"
		if !strings.HasPrefix(string(text), want) {
			t.Errorf("%s does not start with the SPDX header", path)
		}
	})
}

// TestClientIsLight: importing the client must not fill a service's go.sum. It asks the go tool, outside the workspace.
func TestClientIsLight(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./client")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := make(map[string]bool)
	for _, m := range strings.Fields(string(out)) {
		if m != module {
			modules[m] = true
		}
	}
	t.Logf("%d modules: %v", len(modules), slices.Sorted(maps.Keys(modules)))
	if len(modules) > 15 {
		t.Errorf("the client needs %d modules, at most 15 are allowed", len(modules))
	}
	if modules["github.com/alicebob/miniredis/v2"] {
		t.Error("the client needs miniredis, which is for tests")
	}
}

type file struct {
	name string
	ast  *ast.File
}

// packages parses the root module's Go files, by folder. Nested modules keep their own rules.
func packages(t *testing.T) map[string][]file {
	t.Helper()
	found := make(map[string][]file)
	fset := token.NewFileSet()
	walk(t, func(path string) {
		if filepath.Ext(path) != ".go" {
			return
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.ToSlash(dir)
		found[dir] = append(found[dir], file{path, f})
	})
	return found
}

func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() && path != root && nested(path):
			return filepath.SkipDir
		case !d.IsDir():
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func nested(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
