package admin_test

import (
	"strconv"
	"testing"
	"time"

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

// AD-030: what was done in five minutes, since when jobs are ready, and the orders of the list.
func TestQueueRates(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		testkit.Register(t, w.engine, queueContract)
		ctx, submitted := t.Context(), 0
		submit := func(queue string, jobs int) {
			t.Helper()
			for range jobs {
				submitted++
				if _, err := w.engine.Submit(ctx, engine.Unique, []engine.Submission{{Job: job.Job{
					ID:    job.ID{Contract: "brief", Key: strconv.Itoa(submitted)},
					Queue: queue, Lease: 10 * time.Second}}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		submit("old", 1)
		since := w.clock.Now()
		w.clock.Advance(time.Minute)
		submit("deep", 3)
		submit("failing", 2)
		jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{Contract: "brief",
			Queues: []string{"failing"}, Max: 2})
		if err != nil || len(jobs) != 2 {
			t.Fatalf("claimed %d, %v", len(jobs), err)
		}
		w.clock.Advance(4 * time.Second)
		if _, err := w.engine.Finish(ctx, engine.Run{Run: jobs[0].Run},
			engine.Outcome{On: job.Succeeded}); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(10 * time.Second)
		if _, err := w.engine.Expire(ctx); err != nil {
			t.Fatal(err)
		}
		type rates struct {
			Queue     string
			Oldest    *time.Time `json:"oldest_ready_at"`
			Submitted float64    `json:"submitted_per_minute"`
			Started   float64    `json:"started_per_minute"`
			Succeeded float64    `json:"succeeded_per_minute"`
			Failed    float64    `json:"failed_per_minute"`
			Run       *float64   `json:"run_p50"`
			Wait      *float64   `json:"wait_p95"`
		}
		type page struct {
			Items      []rates
			NextCursor *string `json:"next_cursor"`
		}
		list := func(query string) page {
			t.Helper()
			return get[page](t, w, "/admin/v1/queues?contract=brief&order="+query)
		}
		for order, want := range map[string]string{"name": "deep", "depth": "deep", "age": "old",
			"failures": "failing"} {
			first := list(order + "&limit=1")
			rest := list(order + "&cursor=" + *first.NextCursor)
			if len(first.Items) != 1 || len(rest.Items) != 2 || first.Items[0].Queue != want {
				t.Errorf("%s: got %+v, then %+v", order, first.Items, rest.Items)
			}
			if order != "name" {
				w.do(t, w.api.Token(), "GET", "/admin/v1/queues?order=name&cursor="+
					*first.NextCursor, "").WantError(t, 400, "VALIDATION_ERROR")
			}
		}
		w.do(t, w.api.Token(), "GET", "/admin/v1/queues?order=size", "").
			WantError(t, 400, "VALIDATION_ERROR")
		got := list("failures").Items[0]
		if got.Submitted != 0.4 || got.Started != 0.4 || got.Succeeded != 0.2 || got.Failed != 0.2 ||
			got.Run == nil || *got.Run < 2.5 || *got.Run > 5 || got.Wait == nil {
			t.Errorf("got %+v", got)
		}
		if old := list("age").Items[0]; old.Oldest == nil || !old.Oldest.Equal(since) ||
			old.Run != nil {
			t.Errorf("got %+v, want it ready since %s", old, since)
		}
		if _, err := w.api.Series.Write(ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(6 * time.Minute)
		if late := list("name").Items[0]; late.Submitted != 0 || late.Wait != nil {
			t.Errorf("six minutes later there is %+v", late)
		}
	})
}
