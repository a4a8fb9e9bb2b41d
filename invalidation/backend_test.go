// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package invalidation_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redistest"
	"github.com/go-shelf/shelf/invalidation"
)

// backend is a server that runs the scripts.
type backend struct {
	name string
	*redis.Client
}

func embedded(tb testing.TB) backend {
	tb.Helper()
	return backend{"embedded", connect(tb, miniredis.RunT(tb).Addr())}
}

// onEveryBackend runs test on miniredis, on Redis, and on a Redis whose locale sorts strings
// differently from their bytes.
func onEveryBackend(t *testing.T, test func(*testing.T, backend)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, embedded(t)) })
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t, redistest.Config{Env: []string{"LC_ALL=C"}})
		test(t, backend{"redis", connect(t, s.Addr())})
	})
	t.Run("locale", func(t *testing.T) {
		env, _ := foreignLocale()
		t.Log(env)
		s := redistest.Start(t, redistest.Config{Env: env})
		test(t, backend{"locale", connect(t, s.Addr())})
	})
}

func connect(tb testing.TB, addr string) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// foreignLocale gives the environment of a server that runs under en_US.UTF-8, where 'a' sorts
// before 'B' and a byte above 0x7f nowhere in particular. Where the machine cannot compile that
// locale it is C.UTF-8, which is less of a test. Compiling takes seconds, so it is done once.
var foreignLocale = sync.OnceValues(func() (env []string, dir string) {
	dir, err := os.MkdirTemp("", "shelf-locale-")
	if err == nil {
		err = exec.Command("localedef", "-i", "en_US", "-f", "UTF-8", filepath.Join(dir, "en_US.UTF-8")).Run()
	}
	if err != nil {
		return []string{"LC_ALL=C.UTF-8"}, dir
	}
	return []string{"LOCPATH=" + dir, "LC_ALL=en_US.UTF-8"}, dir
})

func TestMain(m *testing.M) {
	code := m.Run()
	if _, dir := foreignLocale(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// run sends a call the way a program does, loading the script at its first use.
func (b backend) run(ctx context.Context, c invalidation.Call) (any, error) {
	reply, err := b.EvalSha(ctx, c.Script.SHA1, c.Keys, c.Args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = b.Eval(ctx, c.Script.Source, c.Keys, c.Args...).Result()
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// must runs a call and parses its reply.
func must[T any](tb testing.TB, b backend, c invalidation.Call, parse func(any) (T, error)) T {
	tb.Helper()
	reply, err := b.run(tb.Context(), c)
	if err != nil {
		tb.Fatalf("%s: %s: %v", b.name, c.Script.Name, err)
	}
	r, err := parse(reply)
	if err != nil {
		tb.Fatalf("%s: %v", b.name, err)
	}
	return r
}
