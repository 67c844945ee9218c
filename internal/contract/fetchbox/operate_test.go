package fetchbox_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

const canceledCode = "CANCELED"

// operate lets an operator cancel or retry a job.
func (w *world) operate(t testing.TB, id, what string) testkit.Reply {
	t.Helper()
	return w.Do(t, "POST", "/operators/jobs/"+id+"/"+what, "")
}

// wantCounts checks the status of a job, and how many of its resources are stored and failed.
func (w *world) wantCounts(t testing.TB, id, status string, completed, failed int) view {
	t.Helper()
	v := w.status(t, id, status)
	assertEqual(t, "RT-003 counts", fmt.Sprint(v.Completed, v.Failed),
		fmt.Sprint(completed, failed))
	return v
}

// RT-003: a cancel ends what is open of a job as failed, whatever it waits for, once; the rest
// stays.
func TestCancel(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.submit(t, manifest(5))
		w.awaitEnd(t, r.JobID, storedOutcome)
		w.awaitEnd(t, r.JobID, brokeOutcome)
		w.awaitEnd(t, r.JobID, fetchbox.BrokenOutcome("HTTP_503", true, time.Hour))
		running := w.claimOnly(t, r.JobID)
		v := testkit.DecodeReply[view](t, w.operate(t, r.JobID, "cancel").WantStatus(t, 202))
		assertEqual(t, "RT-003 answer", fmt.Sprint(v.JobID, v.Status, v.Completed, v.Failed,
			v.LastError.Code), fmt.Sprint(r.JobID, "in_progress", 1, 4, canceledCode))
		for _, o := range []engine.Outcome{storedOutcome, brokeOutcome} {
			if _, err := w.engine.Finish(t.Context(), currentRun(running),
				o); !job.IsKind(err, job.RunLost) {
				t.Errorf("RT-003 a canceled download ends with %v", err)
			}
		}
		w.clock.Advance(2 * time.Hour)
		w.sweep(t)
		assertEqual(t, "RT-003 tasks to be had", len(w.claim(t, 9)), 0)
		w.operate(t, r.JobID, "cancel").WantError(t, 409, "CONFLICT", "in_progress")
		w.finalize(t, 1)
		w.deliver(t)
		w.wantCounts(t, r.JobID, "failed", 1, 4)
		w.operate(t, r.JobID, "cancel").WantError(t, 409, "CONFLICT", "failed")

		var seen []string
		for _, l := range w.deadLetters(t, "").Items {
			seen = append(seen, fmt.Sprint(l.Code, " ", l.Attempts))
		}
		assertEqual(t, "RT-003 dead letters, newest first", strings.Join(seen, ", "),
			"CANCELED 0, CANCELED 1, CANCELED 1, HTTP_403 1")
		assertEqual(t, "RT-003 counted", w.counter(t, "worker_dlq_total"), 4)
		lines := 0
		for _, l := range w.logs(t, r.JobID, "") {
			if strings.Contains(l.Message, "canceled") {
				lines++
				assertEqual(t, "RT-003 the log", fmt.Sprint(l.Level, " ", l.Fields["code"]),
					"error CANCELED")
			}
		}
		assertEqual(t, "RT-003 lines of the log", lines, 3)
	})
}

// RT-003: a job that has not begun is canceled too, and finalized once.
func TestCancelQueued(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.submit(t, manifest(3))
		other := w.submit(t, manifest(2))
		w.operate(t, r.JobID, "cancel").WantStatus(t, 202)
		w.finalize(t, 1)
		w.wantCounts(t, r.JobID, "failed", 0, 3)
		w.wantCounts(t, other.JobID, "queued", 0, 0)
		assertEqual(t, "RT-003 jobs to finalize", len(w.claimOf(t, fetchbox.Name, 9)), 0)
	})
}

