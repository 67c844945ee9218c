package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// Whatever a handler returns, the server gets an outcome of its run: nothing waits for a lease
// to be over.
func TestJobWorker_endsOnServer(t *testing.T) {
	t.Parallel()
	c := flowServer(t)
	nested := json.RawMessage(strings.Repeat("[", 600) + strings.Repeat("]", 600))
	for name, tt := range map[string]struct {
		result json.RawMessage
		err    error
		want   client.TaskFlowStatus
	}{
		"a result": {json.RawMessage(`"\ud800\u0000"`), nil,
			client.TaskFlowStatusCompleted},
		"a result that is too large": {json.RawMessage(`"` + strings.Repeat("x", 5<<20) + `"`),
			nil, client.TaskFlowStatusFailed},
		"a result that is too deep": {nested, nil, client.TaskFlowStatusFailed},
		"a result that is no UTF-8": {json.RawMessage("\"\xff\""), nil,
			client.TaskFlowStatusFailed},
		"an error with U+0000": {nil, client.Final(errors.New("a\x00\xffb")),
			client.TaskFlowStatusFailed},
		"an error that is long": {nil, client.Final(errors.New(strings.Repeat("ü", 1<<20))),
			client.TaskFlowStatusFailed},
		"an error of no kind": {nil, &client.JobError{Err: errors.New("e"), Final: true},
			client.TaskFlowStatusFailed},
		"an error of a kind too long": {nil,
			&client.JobError{Err: errors.New("e"), Type: strings.Repeat("t", 256), Final: true},
			client.TaskFlowStatusFailed},
		"an error of a kind with NUL": {nil,
			&client.JobError{Err: errors.New("e"), Type: "\x00", Final: true},
			client.TaskFlowStatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := fmt.Sprintf("q%x", name)
			job, err := c.TaskFlow().Submit(t.Context(),
				client.TaskFlowSpec{Name: name, Queue: queue[:min(len(queue), 64)]})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			w := &client.JobWorker{API: c.WorkerAPI(), Contract: client.ContractTaskFlow,
				AfterRun: func(client.ClaimedJob, error) {
					stop()
				},
				Handlers: map[string]client.JobHandler{job.Queue: func(context.Context,
					*client.JobRun) (json.RawMessage, error) {
					return tt.result, tt.err
				}}}
			if err := w.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if job, err = c.TaskFlow().Get(t.Context(), job.ID); err != nil ||
				job.Status != tt.want {
				t.Errorf("got %s, %v, want %s", job.Status, err, tt.want)
			}
			if done := job.Status == client.TaskFlowStatusCompleted; (done &&
				string(job.Result) != string(tt.result)) || (!done && job.LastError == nil) {
				t.Errorf("the job shows the result %.20s and the error %v", job.Result,
					job.LastError)
			}
		})
	}
}

