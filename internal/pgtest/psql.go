// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Psql runs SQL through the psql program and returns what it printed: a line a
// row, columns separated by "|", no headings, no trailing newline. Statements
// run one by one, each in its own transaction, up to the first that fails; its
// message is in the error. It costs a process and a connection, some 30 ms.
func (pg *Postgres) Psql(ctx context.Context, sql string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(pg.bin, "psql"),
		"--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1", "--dbname="+pg.DSN())
	cmd.Env = withoutPG(os.Environ())
	cmd.Stdin = strings.NewReader(sql)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err() // not "signal: killed", which is how it comes about
		}
		return "", fmt.Errorf("pgtest: psql: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

// withoutPG drops libpq's variables (PGOPTIONS, PGSERVICE and so on): they are
// about the user's databases, not about this one.
func withoutPG(environ []string) []string {
	kept := []string{"LC_ALL=C"}
	for _, v := range environ {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_ALL=") {
			kept = append(kept, v)
		}
	}
	return kept
}

// probe returns nil when a server at the address lets the superuser in and is
// ready for a query.
//
// It speaks the beginning of the protocol, version 3.0 ("Start-up" in chapter
// "Frontend/Backend Protocol" of PostgreSQL's manual): a start-up message, to
// which the server answers with messages up to 'Z' (ready for query), or with an
// 'E' while it is starting. With an 'X' the client says goodbye.
func probe(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the session is not needed any more
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return err
	}
	const protocol = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, protocol)
	body = append(body, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	hello := append(binary.BigEndian.AppendUint32(nil, uint32(4+len(body))), body...)
	if _, err := conn.Write(hello); err != nil {
		return err
	}
	if err := awaitQueryPrompt(conn); err != nil {
		return err
	}
	_, err = conn.Write([]byte{'X', 0, 0, 0, 4})
	return err
}

// probeTimeout is for a stranger at the address that accepts and is silent.
const probeTimeout = time.Second

// awaitQueryPrompt skips messages (a type, a length that counts itself, a body)
// until the server is ready for a query.
func awaitQueryPrompt(r io.Reader) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		body := int64(binary.BigEndian.Uint32(head[1:])) - 4
		if _, err := io.CopyN(io.Discard, r, max(0, body)); err != nil {
			return err
		}
		switch head[0] {
		case 'Z':
			return nil
		case 'E':
			return errors.New("the server refuses the session")
		}
	}
}
