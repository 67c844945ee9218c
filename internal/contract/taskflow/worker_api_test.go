package taskflow_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

// remoteWorker is the worker API of a world.
type remoteWorker struct{ *testkit.Workers }

func (w *world) newRemoteWorker(t testing.TB) remoteWorker {
	t.Helper()
	return remoteWorker{testkit.OpenWorkers(t, w.engine, w.taskflow.RemoteWorkers(), "")}
}

// claim takes the one job of a queue.
func (o remoteWorker) claim(t testing.TB, queue string) testkit.ClaimedJob {
	t.Helper()
	return o.ClaimOne(t, `{"contract":"taskflow","max":9,"queues":["`+queue+`"]}`)
}

// finish says how a run ended and reads the status that its job has then.
func (o remoteWorker) finish(t testing.TB, run, how, body string) string {
	t.Helper()
	return testkit.DecodeReply[struct{ Status string }](t,
		o.Post(t, "runs/"+run+"/"+how, body).WantStatus(t, 200)).Status
}

// wantOutcome reads what a job says of its runs; "" is a member that is missing.
func wantOutcome(t testing.TB, w *world, id, result, lastError string) {
	t.Helper()
	got := testkit.DecodeReply[map[string]json.RawMessage](t,
		w.Do(t, "GET", "/api/v1/jobs/"+id, "").WantStatus(t, 200))
	assertEqual(t, "result", string(got["result"]), result)
	assertEqual(t, "last_error", string(got["last_error"]), lastError)
}

// TestResults: what workers leave is shown by the job, and by it alone.
func TestResults(t *testing.T) {
	onEveryStoreWith(t, config(), func(t *testing.T, w *world) {
		o := w.newRemoteWorker(t)
		id := w.create(t, `"queue":"r"`).ID
		wantOutcome(t, w, id, "", "")
		assertEqual(t, "status", o.finish(t, o.claim(t, "r").RunID, "fail",
			`{"error":"no \"disk\"","error_type":"io","retryable":true}`), "READY")
		why := `{"error":"no \"disk\"","error_type":"io","retryable":true}`
		wantOutcome(t, w, id, "", why)
		w.clock.Advance(time.Hour)
		assertEqual(t, "status", o.finish(t, o.claim(t, "r").RunID, "complete",
			`{"result":{"b": 1.50, "a": null}}`), "COMPLETED")
		wantOutcome(t, w, id, `{"b": 1.50, "a": null}`, why)

		silent := w.create(t, `"queue":"s","retry_policy":{"max_attempts":1}`).ID
		o.claim(t, "s")
		w.clock.Advance(time.Hour)
		// notices that the lease has ended
		o.Post(t, "claims", `{"contract":"taskflow","queues":["s"]}`).WantStatus(t, 200)
		assertEqual(t, "status", w.get(t, silent).Status, "FAILED")
		wantOutcome(t, w, silent, "",
			`{"error":"the lease expired before the worker sent a heartbeat or an outcome","error_type":"lost","retryable":true}`)

		page := testkit.DecodeReply[struct{ Items []map[string]json.RawMessage }](t,
			w.Do(t, "GET", "/api/v1/jobs?queue=r", "").WantStatus(t, 200))
		assertEqual(t, "members of a search", len(page.Items[0]), 12)
	})
}

// TestRemoteWorker: workers run jobs over HTTP, and what they say is what becomes of the jobs
// (G-TF-02, G-TF-30).
func TestRemoteWorker(t *testing.T) {
	c := config()
	c.Queues = map[string]*taskflow.Queue{"sim": {Handler: "simulate"},
		"limited": {MaxConcurrent: 1}}
	c.Node = "node"
	onEveryStoreWith(t, c, func(t *testing.T, w *world) {
		o := w.newRemoteWorker(t)
		made := func(queue string, members ...string) string {
			return w.create(t, append(members, `"queue":"`+queue+`"`)...).ID
		}
		t.Run("TF-106 TF-025 TF-026 claimed, completed, and completed only once",
			func(t *testing.T) {
				id := made("a")
				j := o.claim(t, "a")
				assertEqual(t, "job", fmt.Sprint(j.JobID, j.Attempt), fmt.Sprint(id, 1))
				w.status(t, id, "RUNNING")
				wantOutcome(t, w, id, "", "")
				assertEqual(t, "status", o.finish(t, j.RunID, "complete", `{"result":[1]}`),
					"COMPLETED")
				o.Post(t, "runs/"+j.RunID+"/complete", `{}`).WantError(t, 409, "RUN_LOST")
				o.Post(t, "runs/"+j.RunID+"/fail", `{"error":"x","retryable":false}`).WantError(t,
					409, "RUN_LOST")
				assertEqual(t, "attempts", w.status(t, id, "COMPLETED").AttemptCount, 0)
			})
		t.Run("TF-027 TF-028 TF-066 failed until none are left", func(t *testing.T) {
			id := made("b", attempts(2, "FIXED", 5, 5))
			assertEqual(t, "first", o.finish(t, o.claim(t, "b").RunID, "fail",
				`{"error":"x","retryable":true}`), "READY")
			w.clock.Advance(5 * time.Second)
			j := o.claim(t, "b")
			assertEqual(t, "attempt", j.Attempt, 2)
			assertEqual(t, "second", o.finish(t, j.RunID, "fail", `{"error":"x","retryable":true}`),
				"FAILED")
			assertEqual(t, "attempts", w.get(t, id).AttemptCount, 2)
		})
		t.Run("TF-028 not to be tried again", func(t *testing.T) {
			made("c")
			assertEqual(t, "status", o.finish(t, o.claim(t, "c").RunID, "fail",
				`{"error":"x","retryable":false}`), "FAILED")
		})
		t.Run("TF-012 given back counts for nothing", func(t *testing.T) {
			id := made("d")
			assertEqual(t, "status", o.finish(t, o.claim(t, "d").RunID, "release", `{}`), "READY")
			assertEqual(t, "attempts", w.get(t, id).AttemptCount, 0)
			assertEqual(t, "again", o.claim(t, "d").JobID, id)
		})
		t.Run("TF-084 what is said of a deleted job is discarded", func(t *testing.T) {
			id := made("e")
			j := o.claim(t, "e")
			w.Do(t, "DELETE", pathOf(id), "").WantStatus(t, 204)
			for how, body := range map[string]string{"heartbeat": `{}`, "complete": `{}`,
				"release": `{}`, "fail": `{"error":"x","retryable":true}`} {
				o.Post(t, "runs/"+j.RunID+"/"+how, body).WantError(t, 409, "RUN_LOST")
			}
			w.Do(t, "GET", pathOf(id), "").WantError(t, 404, "NOT_FOUND")
		})
		t.Run("TF-106 not those of a queue with a handler", func(t *testing.T) {
			id := made("sim")
			o.Post(t, "claims", `{"contract":"taskflow","queues":["sim"]}`).WantError(t, 409,
				"NOT_CLAIMABLE")
			limited := made("limited")
			assertEqual(t, "a limit is no handler", o.claim(t, "limited").JobID, limited)
			w.status(t, id, "READY")
		})
	})
}
