package fetchbox_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
	workerapi "github.com/millrace/millrace/internal/worker/api"
)

// outside is the worker API of a world that downloads nothing itself.
type outside struct{ *testkit.Site }

func (w *world) outside(t testing.TB) *outside {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	api, err := workerapi.New(workerapi.Config{Log: log, Contracts: []workerapi.Contract{w.room.Outside()}})
	if err != nil {
		t.Fatal(err)
	}
	return &outside{testkit.Open(t, log, testkit.ReadDocument(t, workerapi.OpenAPI, 1<<20), testkit.Problems("urn:millrace:worker:"), api.Mount(w.engine))}
}

func (o *outside) post(t testing.TB, path, body string) testkit.Reply {
	t.Helper()
	return o.Do(t, "POST", "/worker/v1/"+path, body)
}

type handedOut struct {
	JobID    string `json:"job_id"`
	Contract string
	Queue    string
	RunID    string `json:"run_id"`
	Attempt  int
	Payload  json.RawMessage
}

func (o *outside) claim(t testing.TB, n int) []handedOut {
	t.Helper()
	jobs := testkit.Read[struct{ Jobs []handedOut }](t, o.post(t, "claims", fmt.Sprintf(`{"contract":"fetchbox","max":%d}`, n)).Want(t, 200)).Jobs
	if len(jobs) != n {
		t.Fatalf("claimed %d tasks, want %d", len(jobs), n)
	}
	return jobs
}

// TestOutside is G-FB-35: tasks are run by workers anywhere.
func TestOutside(t *testing.T) {
	t.Parallel()
	c := config()
	c.Off = true
	w := inMemory(t, c)
	o := w.outside(t)
	r := w.submit(t, manifest(3))
	w.deliver(t)
	t.Run("G-FB-35 a task has an id of its own and its message as payload", func(t *testing.T) {
		for _, j := range o.claim(t, 1) {
			var m taskMessage
			if err := json.Unmarshal(j.Payload, &m); err != nil {
				t.Fatal(err)
			}
			if !uuidText.MatchString(j.JobID) || j.JobID == r.JobID || m.JobID != r.JobID {
				t.Errorf("got %+v", j)
			}
			equal(t, "task", fmt.Sprint(j.Contract, j.Queue, j.Attempt, m.ResourceID), "fetchboxgallery1r0000")
			o.post(t, "runs/"+j.RunID+"/heartbeat", "{}").Want(t, 200)
			o.post(t, "runs/"+j.RunID+"/complete", `{"result":{"size_bytes":7}}`).Want(t, 200)
			o.post(t, "runs/"+j.RunID+"/complete", `{"result":{"size_bytes":7}}`).Is(t, 409, "RUN_LOST")
		}
		v := w.status(t, r.JobID, "in_progress")
		equal(t, "counts", fmt.Sprint(v.Completed, v.Failed), "1 0")
	})
	t.Run("FB-083 G-FB-24 failures", func(t *testing.T) {
		j := o.claim(t, 1)[0]
		o.post(t, "runs/"+j.RunID+"/fail", `{"error":"forbidden","error_type":"HTTP_403","retryable":false}`).Want(t, 200)
		equal(t, "last error", *w.get(t, r.JobID).LastError, problem{"HTTP_403", "forbidden"})
		for range tries {
			j := o.claim(t, 1)[0]
			o.post(t, "runs/"+j.RunID+"/fail", `{"error":"oops","retryable":true}`).Want(t, 200)
			w.clock.Advance(time.Hour)
			w.sweep(t)
		}
		equal(t, "last error", *w.status(t, r.JobID, "failed").LastError, problem{"SYSTEM_WORKER_ERROR", "oops"})
	})
	t.Run("G-FB-35 one by its id, and given back", func(t *testing.T) {
		w.submit(t, manifest(1))
		j := o.claim(t, 1)[0]
		o.post(t, "runs/"+j.RunID+"/release", "{}").Want(t, 200)
		again := testkit.Read[handedOut](t, o.post(t, "jobs/"+j.JobID+"/claim", `{"contract":"fetchbox"}`).Want(t, 200))
		equal(t, "job", again.JobID, j.JobID)
		o.post(t, "jobs/"+j.JobID+"/claim", `{"contract":"fetchbox"}`).Is(t, 409, "NOT_CLAIMABLE")
		o.post(t, "jobs/"+r.JobID+"/claim", `{"contract":"fetchbox"}`).Is(t, 404, "NOT_FOUND")
	})
	t.Run("the ledger is nobody's to claim", func(t *testing.T) {
		if got := o.post(t, "claims", `{"contract":"fetchbox.task"}`); got.Status != 400 {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	})
	t.Run("not where the node downloads itself", func(t *testing.T) {
		inMemory(t, config()).outside(t).post(t, "claims", `{"contract":"fetchbox"}`).Want(t, 409)
	})
}

// TestOutsideSpacing: an entry of the log is one line, however a worker spaces its result.
func TestOutsideSpacing(t *testing.T) {
	t.Parallel()
	c := config()
	c.Off = true
	w := inMemory(t, c)
	o := w.outside(t)
	r := w.submit(t, manifest(1))
	run := o.claim(t, 1)[0].RunID
	o.post(t, "runs/"+run+"/complete", "{\"result\":{\n\"size_bytes\":\r\n7,\n\n\"note\":\"a\\nb\"}}").Want(t, 200)
	w.deliver(t)
	results := 0
	for _, l := range w.logs(t, r.JobID, "") { // fails where a line is no entry
		if l.Fields["result"] != nil {
			results++
			equal(t, "result", fmt.Sprint(l.Fields["result"]), "map[note:a\nb size_bytes:7]")
		}
	}
	equal(t, "results", results, 1)
}
