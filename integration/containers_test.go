// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"

	"github.com/go-shelf/shelf/internal/proc"
	"github.com/go-shelf/shelf/internal/suite"
)

const (
	// label marks our containers.
	label = "shelf.integration"
	// startTimeout bounds the start of a server. It takes about a second.
	startTimeout = time.Minute
	port         = "6379"
)

// inContainers is the engine of one image, whose server is the given program.
func inContainers(image, kind, version, program string, missing error) suite.Engine {
	return suite.Engine{
		Name: image, Kind: kind, Version: version, Missing: missing, Optional: true,
		Start: func(tb testing.TB, args ...string) suite.Server {
			tb.Helper()
			return start(tb, image, append([]string{program, "--protected-mode", "no", "--save", "", "--repl-diskless-sync-delay", "0"}, args...))
		},
	}
}

// start runs a container for the test, at a port of 127.0.0.1 that stays the same when it is restarted.
func start(tb testing.TB, image string, command []string) suite.Server {
	tb.Helper()
	p, err := proc.ReservePort()
	must(tb, err)
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithCmd(command...),
		testcontainers.WithExposedPorts(port+"/tcp"),
		testcontainers.WithLabels(map[string]string{label: "server"}),
		testcontainers.WithLogger(silent{}),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{network.MustParsePort(port + "/tcp"): {{
				HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(p.Number()),
			}}}
		}),
	)
	tb.Cleanup(func() {
		if tb.Failed() && c != nil {
			tb.Logf("%s wrote last:\n%s", image, log(c))
		}
		// Not the test's context, which has ended; and before the port is given back.
		must(tb, testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)))
		must(tb, p.Release())
	})
	must(tb, err)
	must(tb, answers(ctx, p.Addr()))
	return suite.Server{
		Addr: p.Addr(),
		Restart: func(tb testing.TB) {
			tb.Helper()
			ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
			defer cancel()
			now := time.Duration(0)
			must(tb, c.Stop(ctx, &now))
			must(tb, c.Start(ctx))
			must(tb, answers(ctx, p.Addr()))
		},
		Replica: func(tb testing.TB) suite.Server {
			tb.Helper()
			primary, err := c.ContainerIP(tb.Context())
			must(tb, err)
			return start(tb, image, append(command[:len(command):len(command)], "--replicaof", primary+" "+port))
		},
	}
}

// answers waits until a server executes commands at the address. That something accepts connections says nothing: the container engine's proxy
// does from the beginning.
func answers(ctx context.Context, addr string) error {
	for {
		err := ping(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last: %w", addr, ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func ping(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "+PONG") {
		err = fmt.Errorf("PING is answered by %q", line)
	}
	return err
}

// log is the end of what a container wrote.
func log(c testcontainers.Container) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := c.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	text, _ := io.ReadAll(r)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
