package workerapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"
)

// outcomeJSON is an outcome as it is sent.
func outcomeJSON(runID, verb, body string) string {
	return fmt.Sprintf(`{"run_id":%q,%q:%s}`, runID, verb, body)
}

// outcomes is the body of a request.
func outcomes(all ...string) string { return `{"outcomes":[` + strings.Join(all, ",") + `]}` }

// outcomeAnswer is what one outcome is answered.
type outcomeAnswer struct {
	RunID  string `json:"run_id"`
	JobID  string `json:"job_id"`
	Status string
	Code   string
	Detail string
}

// finish says outcomes and returns what each is answered.
func (w *world) finish(t testing.TB, all ...string) []outcomeAnswer {
	t.Helper()
	got := testkit.DecodeReply[struct{ Outcomes []outcomeAnswer }](t,
		w.post(t, "/worker/v1/outcomes", outcomes(all...)).WantStatus(t, 200)).Outcomes
	if len(got) != len(all) {
		t.Fatalf("%d outcomes are answered with %d", len(all), len(got))
	}
	return got
}

// wantOutcomes fails unless each outcome, in order, ended its run, "JOB STATUS", or is refused,
// "CODE" and words of why.
func wantOutcomes(t testing.TB, got []outcomeAnswer, want ...string) {
	t.Helper()
	for i, f := range got {
		text := f.JobID + " " + f.Status
		if f.Code != "" {
			text = f.Code + " " + f.Detail
		}
		if !strings.HasPrefix(text, want[i]) {
			t.Errorf("outcome %d is answered %q, want %q", i, text, want[i])
		}
	}
}

const runLostText = "RUN_LOST the run is not its job's current one"

func TestOutcomes(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 5)
		jobs := w.claim(t, `,"max":5`)
		shouted := strings.ToUpper(jobs[0].RunID)
		got := w.finish(t,
			outcomeJSON(jobs[3].RunID, "release", `{}`),
			outcomeJSON(shouted, "complete", `{"result": [1,  2.0], "more":1 }`),
			`{"fail":{"error":"no","error_type":"net","retryable":true},"complete":null,"more":1,"run_id":"`+jobs[1].RunID+`"}`,
			outcomeJSON(jobs[2].RunID, "fail",
				`{"error":"never","error_type":null,"retryable":false}`),
			outcomeJSON(jobs[4].RunID, "complete", `{}`))
		wantOutcomes(t, got, "a-3 READY", "a-0 COMPLETED", "a-1 READY", "a-2 FAILED",
			"a-4 COMPLETED")
		if got[1].RunID != shouted || got[0].RunID != jobs[3].RunID {
			t.Errorf("run ids are not as they were sent: %+v", got)
		}
		if j := w.wantState(t, "a-0", "completed"); string(j.Result) != `[1,  2.0]` {
			t.Errorf("result %s", j.Result)
		}
		if j := w.wantState(t, "a-1", "ready"); j.FailedAttempts != 1 ||
			string(j.Failure) != `"no"` {
			t.Errorf("%d failures, %s", j.FailedAttempts, j.Failure)
		}
		if j := w.wantState(t, "a-2", "failed"); string(j.Failure) != `"never"` {
			t.Errorf("failure %s", j.Failure)
		}
		if j := w.wantState(t, "a-3", "ready"); j.FailedAttempts != 0 {
			t.Errorf("a release counts as %d failures", j.FailedAttempts)
		}
		if j := w.wantState(t, "a-4", "completed"); j.Result != nil {
			t.Errorf("result %s of none", j.Result)
		}
		for outcome, n := range map[string]float64{"completed": 2, "failed": 2, "released": 1,
			"overdue": 0} {
			w.wantMetric(t, `ended_runs_total{contract="made",outcome="`+outcome+`"}`, n)
		}
		for _, j := range jobs {
			w.wantLost(t, j.RunID)
		}
	})
}

