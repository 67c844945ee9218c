package workerapi_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/workerapi"
)

// runVerbs are all writes of a run, each with a body that is good.
var runVerbs = map[string]string{"start": ``, "heartbeat": `{"state":1}`,
	"complete": `{"result":1}`, "fail": `{"error":"e","retryable":true}`, "release": `{}`}

func TestRuns(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 1)
		j := w.claimOne(t, "a")
		t.Run("start changes nothing where the contract knows no start", func(t *testing.T) {
			r := w.postRun(t, j.RunID, "start", `{}`).WantStatus(t, 200)
			if r.Body != `{"job_id":"a-0","status":"RUNNING"}` {
				t.Errorf("got %s", r.Body)
			}
		})
		t.Run("a heartbeat keeps the state as it was sent and moves the lease", func(t *testing.T) {
			w.clock.Advance(20 * time.Second)
			b := testkit.DecodeReply[struct {
				LeaseUntil time.Time `json:"lease_until"`
				Cancel     bool
			}](t, w.postRun(t, j.RunID, "heartbeat", `{"state": {"at":  1e3} }`).WantStatus(t, 200))
			if want := w.wantState(t, "a-0", "running").LeaseUntil; !b.LeaseUntil.Equal(want) ||
				b.Cancel || !want.After(w.clock.Now().Add(29*time.Second)) {
				t.Errorf("got %+v, want %s", b, want)
			}
			w.postRun(t, j.RunID, "heartbeat", ``).WantStatus(t, 200)
			if got := string(w.wantState(t, "a-0", "running").Progress); got != `{"at":  1e3}` {
				t.Errorf("state %s", got)
			}
		})
		t.Run("G-X-18 release counts nothing, and the state goes to the next worker",
			func(t *testing.T) {
				r := w.postRun(t, j.RunID, "release", ``).WantStatus(t, 200)
				if r.Body != `{"job_id":"a-0","status":"READY"}` {
					t.Errorf("got %s", r.Body)
				}
				again := w.claimOne(t, "a")
				if again.RunID == j.RunID || again.Attempt != 1 ||
					string(again.State) != `{"at":  1e3}` {
					t.Errorf("got %+v", again)
				}
				j = again
			})
		t.Run("a failure that is retryable is tried again after its delay", func(t *testing.T) {
			r := w.postRun(t, j.RunID, "fail",
				`{"error":"no","error_type":"net","retryable":true}`).WantStatus(t, 200)
			if r.Body != `{"job_id":"a-0","status":"READY"}` {
				t.Errorf("got %s", r.Body)
			}
			if jobs := w.claim(t, ``); len(jobs) != 0 {
				t.Errorf("claimed before its time: %+v", jobs)
			}
			w.clock.Advance(time.Second)
			if j = w.claimOne(t, "a"); j.Attempt != 2 {
				t.Errorf("attempt %d, want 2", j.Attempt)
			}
			if got := string(w.wantState(t, "a-0", "running").Failure); got != `"no"` {
				t.Errorf("failure %s", got)
			}
		})
		t.Run("a result is kept as it was sent", func(t *testing.T) {
			r := w.postRun(t, j.RunID, "complete", `{"result": [1,  2.0] }`).WantStatus(t, 200)
			if r.Body != `{"job_id":"a-0","status":"COMPLETED"}` {
				t.Errorf("got %s", r.Body)
			}
			if got := string(w.wantState(t, "a-0", "completed").Result); got != `[1,  2.0]` {
				t.Errorf("result %s", got)
			}
		})
		t.Run("G-X-20 a run that has ended is lost", func(t *testing.T) { w.wantLost(t, j.RunID) })
		t.Run("a failure for good is final", func(t *testing.T) {
			w.submit(t, testContract, "b", 1)
			r := w.postRun(t, w.claimOne(t, "b").RunID, "fail",
				`{"error":"no","error_type":null,"retryable":false}`).WantStatus(t, 200)
			if r.Body != `{"job_id":"b-0","status":"FAILED"}` {
				t.Errorf("got %s", r.Body)
			}
		})
	})
}

// wantLost fails the test unless every write of a run is refused and changes nothing.
func (w *world) wantLost(t testing.TB, runID string) {
	t.Helper()
	for verb, body := range runVerbs {
		w.postRun(t, runID, verb, body).WantError(t, 409, "RUN_LOST")
	}
}

func TestFencing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 1)
		first := w.claimOne(t, "a")
		w.expire(t, 31*time.Second)
		second := w.claimOne(t, "a")
		if second.RunID == first.RunID || second.Attempt != 2 {
			t.Fatalf("got %+v after %+v", second, first)
		}
		before := *w.wantState(t, "a-0", "running")
		w.wantLost(t, first.RunID)
		if after := w.wantState(t, "a-0", "running"); after.Run != before.Run ||
			!after.UpdatedAt.Equal(before.UpdatedAt) || after.Progress != nil {
			t.Errorf("an older run changed %+v into %+v", before, after)
		}
		t.Run("G-X-20 unknown runs", func(t *testing.T) {
			made := job.NewRunID(before.Seq, [16]byte{1}).String()
			for _, id := range []string{made, job.NewRunID(1<<40, [16]byte{}).String(),
				"00000000-0000-0000-0000-000000000000", "no-uuid", "%20"} {
				w.wantLost(t, id)
			}
		})
		t.Run("C-15 a canceled job's run is lost", func(t *testing.T) {
			if _, err := w.engine.Cancel(context.Background(),
				job.ID{JobType: testContract, Key: "a-0"}); err != nil {
				t.Fatal(err)
			}
			w.wantLost(t, second.RunID)
		})
	})
}

