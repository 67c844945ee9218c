package admin_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// queueContract is a job type for the tests of queues.
var queueContract = engine.JobType{Name: "brief", Machine: job.MustMachine(
	map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased}, []job.Transition{
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
	MaxRunning      *int `json:"run_limit"`
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
			jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: "brief", Max: 9})
			if err != nil {
				t.Fatal(err)
			}
			return len(jobs)
		}
		if q := patch(`{"paused":true}`); !q.Paused || *q.MaxRunning != 3 || q.Rate != nil {
			t.Errorf("got %+v", q)
		}
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if _, err := w.engine.Submit(ctx, engine.Unique, []engine.Submission{{Job: job.Job{
				ID: job.ID{JobType: "brief", Key: key}, Queue: "mail"}}}); err != nil {
				t.Fatal(err)
			}
		}
		if n := claim(); n != 0 {
			t.Errorf("a paused queue gave %d jobs", n)
		}
		q := patch(`{"paused":false,"run_limit":null,"rate":4,"rate_period":"60s"}`)
		if q.Paused || q.MaxRunning != nil || *q.Rate != 4 || *q.RatePeriod != "1m" || q.Ready != 5 {
			t.Errorf("got %+v", q)
		}
		if n := claim(); n != 4 {
			t.Errorf("claimed %d, want the 4 of the rate", n)
		}
		for _, body := range []string{`{}`, `{"paused":1}`, `{"run_limit":-1}`, `{"rate":"4"}`,
			`{"rate_period":"1"}`, `{"rate_period":"1ms"}`, `{"rate_period":null}`,
			`{"rate":5,"rate_period":null}`, `{"rate":5,"rate":6}`, `{"pause":true}`} {
			w.do(t, w.api.Token(), "PATCH", "/admin/v1/queues/brief/mail", body, "Content-Type",
				"application/json").WantError(t, 400, "VALIDATION_ERROR")
		}
		w.do(t, w.api.Token(), "PATCH", "/admin/v1/queues/brief/new", `{"rate":4}`, "Content-Type",
			"application/json").WantError(t, 400, "VALIDATION_ERROR")
		w.do(t, w.api.Token(), "DELETE", "/admin/v1/queues/brief/mail", "").WantStatus(t, 200)
		list := get[struct{ Items []queueView }](t, w, "/admin/v1/queues?contract=brief&text=ai")
		if len(list.Items) != 1 || *list.Items[0].MaxRunning != 3 || list.Items[0].Rate != nil ||
			list.Items[0].Leased != 4 {
			t.Errorf("got %+v", list.Items)
		}
		if got := w.audit(t, "?target=queue:brief/mail").Items; len(got) != 3 ||
			got[0].Action != "queue.reset" || string(got[2].Before) == string(got[2].After) {
			t.Errorf("got %+v", got)
		}
	})
}

