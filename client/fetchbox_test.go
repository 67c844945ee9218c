package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/setting"

	"github.com/millrace/millrace/client"
)

// pagesManifest is a manifest of paths of an origin.
func pagesManifest(tb testing.TB, origin string, paths ...string) json.RawMessage {
	tb.Helper()
	var m client.FetchBoxManifest
	for _, path := range paths {
		m.Resources = append(m.Resources,
			client.FetchBoxResource{ID: path, URL: origin + "/" + path})
	}
	text, err := m.Encode()
	must(tb, err)
	return text
}

func mustSubmit(tb testing.TB, box *client.FetchBox,
	spec client.FetchBoxSpec) client.FetchBoxReceipt {
	tb.Helper()
	receipt, err := box.Submit(testContext(tb), spec)
	must(tb, err)
	return receipt
}

// mustFinish waits for a job, which ends so.
func mustFinish(tb testing.TB, box *client.FetchBox, jobID string,
	want client.FetchBoxStatus) client.FetchBoxJob {
	tb.Helper()
	job, err := box.Wait(testContext(tb), jobID)
	must(tb, err)
	if job.Status != want {
		tb.Fatalf("the job is %+v, want it %s", job, want)
	}
	return job
}

// mustCollect collects what comes without an error.
func mustCollect[T any](tb testing.TB, seq iter.Seq2[T, error]) (got []T) {
	tb.Helper()
	for item, err := range seq {
		must(tb, err)
		got = append(got, item)
	}
	return got
}

// A job from its manifest to its replay, through every call.
func TestFetchBox(t *testing.T) {
	t.Parallel()
	box, server := mustBox(t, client.Config{}, nil)
	origin, back := pagesOrigin(t)
	receipt := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages", Tenant: "acme",
		IdempotencyKey: "k", Manifest: pagesManifest(t, origin, "a", "b", "gone")})
	if want := (client.FetchBoxReceipt{JobID: receipt.JobID, Resources: 3, IdempotencyKey: "k",
		ManifestKey: "s3://millrace/manifests/pages/" + receipt.JobID +
			"/metadata.json"}); receipt != want {
		t.Errorf("got %+v, want %+v", receipt, want)
	}
	job := mustFinish(t, box, receipt.JobID, client.FetchBoxStatusFailed)
	if job.ID != receipt.JobID || job.Type != "pages" || job.Tenant != "acme" ||
		job.ManifestKey != receipt.ManifestKey ||
		job.Total != 3 || job.Completed != 2 || job.Failed != 1 || job.Remaining() != 0 ||
		job.LogStart.Stream != "jobs.logs" ||
		job.LastError == nil || job.LastError.Code != "HTTP_410" ||
		job.UpdatedAt.Before(job.CreatedAt) {
		t.Errorf("the job is %+v with %+v", job, job.LastError)
	}
	if got := server.stored(t, job.ID, "a"); got != "this is /a" {
		t.Errorf("stored %q", got)
	}

	deadLetter := awaitDeadLetter(t, box, job.ID)
	var task client.FetchBoxTask
	must(t, json.Unmarshal(deadLetter.Task, &task))
	if deadLetter.Code != "HTTP_410" || deadLetter.Attempts != 1 || task.ResourceID != "gone" ||
		task.URL != origin+"/gone" || task.Tenant != "acme" {
		t.Errorf("the dead letter is %+v with %+v", deadLetter, task)
	}
	back.Store(true)
	replay, err := box.Replay(testContext(t), deadLetter.Offset)
	if want := (client.FetchBoxReplay{JobID: job.ID, ResourceID: "gone",
		Status: "queued"}); err != nil || replay != want {
		t.Fatalf("got %+v, %v", replay, err)
	}
	if job = mustFinish(t, box, job.ID, client.FetchBoxStatusCompleted); job.Completed != 3 ||
		job.Failed != 0 {
		t.Errorf("after the replay the job is %+v", job)
	}
	if got := server.stored(t, job.ID, "gone"); got != "this is /gone" {
		t.Errorf("stored %q", got)
	}
	_, err = box.Replay(testContext(t), deadLetter.Offset)
	wantCode(t, err, client.ErrConflict, client.FetchBoxCodeConflict)
	_, err = box.Replay(testContext(t), deadLetter.Offset+100)
	wantCode(t, err, client.ErrNotFound, client.FetchBoxCodeNotFound)
}

