// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package redisnode_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowLink passes connections on to a server, and holds back a part of what the server sends, each piece by itself: what comes behind it on the same
// connection waits.
type slowLink struct {
	addr  string
	share atomic.Int64 // of replies that are held back, in thousandths
	delay atomic.Int64
	conns atomic.Int64 // that were made
}

func startSlowLink(t *testing.T, target string) *slowLink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLink{addr: listener.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			l.conns.Add(1)
			wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			wg.Go(func() { l.back(client, server); _ = client.Close() })
		}
	})
	return l
}

// slow holds back that many of a thousand replies for d.
func (l *slowLink) slow(thousandths int64, d time.Duration) {
	l.delay.Store(int64(d))
	l.share.Store(thousandths)
}

func (l *slowLink) back(client, server net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		if rand.Int64N(1000) < l.share.Load() {
			time.Sleep(time.Duration(l.delay.Load()))
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
