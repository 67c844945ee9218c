package forgerun_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// aJob asks for a job.
const aJob = `{"contract":"forgerun","worker":"me"}`

func (w *world) remoteWorker(t testing.TB) *testkit.Workers {
	t.Helper()
	return testkit.OpenWorkers(t, w.engine, w.forge.RemoteWorkers(), "")
}

// withoutWorkers is a node that has no workers.
func withoutWorkers(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	c := config()
	c.NoLocalWorkers = true
	c.DurationScale = 0.01 // is for simulated work: workers outside have the whole time (G-FR-55)
	t.Run("sqlite", func(t *testing.T) { test(t, inMemory(t, c)) })
	t.Run("postgres", func(t *testing.T) { test(t, onPostgres(t, c)) })
}

func TestRemoteWorker(t *testing.T) {
	withoutWorkers(t, func(t *testing.T, w *world) {
		c, o := w.customer(t), w.remoteWorker(t)
		id := c.submit(t, submitBody("FAIL_AFTER_RETRYABLE"))
		j := o.ClaimOne(t, aJob)
		t.Run("FR-075 a worker gets the definition", func(t *testing.T) {
			var d struct {
				WorkKind string `json:"work_kind"`
				Callback *string
			}
			if err := json.Unmarshal(j.Payload, &d); err != nil ||
				d.WorkKind != "FAIL_AFTER_RETRYABLE" || d.Callback != nil || j.JobID != id ||
				j.Attempt != 1 {
				t.Errorf("got %+v, %s", j, j.Payload)
			}
			c.wantState(t, id, "ASSIGNED")
		})
		t.Run("a run is started before it ends", func(t *testing.T) {
			for verb, body := range map[string]string{"complete": "",
				"fail": `{"error":"e","retryable":true}`} {
				o.Post(t, "runs/"+j.RunID+"/"+verb, body).WantError(t, 409, "CONFLICT")
			}
			c.wantState(t, id, "ASSIGNED")
			o.Post(t, "runs/"+j.RunID+"/start", "").WantStatus(t, 200)
			c.wantState(t, id, "RUNNING")
		})
		t.Run("a failure that is not retryable is no final one", func(t *testing.T) {
			r := o.Post(t, "runs/"+j.RunID+"/fail",
				`{"error":"out of paper","error_type":"printer","retryable":false}`).WantStatus(t,
				200)
			assertEqual(t, "answer", r.Body, `{"job_id":"`+id+`","status":"FAILED"}`)
			v := c.wantState(t, id, "FAILED")
			if v.Failure.Code != "printer" || v.Failure.Message != "out of paper" ||
				v.Failure.Retryable {
				t.Errorf("got %+v", v.Failure)
			}
			assertEqual(t, "attempt", c.retry(t, id).Attempt, 1)
		})
		t.Run("the retry is another attempt, and an older run is lost", func(t *testing.T) {
			w.clock.Advance(2 * time.Minute)
			again := o.ClaimOne(t, aJob)
			assertEqual(t, "attempt", again.Attempt, 2)
			for verb, body := range map[string]string{"start": "", "heartbeat": "", "complete": "",
				"release": "", "fail": `{"error":"e","retryable":true}`} {
				o.Post(t, "runs/"+j.RunID+"/"+verb, body).WantError(t, 409, "RUN_LOST")
			}
			j = again
		})
		t.Run("G-X-18 released before it starts it is queued again", func(t *testing.T) {
			o.Post(t, "runs/"+j.RunID+"/release", "").WantStatus(t, 200)
			c.wantState(t, id, "QUEUED")
			j = o.ClaimOne(t, aJob)
			assertEqual(t, "attempt", j.Attempt, 2)
		})
		t.Run("FR-180 G-FR-55 a run that takes too long is canceled and has failed",
			func(t *testing.T) {
				id := c.submit(t, submitBody("SUCCESS_FAST"))
				j := o.ClaimOne(t, aJob)
				o.Post(t, "runs/"+j.RunID+"/start", "{}").WantStatus(t, 200)
				heartbeat := func() testkit.Reply {
					return o.Post(t, "runs/"+j.RunID+"/heartbeat",
						`{"state":{"done":3}}`).WantStatus(t, 200)
				}
				for range 5 { // 120 s and not a moment less
					assertEqual(t, "cancel", strings.Contains(heartbeat().Body, `"cancel":false`), true)
					w.clock.Advance(24 * time.Second)
				}
				assertEqual(t, "cancel", strings.Contains(heartbeat().Body, `"cancel":false`), true)
				w.clock.Advance(time.Millisecond)
				assertEqual(t, "cancel", strings.Contains(heartbeat().Body, `"cancel":true`), true)
				assertEqual(t, "failure", c.wantState(t, id, "FAILED").Failure.Code,
					"RFA_EXEC_TIMEOUT")
				o.Post(t, "runs/"+j.RunID+"/complete", "").WantError(t, 409, "RUN_LOST")
			})
		t.Run("FR-180 a result that comes too late does not count", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			j := o.ClaimOne(t, aJob)
			o.Post(t, "runs/"+j.RunID+"/start", "{}").WantStatus(t, 200)
			w.clock.Advance(121 * time.Second) // its lease has ended too, and nobody has noticed
			o.Post(t, "runs/"+j.RunID+"/complete", `{"result":1}`).WantError(t, 409, "RUN_LOST")
			assertEqual(t, "failure", c.wantState(t, id, "FAILED").Failure.Code, "RFA_EXEC_TIMEOUT")
		})
		t.Run("G-X-18 released while it runs it is a lost run", func(t *testing.T) {
			o.Post(t, "runs/"+j.RunID+"/start", "{}").WantStatus(t, 200)
			o.Post(t, "runs/"+j.RunID+"/release", "").WantStatus(t, 200)
			assertEqual(t, "failure", c.wantState(t, id, "FAILED").Failure.Code, "runner_lost")
		})
		t.Run("a result ends it well", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			j := testkit.DecodeReply[testkit.ClaimedJob](t,
				o.Post(t, "jobs/"+id+"/claim", `{"contract":"forgerun"}`).WantStatus(t, 200))
			o.Post(t, "runs/"+j.RunID+"/start", "").WantStatus(t, 200)
			o.Post(t, "runs/"+j.RunID+"/complete", `{"result":{"ok":true}}`).WantStatus(t, 200)
			c.wantState(t, id, "SUCCEEDED")
			o.Post(t, "jobs/"+id+"/claim", `{"contract":"forgerun"}`).WantError(t, 409,
				"NOT_CLAIMABLE")
		})
		t.Run("FR-135 a canceled job's run is lost", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"))
			j := o.ClaimOne(t, aJob)
			o.Post(t, "runs/"+j.RunID+"/start", "").WantStatus(t, 200)
			c.cancel(t, id)
			o.Post(t, "runs/"+j.RunID+"/heartbeat", "").WantError(t, 409, "RUN_LOST")
			c.wantState(t, id, "CANCELED")
		})
	})
}