// RT-003: a job is canceled, and what has failed of it is tried once more.
func TestFetchBox_CancelAndRetry(t *testing.T) {
	t.Parallel()
	box, _ := mustBox(t, client.Config{}, nil)
	ctx, release := testContext(t), make(chan struct{})
	asked := make(chan struct{}, 10)
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(origin.Close)
	receipt := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages",
		Manifest: pagesManifest(t, origin.URL, "a", "b")})
	<-asked
	job, err := box.Cancel(ctx, receipt.JobID)
	if err != nil || job.ID != receipt.JobID || job.Failed != 2 {
		t.Fatalf("RT-003 canceled %+v, %v", job, err)
	}
	if job = mustFinish(t, box, job.ID, client.FetchBoxStatusFailed); job.LastError == nil ||
		job.LastError.Code != client.FetchBoxCodeCanceled {
		t.Errorf("RT-003 the job is %+v with %+v", job, job.LastError)
	}
	_, err = box.Cancel(ctx, job.ID)
	wantCode(t, err, client.ErrConflict, client.FetchBoxCodeConflict)
	close(release)
	if job, err = box.Retry(ctx, job.ID); err != nil ||
		job.Status != client.FetchBoxStatusInProgress {
		t.Fatalf("RT-003 retried %+v, %v", job, err)
	}
	mustFinish(t, box, job.ID, client.FetchBoxStatusCompleted)
	_, err = box.Retry(ctx, job.ID)
	wantCode(t, err, client.ErrConflict, client.FetchBoxCodeConflict)
	_, err = box.Cancel(ctx, "")
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("RT-003 a cancel of no job: %v", err)
	}
}

// awaitDeadLetter waits for the dead letter of a job: it is published some time after its job has
// failed.
func awaitDeadLetter(tb testing.TB, box *client.FetchBox, jobID string) client.FetchBoxDeadLetter {
	tb.Helper()
	ctx, tick := testContext(tb), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		for deadLetter, err := range box.DeadLetters(ctx, 1) {
			must(tb, err)
			if strings.Contains(string(deadLetter.Task), jobID) {
				return deadLetter
			}
		}
		<-tick.C
	}
}

// testContext is a context in whose time nothing hangs.
func testContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

func wantCode(tb testing.TB, err, kind error, code string) {
	tb.Helper()
	var fail *client.Error
	if !errors.As(err, &fail) || !errors.Is(err, kind) || fail.Code != code || fail.Message == "" {
		tb.Errorf("got %v, want %v with %s", err, kind, code)
	}
}

func TestFetchBoxList(t *testing.T) {
	t.Parallel()
	box, _ := mustBox(t, client.Config{}, nil)
	origin, _ := pagesOrigin(t)
	var want []string
	for i := range 5 {
		path := "a"
		if i == 2 {
			path = "gone"
		}
		job := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages",
			Manifest: pagesManifest(t, origin, path)})
		if i == 2 {
			mustFinish(t, box, job.JobID, client.FetchBoxStatusFailed)
		} else {
			mustFinish(t, box, job.JobID, client.FetchBoxStatusCompleted)
		}
		want = append([]string{job.JobID}, want...)
	}
	ids := func(filter client.FetchBoxFilter) (ids []string) {
		for _, job := range mustCollect(t, box.Jobs(testContext(t), filter)) {
			ids = append(ids, job.ID)
		}
		return ids
	}
	if got := ids(client.FetchBoxFilter{PageSize: 2}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := ids(client.FetchBoxFilter{Status: client.FetchBoxStatusFailed}); !slices.Equal(got,
		want[2:3]) {
		t.Errorf("failed are %v, want %v", got, want[2:3])
	}
	for _, err := range box.Jobs(testContext(t), client.FetchBoxFilter{Status: "lost"}) {
		wantCode(t, err, client.ErrInvalid, client.FetchBoxCodeInvalidPayload)
	}
}

