package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// outcomeTransport counts what runs are ended by. It loses the first answer of a batch, or refuses
// all batches with a status, if it is to.
type outcomeTransport struct {
	batches, singles atomic.Int64
	loseFirst        atomic.Bool
	refuseWith       int // 0 refuses none
}

func (o *outcomeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.refuseWith != 0 && strings.HasSuffix(r.URL.Path, "/outcomes") {
		o.batches.Add(1)
		return &http.Response{StatusCode: o.refuseWith, Body: http.NoBody}, nil
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	switch {
	case strings.HasSuffix(r.URL.Path, "/outcomes"):
		o.batches.Add(1)
		if err == nil && o.loseFirst.Swap(false) {
			answer.Body.Close()
			return nil, io.ErrUnexpectedEOF
		}
	case strings.Contains(r.URL.Path, "/runs/"):
		o.singles.Add(1)
	}
	return answer, err
}

// Runs that end at about the same time end in few requests, each as its handler says (G-X-20); what
// does not fit into a request with others goes by itself, and what the server refuses for all of
// them is found out one by one. A server without batches, or a proxy that refuses them, costs no
// run its outcome, and is not asked again for a while.
func TestJobWorker_batchedOutcomes(t *testing.T) {
	t.Parallel()
	const jobs = 200
	// fits by itself only
	deep := json.RawMessage(strings.Repeat("[", 510) + strings.Repeat("]", 510))
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		result    json.RawMessage
		err       error
		want      client.TaskFlowStatus
		loses     bool
		refuses   int
		peak      int64 // singles
		atBatches bool
	}{
		"results": {result: json.RawMessage(`{"a": 1.0}`), want: client.TaskFlowStatusCompleted,
			peak: jobs / 4, atBatches: true},
		"failures": {err: client.Final(broken), want: client.TaskFlowStatusFailed, peak: jobs / 4,
			atBatches: true},
		"an answer is lost": {want: client.TaskFlowStatusCompleted, loses: true, peak: jobs / 4,
			atBatches: true},
		"results too large": {result: json.RawMessage(`"` + strings.Repeat("x", 8<<10) + `"`),
			want: client.TaskFlowStatusCompleted, peak: jobs},
		"refused in a batch": {result: deep, want: client.TaskFlowStatusCompleted, peak: 2 * jobs,
			atBatches: true},
		"refused all the way": {result: json.RawMessage("\"\xff\""),
			want: client.TaskFlowStatusFailed,
			peak: 3 * jobs, atBatches: true},
		"no such route": {want: client.TaskFlowStatusCompleted, refuses: 404, peak: jobs,
			atBatches: true},
		"wrong method": {want: client.TaskFlowStatusCompleted, refuses: 405, peak: jobs,
			atBatches: true},
		"forbidden": {want: client.TaskFlowStatusCompleted, refuses: 403, peak: jobs,
			atBatches: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, stop, err := serveFlow()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			paths := &outcomeTransport{refuseWith: tt.refuses}
			paths.loseFirst.Store(tt.loses)
			c := mustClient(t, client.Config{BaseURL: url,
				HTTPClient: &http.Client{Transport: paths},
				Retry:      client.Retry{BaseDelay: time.Millisecond}})
			graph := &client.TaskFlowGraphBuilder{}
			for i := range jobs {
				graph.Add(fmt.Sprint(i), client.TaskFlowSpec{Name: "n", Queue: "q"})
			}
			ids, err := c.TaskFlow().SubmitGraph(t.Context(), graph)
			if err != nil {
				t.Fatal(err)
			}
			log := runConcurrently(t, c, jobs, func() (json.RawMessage, error) {
				return tt.result, tt.err
			})
			for _, id := range ids {
				if job, err := c.TaskFlow().Get(t.Context(), id); err != nil ||
					job.Status != tt.want ||
					(job.Status == client.TaskFlowStatusCompleted &&
						string(job.Result) != string(tt.result)) {
					t.Fatalf("job %s is %s with the result %.20s, %v", id, job.Status, job.Result,
						err)
				}
			}
			batches, singles := paths.batches.Load(), paths.singles.Load()
			maxBatches := int64(jobs / 4)
			if tt.refuses != 0 {
				maxBatches = maxSenders // under way when the first answer came
			}
			if singles > tt.peak || tt.atBatches != (batches > 0) || batches > maxBatches {
				t.Errorf("%d batches and %d requests for one run", batches, singles)
			}
			if tt.loses != strings.Contains(log, "probably accepted") ||
				(tt.want == client.TaskFlowStatusCompleted && strings.Contains(log, "ERROR")) {
				t.Errorf("logged: %.2000s", log)
			}
		})
	}
}

// runConcurrently runs the handler for jobs that are all at work before the first of them ends.
func runConcurrently(t *testing.T, c *client.Client, jobs int,
	handle func() (json.RawMessage, error)) (log string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var started, over sync.WaitGroup
	started.Add(jobs)
	over.Add(jobs)
	go func() {
		over.Wait()
		stop()
	}()
	text := &bytes.Buffer{}
	w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow, Concurrency: jobs,
		Logger:   slog.New(slog.NewTextHandler(text, nil)),
		AfterRun: func(client.ClaimedJob, error) { over.Done() },
		Handlers: map[string]client.JobHandler{"q": func(context.Context,
			*client.JobRun) (json.RawMessage, error) {
			started.Done()
			started.Wait()
			return handle()
		}}}
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	return text.String()
}