// TestQueueIsListedForAWeek: G-AD-12: a queue that has lost its settings and has no jobs is listed
// for seven days more.
func TestQueueIsListedForAWeek(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		testkit.Register(t, w.engine, queueContract)
		const path = "/admin/v1/queues/brief/short"
		w.do(t, w.api.Token(), "PATCH", path, `{"paused":true}`, "Content-Type",
			"application/json").WantStatus(t, 200)
		w.do(t, w.api.Token(), "DELETE", path, "").WantStatus(t, 200)
		listed := func() int {
			t.Helper()
			list := get[struct{ Items []queueView }](t, w, "/admin/v1/queues?contract=brief")
			return len(list.Items)
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {7*24*time.Hour - time.Minute, 1}, {2 * time.Minute, 0}} {
			w.clock.Advance(step.after)
			if got := listed(); got != step.want {
				t.Errorf("G-AD-12 %s later got %d queues, want %d", step.after, got, step.want)
			}
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
					ID:    job.ID{JobType: "brief", Key: strconv.Itoa(submitted)},
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
		jobs, err := w.engine.Claim(ctx, engine.ClaimRequest{JobType: "brief",
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
			Longest   float64    `json:"run_p95"`
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
		if got.Submitted != 2 || got.Started != 2 || got.Succeeded != 1 || got.Failed != 1 ||
			got.Run == nil || *got.Run < 2.5 || *got.Run > 4 || got.Longest < 3.9 ||
			got.Longest > 4 || got.Wait == nil {
			t.Errorf("in its first minute: got %+v", got)
		}
		if old := list("age").Items[0]; old.Oldest == nil || !old.Oldest.Equal(since) ||
			old.Run != nil {
			t.Errorf("got %+v, want it ready since %s", old, since)
		}
		if _, err := w.api.Series.Write(ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(110 * time.Second)
		if got := list("failures").Items[0]; got.Submitted < 0.9 || got.Submitted > 1.1 {
			t.Errorf("AD-030 after two minutes the rate is over these: got %+v", got)
		}
		w.clock.Advance(250 * time.Second)
		if late := list("name").Items[0]; late.Submitted != 0 || late.Wait != nil {
			t.Errorf("six minutes later there is %+v", late)
		}
	})
}

// CO-002, AD-031: the form of a page stores the limits that were changed alone. The others stay
// those of the settings file, also when these change.
func TestLimitsOfAForm(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		testkit.Register(t, w.engine, queueContract)
		configure := func(limits job.QueueLimits) {
			t.Helper()
			if err := w.engine.LimitQueues(t.Context(), "brief",
				map[string]job.QueueLimits{"mail": limits}); err != nil {
				t.Fatal(err)
			}
		}
		session := with(w.login(t, "token="+w.api.Token()))
		set := func(form string) queueView {
			t.Helper()
			w.form(t, "/console/queues/brief/mail", form, session...).WantStatus(t, 303)
			return get[struct{ Items []queueView }](t, w,
				"/admin/v1/queues?contract=brief").Items[0]
		}
		configure(job.QueueLimits{MaxRunning: 3, Rate: job.Rate{Starts: 4, Period: time.Minute}})
		page := w.Do(t, "GET", "/console/queues/brief/mail", "", session...).WantStatus(t, 200).Body
		for _, shown := range []string{`name="shown_run_limit" value="3"`, `name="shown_rate" value="4"`,
			`name="shown_rate_period" value="1m"`} {
			if !strings.Contains(page, shown) {
				t.Errorf("the page has no %s", shown)
			}
		}
		const was = "&shown_run_limit=3&shown_rate=4&shown_rate_period=1m"
		set("run_limit=3&rate=4&rate_period=1m" + was)
		set("run_limit=3&rate=9&rate_period=1m" + was)
		configure(job.QueueLimits{MaxRunning: 7, Rate: job.Rate{Starts: 5, Period: time.Hour}})
		if q := set("run_limit=3&rate=9&rate_period=2m&shown_run_limit=3&shown_rate=9" +
			"&shown_rate_period=1m"); *q.MaxRunning != 7 || *q.Rate != 9 || *q.RatePeriod != "2m" {
			t.Errorf("AD-031 got %+v", q)
		}
		if q := set("run_limit=&rate=&rate_period=2m&shown_run_limit=7&shown_rate=9" +
			"&shown_rate_period=2m"); q.MaxRunning != nil || q.Rate != nil {
			t.Errorf("AD-031 without limits got %+v", q)
		}
		for _, form := range []string{"run_limit=x", "run_limit=-1", "run_limit=1.5", "rate=5",
			"rate_period=5", "limit=5", "run_limit=1&run_limit=2"} {
			w.form(t, "/console/queues/brief/mail", form, session...).WantStatus(t, 400)
		}
		if got := w.actions(t); len(got) != 4 { // the login, and three of five forms
			t.Errorf("AD-006 the audit has %v", got)
		}
	})
}

// AD-030, CO-002: the queues of the server's own jobs are listed, counted and shown where they are
// asked for alone.
func TestInternalQueues(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.submitJob(t, "taskflow", `{"name":"a","queue":"mail"}`, "")
		w.startBulk(t, "/admin/v1/bulk", `{"action":"delete","filter":{"queue":"none"}}`)
		w.send(t, "POST", "", `{"name":"nightly","every":"1h",`+nightly+`}`).WantStatus(t, 201)
		for query, want := range map[string]string{"": "taskflow/mail",
			"?internal=false": "taskflow/mail", "?contract=bulk": "bulk/delete",
			"?contract=schedule": "schedule/taskflow",
			"?internal=true":     "bulk/delete schedule/taskflow taskflow/mail"} {
			var names []string
			for _, q := range get[struct{ Items []queueView }](t, w.world,
				"/admin/v1/queues"+query).Items {
				names = append(names, q.Contract+"/"+q.Queue)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("AD-030 %q lists %s, want %s", query, got, want)
			}
		}
		for _, query := range []string{"?internal=1", "?internal=", "?internal=TRUE"} {
			w.do(t, w.api.Token(), "GET", "/admin/v1/queues"+query, "").
				WantError(t, 400, "VALIDATION_ERROR", "internal")
		}
		for _, path := range []string{"/console", "/console/queues"} {
			page := w.do(t, w.api.Token(), "GET", path, "").WantStatus(t, 200).Body
			row := func(queue string) bool {
				return strings.Contains(page, `class="name"><a href="/console/queues/`+queue)
			}
			if row("bulk") || row("schedule") || !row("taskflow/mail") {
				t.Errorf("CO-002 %s shows %s", path, page)
			}
		}
	})
}

// CO-002: the overview shows the ranges that it has, and refuses others by naming them.
func TestRangesOfTheOverview(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	for query, status := range map[string]int{"": 200, "?range=": 200, "?range=1h": 200,
		"?range=24h": 200, "?range=7d": 200, "?range=30d": 400, "?range=1": 400,
		"?range=1h&range=7d": 400} {
		r := w.do(t, w.api.Token(), "GET", "/console"+query, "").WantStatus(t, status)
		if query == "?range=30d" && !strings.Contains(r.Body, "1h, 24h or 7d") {
			t.Errorf("the refusal is %s", r.Body)
		}
	}
}

// AD-030: numbers in the names of queues are in the order of their values.
func TestNaturalOrder(t *testing.T) {
	t.Parallel()
	want := []string{"a", "a-9/q", "a-10/q", "a1", "a1b", "a2", "a02", "a10", "a100", "b",
		"b123456789", "b1234567890"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b string) int {
		return strings.Compare(admin.NaturalKey(a), admin.NaturalKey(b))
	})
	if !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
}
