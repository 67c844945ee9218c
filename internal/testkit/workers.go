package testkit

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/workerapi"
)

// Workers is a client of the worker API. Contracts use it to test what is theirs in the API:
// states, attempts, payloads and outcomes.
type Workers struct{ *APIServer }

// ClaimedJob is a job as a remote worker gets it. Its members have the names of the API's
// document.
type ClaimedJob struct {
	JobID    string `json:"job_id"`
	Contract string
	Queue    string
	RunID    string `json:"run_id"`
	Attempt  int
	Lease    float64 `json:"lease_seconds"`
	Payload  json.RawMessage
}

// OpenWorkers serves the worker API for a contract until the test ends. An empty token means no
// authentication. It is the real API over HTTP, so a test of a contract is also one of what remote
// workers see.
func OpenWorkers(tb testing.TB, e *engine.Engine, contract workerapi.Adapter,
	token string) *Workers {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	api, err := workerapi.New(workerapi.Config{Engine: e, Log: log,
		Token: setting.NewSecret(token), Contracts: []workerapi.Adapter{contract}})
	if err != nil {
		tb.Fatal(err)
	}
	return &Workers{StartServer(tb, log, ReadDocument(tb, workerapi.OpenAPI, 1<<20),
		ProblemReader("urn:millrace:worker:"), api.Mount())}
}

// Post posts a body to a path below /worker/v1/. The answer may be of any status.
func (w *Workers) Post(tb testing.TB, path, body string) Reply {
	tb.Helper()
	return w.Do(tb, "POST", "/worker/v1/"+path, body)
}

// Claim claims jobs with a body. A claim that is refused fails the test; one that finds no jobs
// returns none.
func (w *Workers) Claim(tb testing.TB, body string) []ClaimedJob {
	tb.Helper()
	return DecodeReply[struct{ Jobs []ClaimedJob }](tb,
		w.Post(tb, "claims", body).WantStatus(tb, 200)).Jobs
}

// ClaimOne claims jobs and fails the test unless it gets exactly one.
func (w *Workers) ClaimOne(tb testing.TB, body string) ClaimedJob {
	tb.Helper()
	jobs := w.Claim(tb, body)
	if len(jobs) != 1 {
		tb.Fatalf("claimed %d jobs, want one", len(jobs))
	}
	return jobs[0]
}
