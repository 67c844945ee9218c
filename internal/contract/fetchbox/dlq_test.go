package fetchbox_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

type deadLetter struct {
	Task     json.RawMessage `json:"task"`
	Code     string          `json:"failure_code"`
	Message  string          `json:"failure_message"`
	Attempts int             `json:"attempts"`
	FailedAt time.Time       `json:"failed_at"`
	Offset   uint64          `json:"offset"`

	ReplayedAt *time.Time `json:"replayed_at"`
	ReplayedAs *string    `json:"replayed_as"`
}

type deadLetters struct {
	Items      []deadLetter
	NextCursor *string `json:"next_cursor"`
	HasMore    bool    `json:"has_more"`
}

func (w *world) deadLetters(t testing.TB, query string) deadLetters {
	t.Helper()
	return testkit.DecodeReply[deadLetters](t,
		w.Do(t, "GET", "/operators/dlq"+query, "").WantStatus(t, 200))
}

func (w *world) replay(t testing.TB, offset uint64) testkit.Reply {
	t.Helper()
	return w.Do(t, "POST", fmt.Sprintf("/operators/dlq/%d/replay", offset), "")
}

// TestGivenBackIsNoTry: a dead letter and the log count tries, not how often a task was claimed.
func TestGivenBackIsNoTry(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	r := w.submit(t, manifest(1))
	again := fetchbox.BrokenOutcome("HTTP_503", true, 0)
	for range tries {
		w.awaitEnd(t, r.JobID, engine.Outcome{On: job.Released})
		w.awaitEnd(t, r.JobID, again)
		w.clock.Advance(time.Hour)
		w.sweep(t)
	}
	w.deliver(t)
	assertEqual(t, "attempts", w.deadLetters(t, "").Items[0].Attempts, tries)
	failed := w.log.Lines(t, map[string]any{"msg": "a job failed for good", "job_id": r.JobID,
		"attempt": float64(tries)})
	if len(failed) != 1 || failed[0]["resource_id"] == "" {
		t.Errorf("the log says %v of a job that failed for good", failed)
	}
	for _, l := range w.logs(t, r.JobID, "") {
		if n, of := l.Fields["attempt"].(float64); of && (n < 1 || n > tries) {
			t.Errorf("%s: attempt %v", l.Message, n)
		}
	}
}

