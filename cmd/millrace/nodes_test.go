package main

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// forgeClient makes a client with a key on a server.
func forgeClient(t *testing.T, url string) *client.ForgeRun {
	t.Helper()
	c, err := client.New(client.Config{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.ForgeRun().CreateClient(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := c.ForgeRun().CreateFirstAPIKey(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c.ForgeRun().WithAPIKey(key.APIKey)
}

// launchIn starts a server on a directory and ends it with the test.
func launchIn(t *testing.T, dir string, args ...string) *launchedServer {
	t.Helper()
	s, err := launch(mustMillrace(t), dir, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	return s
}

func launchNode(t *testing.T, name string, args ...string) *launchedServer {
	t.Helper()
	args = append([]string{"--set", "log.level=warn"}, args...)
	return launchIn(t, filepath.Join(t.TempDir(), name), args...)
}

// TestTraceOfAJob: what happens to a job is one trace, from the request over queue and run to the
// report and what its callback gets, and it is sent before the process ends.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	collector := testkit.NewCollector(t)
	calls := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		calls <- struct{}{}
	}))
	defer receiver.Close()
	s := launchNode(t, "data", "--set", "telemetry.otlp_endpoint="+collector.URL, "--set",
		"forgerun.duration_scale=0.001")
	forge := forgeClient(t, s.url)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	done, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkSuccessFast, Callback: receiver.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forge.Wait(ctx, done.JobID); err != nil {
		t.Fatal(err)
	}
	later, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeDeferred,
		Kind: client.ForgeRunWorkSuccessFast, ExecutionAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forge.Cancel(ctx, later.JobID); err != nil {
		t.Fatal(err)
	}
	for range 5 { // created, queued, assigned, started, succeeded
		select {
		case <-calls:
		case <-ctx.Done():
			t.Fatal("the callback did not get every event")
		}
	}
	if err := s.terminate(); err != nil {
		t.Fatal(err)
	}

	traces := map[string][]string{} // id to the names in it
	var submits []*otlp.Span
	for _, span := range collector.Spans() {
		id := hex.EncodeToString(span.TraceId)
		traces[id] = append(traces[id], span.Name)
		if span.Name == "submit" {
			submits = append(submits, span)
		}
	}
	if len(submits) != 2 {
		t.Fatalf("FR-242 got the traces %v", traces)
	}
	names := strings.Join(traces[hex.EncodeToString(submits[0].TraceId)], ",")
	for _, want := range []string{"submit", "enqueue", "assign", "run", "report", "deliver"} {
		if !strings.Contains(names, want) {
			t.Errorf("FR-242 FR-244 %s is not in the trace %s", want, names)
		}
	}
	for _, name := range []string{"cancel", "create_client", "create_key"} {
		if collector.Find(name) == nil {
			t.Errorf("FR-245 FR-246 there is no span %s in %v", name, traces)
		}
	}
}

// TestTraceOfWorkersJobs: jobs that workers run are part of their caller's trace from the request
// to their end.
func TestTraceOfWorkersJobs(t *testing.T) {
	t.Parallel()
	collector := testkit.NewCollector(t)
	s := launchNode(t, "data", "--set", "telemetry.otlp_endpoint="+collector.URL)
	const (
		relayed = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
		flowed  = "00-1123456789abcdef0123456789abcdef-0123456789abcdef-01"
	)
	send := func(method, path, body, trace string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.url+path,
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if trace != "" {
			req.Header.Set("Traceparent", trace)
			req.Header.Set("Tracestate", "vendor=a-b")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode > 299 {
			t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, text, err)
		}
		return string(text)
	}
	runOf := func(answer string) string {
		_, rest, _ := strings.Cut(answer, `"run_id":"`)
		run, _, _ := strings.Cut(rest, `"`)
		return run
	}
	send("POST", "/v2/queues/jobs", `[{"queue":"mail","id":"1","timeout":60,"payload":{}}]`,
		relayed)
	run := runOf(send("GET", "/v2/queues/mail/jobs", "", ""))
	send("DELETE", "/v2/queues/mail/jobs/1/run-id/"+run, "", "")
	send("POST", "/api/v1/jobs", `{"name":"n","queue":"etl"}`, flowed)
	run = runOf(send("POST", "/worker/v1/claims", `{"contract":"taskflow"}`, ""))
	send("POST", "/worker/v1/runs/"+run+"/fail", `{"error":"it broke","retryable":false}`, "")
	if err := s.terminate(); err != nil {
		t.Fatal(err)
	}
	for trace, want := range map[string]string{relayed: "end enqueue queue run",
		flowed: "create end queue run! wait"} {
		spans := collector.Trace(trace)
		if got := testkit.NamesOf(spans); got != want {
			t.Errorf("the trace has the spans %s, want %s", got, want)
		}
		for _, span := range spans {
			if span.TraceState != "vendor=a-b" {
				t.Errorf("%s has the tracestate %q", span.Name, span.TraceState)
			}
		}
	}
}

// TestWorkIsShared: one node takes requests, others run the jobs; one of these is killed, and what
// it had in hand is accounted for.
func TestWorkIsShared(t *testing.T) {
	t.Parallel()
	pepper := filepath.Join(t.TempDir(), "pepper")
	if err := os.WriteFile(pepper, []byte(strings.Repeat("0123456789abcdef", 4)),
		0o600); err != nil {
		t.Fatal(err)
	}
	shared := []string{"--set", "store=" + pgtest.URL(t), "--set", "secrets.pepper_file=" + pepper,
		"--set", "contracts=forgerun",
		"--set", "forgerun.lease=2s", "--set", "forgerun.heartbeat=200ms", "--set",
		"forgerun.duration_scale=1", "--set", "forgerun.rate_limit_per_minute=1000000"}
	api := launchNode(t, "api", append(shared, "--no-workers")...)
	doomed := launchNode(t, "doomed", append(shared, "--workers-only")...)
	forge := forgeClient(t, api.url)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var ids []string
	for range 12 {
		made, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
			Kind: client.ForgeRunWorkSuccessFast})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, made.JobID)
	}
	pollUntil(t.Fatalf, "a job to run", func() bool {
		for j, err := range forge.Jobs(ctx,
			client.ForgeRunFilter{State: client.ForgeRunStateRunning}) {
			return err == nil && j.ID != ""
		}
		return false
	})
	doomed.kill()
	launchNode(t, "heir", append(shared, "--workers-only")...)
	lost := 0
	for _, id := range ids {
		job, err := forge.Wait(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		report, err := forge.Report(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		running, final := 0, 0
		for _, e := range report.Events {
			if e.Next == client.ForgeRunStateRunning {
				running++
			}
			if e.Next.Final() {
				final++
			}
		}
		if running != 1 || final != 1 {
			t.Errorf("FR-171 %s ran %d times and ended %d times: %+v", id, running, final,
				report.Events)
		}
		if job.Failure != nil {
			lost++
			if job.Failure.Code != "runner_lost" {
				t.Errorf("FR-175 %s failed with %+v", id, job.Failure)
			}
		}
	}
	if lost == 0 {
		t.Error("FR-182 nothing was in the hands of the node that was killed")
	}
}
