package taskflow_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/testkit"
)

// outside is the worker API of a world.
type outside struct{ *testkit.Workers }

func (w *world) outside(t testing.TB) outside {
	t.Helper()
	return outside{testkit.OpenWorkers(t, w.engine, w.room.Outside(), "")}
}

// claim takes the one job of a queue.
func (o outside) claim(t testing.TB, queue string) testkit.Claimed {
	t.Helper()
	return o.ClaimOne(t, `{"contract":"taskflow","max":9,"queues":["`+queue+`"]}`)
}

// ended says how a run ended and reads the status that its job has then.
func (o outside) ended(t testing.TB, run, how, body string) string {
	t.Helper()
	return testkit.Read[struct{ Status string }](t, o.Post(t, "runs/"+run+"/"+how, body).Want(t, 200)).Status
}

// shown reads what a job says of its runs; "" is a member that is missing.
func shown(t testing.TB, w *world, id, result, lastError string) {
	t.Helper()
	got := testkit.Read[map[string]json.RawMessage](t, w.Do(t, "GET", "/api/v1/jobs/"+id, "").Want(t, 200))
	equal(t, "result", string(got["result"]), result)
	equal(t, "last_error", string(got["last_error"]), lastError)
}

// TestResults: what workers leave is shown by the job, and by it alone.
func TestResults(t *testing.T) {
	onEveryStoreWith(t, config(), func(t *testing.T, w *world) {
		o := w.outside(t)
		id := w.create(t, `"queue":"r"`).ID
		shown(t, w, id, "", "")
		equal(t, "status", o.ended(t, o.claim(t, "r").RunID, "fail", `{"error":"no \"disk\"","error_type":"io","retryable":true}`), "READY")
		why := `{"error":"no \"disk\"","error_type":"io","retryable":true}`
		shown(t, w, id, "", why)
		w.clock.Advance(time.Hour)
		equal(t, "status", o.ended(t, o.claim(t, "r").RunID, "complete", `{"result":{"b": 1.50, "a": null}}`), "COMPLETED")
		shown(t, w, id, `{"b": 1.50, "a": null}`, why)

		silent := w.create(t, `"queue":"s","retry_policy":{"max_attempts":1}`).ID
		o.claim(t, "s")
		w.clock.Advance(time.Hour)
		o.Post(t, "claims", `{"contract":"taskflow","queues":["s"]}`).Want(t, 200) // notices that the lease is over
		equal(t, "status", w.get(t, silent).Status, "FAILED")
		shown(t, w, silent, "", `{"error":"the run was neither prolonged nor ended by its worker before its lease was over","error_type":"lost","retryable":true}`)

		page := testkit.Read[struct{ Items []map[string]json.RawMessage }](t, w.Do(t, "GET", "/api/v1/jobs?queue=r", "").Want(t, 200))
		equal(t, "members of a search", len(page.Items[0]), 12)
	})
}

// TestOutside: workers run jobs over HTTP, and what they say is what becomes of
// the jobs (G-TF-02, G-TF-30).
func TestOutside(t *testing.T) {
	c := config()
	c.Queues = map[string]taskflow.Queue{"sim": {Handler: "simulate"}, "limited": {MaxConcurrent: 1}}
	c.Runner.Node = "node"
	onEveryStoreWith(t, c, func(t *testing.T, w *world) {
		o := w.outside(t)
		made := func(queue string, members ...string) string {
			return w.create(t, append(members, `"queue":"`+queue+`"`)...).ID
		}
		t.Run("TF-106 TF-025 TF-026 claimed, completed, and completed only once", func(t *testing.T) {
			id := made("a")
			j := o.claim(t, "a")
			equal(t, "job", fmt.Sprint(j.JobID, j.Attempt), fmt.Sprint(id, 1))
			w.status(t, id, "RUNNING")
			shown(t, w, id, "", "")
			equal(t, "status", o.ended(t, j.RunID, "complete", `{"result":[1]}`), "COMPLETED")
			o.Post(t, "runs/"+j.RunID+"/complete", `{}`).Is(t, 409, "RUN_LOST")
			o.Post(t, "runs/"+j.RunID+"/fail", `{"error":"x","retryable":false}`).Is(t, 409, "RUN_LOST")
			equal(t, "attempts", w.status(t, id, "COMPLETED").AttemptCount, 0)
		})
		t.Run("TF-027 TF-028 TF-066 failed until none are left", func(t *testing.T) {
			id := made("b", attempts(2, "FIXED", 5, 5))
			equal(t, "first", o.ended(t, o.claim(t, "b").RunID, "fail", `{"error":"x","retryable":true}`), "READY")
			w.clock.Advance(5 * time.Second)
			j := o.claim(t, "b")
			equal(t, "attempt", j.Attempt, 2)
			equal(t, "second", o.ended(t, j.RunID, "fail", `{"error":"x","retryable":true}`), "FAILED")
			equal(t, "attempts", w.get(t, id).AttemptCount, 2)
		})
		t.Run("TF-028 not to be tried again", func(t *testing.T) {
			made("c")
			equal(t, "status", o.ended(t, o.claim(t, "c").RunID, "fail", `{"error":"x","retryable":false}`), "FAILED")
		})
		t.Run("TF-012 given back counts for nothing", func(t *testing.T) {
			id := made("d")
			equal(t, "status", o.ended(t, o.claim(t, "d").RunID, "release", `{}`), "READY")
			equal(t, "attempts", w.get(t, id).AttemptCount, 0)
			equal(t, "again", o.claim(t, "d").JobID, id)
		})
		t.Run("TF-084 what is said of a deleted job is discarded", func(t *testing.T) {
			id := made("e")
			j := o.claim(t, "e")
			w.Do(t, "DELETE", pathOf(id), "").Want(t, 204)
			for how, body := range map[string]string{"heartbeat": `{}`, "complete": `{}`, "release": `{}`, "fail": `{"error":"x","retryable":true}`} {
				o.Post(t, "runs/"+j.RunID+"/"+how, body).Is(t, 409, "RUN_LOST")
			}
			w.Do(t, "GET", pathOf(id), "").Is(t, 404, "NOT_FOUND")
		})
		t.Run("TF-106 not those of a queue with a handler", func(t *testing.T) {
			id := made("sim")
			o.Post(t, "claims", `{"contract":"taskflow","queues":["sim"]}`).Is(t, 409, "NOT_CLAIMABLE")
			limited := made("limited")
			equal(t, "a limit is no handler", o.claim(t, "limited").JobID, limited)
			w.status(t, id, "READY")
		})
	})
}