// As many runs as one claim may return end in one request.
func TestOutcomesOfAClaim(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 1000)
		var all []string
		for _, j := range w.claim(t, `,"max":1000`) {
			all = append(all, outcomeJSON(j.RunID, "complete",
				`{"result":{"file":"`+strings.Repeat("x", 1000)+`"}}`))
		}
		for i, f := range w.finish(t, all...) {
			if f.Status != "COMPLETED" {
				t.Fatalf("outcome %d is answered %+v", i, f)
			}
		}
		w.wantState(t, "a-999", "completed")
	})
}

// What is lost is that alone, with the words of the single routes, and of a run that is named twice
// the first outcome counts.
func TestOutcomesOfLostRuns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 3)
		w.submit(t, otherContract, "o", 1)
		jobs := w.claim(t, `,"max":3`)
		foreign, err := w.engine.ClaimJob(context.Background(),
			job.ID{JobType: otherContract, Key: "o-0"}, "w")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Cancel(context.Background(),
			job.ID{JobType: testContract, Key: "a-1"}); err != nil {
			t.Fatal(err)
		}
		got := w.finish(t,
			outcomeJSON("no-uuid", "complete", `{}`),
			outcomeJSON(jobs[0].RunID, "fail", `{"error":"first","retryable":false}`),
			outcomeJSON(job.NewRunID(1<<40, [16]byte{}).String(), "complete", `{}`),
			outcomeJSON(jobs[0].RunID, "complete", `{}`),
			outcomeJSON(jobs[1].RunID, "release", `{}`),
			outcomeJSON(foreign.Run.String(), "complete", `{}`),
			outcomeJSON(jobs[2].RunID, "release", `{}`),
			outcomeJSON(jobs[2].RunID, "release", `{}`))
		wantOutcomes(t, got, runLostText, "a-0 FAILED", runLostText, runLostText, runLostText,
			runLostText, "a-2 READY", runLostText)
		if single := w.postRun(t, jobs[0].RunID, "release", `{}`).WantError(t, 409,
			"RUN_LOST"); !strings.Contains(single.Body, got[0].Detail) {
			t.Errorf("the single route says %s, this one %s", single.Body, got[0].Detail)
		}
		if j := w.wantState(t, "a-0", "failed"); string(j.Failure) != `"first"` || j.Result != nil {
			t.Errorf("it left %s, %s", j.Failure, j.Result)
		}
		if after, err := w.engine.Get(context.Background(), foreign.ID); err != nil ||
			after.Run != foreign.Run {
			t.Errorf("a foreign run was ended: %+v, %v", after, err)
		}
		w.wantMetric(t, `errors_total{code="RUN_LOST"}`, 7)
		again := w.claimOne(t, "a") // given back, and under another run now
		wantOutcomes(t, w.finish(t, outcomeJSON(jobs[2].RunID, "complete", `{}`),
			outcomeJSON(again.RunID, "complete", `{}`)), runLostText, "a-2 COMPLETED")
	})
}