// RT-003: a retry gives all that has failed its attempts again, once, and the job goes on.
func TestRetryJob(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.submit(t, manifest(4))
		w.operate(t, r.JobID, "retry").WantError(t, 409, "CONFLICT", "queued")
		w.awaitEnd(t, r.JobID, storedOutcome)
		w.awaitEnd(t, r.JobID, brokeOutcome)
		w.operate(t, r.JobID, "cancel").WantStatus(t, 202)
		w.finalize(t, 1)
		w.deliver(t)
		v := testkit.DecodeReply[view](t, w.operate(t, r.JobID, "retry").WantStatus(t, 202))
		assertEqual(t, "RT-003 answer", fmt.Sprint(v.Status, " ", v.Completed, v.Failed),
			"in_progress 1 0")
		w.operate(t, r.JobID, "retry").WantError(t, 409, "CONFLICT", "in_progress")
		for _, l := range w.deadLetters(t, "").Items {
			if l.ReplayedAt == nil {
				t.Errorf("RT-003 the dead letter of a retried download is %+v", l)
			}
		}
		again := fetchbox.BrokenOutcome("HTTP_503", true, 0)
		for range tries - 1 { // as many as a new one
			w.awaitEnd(t, r.JobID, again)
			w.clock.Advance(time.Hour)
			w.sweep(t)
		}
		for range 3 {
			w.awaitEnd(t, r.JobID, storedOutcome)
		}
		w.wantCounts(t, r.JobID, "completed", 4, 0)
		w.operate(t, r.JobID, "retry").WantError(t, 409, "CONFLICT", "completed")
		w.operate(t, r.JobID, "cancel").WantError(t, 409, "CONFLICT", "completed")
	})
}

// RT-003: who may not, and what is no job.
func TestOperateRefused(t *testing.T) {
	t.Parallel()
	c := config()
	c.OperatorToken = secrets("correct horse")[0]
	w := inMemory(t, c)
	r := w.submit(t, manifest(1))
	const auth, right = "Authorization", "Bearer correct horse"
	for _, what := range []string{"cancel", "retry"} {
		w.operate(t, r.JobID, what).WantError(t, 401, "UNAUTHORIZED")
		for _, id := range []string{"00000000-0000-7000-8000-000000000000", "nothing", "%00"} {
			w.Do(t, "POST", "/operators/jobs/"+id+"/"+what, "", auth, right).WantError(t, 404,
				"NOT_FOUND")
		}
		path := "/operators/jobs/" + r.JobID + "/" + what
		w.Do(t, "GET", path, "", auth, right).WantError(t, 405, "METHOD_NOT_ALLOWED")
		w.Do(t, "POST", path+"?all=1", "", auth, right).WantError(t, 400, "INVALID_PAYLOAD", "all")
	}
	v := testkit.DecodeReply[view](t, w.Do(t, "GET", "/operators/jobs/"+r.JobID, "", auth, right))
	assertEqual(t, "RT-003 unchanged", v.Status, "queued")
}

// RT-003: a large job is canceled in steps. When the database is unavailable between them, or its
// answer is lost, a repeated request does the rest.
func TestCancelInSteps(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		f := &stepStore{flakyStore: flakyStore{Store: p.Store}}
		p.Store, p.Reopen = f, nil
		w := newWorldAt(t, p, config())
		for _, after := range []bool{false, true} {
			f.after.Store(after)
			w.operateInSteps(t, f)
		}
	})
}

// operateInSteps cancels and retries a job of two steps, the second of which fails.
func (w *world) operateInSteps(t *testing.T, f *stepStore) {
	t.Helper()
	const all, step = 1000, 500
	r := w.submit(t, manifest(all))
	for _, what := range []struct{ do, status string }{{"cancel", "failed"},
		{"retry", "in_progress"}} {
		f.failAt.Store(2)
		w.operate(t, r.JobID, what.do).WantError(t, 500, "INTERNAL_ERROR")
		done, want, status := w.get(t, r.JobID).Failed, step, 202
		if what.do == "retry" {
			done = all - done
		}
		if f.after.Load() {
			want, status = all, 409
		}
		assertEqual(t, "RT-003 in the first steps", done, want)
		w.operate(t, r.JobID, what.do).WantStatus(t, status)
		if what.do == "cancel" {
			w.finalize(t, 1)
		}
		w.status(t, r.JobID, what.status)
	}
	queues, err := w.engine.Queues(t.Context(), fetchbox.Tasks)
	if err != nil || len(queues) != 1 || queues[0].Dead != 0 {
		t.Errorf("RT-003 open dead letters: %+v, %v", queues, err)
	}
	for w.get(t, r.JobID).Completed < all {
		w.finishAll(t, w.claim(t, all), storedOutcome)
	}
	w.finalize(t, 1)
}

// stepStore is a flakyStore whose n-th update from now on fails.
type stepStore struct {
	flakyStore
	failAt atomic.Int32
}

func (s *stepStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if s.failAt.Load() > 0 && s.failAt.Add(-1) == 0 {
		s.failing.Store(1)
	}
	return s.flakyStore.Update(ctx, fn)
}