func TestFetchBoxHealth(t *testing.T) {
	t.Parallel()
	box, _ := mustBox(t, client.Config{}, nil)
	health, err := box.Health(testContext(t))
	if err != nil || health.Status != "ok" || len(health.Components) != 5 ||
		health.Components["storage"].Status != "ok" {
		t.Errorf("got %+v, %v", health, err)
	}
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w,
			`{"status":"down","components":{"ledger":{"status":"down","detail":"it does not answer"}}}`)
	}))
	t.Cleanup(down.Close)
	health, err = mustClient(t, client.Config{BaseURL: down.URL}).FetchBox().Health(testContext(t))
	if err != nil || health.Status != "down" ||
		health.Components["ledger"].Detail != "it does not answer" {
		t.Errorf("got %+v, %v", health, err)
	}
}

func TestFetchBoxTokens(t *testing.T) {
	t.Parallel()
	box, server := mustBox(t, client.Config{Token: "clients"}, func(c *fetchbox.Config) {
		c.Token, c.OperatorToken = setting.NewSecret("clients"), setting.NewSecret("operators")
	})
	origin, _ := pagesOrigin(t)
	spec := client.FetchBoxSpec{Type: "pages", Manifest: pagesManifest(t, origin, "a")}
	receipt := mustSubmit(t, box, spec)
	_, err := box.Job(testContext(t), receipt.JobID)
	wantCode(t, err, client.ErrUnauthorized, client.FetchBoxCodeUnauthorized)
	for _, err := range box.Logs(testContext(t), receipt.JobID, client.FetchBoxLogOptions{}) {
		wantCode(t, err, client.ErrUnauthorized, client.FetchBoxCodeUnauthorized)
	}
	operator := box.WithOperatorToken("operators")
	mustFinish(t, operator, receipt.JobID, client.FetchBoxStatusCompleted)
	if len(mustCollect(t, operator.Logs(testContext(t), receipt.JobID,
		client.FetchBoxLogOptions{}))) == 0 {
		t.Error("the log is empty")
	}
	mustSubmit(t, operator, spec) // still as a client
	_, err = mustClient(t, client.Config{BaseURL: server.url}).FetchBox().Submit(testContext(t),
		spec)
	wantCode(t, err, client.ErrUnauthorized, client.FetchBoxCodeUnauthorized)
}

// What a server refuses has its code, and what no server would read is not sent.
func TestFetchBoxRefusals(t *testing.T) {
	t.Parallel()
	box, _ := mustBox(t, client.Config{}, nil)
	good := pagesManifest(t, "http://127.0.0.1:1", "a")
	_, err := box.Submit(testContext(t), client.FetchBoxSpec{Type: "unknown", Manifest: good})
	wantCode(t, err, client.ErrInvalid, client.FetchBoxCodeUnsupportedJobType)
	if errors.Is(err, client.ErrUnauthorized) {
		t.Error("a job type that is not registered is taken for a wrong token")
	}
	_, err = box.Submit(testContext(t), client.FetchBoxSpec{Type: "pages",
		Manifest: json.RawMessage(`{"manifest_version":"v2"}`)})
	wantCode(t, err, client.ErrInvalid, client.FetchBoxCodeInvalidPayload)
	large := json.RawMessage(`"` + strings.Repeat("a", 6<<20) + `"`)
	_, err = box.Submit(testContext(t), client.FetchBoxSpec{Type: "pages", Manifest: large})
	wantCode(t, err, client.ErrInvalid, client.FetchBoxCodePayloadTooLarge)
	_, err = box.Job(testContext(t), "019a0000-0000-7000-8000-000000000000")
	wantCode(t, err, client.ErrNotFound, client.FetchBoxCodeNotFound)

	nobody := mustClient(t, client.Config{BaseURL: "http://127.0.0.1:1",
		Retry: client.Retry{MaxTries: 1}}).FetchBox()
	for name, spec := range map[string]client.FetchBoxSpec{
		"no type":          {Manifest: good},
		"no manifest":      {Type: "pages"},
		"half a manifest":  {Type: "pages", Manifest: good[:40]},
		"a header's break": {Type: "pages", Manifest: good, Tenant: "a\r\nb"},
		"a trimmed key":    {Type: "pages", Manifest: good, IdempotencyKey: " k"},
		"bytes":            {Type: "pages", Manifest: good, Tenant: "\xff"},
	} {
		receipt, err := nobody.Submit(testContext(t), spec)
		var fail *client.Error
		if !errors.Is(err, client.ErrInvalid) || !errors.As(err, &fail) || fail.Uncertain ||
			receipt.JobID != "" || receipt.IdempotencyKey == "" {
			t.Errorf("%s: got %+v, %v", name, receipt, err)
		}
	}
}