// A request that breaks a rule anywhere ends no run, and the answer says which outcome it was.
func TestBadOutcomes(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	w.submit(t, testContract, "a", 2)
	jobs := w.claim(t, `,"max":2`)
	good, bad := outcomeJSON(jobs[0].RunID, "complete", `{}`), jobs[1].RunID
	refused := func(t *testing.T, body string, words ...string) {
		t.Helper()
		w.post(t, "/worker/v1/outcomes", body).WantError(t, 400, "VALIDATION_ERROR", words...)
		w.wantState(t, "a-0", "running")
		w.wantState(t, "a-1", "running")
	}
	for name, tt := range map[string]struct{ body, word string }{
		"no body":   {``, "outcomes must be an array"},
		"none said": {`{}`, "outcomes must be an array"},
		"null":      {`{"outcomes":null}`, "outcomes must be an array"},
		"an object": {`{"outcomes":{}}`, "outcomes must be an array"},
		"empty":     {outcomes(), "outcomes is empty"},
		"too many":  {outcomes(good + strings.Repeat(","+good, 1000)), "at most 1000"},
		"an array":  {`[` + good + `]`, "not an object"},
		"no JSON":   {outcomes(good) + `}`, "not JSON"},
		"no UTF-8": {outcomes(good, outcomeJSON(bad, "complete", "{\"result\":\"\xff\"}")),
			"not JSON"},
		"last wins": {`{"outcomes":[` + good + `],"outcomes":[]}`, "outcomes is empty"},
		"two counts": {outcomes(good, `{"run_id":"`+bad+`","complete":{},"release":{}}`),
			"outcomes[1] must have one of"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, tt.body, tt.word) })
	}
	for entry, word := range map[string]string{
		`null`:                             "outcomes[1] is not an object",
		`"x"`:                              "outcomes[1] is not an object",
		`{}`:                               "outcomes[1].run_id",
		`{"complete":{}}`:                  "outcomes[1].run_id",
		`{"run_id":null,"complete":{}}`:    "outcomes[1].run_id",
		`{"run_id":"","complete":{}}`:      "outcomes[1].run_id",
		`{"run_id":7,"complete":{}}`:       "outcomes[1].run_id",
		`{"run_id":"\u0000","release":{}}`: "outcomes[1].run_id",
		outcomeJSON(strings.Repeat("x", 256), "release", `{}`): "outcomes[1].run_id",
		`{"run_id":"` + bad +
			`"}`: "outcomes[1] must have one of complete, fail and release",
		outcomeJSON(bad, "start", `{}`):      "outcomes[1] must have one of",
		outcomeJSON(bad, "complete", `null`): "outcomes[1] must have one of",
		outcomeJSON(bad, "complete",
			`[]`): "outcomes[1].complete is not an object",
		outcomeJSON(bad, "fail", `"x"`): "outcomes[1].fail is not an object",
		outcomeJSON(bad, "release",
			`true`): "outcomes[1].release is not an object",
		outcomeJSON(bad, "fail", `{"retryable":true}`): "outcomes[1].fail.error is missing",
		outcomeJSON(bad, "fail",
			`{"error":1}`): "outcomes[1].fail.error must be a string",
		outcomeJSON(bad, "fail",
			`{"error":"e"}`): "outcomes[1].fail.retryable is missing",
		outcomeJSON(bad, "fail",
			`{"retryable":null}`): "outcomes[1].fail.retryable must be",
		outcomeJSON(bad, "fail",
			`{"error_type":7}`): "outcomes[1].fail.error_type must be",
	} {
		t.Run(entry, func(t *testing.T) { refused(t, outcomes(good, entry), word) })
	}
	for _, verb := range []string{"complete", "fail", "release"} {
		for _, body := range badBodies[verb] {
			t.Run("as the single route: "+verb+" "+body, func(t *testing.T) {
				refused(t, outcomes(good, outcomeJSON(bad, verb, body)))
			})
		}
	}
	deep := func(levels int) string {
		return outcomeJSON(bad, "complete",
			`{"result":`+strings.Repeat("[", levels)+strings.Repeat("]", levels)+`}`)
	}
	refused(t, outcomes(good, deep(509)), "not JSON")
	w.post(t, "/worker/v1/outcomes", outcomes(good), "Content-Type", "text/plain").WantError(t, 415,
		"UNSUPPORTED_MEDIA_TYPE")
	w.post(t, "/worker/v1/outcomes", strings.Repeat(" ", 4<<20+1)).WantError(t, 413,
		"PAYLOAD_TOO_LARGE")
	w.Do(t, "GET", "/worker/v1/outcomes", ``).WantError(t, 405, "METHOD_NOT_ALLOWED")
	wantOutcomes(t, w.finish(t, good, outcomeJSON(bad, "fail",
		`{"error":"a\u0000b","retryable":false}`)), "a-0 COMPLETED", "a-1 FAILED")
	if got := string(w.wantState(t, "a-1", "failed").Failure); got != "\"a\uFFFDb\"" {
		t.Errorf("failure %s", got)
	}
	wantOutcomes(t, w.finish(t, deep(508)), runLostText) // read, and too late only
}