// A crowd of workers outside runs every job exactly once.
func TestRemoteWorkerCrowd(t *testing.T) {
	withoutWorkers(t, func(t *testing.T, w *world) {
		c, o := w.customer(t), w.remoteWorker(t)
		const jobs = 40
		for range jobs {
			c.submit(t, submitBody("SUCCESS_FAST"))
		}
		var mu sync.Mutex
		seen := map[string]int{}
		var crowd sync.WaitGroup
		for range 12 {
			crowd.Go(func() {
				for {
					got := o.Claim(t, aJob)
					if len(got) == 0 {
						return
					}
					mu.Lock()
					seen[got[0].JobID]++
					mu.Unlock()
					o.Post(t, "runs/"+got[0].RunID+"/start", "").WantStatus(t, 200)
					o.Post(t, "runs/"+got[0].RunID+"/complete", "").WantStatus(t, 200)
				}
			})
		}
		crowd.Wait()
		assertEqual(t, "jobs run", len(seen), jobs)
		for id, n := range seen {
			assertEqual(t, id, n, 1)
			c.wantState(t, id, "SUCCEEDED")
		}
	})
}

// A node with local workers gives no job to remote ones.
func TestRemoteWorkerBesideLocal(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c, o := w.customer(t), w.remoteWorker(t)
	id := c.submit(t, submitBody("SUCCESS_FAST"))
	o.Post(t, "claims", `{"contract":"forgerun"}`).WantError(t, 409, "NOT_CLAIMABLE")
	o.Post(t, "jobs/"+id+"/claim", `{"contract":"forgerun"}`).WantError(t, 409, "NOT_CLAIMABLE")
	c.wantState(t, id, "QUEUED")
}