// claimFlow stores so many jobs on a server and claims them.
func claimFlow(t *testing.T, c *client.Client, n int) []client.ClaimedJob {
	t.Helper()
	for i := range n {
		if _, err := c.TaskFlow().Submit(t.Context(),
			client.TaskFlowSpec{Name: fmt.Sprint(i), Queue: "q"}); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err := c.WorkerAPI().Claim(t.Context(),
		client.ClaimQuery{Contract: client.ContractTaskFlow, Max: n}, 0)
	if err != nil || len(jobs) != n {
		t.Fatalf("claimed %d jobs, %v, want %d", len(jobs), err, n)
	}
	return jobs
}

func TestWorkerAPI_Finish(t *testing.T) {
	t.Parallel()
	c := flowServer(t)
	jobs := claimFlow(t, c, 4)
	result := json.RawMessage(`{"n": 1.0, "s":"\ud800"}`)
	ends, err := c.WorkerAPI().Finish(t.Context(), []client.RunOutcome{
		{RunID: jobs[0].RunID, Result: result},
		{RunID: jobs[1].RunID, Failure: &client.JobFailure{Error: "no", Type: "net"}},
		{RunID: jobs[0].RunID, Released: true},
		{RunID: jobs[2].RunID, Released: true},
		{RunID: `no "run"`},
		{RunID: jobs[3].RunID},
	})
	if err != nil || len(ends) != 6 {
		t.Fatalf("got %+v, %v", ends, err)
	}
	for i, want := range []string{"COMPLETED", "FAILED", "", "READY", "", "COMPLETED"} {
		end := ends[i]
		if end.Status != want || (end.Err == nil) != (want != "") {
			t.Errorf("outcome %d is %+v, want %q", i, end, want)
		}
		var fail *client.Error
		if end.Err != nil && (!errors.Is(end.Err, client.ErrRunLost) ||
			!errors.As(end.Err, &fail) || fail.Uncertain || fail.Message == "") {
			t.Errorf("outcome %d is %+v, want a run that is lost", i, end)
		}
	}
	if ends[4].RunID != `no "run"` || ends[1].JobID != jobs[1].ID {
		t.Errorf("got %+v", ends)
	}
	if job, err := c.TaskFlow().Get(t.Context(), jobs[0].ID); err != nil ||
		string(job.Result) != string(result) {
		t.Errorf("the result is %s, %v", job.Result, err)
	}
	if job, err := c.TaskFlow().Get(t.Context(), jobs[1].ID); err != nil || job.LastError == nil ||
		job.LastError.Type != "net" {
		t.Errorf("the failure is %+v, %v", job.LastError, err)
	}
}

// What breaks a rule ends no run.
func TestWorkerAPI_FinishRefused(t *testing.T) {
	t.Parallel()
	c := flowServer(t)
	good := client.RunOutcome{RunID: claimFlow(t, c, 1)[0].RunID}
	many := make([]client.RunOutcome, 1001)
	for i := range many {
		many[i] = good
	}
	for name, tt := range map[string]struct {
		outcomes []client.RunOutcome
		word     string
	}{
		"no run": {[]client.RunOutcome{good, {}}, "outcomes[1]"},
		"no JSON": {[]client.RunOutcome{good, {RunID: "r", Result: json.RawMessage("{")}},
			"outcomes[1]"},
		"two": {[]client.RunOutcome{good,
			{RunID: "r", Released: true, Failure: &client.JobFailure{}}}, "outcomes[1]"},
		"result too": {[]client.RunOutcome{good,
			{RunID: "r", Released: true, Result: json.RawMessage("1")}}, "outcomes[1]"},
		"the server": {[]client.RunOutcome{good,
			{RunID: "r", Failure: &client.JobFailure{Type: "\x00"}}},
			"outcomes[1].fail.error_type"},
		"many": {many, "1000"},
		"large": {[]client.RunOutcome{good,
			{RunID: "r", Result: json.RawMessage(`"` + strings.Repeat("x", 4<<20) + `"`)}},
			"TOO_LARGE"},
	} {
		ends, err := c.WorkerAPI().Finish(t.Context(), tt.outcomes)
		if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), tt.word) ||
			ends != nil {
			t.Errorf("%s: got %v, %v, want a complaint about %s", name, ends, err, tt.word)
		}
	}
	if ends, err := c.WorkerAPI().Finish(t.Context(), nil); ends != nil || err != nil {
		t.Errorf("none: got %v, %v", ends, err)
	}
	if ends, err := c.WorkerAPI().Finish(t.Context(), []client.RunOutcome{good}); err != nil ||
		ends[0].Err != nil {
		t.Errorf("got %+v, %v", ends, err)
	}
}

// lossyTransport loses the first answer.
type lossyTransport struct{ lost atomic.Bool }

func (d *lossyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && !d.lost.Swap(true) {
		resp.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
	return resp, err
}

// Runs that a request has ended whose answer was lost are distinguished from those that were lost
// for certain.
func TestWorkerAPI_FinishLostAnswer(t *testing.T) {
	t.Parallel()
	url, stop, err := serveFlow()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	jobs := claimFlow(t, mustClient(t, client.Config{BaseURL: url}), 1)
	c := mustClient(t, client.Config{BaseURL: url,
		HTTPClient: &http.Client{Transport: &lossyTransport{}},
		Retry:      client.Retry{BaseDelay: time.Nanosecond}})
	ends, err := c.WorkerAPI().Finish(t.Context(), []client.RunOutcome{{RunID: jobs[0].RunID}})
	var fail *client.Error
	if err != nil || !errors.Is(ends[0].Err, client.ErrRunLost) || !errors.As(ends[0].Err, &fail) ||
		!fail.Uncertain {
		t.Errorf("got %+v, %v, want an uncertain loss", ends, err)
	}
	if job, err := c.TaskFlow().Get(t.Context(), jobs[0].ID); err != nil ||
		job.Status != client.TaskFlowStatusCompleted {
		t.Errorf("the job is %s, %v", job.Status, err)
	}
}

// An answer that does not fit is no success.
func TestWorkerAPI_FinishStrangeAnswer(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"outcomes":[]}`, `[`, `{"outcomes":[{}]}`,
		`{"outcomes":[{"run_id":"r"},{"run_id":"r"}]}`} {
		api := directWorker(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, text)
		}))
		ends, err := api.Finish(t.Context(), []client.RunOutcome{{RunID: "r"}})
		var fail *client.Error
		if !errors.As(err, &fail) || !fail.Uncertain || ends != nil {
			t.Errorf("%s: got %v, %v", text, ends, err)
		}
	}
	for code, kind := range map[string]error{"CONFLICT": client.ErrConflict,
		"VALIDATION_ERROR": client.ErrInvalid} {
		api := directWorker(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"outcomes":[{"run_id":"r","code":%q,"detail":"why"}]}`, code)
		}))
		ends, err := api.Finish(t.Context(), []client.RunOutcome{{RunID: "r"}})
		if err != nil || !errors.Is(ends[0].Err, kind) ||
			errors.Is(ends[0].Err, client.ErrRunLost) ||
			!strings.Contains(ends[0].Err.Error(), "why") {
			t.Errorf("%s: got %+v, %v", code, ends, err)
		}
	}
}