// A run that took too long ends as the contract says, whatever its outcome; the others end as
// theirs say.
func TestOverdueOutcomes(t *testing.T) {
	t.Parallel()
	p, c := testkit.InMemory(t), newContract()
	c.TimedOut = func(j *job.Job) *engine.Outcome {
		if p.Clock.Now().Sub(j.StartedAt) < time.Second {
			return nil
		}
		return &engine.Outcome{On: job.FailedForGood, Failure: []byte(`"too long"`), Reason: "slow"}
	}
	w := newWorld(t, p, "", 0, c)
	w.submit(t, testContract, "a", 4)
	late := w.claim(t, `,"max":3`)
	w.clock.Advance(2 * time.Second)
	const tooLate = "RUN_LOST the run has exceeded"
	wantOutcomes(t, w.finish(t, outcomeJSON(late[0].RunID, "complete", `{"result":1}`),
		outcomeJSON(w.claimOne(t, "a").RunID, "complete", `{}`),
		outcomeJSON(late[1].RunID, "fail", `{"error":"e","retryable":true}`),
		outcomeJSON(late[2].RunID, "release", `{}`), outcomeJSON(late[0].RunID, "release", `{}`)),
		tooLate, "a-3 COMPLETED", tooLate, tooLate, runLostText)
	for _, id := range []string{"a-0", "a-1", "a-2"} {
		if j := w.wantState(t, id, "failed"); string(j.Failure) != `"too long"` || j.Result != nil {
			t.Errorf("%s left %q, %q", id, j.Failure, j.Result)
		}
	}
	w.wantMetric(t, `ended_runs_total{contract="made",outcome="overdue"}`, 3)
	w.wantMetric(t, `ended_runs_total{contract="made",outcome="completed"}`, 1)
}

// An outcome that the job's state forbids is refused alone, and its run goes on.
func TestForbiddenOutcomes(t *testing.T) {
	t.Parallel()
	c := newContract()
	// which the contract does not know
	c.Complete = func(*job.Job, []byte) engine.Outcome { return engine.Outcome{On: job.Requeued} }
	w := inMemory(t, "", 0, c)
	w.submit(t, testContract, "a", 2)
	jobs := w.claim(t, `,"max":2`)
	w.submit(t, testContract, "b", 1)
	b := w.claim(t, "")[0]
	got := w.finish(t, outcomeJSON(jobs[0].RunID, "complete", `{}`),
		outcomeJSON(jobs[1].RunID, "release", `{}`),
		outcomeJSON(b.RunID, "complete", `{}`), outcomeJSON(b.RunID, "release", `{}`))
	wantOutcomes(t, got, "CONFLICT the job is RUNNING", "a-1 READY", "CONFLICT the job is RUNNING",
		"b-0 READY")
	if single := w.postRun(t, jobs[0].RunID, "complete", `{}`).WantError(t, 409,
		"CONFLICT"); !strings.Contains(single.Body, got[0].Detail) {
		t.Errorf("the single route says %s, this one %s", single.Body, got[0].Detail)
	}
	w.postRun(t, jobs[0].RunID, "heartbeat", ``).WantStatus(t, 200)
	w.wantMetric(t, `ended_runs_total{contract="made",outcome="completed"}`, 0)
}