// TestNamesOfNoRun: what no text is names no run, and its answer is one of the document.
func TestNamesOfNoRun(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	for _, name := range []string{"a%00b", "%ff", "%ED%A0%80"} {
		for _, verb := range []string{"heartbeat", "start", "complete", "fail", "release"} {
			w.post(t, "/worker/v1/runs/"+name+"/"+verb, `{}`).WantError(t, 404, "NOT_FOUND")
		}
	}
}

// The run of a contract that is not served is as good as unknown: Relay's runs end by Relay's own
// ways.
func TestForeignRun(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	w.submit(t, otherContract, "o", 1)
	j, err := w.engine.ClaimJob(context.Background(), job.ID{JobType: otherContract, Key: "o-0"},
		"w")
	if err != nil {
		t.Fatal(err)
	}
	w.wantLost(t, j.Run.String())
	if after, err := w.engine.Get(context.Background(), j.ID); err != nil || after.Run != j.Run {
		t.Errorf("got %+v, %v", after, err)
	}
}

// badBodies are refused, by verb.
var badBodies = map[string][]string{
	"fail": {``, `{}`, `{"error":"e"}`, `{"retryable":true}`, `{"error":1,"retryable":true}`,
		`{"error":null,"retryable":true}`,
		`{"error":"e","retryable":1}`, `{"error":"e","retryable":null}`,
		`{"error":"e","retryable":true,"error_type":""}`,
		`{"error":"e","retryable":true,"error_type":"\u0000"}`,
		`{"error":"e","retryable":true,"error_type":7}`, `[]`, `{`},
	"complete": {`1`, `{"result":}`}, "heartbeat": {`"x"`, `{"state"`}, "start": {`[]`, `x`},
	"release": {`null`},
}

func TestBodies(t *testing.T) {
	t.Parallel()
	w := inMemory(t, "", 0, newContract())
	w.submit(t, testContract, "a", 1)
	j := w.claimOne(t, "a")
	for verb, bodies := range badBodies {
		for _, body := range bodies {
			w.postRun(t, j.RunID, verb, body).WantError(t, 400, "VALIDATION_ERROR")
		}
		w.post(t, "/worker/v1/runs/"+j.RunID+"/"+verb, `{"error":"e","retryable":true}`,
			"Content-Type", "text/plain").WantError(t, 415, "UNSUPPORTED_MEDIA_TYPE")
	}
	w.wantState(t, "a-0", "running")
	w.postRun(t, strings.ToUpper(j.RunID), "complete", `{"result":null,"more":1}`).WantStatus(t,
		200)
	if got := string(w.wantState(t, "a-0", "completed").Result); got != "null" {
		t.Errorf("result %q, want null", got)
	}
}

// A worker gets rid of a run whatever it has to say of it: what no store keeps, or what is long, is
// kept as far as it can be.
func TestFailureMessages(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for queue, m := range map[string]struct {
			sent,
			want string
		}{"nul": {`a\u0000b`, "a\uFFFDb"}, "half": {`\ud800`, "\uFFFD"},
			"empty": {}, "long": {strings.Repeat("ü", 10_000), strings.Repeat("ü", 8192)}} {
			w.submit(t, testContract, queue, 1)
			w.postRun(t, w.claimOne(t, queue).RunID, "fail",
				`{"error":"`+m.sent+`","retryable":false}`).WantStatus(t, 200)
			if got := string(w.wantState(t, queue+"-0", "failed").Failure); got != `"`+m.want+`"` {
				t.Errorf("%s: it kept %.40s", queue, got)
			}
		}
	})
}

// Of all who end a run at the same time one does.
func TestManyEnd(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, testContract, "a", 20)
		for _, j := range w.claim(t, `,"max":20`) {
			var won atomic.Int32
			var all sync.WaitGroup
			for _, verb := range []string{"complete", "fail", "release", "complete", "fail",
				"release"} {
				all.Go(func() {
					switch r := w.postRun(t, j.RunID, verb, runVerbs[verb]); r.Status {
					case 200:
						won.Add(1)
					default:
						r.WantError(t, 409, "RUN_LOST")
					}
				})
			}
			all.Wait()
			if won.Load() != 1 {
				t.Errorf("job %s: %d ended its run", j.JobID, won.Load())
			}
		}
	})
}

// A contract may look at more than the job before it believes a result; what it refuses changes
// nothing.
func TestSettle(t *testing.T) {
	t.Parallel()
	c := newContract()
	c.Complete = nil
	c.VerifyResult = func(_ context.Context, j *job.Job, result []byte) (engine.Outcome, error) {
		if string(result) != `"good"` {
			return engine.Outcome{}, &job.Error{Kind: job.Invalid, Msg: "that is not good"}
		}
		return completed(j, result), nil
	}
	w := inMemory(t, "", 0, c)
	w.submit(t, testContract, "a", 1)
	j := w.claimOne(t, "a")
	w.postRun(t, j.RunID, "complete", `{"result":"bad"}`).WantError(t, 400, "VALIDATION_ERROR",
		"not good")
	w.postRun(t, j.RunID, "heartbeat", ``).WantStatus(t, 200)
	w.postRun(t, j.RunID, "complete", `{"result":"good"}`).WantStatus(t, 200)
	w.wantState(t, "a-0", "completed")
	c.VerifyResult = nil
	if _, err := workerapi.New(workerapi.Config{Engine: w.engine, Log: discard,
		Contracts: []workerapi.Adapter{c}}); err == nil {
		t.Error("a contract that cannot complete was taken")
	}
}
