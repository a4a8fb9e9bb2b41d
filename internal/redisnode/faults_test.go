// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-shelf/shelf/internal/redisnode"
	"github.com/go-shelf/shelf/internal/redistest"
)

// A server that hangs keeps its connections and accepts new ones, and answers nothing. Every call
// ends, those on idle connections and those that have to connect, also if there are many more
// calls than connections.
func TestServerThatHangs(t *testing.T) {
	const timeout = 100 * time.Millisecond
	s, n := startNode(t, func(c *redisnode.Config) { c.Timeout = timeout; c.PoolSize = 4 })
	mustProbe(t, n)
	s.Stop()
	defer s.Cont()
	calls := map[string]func() error{
		"Get":      func() error { _, _, err := n.Get(t.Context(), "k"); return err },
		"MGet":     func() error { _, err := n.MGet(t.Context(), []string{"k"}); return err },
		"Eval":     func() error { _, err := n.Eval(t.Context(), redisnode.Call{Script: echo}); return err },
		"EvalMany": func() error { return n.EvalMany(t.Context(), []redisnode.Call{{Script: echo}})[0].Err },
		"Probe":    func() error { _, err := n.Probe(t.Context()); return err },
	}
	for name, f := range calls {
		within(t, timeout, name, func() {
			if err := f(); !redisnode.IsTimeout(err) {
				t.Errorf("%s: %v, want a timeout", name, err)
			} else {
				wantTrouble(t, err)
			}
		})
	}
	if err := n.Info().LastError; !redisnode.IsTimeout(err) {
		t.Errorf("LastError is %v", err)
	}
	var wg sync.WaitGroup
	within(t, 2*timeout, "a crowd", func() {
		for range 64 {
			wg.Go(func() { wantTrouble(t, calls["Get"]()) })
		}
		wg.Wait()
	})
	s.Cont()
	eventually(t, "it answers again", func() bool { return calls["Get"]() == nil })
	if mustProbe(t, n); n.Info().LastError != nil {
		t.Errorf("LastError stays %v", n.Info().LastError)
	}
}

func TestRefusedConnectionIsFast(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, addr, func(c *redisnode.Config) { c.Timeout = time.Minute })
	within(t, 0, "100 refused calls", func() {
		for range 100 {
			_, _, err := n.Get(t.Context(), "k")
			if wantTrouble(t, err); redisnode.IsTimeout(err) || !strings.Contains(err.Error(), "refused") {
				t.Fatalf("got %v", err)
			}
		}
	})
	if info, err := n.Probe(t.Context()); err == nil || info != (redisnode.Info{LastError: info.LastError, LastFailure: info.LastFailure, LastFailureAt: info.LastFailureAt}) {
		t.Errorf("Probe of nobody: %+v, %v", info, err)
	}
}

func TestPasswords(t *testing.T) {
	s := redistest.Start(t, redistest.Config{Password: "secret"})
	auth := func(user, password string) *redisnode.Node {
		return newNode(t, s.Addr(), func(c *redisnode.Config) {
			c.Options = func(o *redis.Options) { o.Username, o.Password = user, password }
		})
	}
	for what, n := range map[string]*redisnode.Node{"wrong password": auth("", "wrong"), "no password": auth("", ""), "no such user": auth("nobody", "secret")} {
		_, _, err := n.Get(t.Context(), "k")
		wantTrouble(t, err)
		if !strings.Contains(err.Error(), "WRONGPASS") && !strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("%s: %v does not say so", what, err)
		}
		if !strings.Contains(err.Error(), "password (Config.Redis)") || strings.Contains(err.Error(), "+info") {
			t.Errorf("%s: %v must say what to do, and not what an ACL user needs", what, err)
		}
	}
	mustProbe(t, auth("", "secret"))

	admin := s.Client()
	for _, rule := range [][]any{
		{"app", "on", ">pw", "~*", "+get", "+set", "+info", "+evalsha", "+eval", "+script", "+client"},
		{"few", "on", ">pw", "~*", "+get", "+set", "+info"},
		{"blind", "on", ">pw", "~*", "+get", "+set", "+time"},
	} {
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER"}, rule...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	app, few := auth("app", "pw"), auth("few", "pw")
	mustSet(t, app, "k", "v")
	mustSet(t, few, "k", "v")
	if got := app.Info(); got.Capabilities != (redisnode.Capabilities{Tracking: true, Lua: true}) || got.Role != redisnode.RolePrimary || got.RunID == "" {
		t.Errorf("user without TIME: %+v", got)
	}
	if got := few.Info(); got.Capabilities != (redisnode.Capabilities{}) || got.RunID == "" {
		t.Errorf("user without scripts and CLIENT: %+v", got)
	}
	_, err := few.Eval(t.Context(), redisnode.Call{Script: echo})
	wantTrouble(t, err)
	_, _, err = auth("blind", "pw").Get(t.Context(), "k")
	if wantTrouble(t, err); !strings.Contains(err.Error(), "+info") {
		t.Errorf("user without INFO: %v does not say what is missing", err)
	}
}