// verifyingContract is a contract that looks at results before it believes them, and notes at
// whose.
func verifyingContract(err error) (c workerapi.Adapter, looked *[]string) {
	looked = &[]string{}
	c = newContract()
	c.Complete = nil
	c.VerifyResult = func(_ context.Context, j *job.Job, result []byte) (engine.Outcome, error) {
		*looked = append(*looked, j.ID.Key+"="+string(result))
		switch string(result) {
		case `"bad"`:
			return engine.Outcome{}, &job.Error{Kind: job.Invalid, Msg: "that is not good"}
		case `"away"`:
			return engine.Outcome{}, err
		}
		return completed(j, result), nil
	}
	return c, looked
}

// A contract that has to look does so before the transaction, at results of current runs only; what
// it refuses is refused alone.
func TestVerifiedOutcomes(t *testing.T) {
	t.Parallel()
	c, looked := verifyingContract(nil)
	w := inMemory(t, "", 0, c)
	w.submit(t, testContract, "a", 5)
	jobs := w.claim(t, `,"max":4`)
	if _, err := w.engine.Cancel(context.Background(),
		job.ID{JobType: testContract, Key: "a-3"}); err != nil {
		t.Fatal(err)
	}
	got := w.finish(t, outcomeJSON(jobs[1].RunID, "complete", `{"result":"good"}`),
		outcomeJSON(jobs[0].RunID, "complete", `{"result":"bad"}`),
		outcomeJSON(jobs[2].RunID, "release", `{}`),
		outcomeJSON(jobs[3].RunID, "complete", `{"result":"late"}`),
		outcomeJSON("no-uuid", "complete", `{}`),
		outcomeJSON(jobs[1].RunID, "complete", `{"result":"again"}`),
		outcomeJSON(jobs[1].RunID, "complete", `{"result":"bad"}`),
		outcomeJSON(job.NewRunID(1<<40, [16]byte{}).String(), "complete", `{}`))
	wantOutcomes(t, got, "a-1 COMPLETED", "VALIDATION_ERROR that is not good", "a-2 READY",
		runLostText, runLostText, runLostText, runLostText, runLostText)
	if got, want := strings.Join(*looked, " "),
		`a-1="good" a-0="bad" a-1="again" a-1="bad"`; got != want {
		t.Errorf("looked at %s, want %s", got, want)
	}
	if j := w.wantState(t, "a-1", "completed"); string(j.Result) != `"good"` {
		t.Errorf("result %s", j.Result)
	}
	w.postRun(t, jobs[0].RunID, "heartbeat", ``).WantStatus(t, 200)
	wantOutcomes(t, w.finish(t, outcomeJSON(jobs[0].RunID, "complete", `{"result":"good"}`)),
		"a-0 COMPLETED")
	w.wantMetric(t, `ended_runs_total{contract="made",outcome="completed"}`, 2)
}

// Runs of a contract that looks and of one that does not end together, or none of them.
func TestOutcomesOfTwoContracts(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		second, looked := verifyingContract(&job.Error{Kind: job.Unavailable})
		second.Name = otherContract
		w := newWorld(t, p, "", 0, newContract(), second)
		w.submit(t, testContract, "a", 2)
		w.submit(t, otherContract, "o", 1)
		jobs := w.claim(t, `,"max":2`)
		o := testkit.DecodeReply[claimedJob](t,
			w.post(t, "/worker/v1/jobs/o-0/claim", `{"contract":"other"}`).WantStatus(t, 200))
		before, after := outcomeJSON(jobs[0].RunID, "complete", `{}`),
			outcomeJSON(jobs[1].RunID, "fail", `{"error":"e","retryable":false}`)
		w.post(t, "/worker/v1/outcomes",
			outcomes(before, outcomeJSON(o.RunID, "complete", `{"result":"away"}`),
				after)).WantError(t, 503, "STORAGE_UNAVAILABLE")
		w.wantState(t, "a-0", "running")
		w.wantState(t, "a-1", "running")
		wantOutcomes(t, w.finish(t, before, outcomeJSON(o.RunID, "complete", `{"result":"good"}`),
			after), "a-0 COMPLETED", "o-0 COMPLETED", "a-1 FAILED")
		if got, want := strings.Join(*looked, " "), `o-0="away" o-0="good"`; got != want {
			t.Errorf("looked at %s, want %s", got, want)
		}
		w.wantMetric(t, `ended_runs_total{contract="other",outcome="completed"}`, 1)
	})
}

