// SPDX-FileCopyrightText: The Shelf Authors
// SPDX-License-Identifier: MIT

package workload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-shelf/shelf/internal/workload"
)

// urlVar makes the test binary play a service; see TestMain.
const urlVar = "SHELF_WORKLOAD_TEST_URL"

// TestMain lets the test binary stand in for another process that queries the
// database at the URL in its environment.
func TestMain(m *testing.M) {
	if url := os.Getenv(urlVar); url != "" {
		os.Exit(serviceMain(url))
	}
	os.Exit(m.Run())
}

func serviceMain(url string) int {
	db := workload.Remote(url)
	defer db.Close()
	for i := range 20 {
		row, err := db.Query(context.Background(), strconv.Itoa(i))
		if err == nil {
			_, err = db.Update(context.Background(), "0", row.PriceCents)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

func TestManyProcessesOneDatabase(t *testing.T) {
	const processes = 10
	d := newDatabase(t, workload.DatabaseConfig{Rows: 20})
	url := d.Serve(t)
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), urlVar+"="+url)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("service: %v\n%s", err, out)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		if n := d.Reads(strconv.Itoa(i)); n != processes {
			t.Errorf("row %d was read %d times by %d processes", i, n, processes)
		}
	}
	if row, _ := d.Peek("0"); row.Version != 1+20*processes {
		t.Errorf("version %d after %d updates", row.Version, 20*processes)
	}
}

func TestClosedServer(t *testing.T) {
	d := newDatabase(t, workload.DatabaseConfig{Rows: 10, Latency: time.Hour})
	s, err := d.Listen()
	if err != nil {
		t.Fatal(err)
	}
	r := workload.Remote(s.URL())
	defer r.Close()
	query := make(chan error)
	go func() { query <- second(r.Query(t.Context(), "1")) }()
	eventually(t, func() bool { return d.Counts().InFlight == 1 })
	for range 2 { // Close may be called again
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if d.Counts().InFlight != 0 {
		t.Error("a statement outlived the server")
	}
	if err := <-query; err == nil {
		t.Error("the statement that ran returned no error")
	}
	if _, err := r.Query(t.Context(), "1"); err == nil || !strings.HasPrefix(err.Error(), "workload: ") {
		t.Errorf("Query of a closed server: %v", err)
	}
}

// What is not a statement is an error, not a panic and not a row.
func TestBadRequests(t *testing.T) {
	url := newDatabase(t, workload.DatabaseConfig{Rows: 10}).Serve(t)
	for body, want := range map[string]string{
		`{`:                          "unexpected EOF",
		`{"Op":"drop"}`:              "no such statement",
		`{"Op":"query"}`:             "no such statement",
		`{"Op":"delete","IDs":[]}`:   "no such statement",
		`{"Op":"query","IDs":["x"]}`: "no such row",
	} {
		resp, err := http.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if _, err := text.ReadFrom(resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close() // only read
		if !strings.Contains(text.String(), want) {
			t.Errorf("%s: %q, want %q", body, text.String(), want)
		}
	}
}

// A response that is not read to its end costs a new connection each time.
func TestRemoteKeepsItsConnections(t *testing.T) {
	target, err := url.Parse(newDatabase(t, workload.DatabaseConfig{Rows: 1000}).Serve(t))
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	between := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
	between.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	}
	between.Start()
	defer between.Close()
	r := workload.Remote(between.URL)
	defer r.Close()
	many := make([]string, 1000)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for range 20 {
		if rows, err := r.QueryMany(t.Context(), many); err != nil || len(rows) != len(many) {
			t.Fatal(len(rows), err)
		}
		if _, err := r.Query(t.Context(), "none"); !errors.Is(err, workload.ErrNoRow) {
			t.Fatal(err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections for queries one after the other", n)
	}
}