// The manifest arrives byte for byte, compressed or not.
func TestFetchBoxManifest(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var encodings []string
	transport := boxTransport(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		encodings = append(encodings, r.Header.Get("Content-Encoding"))
		return http.DefaultTransport.RoundTrip(r)
	})
	box, server := mustBox(t, client.Config{HTTPClient: &http.Client{Transport: transport}}, nil)
	odd := json.RawMessage("{ \"z\":1.50e3 ,\"a\":\"<é>\\u0041\" }")
	m := client.FetchBoxManifest{Metadata: odd, Attributes: json.RawMessage(`{"priority" :9}`)}
	for i := range 2 {
		m.Resources = append(m.Resources,
			client.FetchBoxResource{ID: fmt.Sprint("r", i), URL: "http://127.0.0.1:1/",
				Headers: map[string]string{"X-B": "2", "X-A": "1"},
				Tags:    map[string]string{"t": "ü\""}})
	}
	text, err := m.Encode()
	must(t, err)
	one := `"url":"http://127.0.0.1:1/","headers":{"X-A":"1","X-B":"2"},"tags":{"t":"ü\""}}`
	if want := `{"manifest_version":"v1","metadata":` + string(odd) + `,"resources":[{"id":"r0",` +
		one + `,{"id":"r1",` + one +
		`],"attributes":{"priority" :9}}`; string(text) != want {
		t.Errorf("got\n%s, want\n%s", text, want)
	}
	m.Metadata = json.RawMessage(`{"much":"` + strings.Repeat("x ", 20<<10) + `"}`)
	long, err := m.Encode()
	must(t, err)
	for i, text := range []json.RawMessage{text, long} {
		receipt := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages", Manifest: text})
		got, err := os.ReadFile(filepath.Join(server.dir, "objects", "millrace", "manifests",
			"pages", receipt.JobID, "metadata.json"))
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("manifest %d is stored as %.300s, %v", i, got, err)
		}
	}
	if want := []string{"", "gzip"}; !slices.Equal(encodings, want) {
		t.Errorf("sent as %q, want %q", encodings, want)
	}
	for name, m := range map[string]client.FetchBoxManifest{
		"no id":           {Resources: []client.FetchBoxResource{{URL: "http://x/"}}},
		"no URL":          {Resources: []client.FetchBoxResource{{ID: "a"}}},
		"broken metadata": {Metadata: json.RawMessage("{")},
		"broken data":     {Attributes: json.RawMessage("}")},
	} {
		if text, err := m.Encode(); err == nil {
			t.Errorf("%s: got %s", name, text)
		}
	}
}

type boxTransport func(*http.Request) (*http.Response, error)