// What keeps a contract from looking is no answer to one run: nothing has ended, and the request is
// repeated.
func TestOutcomesWithoutALoad(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"away": {&job.Error{Kind: job.Unavailable, Msg: "no objects"}, 503,
			"STORAGE_UNAVAILABLE"},
		"broken": {fmt.Errorf("oops"), 500, "INTERNAL_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := verifyingContract(tt.err)
			w := inMemory(t, "", 0, c)
			w.submit(t, testContract, "a", 2)
			jobs := w.claim(t, `,"max":2`)
			w.post(t, "/worker/v1/outcomes", outcomes(outcomeJSON(jobs[0].RunID, "release", `{}`),
				outcomeJSON(jobs[1].RunID, "complete", `{"result":"away"}`))).WantError(t,
				tt.status, tt.code)
			w.wantState(t, "a-0", "running")
			w.wantState(t, "a-1", "running")
		})
	}
}

// A run that is overdue is not looked at, also when others are.
func TestOverdueIsNotLookedAt(t *testing.T) {
	t.Parallel()
	c, looked := verifyingContract(nil)
	c.TimedOut = func(j *job.Job) *engine.Outcome {
		if j.ID.Key == "a-2" {
			return nil
		}
		return &engine.Outcome{On: job.FailedForGood}
	}
	w := inMemory(t, "", 0, c)
	w.submit(t, testContract, "a", 3)
	jobs := w.claim(t, `,"max":3`)
	done := func(i int) string {
		return outcomeJSON(jobs[i].RunID, "complete", `{"result":"good"}`)
	}
	const tooLate = "RUN_LOST the run has exceeded"
	wantOutcomes(t, w.finish(t, done(0)), tooLate)
	wantOutcomes(t, w.finish(t, done(1), done(2), done(1)), tooLate, "a-2 COMPLETED", runLostText)
	w.wantState(t, "a-0", "failed")
	w.wantState(t, "a-1", "failed")
	if got := strings.Join(*looked, " "); got != `a-2="good"` {
		t.Errorf("looked at %s", got)
	}
	w.wantMetric(t, `ended_runs_total{contract="made",outcome="overdue"}`, 2)
}

// Of requests that name the same runs at the same time each run is ended by one.
func TestOutcomesInACrowd(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const runs, crowd, share = 120, 6, 80
		w.submit(t, testContract, "a", runs)
		jobs := w.claim(t, fmt.Sprintf(`,"max":%d`, runs))
		var mu sync.Mutex
		won := map[string]int{}
		var all sync.WaitGroup
		for g := range crowd {
			all.Go(func() {
				var own []string
				// each overlaps with the others, some forwards and some backwards
				for i := range share {
					at := (g*runs/crowd + i) % runs
					if g%2 == 1 {
						at = runs - 1 - at
					}
					verb := []string{"complete", "fail"}[g%2]
					own = append(own, outcomeJSON(jobs[at].RunID, verb,
						`{"error":"e","retryable":false}`))
				}
				got := testkit.DecodeReply[struct{ Outcomes []outcomeAnswer }](t,
					w.post(t, "/worker/v1/outcomes", outcomes(own...))).Outcomes
				mu.Lock()
				defer mu.Unlock()
				for _, f := range got {
					switch {
					case f.Code == "":
						won[f.JobID]++
					case f.Code != "RUN_LOST":
						t.Errorf("got %+v", f)
					}
				}
			})
		}
		all.Wait()
		if len(won) != runs {
			t.Errorf("%d of %d runs were ended", len(won), runs)
		}
		for id, n := range won {
			if n != 1 {
				t.Errorf("the run of %s was ended %d times", id, n)
			}
		}
	})
}
