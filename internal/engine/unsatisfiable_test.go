package engine_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// column goes on whatever becomes of the job before it.
var column = job.MustMachine(map[job.State]job.Phase{
	"waiting": job.Waiting, "pending": job.Ready, "sending": job.Leased, "sent": job.Done,
	"lost": job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "waiting"},
	{From: "waiting", On: job.Satisfied, To: "pending"},
	{From: "waiting", On: job.Unsatisfiable, To: "pending"},
	{From: "pending", On: job.Claimed, To: "sending"},
	{From: "sending", On: job.Succeeded, To: "sent"},
	{From: "sending", On: job.Failed, To: "pending", CountsFailed: true},
	{From: "sending", On: job.FailedForGood, To: "lost"},
	{From: "sending", On: job.Expired, To: "pending"},
})

// A job that goes on although its dependency failed waits for its time as any other afterwards: it
// has no open dependency any more.
func TestUnsatisfiableGoesOn(t *testing.T) {
	onEveryStore(t, []engine.JobType{{Name: "column", Machine: column, Graph: true}},
		func(w *world) {
			w.submit(sub("column/a"))
			w.submit(sub("column/b", after("column/a"))) // there when it ends
			w.end("column", "a")
			w.submit(sub("column/x", due(time.Hour)))
			w.submit(sub("column/c", after("column/a", "column/x"))) // and not yet
			if got := w.states("column"); got != "a=lost b=pending c=pending x=pending" {
				t.Fatal(got)
			}
			for _, j := range w.claim("column", 2) {
				_, err := w.engine.Finish(w.ctx, engine.Run{Run: j.Run},
					engine.Outcome{On: job.Failed, Delay: time.Minute})
				w.noError(err)
			}
			if early := w.claim("column", 2); len(early) != 0 {
				t.Fatalf("claimed before their time: %v", names(early))
			}
			w.clock.Advance(time.Minute)
			n, err := w.engine.Promote(w.ctx)
			w.noError(err)
			if jobs := w.claim("column", 2); n != 2 || len(jobs) != 2 {
				t.Errorf("%d promoted, claimed %v, want both", n, names(jobs))
			}
		})
}