func TestDeadLetters(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.submit(t, manifest(3))
		w.awaitEnd(t, r.JobID, storedOutcome)
		again := fetchbox.BrokenOutcome("HTTP_503", true, 0)
		for range tries {
			w.awaitEnd(t, r.JobID, again)
			w.clock.Advance(time.Hour)
			w.sweep(t)
		}
		w.awaitEnd(t, r.JobID, brokeOutcome)
		w.finalize(t, 1)
		w.deliver(t)
		t.Run("FB-084 FB-037 a record of each", func(t *testing.T) {
			got := w.deadLetters(t, "")
			assertEqual(t, "dead letters", len(got.Items), 2)
			for i, want := range []string{"HTTP_403 it broke 1 r0002",
				"HTTP_503 it broke 3 r0001"} {
				l := got.Items[i]
				var task taskMessage
				if err := json.Unmarshal(l.Task, &task); err != nil {
					t.Fatal(err)
				}
				assertEqual(t, "dead letter",
					fmt.Sprint(l.Code, " ", l.Message, " ", l.Attempts, " ", task.ResourceID), want)
				if l.Offset == 0 || l.FailedAt.IsZero() || task.JobID != r.JobID {
					t.Errorf("got %+v", l)
				}
			}
			assertEqual(t, "worker_dlq_total", w.counter(t, "worker_dlq_total"), 2)
		})
		t.Run("G-FB-37 page by page", func(t *testing.T) {
			first := w.deadLetters(t, "?limit=1")
			if !first.HasMore || first.NextCursor == nil {
				t.Fatalf("got %+v", first)
			}
			second := w.deadLetters(t, "?limit=1&cursor="+*first.NextCursor)
			assertEqual(t, "codes", first.Items[0].Code+" "+second.Items[0].Code,
				"HTTP_403 HTTP_503")
			assertEqual(t, "more", second.HasMore, false)
			for _, query := range []string{"limit=0", "limit=101", "cursor=x", "cursor=0",
				"cursor=-1"} {
				w.Do(t, "GET", "/operators/dlq?"+query, "").WantError(t, 400, "INVALID_PAYLOAD")
			}
		})
		offset := w.deadLetters(t, "").Items[1].Offset
		t.Run("G-FB-37 a replay has new tries, and the job is open again", func(t *testing.T) {
			w.status(t, r.JobID, "failed")
			a := testkit.DecodeReply[map[string]string](t, w.replay(t, offset).WantStatus(t, 202))
			assertEqual(t, "answer", fmt.Sprint(a["job_id"], " ", a["resource_id"], " ",
				a["status"]), r.JobID+" r0001 queued")
			v := w.status(t, r.JobID, "in_progress")
			assertEqual(t, "counts", fmt.Sprint(v.Completed, v.Failed), "1 1")
			all := w.deadLetters(t, "").Items
			if l := all[1]; l.ReplayedAs == nil || *l.ReplayedAs != "r0001" ||
				l.ReplayedAt == nil || all[0].ReplayedAs != nil {
				t.Errorf("AD-051 the dead letters are %+v", all)
			}
			w.replay(t, offset).WantError(t, 409, "CONFLICT", "queued")
			for n := 1; n < tries; n++ {
				w.awaitEnd(t, r.JobID, again)
				w.status(t, r.JobID, "in_progress")
				w.clock.Advance(time.Second << (n - 1)) // as after the first failures of a new task
				w.sweep(t)
			}
			w.awaitEnd(t, r.JobID, storedOutcome)
			v = w.status(t, r.JobID, "in_progress") // until it is closed
			assertEqual(t, "counts", fmt.Sprint(v.Completed, v.Failed), "2 1")
			w.replay(t, offset).WantError(t, 409, "CONFLICT", "done")
		})
		t.Run("FB-077 G-FB-37 the handler is not called again", func(t *testing.T) {
			for _, j := range w.claimOf(t, fetchbox.Name, 1) {
				assertEqual(t, "state", j.State, job.State("closing"))
				w.finish(t, j, outcomeOf(j))
			}
			w.status(t, r.JobID, "failed")
			w.replay(t, w.deadLetters(t, "").Items[0].Offset).WantStatus(t, 202)
			w.awaitEnd(t, r.JobID, storedOutcome)
			w.status(t, r.JobID, "completed")
			w.finalize(t, 1)
			w.status(t, r.JobID, "completed")
		})
		t.Run("G-FB-36 a replayed task is published again", func(t *testing.T) {
			w.deliver(t)
			n := 0
			for _, m := range w.messages(t) {
				if m.ResourceID == "r0001" {
					n++
				}
			}
			assertEqual(t, "messages", n, 2)
		})
		t.Run("an unknown offset", func(t *testing.T) {
			for _, offset := range []string{"0", "99", "x", "-1", "99999999999999999999"} {
				w.Do(t, "POST", "/operators/dlq/"+offset+"/replay", "").WantError(t, 404,
					"NOT_FOUND")
			}
		})
		t.Run("a task that is not there any more", func(t *testing.T) {
			w.dropJob(t, r.JobID)
			w.replay(t, offset).WantError(t, 409, "CONFLICT", "ledger")
		})
	})
}

// TestReplays: of many who replay one dead letter at once one does.
func TestReplays(t *testing.T) {
	t.Parallel()
	t.Run("G-FB-37 a crowd", func(t *testing.T) {
		w := inMemory(t, config())
		r := w.submit(t, manifest(1))
		w.awaitEnd(t, r.JobID, brokeOutcome)
		w.deliver(t)
		won := 0
		for _, got := range testkit.RunConcurrently(20, func(int) testkit.Reply {
			return w.replay(t, 1)
		}) {
			if got.Status == 202 {
				won++
			} else {
				got.WantError(t, 409, "CONFLICT")
			}
		}
		assertEqual(t, "replays", won, 1)
		v := w.status(t, r.JobID, "in_progress")
		assertEqual(t, "counts", fmt.Sprint(v.Total, v.Completed, v.Failed), "1 0 0")
	})
}
