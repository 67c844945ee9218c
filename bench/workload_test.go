package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestCrowd(t *testing.T) {
	t.Parallel()
	const n = 1000
	var visited [n]atomic.Int32
	took, err := runParallel(t.Context(), 16, n, func(_ context.Context, _, i int) error {
		visited[i].Add(1)
		return nil
	})
	if err != nil || len(took) != n {
		t.Fatalf("crowd = %d times, %v, want %d and no error", len(took), err, n)
	}
	for i := range visited {
		if got := visited[i].Load(); got != 1 {
			t.Fatalf("operation %d ran %d times, want once", i, got)
		}
	}
}

func TestCrowdEndsAtTheFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	var ran atomic.Int32
	_, err := runParallel(t.Context(), 4, 1_000_000, func(ctx context.Context, g, _ int) error {
		ran.Add(1)
		if g == 0 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, broken) {
		t.Errorf("err = %v, want the first one", err)
	}
	if got := ran.Load(); got > 4 {
		t.Errorf("%d operations ran, want at most one for each goroutine", got)
	}
}

func TestChecklist(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		marks      []int
		done, fine bool
	}{
		{"each once", []int{2, 0, 1}, true, true},
		{"one missing", []int{0, 1}, false, true},
		{"one twice", []int{0, 1, 1, 2}, true, false},
		{"one twice does not stand for another", []int{0, 1, 1}, false, false},
		{"a number that was never submitted", []int{0, 1, 2, 3}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			checklist := newChecklist(3)
			for _, num := range tc.marks {
				checklist.MarkWorked(num)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			done := false
			select {
			case <-checklist.done:
				done = true
			default:
				if checklist.Wait(ctx) == nil {
					t.Error("Wait ended without an error before the jobs did")
				}
			}
			if done != tc.done || (checklist.Check() == nil) != tc.fine {
				t.Errorf("done %v, check %v; want done %v, fine %v", done, checklist.Check(), tc.done,
					tc.fine)
			}
		})
	}
}

func TestChecklistStart(t *testing.T) {
	t.Parallel()
	checklist := newChecklist(1)
	ready := checklist.created.Add(time.Hour)
	if got := checklist.StartTime(ready); !got.Equal(ready) {
		t.Errorf("before the first job the clock starts at %v, want when the workers are ready",
			got)
	}
	checklist.MarkWorked(0)
	if got := checklist.StartTime(ready); !got.Before(ready) {
		t.Errorf("after an early first job the clock starts at %v, want before %v", got, ready)
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		n, size int
		want    [][2]int
	}{
		{0, 10, nil},
		{10, 10, [][2]int{{0, 10}}},
		{25, 10, [][2]int{{0, 10}, {10, 20}, {20, 25}}},
	} {
		if got := batches(tc.n, tc.size); !slices.Equal(got, tc.want) {
			t.Errorf("batches(%d, %d) = %v, want %v", tc.n, tc.size, got, tc.want)
		}
	}
}

func TestPayloadIsTheSameForAll(t *testing.T) {
	t.Parallel()
	byReflection, err := json.Marshal(newJob(42))
	if err != nil {
		t.Fatal(err)
	}
	if byHand := appendPayload(nil, 42); string(byHand) != string(byReflection) {
		t.Errorf("the floors carry %s, the peers %s", byHand, byReflection)
	}
}

func TestCheckLocal(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.2": true, "::1": true, "[::1]": true, "localhost": true,
		"/var/run/postgresql": true, "10.0.0.1": false, "db.example.com": false, "": false,
		"0.0.0.0": false,
	} {
		if got := checkLocal(host) == nil; got != want {
			t.Errorf("checkLocal(%q) allowed = %v, want %v", host, got, want)
		}
	}
}

func TestPostgresElsewhereIsSkipped(t *testing.T) {
	t.Setenv(envPostgres, "postgres://user@db.example.com/test")
	_, err := createPostgres(t.Context(), "", "never")
	if !isSkip(err) || !strings.Contains(err.Error(), "not this machine") {
		t.Errorf("err = %v, want a skip that names the rule", err)
	}
}

func TestDSNSurvivesQuotes(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(
		`host=127.0.0.1 port=5433 user=me password='a\'b\\c d' dbname=x sslmode=disable`)
	if err != nil {
		t.Fatal(err)
	}
	p := &Postgres{dsn: config}
	back, err := pgxpool.ParseConfig(p.DSN())
	if err != nil {
		t.Fatal(err)
	}
	got, want := back.ConnConfig, config.ConnConfig
	if got.Host != want.Host || got.Port != want.Port || got.User != want.User ||
		got.Password != want.Password || got.Database != want.Database {
		t.Errorf("DSN %q reads back as %+v", p.DSN(), got.Config)
	}
}

func TestRawHTTP(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/body":
			_, _ = w.Write([]byte("hello"))
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		default:
			w.(http.Flusher).Flush() // makes the answer chunked
		}
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	conn, err := dialRaw(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	get := func(path string) []byte {
		return []byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	for range 2 { // twice: the connection must be left at the next answer
		if status, body, err := conn.Do(get("/body")); status != 200 || string(body) != "hello" ||
			err != nil {
			t.Errorf("/body = %d %q %v, want 200 hello", status, body, err)
		}
		if status, body, err := conn.Do(get("/none")); status != 204 || body != nil || err != nil {
			t.Errorf("/none = %d %q %v, want 204 and nothing", status, body, err)
		}
	}
	if _, _, err := conn.Do(get("/chunked")); err == nil {
		t.Error("a chunked answer was read as one without a body, want an error")
	}
	if _, err := sendMany(t.Context(), addr, 3, 50, 200, func(int) []byte {
		return get("/none")
	}); err == nil {
		t.Error("an unwanted status counted as done, want an error")
	}
	phase, err := sendMany(t.Context(), addr, 3, 50, 200, func(int) []byte { return get("/body") })
	if err != nil || phase.Jobs != 50 || len(phase.Latency) != 50 {
		t.Errorf("crowd = %d jobs, %d latencies, %v; want 50, 50, none", phase.Jobs,
			len(phase.Latency), err)
	}
}