func (f boxTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A submit whose answer is lost is repeated under its key, and is one job.
func TestFetchBoxLostAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	lost := map[string]string{} // by key, the answer nobody saw
	transport := boxTransport(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		key := r.Header.Get("X-Fetchbox-Idempotency-Key")
		mu.Lock()
		defer mu.Unlock()
		if _, repeated := lost[key]; repeated || err != nil || key == "" {
			return resp, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		lost[key] = string(text)
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	})
	box, _ := mustBox(t, client.Config{HTTPClient: &http.Client{Transport: transport},
		Retry: client.Retry{BaseDelay: time.Millisecond}}, nil)
	origin, _ := pagesOrigin(t)
	for _, key := range []string{"", "mine"} {
		receipt := mustSubmit(t, box, client.FetchBoxSpec{Type: "pages",
			Manifest: pagesManifest(t, origin, "a"), IdempotencyKey: key})
		if text := lost[receipt.IdempotencyKey]; !strings.Contains(text, receipt.JobID) ||
			receipt.JobID == "" {
			t.Errorf("under key %q: the first answer was %s, the second is %+v",
				receipt.IdempotencyKey, text, receipt)
		}
	}
	if got := mustCollect(t, box.Jobs(testContext(t), client.FetchBoxFilter{})); len(got) != 2 {
		t.Errorf("there are %d jobs, want 2", len(got))
	}
}

// A server that downloads nothing itself leaves its tasks to workers.
func TestFetchBoxWorker(t *testing.T) {
	t.Parallel()
	s, stop, err := serveBox(func(c *fetchbox.Config) { c.NoLocalWorkers = true })
	must(t, err)
	t.Cleanup(stop)
	c := mustClient(t, client.Config{BaseURL: s.url})
	t.Cleanup(c.CloseIdleConnections)
	job := mustSubmit(t, c.FetchBox(), client.FetchBoxSpec{Type: "pages", Tenant: "acme",
		Manifest: pagesManifest(t, "http://nobody.test", "a", "b")})
	var mu sync.Mutex
	got := map[string]client.FetchBoxTask{}
	ctx, end := context.WithCancel(testContext(t))
	w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractFetchBox, Concurrency: 2,
		Handlers: map[string]client.JobHandler{
			"pages": client.TypedJob(func(_ context.Context, _ *client.JobRun,
				task client.FetchBoxTask) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				got[task.ResourceID] = task
				if task.ResourceID == "b" {
					return nil, client.Final(errors.New("it cannot be had"))
				}
				return nil, nil
			})}}
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	ended := mustFinish(t, c.FetchBox(), job.JobID, client.FetchBoxStatusFailed)
	end()
	must(t, <-done)
	if ended.Completed != 1 || ended.Failed != 1 || ended.LastError == nil ||
		ended.LastError.Message != "it cannot be had" {
		t.Errorf("the job is %+v with %+v", ended, ended.LastError)
	}
	if a := got["a"]; len(got) != 2 || a.JobID != job.JobID || a.URL != "http://nobody.test/a" ||
		a.Tenant != "acme" {
		t.Errorf("the tasks were %+v", got)
	}
}

// A job whose downloads have all finished has not ended before its handler has returned.
func TestFetchBoxJob_ended(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		job  client.FetchBoxJob
		want bool
	}{
		{client.FetchBoxJob{Status: client.FetchBoxStatusInProgress}, false},
		{client.FetchBoxJob{Status: client.FetchBoxStatusCompleted}, false},
		{client.FetchBoxJob{Status: client.FetchBoxStatusCompleted, FinishedAt: &at}, true},
		{client.FetchBoxJob{Status: client.FetchBoxStatusFailed, FinishedAt: &at}, true},
		{client.FetchBoxJob{Status: client.FetchBoxStatusInProgress, FinishedAt: &at}, false},
	} {
		if got := c.job.Finished(); got != c.want {
			t.Errorf("%s, finished at %v: ended is %v", c.job.Status, c.job.FinishedAt, got)
		}
	}
}
