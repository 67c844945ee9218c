package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// cuttingTransport breaks the first answers of logs off, each some bytes later than the one before.
type cuttingTransport struct {
	mu       sync.Mutex
	cuts     []int // bytes of the next answers
	requests []string
}

func (c *cuttingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/logs") {
		return resp, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r.URL.RawQuery)
	if len(c.cuts) > 0 {
		resp.Body = &truncatedBody{resp.Body, c.cuts[0]}
		c.cuts = c.cuts[1:]
	}
	return resp, nil
}

type truncatedBody struct {
	io.ReadCloser
	left int
}

func (b *truncatedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// A log that breaks off, in the middle of an entry or between two, goes on with the next: none is
// missing, none comes twice.
func TestFetchBoxLogsResume(t *testing.T) {
	t.Parallel()
	for _, follow := range []bool{false, true} {
		c := &cuttingTransport{}
		box, _ := mustBox(t, client.Config{HTTPClient: &http.Client{Transport: c},
			Retry: client.Retry{BaseDelay: time.Millisecond}}, nil)
		origin, _ := pagesOrigin(t)
		job := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages",
			Manifest: pagesManifest(t, origin, "a", "b", "gone")})
		isEnd := func(e client.FetchBoxLogEntry) bool { return e.Message == "the job is failed" }
		var want []client.FetchBoxLogEntry
		for e, err := range box.Logs(testContext(t), job.JobID,
			client.FetchBoxLogOptions{Follow: true}) {
			must(t, err)
			if want = append(want, e); isEnd(e) {
				break
			}
		}
		if len(want) < 5 || want[0].JobID != job.JobID || want[0].TimestampMS == 0 ||
			want[0].Message == "" {
			t.Fatalf("the log is %+v", want)
		}
		c.mu.Lock()
		c.cuts, c.requests = []int{0, 10, 300, 500, 501}, nil
		c.mu.Unlock()
		var got []client.FetchBoxLogEntry
		for e, err := range box.Logs(testContext(t), job.JobID,
			client.FetchBoxLogOptions{Follow: follow}) {
			must(t, err)
			if got = append(got, e); follow && len(got) == len(want) {
				break
			}
		}
		if len(got) < len(want) {
			t.Fatalf("follow %v: %d of %d entries came", follow, len(got), len(want))
		}
		for i := range want {
			if got[i].Offset != want[i].Offset || got[i].Message != want[i].Message {
				t.Errorf("follow %v: entry %d is %+v, want %+v", follow, i, got[i], want[i])
			}
		}
		if len(c.requests) < 4 {
			t.Errorf("follow %v: asked only for %q", follow, c.requests)
		}
		tail := mustCollect(t, box.Logs(testContext(t), job.JobID,
			client.FetchBoxLogOptions{Since: want[2].Offset}))
		if len(tail) < len(want)-2 || tail[0].Offset != want[2].Offset {
			t.Errorf("from %d on came %+v", want[2].Offset, tail)
		}
	}
}

// A log longer than an answer comes whole.
func TestFetchBoxLogsLong(t *testing.T) {
	t.Parallel()
	const entries = 2000
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		since, _ := strconv.Atoi(r.URL.Query().Get("since_offset"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		for at := max(since, 1); at < max(since, 1)+limit && at <= entries; at++ {
			fmt.Fprintf(w, `{"job_id":"j","offset":%d}`+"\n", at)
		}
	}))
	t.Cleanup(server.Close)
	got := mustCollect(t,
		mustClient(t, client.Config{BaseURL: server.URL}).FetchBox().Logs(testContext(t), "j",
			client.FetchBoxLogOptions{}))
	if len(got) != entries || got[entries-1].Offset != entries || asked != 3 {
		t.Errorf("%d entries came in %d answers", len(got), asked)
	}
}

// How reading a log ends when it does not end by itself.
func TestFetchBoxLogsEnd(t *testing.T) {
	t.Parallel()
	box, _ := mustBox(t, client.Config{}, nil)
	origin, _ := pagesOrigin(t)
	job := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages",
		Manifest: pagesManifest(t, origin, "a")})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(testContext(t))
	defer cancel(nil)
	var last error
	for _, last = range box.Logs(ctx, job.JobID, client.FetchBoxLogOptions{Follow: true}) {
		cancel(why)
	}
	if !errors.Is(last, context.Canceled) || !errors.Is(last, why) {
		t.Errorf("got %v, want %v", last, why)
	}
	ended := 0
	for _, err := range box.Logs(testContext(t), "019a0000-0000-7000-8000-000000000000",
		client.FetchBoxLogOptions{Follow: true}) {
		wantCode(t, err, client.ErrNotFound, client.FetchBoxCodeNotFound)
		ended++
	}
	unreachable := mustClient(t, client.Config{BaseURL: "http://127.0.0.1:1",
		Retry: client.Retry{MaxTries: 3, BaseDelay: time.Millisecond}})
	for _, err := range unreachable.FetchBox().Logs(testContext(t), "j",
		client.FetchBoxLogOptions{Follow: true}) {
		if !errors.Is(err, client.ErrRetryable) {
			t.Errorf("got %v", err)
		}
		ended++
	}
	for _, err := range unreachable.FetchBox().Logs(testContext(t), "", client.FetchBoxLogOptions{}) {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("got %v", err)
		}
		ended++
	}
	if ended != 3 {
		t.Errorf("%d logs ended with an error, want 3", ended)
	}
}