// RT-003: whatever downloads, finalizers, cancels and retries do at once, each download ends once
// and the counts of the job agree with its tasks.
func TestOperateRaces(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const all = 60
		r := w.submit(t, manifest(all))
		testkit.RunConcurrently(12, func(i int) int {
			for range 12 {
				switch {
				case i == 0:
					w.wantOneOf(t, w.operate(t, r.JobID, "cancel"), 202, 409)
				case i == 1:
					w.wantOneOf(t, w.operate(t, r.JobID, "retry"), 202, 409)
				case i == 2:
					for _, j := range w.claimOf(t, fetchbox.Name, 1) {
						w.tryFinish(t, j, engine.Outcome{On: job.Started})
						w.tryFinish(t, j, outcomeOf(j))
					}
				default:
					for n, j := range w.claim(t, 3) {
						w.tryFinish(t, j, []engine.Outcome{storedOutcome, brokeOutcome,
							fetchbox.BrokenOutcome("HTTP_503", true, 0)}[n])
					}
				}
			}
			return 0
		})
		_ = w.operate(t, r.JobID, "retry")
		for range 20 { // what is left ends well
			for _, j := range w.claim(t, all) {
				w.finish(t, j, storedOutcome)
			}
			w.clock.Advance(time.Hour)
			w.sweep(t)
		}
		w.wantCounts(t, r.JobID, "completed", all, 0)
		for _, j := range w.all(t, fetchbox.Tasks) {
			w.wantEndedOnce(t, j)
		}
	})
}

// wantEndedOnce checks that a task was stored once, and has a dead letter of each time that it was
// given up.
func (w *world) wantEndedOnce(t testing.TB, j *job.Job) {
	t.Helper()
	stored, dead := 0, 0
	err := w.store.View(t.Context(), func(r store.Reader) error {
		events, err := r.Events(j.Seq, 0)
		for _, ev := range events {
			switch ev.Next {
			case "done":
				stored++
			case "dead":
				dead++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	deadLetters, err := w.engine.DeadLettersOf(t.Context(), []int64{j.Seq})
	if err != nil {
		t.Fatal(err)
	}
	if stored != 1 || dead != len(deadLetters[j.Seq]) {
		t.Errorf("RT-003 a task was stored %d times, and given up %d times with %d dead letters",
			stored, dead, len(deadLetters[j.Seq]))
	}
}

func (w *world) wantOneOf(t testing.TB, r testkit.Reply, statuses ...int) {
	t.Helper()
	for _, s := range statuses {
		if r.Status == s {
			return
		}
	}
	t.Errorf("RT-003 got %d %s", r.Status, r.Body)
}

// tryFinish ends a run that may have been lost meanwhile.
func (w *world) tryFinish(t testing.TB, j *job.Job, o engine.Outcome) {
	t.Helper()
	_, err := w.engine.Finish(t.Context(), currentRun(j), o)
	if err != nil && !job.IsKind(err, job.RunLost) && !job.IsKind(err, job.Conflict) {
		t.Error(err)
	}
}

// RT-003: a download that runs is stopped, its object is not taken for stored, and the handler of
// its job is notified once.
func TestCancelStopsDownloads(t *testing.T) {
	t.Parallel()
	c := assertNear()
	c.Lease = 300 * time.Millisecond
	w := newFetchWorld(t, c)
	h := w.withRecordingHandler(nil)
	started, left := make(chan struct{}, 10), make(chan struct{}, 10)
	s := origin(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/0" {
			return
		}
		_, _ = rw.Write(make([]byte, 100_000))
		rw.(http.Flusher).Flush()
		started <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	w.live(t)
	id := w.submitTo(t, "default", resourcesOf(s.URL, 3)).JobID
	testkit.Receive(t, "a download", started)
	testkit.Receive(t, "another download", started)
	testkit.WaitUntil(t, "the first one to be stored", func() bool {
		return w.get(t, id).Completed == 1
	})
	w.operate(t, id, "cancel").WantStatus(t, 202)
	testkit.Receive(t, "a download to be stopped", left)
	testkit.Receive(t, "the other to be stopped", left)
	if ended := h.wait(t); ended.Completed != 1 || ended.Failed != 2 || ended.Status != "failed" {
		t.Errorf("RT-003 the handler was told %+v", ended)
	}
	w.untilStatus(t, id, "failed")
	assertEqual(t, "RT-003 objects", len(w.files(t)), 1)
	assertEqual(t, "RT-003 told more than once", len(h.finalized), 0)
}