func TestClusterModeIsRefused(t *testing.T) {
	s := redistest.Start(t, redistest.Config{Args: []string{"--cluster-enabled", "yes"}})
	n := newNode(t, s.Addr(), nil)
	_, err := n.Probe(t.Context())
	if !errors.Is(err, redisnode.ErrClusterMode) || !strings.Contains(err.Error(), "cache-a") || !strings.Contains(err.Error(), s.Addr()) {
		t.Errorf("Probe: %v", err)
	}
	wantTrouble(t, err)
	if _, _, err = n.Get(t.Context(), "k"); !errors.Is(err, redisnode.ErrClusterMode) {
		t.Errorf("Get: %v", err)
	}
}

func TestTLS(t *testing.T) {
	cert, key, pool := selfSigned(t)
	port := freePort(t)
	s, err := redistest.Launch(t.Context(), redistest.Config{Args: []string{
		"--tls-port", strconv.Itoa(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no",
	}})
	if err != nil {
		t.Skipf("this redis-server seems to be built without TLS: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	n := newNode(t, addr, func(c *redisnode.Config) {
		c.Timeout = 5 * time.Second
		c.Options = func(o *redis.Options) { o.TLSConfig = &tls.Config{RootCAs: pool} }
	})
	mustSet(t, n, "k", "v")
	if v, ok, err := n.Get(t.Context(), "k"); string(v) != "v" || !ok || err != nil {
		t.Errorf("Get = %q, %t, %v", v, ok, err)
	}
	stranger := newNode(t, addr, func(c *redisnode.Config) {
		c.Options = func(o *redis.Options) { o.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()} }
	})
	_, _, err = stranger.Get(t.Context(), "k")
	wantTrouble(t, err)
	if unknown := (x509.UnknownAuthorityError{}); !errors.As(err, &unknown) {
		t.Errorf("a certificate that nobody signed: %v", err)
	}
}

func selfSigned(tb testing.TB) (certFile, keyFile string, pool *x509.CertPool) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	write := func(name string, data []byte) string {
		path := filepath.Join(tb.TempDir(), name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			tb.Fatal(err)
		}
		return path
	}
	return write("cert.pem", cert), write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})), pool
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// A dialer that never comes back until its context ends: the call ends with the timeout, a Close
// ends the dial at once.
func TestDialThatHangs(t *testing.T) {
	var dials atomic.Int32
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials.Add(1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	const timeout = 100 * time.Millisecond
	n := newNode(t, "nowhere:1", func(c *redisnode.Config) {
		c.Timeout = timeout
		c.Options = func(o *redis.Options) { o.Dialer = hang }
	})
	within(t, timeout, "Get", func() {
		_, _, err := n.Get(t.Context(), "k")
		if wantTrouble(t, err); !redisnode.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want a timeout of the node's", err)
		}
	})
	dials.Store(0)
	n = newNode(t, "nowhere:1", func(c *redisnode.Config) {
		c.Timeout = time.Hour
		c.Options = func(o *redis.Options) { o.Dialer = hang }
	})
	ended := make(chan error)
	go func() { _, _, err := n.Get(t.Context(), "k"); ended <- err }()
	eventually(t, "the dial is under way", func() bool { return dials.Load() > 0 })
	within(t, 0, "Close", func() { _ = n.Close() })
	if err := <-ended; !errors.Is(err, redisnode.ErrClosed) || redisnode.IsTrouble(err) {
		t.Errorf("Get during Close: %v", err)
	}
}
