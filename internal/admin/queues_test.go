package admin_test

import (
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// queueContract is a sort of jobs for the tests of queues.
var queueContract = engine.Contract{Name: "brief", Machine: job.MustMachine(
	map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased}, []job.Move{
		{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "running", On: job.Released, To: "queued"},
		{From: "running", On: job.Expired, To: "queued"},
		{From: "running", On: job.Succeeded, To: job.StateNone},
	})}

// queueView is a queue as it is answered.
type queueView struct {
	Contract, Queue string
	Ready, Leased   int
	Paused          bool
	RunLimit        *int `json:"run_limit"`
	Rate            *int
	RatePeriod      *string `json:"rate_period"`
}

// AD-030, AD-031, G-AD-12: queues are paused and limited on all nodes, what is set takes the place
// of the settings file until it is taken back, and each change is an entry of the audit.
func TestQueues(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		testkit.Register(t, w.engine, queueContract)
		ctx := t.Context()
		if err := w.engine.LimitQueues(ctx, "brief", map[string]job.QueueLimits{
			"mail": {MaxRunning: 3}}); err != nil {
			t.Fatal(err)
		}
		patch := func(body string) queueView {
			t.Helper()
			return testkit.DecodeReply[queueView](t, w.do(t, w.api.Token(), "PATCH",
				"/admin/v1/queues/brief/mail", body,
				"Content-Type", "application/json").WantStatus(t, 200))
		}
		claim := func() int {
			t.Helper()
			jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{Contract: "brief", Max: 9})
			if err != nil {
				t.Fatal(err)
			}
			return len(jobs)
		}
		if q := patch(`{"paused":true}`); !q.Paused || *q.RunLimit != 3 || q.Rate != nil {
			t.Errorf("got %+v", q)
		}
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if _, err := w.engine.Submit(ctx, engine.Unique, []engine.Submission{{Job: job.Job{
				ID: job.ID{Contract: "brief", Key: key}, Queue: "mail"}}}); err != nil {
				t.Fatal(err)
			}
		}
		if n := claim(); n != 0 {
			t.Errorf("a paused queue handed out %d jobs", n)
		}
		q := patch(`{"paused":false,"run_limit":null,"rate":4,"rate_period":"60s"}`)
		if q.Paused || q.RunLimit != nil || *q.Rate != 4 || *q.RatePeriod != "1m" || q.Ready != 5 {
			t.Errorf("got %+v", q)
		}
		if n := claim(); n != 4 {
			t.Errorf("claimed %d, want the 4 of the rate", n)
		}
		for _, body := range []string{`{}`, `{"paused":1}`, `{"run_limit":-1}`, `{"rate":"4"}`,
			`{"rate_period":"1"}`, `{"rate_period":"1ms"}`, `{"pause":true}`} {
			w.do(t, w.api.Token(), "PATCH", "/admin/v1/queues/brief/mail", body, "Content-Type",
				"application/json").WantError(t, 400, "VALIDATION_ERROR")
		}
		w.do(t, w.api.Token(), "PATCH", "/admin/v1/queues/brief/new", `{"rate":4}`, "Content-Type",
			"application/json").WantError(t, 400, "VALIDATION_ERROR")
		w.do(t, w.api.Token(), "DELETE", "/admin/v1/queues/brief/mail", "").WantStatus(t, 200)
		list := get[struct{ Items []queueView }](t, w, "/admin/v1/queues?contract=brief&text=ai")
		if len(list.Items) != 1 || *list.Items[0].RunLimit != 3 || list.Items[0].Rate != nil ||
			list.Items[0].Leased != 4 {
			t.Errorf("got %+v", list.Items)
		}
		if got := w.audit(t, "?target=queue:brief/mail").Items; len(got) != 3 ||
			got[0].Action != "queue.reset" || string(got[2].Before) == string(got[2].After) {
			t.Errorf("got %+v", got)
		}
	})
}
