package fetchbox_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// aTask asks for a task.
const aTask = `{"contract":"fetchbox","max":1}`

func (w *world) remoteWorker(t testing.TB) *testkit.Workers {
	t.Helper()
	return testkit.OpenWorkers(t, w.engine, w.fetchbox.RemoteWorkers(), "")
}

// TestRemoteWorker is G-FB-35: tasks are run by workers anywhere.
func TestRemoteWorker(t *testing.T) {
	t.Parallel()
	c := config()
	c.NoLocalWorkers = true
	w := inMemory(t, c)
	o := w.remoteWorker(t)
	r := w.submit(t, manifest(3))
	w.deliver(t)
	t.Run("G-FB-35 a task has an id of its own and its message as payload", func(t *testing.T) {
		for _, j := range o.Claim(t, aTask) {
			var m taskMessage
			if err := json.Unmarshal(j.Payload, &m); err != nil {
				t.Fatal(err)
			}
			if !uuidText.MatchString(j.JobID) || j.JobID == r.JobID || m.JobID != r.JobID {
				t.Errorf("got %+v", j)
			}
			assertEqual(t, "task", fmt.Sprint(j.Contract, j.Queue, j.Attempt, m.ResourceID),
				"fetchboxgallery1r0000")
			o.Post(t, "runs/"+j.RunID+"/heartbeat", "{}").WantStatus(t, 200)
			o.Post(t, "runs/"+j.RunID+"/complete", `{"result":{"size_bytes":7}}`).WantStatus(t, 200)
			o.Post(t, "runs/"+j.RunID+"/complete", `{"result":{"size_bytes":7}}`).WantError(t, 409,
				"RUN_LOST")
		}
		v := w.status(t, r.JobID, "in_progress")
		assertEqual(t, "counts", fmt.Sprint(v.Completed, v.Failed), "1 0")
	})
	t.Run("FB-083 G-FB-24 failures", func(t *testing.T) {
		j := o.ClaimOne(t, aTask)
		o.Post(t, "runs/"+j.RunID+"/fail",
			`{"error":"forbidden","error_type":"HTTP_403","retryable":false}`).WantStatus(t, 200)
		assertEqual(t, "last error", *w.get(t, r.JobID).LastError, problem{"HTTP_403", "forbidden"})
		for range tries {
			j := o.ClaimOne(t, aTask)
			o.Post(t, "runs/"+j.RunID+"/fail", `{"error":"oops","retryable":true}`).WantStatus(t,
				200)
			w.clock.Advance(time.Hour)
			w.sweep(t)
		}
		assertEqual(t, "last error", *w.status(t, r.JobID, "in_progress").LastError,
			problem{"SYSTEM_WORKER_ERROR", "oops"})
	})
	t.Run("G-FB-43 a lost run is no try", func(t *testing.T) {
		w.submit(t, manifest(1))
		tried := func(want int) testkit.ClaimedJob {
			t.Helper()
			j := o.ClaimOne(t, aTask)
			assertEqual(t, "attempt", j.Attempt, want)
			return j
		}
		passes := func(d time.Duration) {
			w.clock.Advance(d)
			w.sweep(t)
		}
		for range 2 {
			tried(1)
			passes(lease + time.Second)
		}
		o.Post(t, "runs/"+tried(1).RunID+"/fail", `{"error":"oops","retryable":true}`).WantStatus(t,
			200)
		passes(time.Hour)
		tried(2)
		passes(lease + time.Second)
		o.Post(t, "runs/"+tried(2).RunID+"/complete", `{"result":null}`).WantStatus(t, 200)
	})
	t.Run("G-FB-35 one by its id, and given back", func(t *testing.T) {
		w.submit(t, manifest(1))
		j := o.ClaimOne(t, aTask)
		o.Post(t, "runs/"+j.RunID+"/release", "{}").WantStatus(t, 200)
		again := testkit.DecodeReply[testkit.ClaimedJob](t,
			o.Post(t, "jobs/"+j.JobID+"/claim", `{"contract":"fetchbox"}`).WantStatus(t, 200))
		assertEqual(t, "job", again.JobID, j.JobID)
		o.Post(t, "jobs/"+j.JobID+"/claim", `{"contract":"fetchbox"}`).WantError(t, 409,
			"NOT_CLAIMABLE")
		o.Post(t, "jobs/"+r.JobID+"/claim", `{"contract":"fetchbox"}`).WantError(t, 404,
			"NOT_FOUND")
	})
	t.Run("the ledger is nobody's to claim", func(t *testing.T) {
		if got := o.Post(t, "claims", `{"contract":"fetchbox.task"}`); got.Status != 400 {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	})
	t.Run("not where the node downloads itself", func(t *testing.T) {
		inMemory(t, config()).remoteWorker(t).Post(t, "claims", `{"contract":"fetchbox"}`).WantStatus(t,
			409)
	})
}

// TestRemoteWorkerSpacing: an entry of the log is one line, however a worker spaces its result.
func TestRemoteWorkerSpacing(t *testing.T) {
	t.Parallel()
	c := config()
	c.NoLocalWorkers = true
	w := inMemory(t, c)
	o := w.remoteWorker(t)
	r := w.submit(t, manifest(1))
	run := o.ClaimOne(t, aTask).RunID
	o.Post(t, "runs/"+run+"/complete",
		"{\"result\":{\n\"size_bytes\":\r\n7,\n\n\"note\":\"a\\nb\"}}").WantStatus(t, 200)
	w.deliver(t)
	results := 0
	for _, l := range w.logs(t, r.JobID, "") { // fails where a line is no entry
		if l.Fields["result"] != nil {
			results++
			assertEqual(t, "result", fmt.Sprint(l.Fields["result"]), "map[note:a\nb size_bytes:7]")
		}
	}
	assertEqual(t, "results", results, 1)
}
