package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// fakeWorkerAPI speaks the worker API for jobs that are there to be claimed.
type fakeWorkerAPI struct {
	mu       sync.Mutex
	jobs     []string          // in the shape of the API
	received []string          // "complete r1 {...}", in order
	cancel   bool              // what heartbeats answer
	lost     bool              // every run is lost
	faults   map[string]string // by verb: "drop" after it was taken, or a refusal's status and code
}

func (d *fakeWorkerAPI) put(run, queue, payload string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs = append(d.jobs,
		fmt.Sprintf(`{"job_id":"j-%s","contract":"taskflow","queue":%q,"run_id":%q,"attempt":2,"payload":%s,"state":null,"lease_seconds":30}`,
			run, queue, run, payload))
}

func (d *fakeWorkerAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/worker/v1/claims" {
		var query struct{ Max int }
		_ = json.Unmarshal(text, &query)
		n := min(query.Max, len(d.jobs))
		if n == 0 {
			d.received = append(d.received, "empty "+string(text))
		}
		fmt.Fprintf(w, `{"jobs":[%s]}`, strings.Join(d.jobs[:n], ","))
		d.jobs = d.jobs[n:]
		return
	}
	if r.URL.Path == "/worker/v1/outcomes" {
		d.end(w, text)
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/worker/v1/runs/"), "/")
	run, verb := parts[0], parts[1]
	if d.lost || slices.ContainsFunc(d.received, func(s string) bool {
		return strings.Contains(s, " "+run+" ") && !strings.HasPrefix(s, "heartbeat")
	}) {
		answerRefusal(w, http.StatusConflict, "RUN_LOST")
		return
	}
	spoiled := d.faults[verb]
	delete(d.faults, verb)
	if spoiled != "" && spoiled != "drop" {
		answerRefusal(w, http.StatusRequestEntityTooLarge, spoiled)
		return
	}
	d.received = append(d.received, verb+" "+run+" "+string(text))
	if spoiled == "drop" {
		panic(http.ErrAbortHandler)
	}
	if verb == "heartbeat" {
		fmt.Fprintf(w, `{"lease_until":"2026-01-01T00:00:30Z","cancel":%v}`, d.cancel)
		return
	}
	fmt.Fprintf(w, `{"job_id":"j-%s","status":"X"}`, run)
}

// end takes outcomes that come together as it would take each by itself.
func (d *fakeWorkerAPI) end(w http.ResponseWriter, text []byte) {
	var request struct {
		Outcomes []map[string]json.RawMessage
	}
	_ = json.Unmarshal(text, &request)
	var ends []string
	for _, outcome := range request.Outcomes {
		var run string
		_ = json.Unmarshal(outcome["run_id"], &run)
		delete(outcome, "run_id")
		for verb, said := range outcome {
			d.received = append(d.received, verb+" "+run+" "+string(said))
		}
		ends = append(ends, fmt.Sprintf(`{"run_id":%q,"job_id":"j-%[1]s","status":"X"}`, run))
	}
	fmt.Fprintf(w, `{"outcomes":[%s]}`, strings.Join(ends, ","))
}

func answerRefusal(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"status":%d,"code":%q,"detail":"explained"}`, status, code)
}

// outcomes are all that was said of runs but for empty claims.
func (d *fakeWorkerAPI) outcomes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.received), func(s string) bool {
		return strings.HasPrefix(s, "empty")
	})
}

func directWorker(tb testing.TB, d http.Handler) *client.WorkerAPI {
	tb.Helper()
	return mustClient(tb, client.Config{BaseURL: "http://worker.test",
		HTTPClient: &http.Client{Transport: direct{d}}}).WorkerAPI()
}

// inWorkerBench runs one job "r1" of queue q under a handler until the worker has nothing more to
// do.
func inWorkerBench(t *testing.T, d *fakeWorkerAPI, w client.JobWorker,
	handle client.JobHandler) (received []string, log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		d.put("r1", "q", `{"n":12345678901234567890}`)
		over := make(chan struct{})
		w.API, w.Contract, w.Handlers = directWorker(t, d), client.ContractTaskFlow,
			map[string]client.JobHandler{"q": handle}
		w.Logger = slog.New(slog.NewTextHandler(&text, nil))
		w.AfterRun = func(client.ClaimedJob, error) { close(over) }
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		<-over
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		received, log = d.outcomes(), text.String()
	})
	return received, log
}

func TestJobWorker_outcomes(t *testing.T) {
	t.Parallel()
	type input struct{ N any }
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		handle client.JobHandler
		double *fakeWorkerAPI // nil: one without faults
		want   []string
	}{
		"TF-026 success completes with the typed result, numbers unrounded": {
			handle: client.TypedJob(func(_ context.Context, _ *client.JobRun, in input) (input,
				error) {
				return in, nil
			}),
			want: []string{`complete r1 {"result":{"N":12345678901234567890}}`}},
		"TF-026 no result": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) {
				return nil, nil
			},
			want: []string{`complete r1 {}`}},
		"TF-027 an error may be retried": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) {
				return nil, broken
			},
			want: []string{`fail r1 {"error":"broken","retryable":true}`}},
		"G-TF-30 a final error is not": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) {
				return nil, client.Final(broken)
			},
			want: []string{`fail r1 {"error":"broken","retryable":false}`}},
		"G-TF-30 type of a wrapped error": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) {
				return nil, client.Final(fmt.Errorf("step: %w",
					&client.JobError{Err: broken, Type: "disk"}))
			},
			want: []string{`fail r1 {"error":"step: broken","error_type":"disk","retryable":false}`}},
		"G-X-20 a panic is a failure": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) { panic("oh") },
			want:   []string{`fail r1 {"error":"oh","error_type":"panic","retryable":true}`}},
		"G-X-20 a payload that does not decode": {
			handle: client.TypedJob(func(context.Context, *client.JobRun, []string) (any, error) {
				return nil, nil
			}),
			want: []string{`fail r1 {"error":"payload: json: cannot unmarshal object into Go value of type []string","error_type":"payload","retryable":false}`}},
		"G-X-20 a result that is not JSON": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) {
				return json.RawMessage("{"), nil
			},
			want: []string{`fail r1 {"error":"the handler's result is not JSON","error_type":"result","retryable":false}`}},
		"G-X-20 a result that is refused": {
			handle: func(context.Context, *client.JobRun) (json.RawMessage, error) {
				return json.RawMessage("1"), nil
			},
			double: &fakeWorkerAPI{faults: map[string]string{"complete": "PAYLOAD_TOO_LARGE"}},
			want: []string{`fail r1 {"error":"result refused: millrace: worker complete: 413 Request Entity Too Large: ` +
				`PAYLOAD_TOO_LARGE: explained","error_type":"result","retryable":false}`}},
		"G-X-18 release by hand": {
			handle: func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
				return nil, run.Release(ctx)
			},
			want: []string{`release r1 {}`}},
		"TX-007 a run that its handler ends itself has no heartbeat meanwhile and none after": {
			handle: func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
				err := run.FinishWith(ctx, func(context.Context) error {
					time.Sleep(time.Minute) // two leases
					return nil
				})
				time.Sleep(time.Minute)
				again := run.FinishWith(ctx, func(context.Context) error { return broken })
				if !errors.Is(again, client.ErrRunFinished) {
					return nil, again
				}
				return json.RawMessage("1"), err
			}},
		"TX-007 a run that its handler could not end goes on": {
			handle: func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
				err := run.FinishWith(ctx, func(context.Context) error { return broken })
				time.Sleep(11 * time.Second) // a heartbeat
				return nil, err
			},
			want: []string{`heartbeat r1 {}`, `fail r1 {"error":"broken","retryable":true}`}},
		"TX-007 a run that was lost when its handler ends it": {
			handle: func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
				err := run.FinishWith(ctx, func(context.Context) error {
					return fmt.Errorf("complete: %w", client.ErrRunLost)
				})
				if cause := context.Cause(ctx); !errors.Is(cause, client.ErrRunLost) {
					return nil, broken
				}
				return nil, err
			}},
		"G-X-20 a lost run is not spoken of": {
			handle: func(ctx context.Context, _ *client.JobRun) (json.RawMessage, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
			double: &fakeWorkerAPI{lost: true}},
		"G-X-20 the last state goes out before the failure": {
			handle: func(_ context.Context, run *client.JobRun) (json.RawMessage, error) {
				return nil, errors.Join(run.SetState(json.RawMessage(`[1]`)), broken)
			},
			want: []string{`heartbeat r1 {"state":[1]}`,
				`fail r1 {"error":"broken","retryable":true}`}},
		"G-X-20 asked to end": {
			handle: func(ctx context.Context, _ *client.JobRun) (json.RawMessage, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			},
			double: &fakeWorkerAPI{cancel: true},
			want: []string{`heartbeat r1 {}`,
				`fail r1 {"error":"run canceled","error_type":"canceled","retryable":true}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			double := tc.double
			if double == nil {
				double = &fakeWorkerAPI{}
			}
			if said, log := inWorkerBench(t, double, client.JobWorker{},
				tc.handle); !slices.Equal(said, tc.want) {
				t.Errorf("said\n%q, want\n%q\nlog: %s", said, tc.want, log)
			}
		})
	}
}

// G-X-20: a result that the server refuses is no completion, neither in the log nor for AfterRun.
func TestJobWorker_refusedResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeWorkerAPI{faults: map[string]string{"complete": "VALIDATION_ERROR"}}
		d.put("r1", "q", "1")
		ctx, stop := context.WithCancel(t.Context())
		var reason error
		var text bytes.Buffer
		w := client.JobWorker{API: directWorker(t, d), Contract: client.ContractTaskFlow,
			Logger: slog.New(slog.NewTextHandler(&text,
				&slog.HandlerOptions{Level: slog.LevelDebug})),
			AfterRun: func(_ client.ClaimedJob, err error) {
				reason = err
				stop()
			},
			Handlers: map[string]client.JobHandler{"": func(context.Context,
				*client.JobRun) (json.RawMessage, error) {
				return json.RawMessage("1"), nil
			}}}
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		if !errors.Is(reason, client.ErrInvalid) {
			t.Errorf("AfterRun got %v, want the refusal", reason)
		}
		log := text.String()
		if strings.Contains(log, "job completed") || !strings.Contains(log,
			`level=WARN msg="the server refused the result; the run has failed"`) ||
			!strings.Contains(log, "explained") {
			t.Errorf("logged:\n%s", log)
		}
	})
}

func TestJobWorker_lostAnswer(t *testing.T) {
	t.Parallel()
	d := &fakeWorkerAPI{faults: map[string]string{"complete": "drop"}}
	said, log := inWorkerBench(t, d, client.JobWorker{},
		func(context.Context, *client.JobRun) (json.RawMessage, error) {
			return nil, nil
		})
	if want := []string{"complete r1 {}"}; !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	if !strings.Contains(log, "probably accepted") || strings.Contains(log, "ERROR") {
		t.Errorf("logged:\n%s", log)
	}
}

// A run goes on under its heartbeats, a third of the lease apart. A server that is unavailable when
// a run ends, as at a restart, gets the outcome when it is back, however few tries a call has.
func TestJobWorker_outcomeSurvivesOutage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"done":   {nil, `complete r1 {"result":1}`},
		"failed": {errors.New("no"), `fail r1 {"error":"no","retryable":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &fakeWorkerAPI{}
				d.put("r1", "q", `1`)
				var back time.Time // when the server is, once a run has ended
				api := directWorker(t, http.HandlerFunc(func(w http.ResponseWriter,
					r *http.Request) {
					if time.Now().Before(back) {
						panic(http.ErrAbortHandler)
					}
					d.ServeHTTP(w, r)
				}))
				ctx, stop := context.WithCancel(t.Context())
				w := client.JobWorker{API: api, Contract: client.ContractTaskFlow,
					AfterRun: func(client.ClaimedJob, error) {
						stop()
					},
					Handlers: map[string]client.JobHandler{"q": func(context.Context,
						*client.JobRun) (json.RawMessage, error) {
						back = time.Now().Add(15 * time.Second)
						return json.RawMessage("1"), tc.err
					}}}
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
				if said := d.outcomes(); !slices.Equal(said, []string{tc.want}) {
					t.Errorf("said %q", said)
				}
			})
		})
	}
}

func TestJobWorker_heartbeats(t *testing.T) {
	t.Parallel()
	said, _ := inWorkerBench(t, &fakeWorkerAPI{}, client.JobWorker{},
		func(context.Context, *client.JobRun) (json.RawMessage, error) {
			time.Sleep(65 * time.Second)
			return nil, nil
		})
	heartbeats := 0
	for _, s := range said {
		if strings.HasPrefix(s, "heartbeat") {
			heartbeats++
		}
	}
	if heartbeats != 6 || said[len(said)-1] != "complete r1 {}" {
		t.Errorf("said %q, want 6 heartbeats and a completion", said)
	}
}

func TestJobWorker_drain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after error // of the handler, once its context has ended
		want  string
	}{
		"G-TF-30 what is cut short is given back":         {errors.New("stopped"), `release r1 {}`},
		"G-TF-30 what succeeds all the same is completed": {nil, `complete r1 {}`},
		"G-TF-30 a final failure is sent": {client.Final(errors.New("no")),
			`fail r1 {"error":"no","retryable":false}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &fakeWorkerAPI{}
				d.put("r1", "q", "1")
				ctx, stop := context.WithCancel(t.Context())
				w := client.JobWorker{API: directWorker(t, d), Contract: client.ContractTaskFlow,
					DrainTimeout: 5 * time.Second,
					Handlers: map[string]client.JobHandler{"": func(ctx context.Context,
						_ *client.JobRun) (json.RawMessage, error) {
						stop()
						<-ctx.Done()
						if !errors.Is(context.Cause(ctx), client.ErrDrainTimeout) {
							t.Errorf("cause %v", context.Cause(ctx))
						}
						return nil, tc.after
					}}}
				if err := w.Run(ctx); !errors.Is(err, client.ErrDrainTimeout) {
					t.Errorf("Run = %v", err)
				}
				if said := d.outcomes(); !slices.Equal(said, []string{tc.want}) {
					t.Errorf("said %q, want %q", said, tc.want)
				}
			})
		})
	}
}

// What a poll brings that was under way when the worker stopped is given back, and a poll that
// brings nothing then is cut off.
func TestJobWorker_stopsDuringPoll(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		after time.Duration // the stop, until the server answers
		want  []string
		ends  time.Duration
	}{
		"G-TF-30 a job that comes late is given back": {100 * time.Millisecond,
			[]string{"release r1 {}"}, 100 * time.Millisecond},
		"nothing comes": {time.Hour, nil, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &fakeWorkerAPI{}
				d.put("r1", "q", "1")
				ctx, stop := context.WithCancel(t.Context())
				api := directWorker(t, http.HandlerFunc(func(w http.ResponseWriter,
					r *http.Request) {
					if r.URL.Path == "/worker/v1/claims" {
						stop()
						select {
						case <-time.After(tc.after):
						case <-r.Context().Done():
							return
						}
					}
					d.ServeHTTP(w, r)
				}))
				calls := 0
				w := client.JobWorker{API: api, Contract: client.ContractTaskFlow,
					AfterRun: func(client.ClaimedJob, error) {
						calls++
					},
					Handlers: map[string]client.JobHandler{"": func(context.Context,
						*client.JobRun) (json.RawMessage, error) {
						t.Error("a job was started after the stop")
						return nil, nil
					}}}
				started := time.Now()
				if err := w.Run(ctx); err != nil {
					t.Errorf("Run = %v", err)
				}
				if took := time.Since(started); took != tc.ends {
					t.Errorf("Run took %s, want %s", took, tc.ends)
				}
				if said := d.outcomes(); !slices.Equal(said, tc.want) || calls != len(tc.want) {
					t.Errorf("said %q, want %q; AfterRun was called %d times", said, tc.want, calls)
				}
			})
		})
	}
}

// Never more handlers than slots; middleware is around each; queues have their own handlers.
func TestJobWorker_concurrencyAndQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const jobs, slots = 20, 3
		d := &fakeWorkerAPI{}
		for i := range jobs {
			d.put(fmt.Sprint("r", i), []string{"a", "b"}[i%2], "1")
		}
		var now, peak, wrapped, done atomic.Int32
		ctx, stop := context.WithCancel(t.Context())
		handle := func(queue string) client.JobHandler {
			return func(_ context.Context, run *client.JobRun) (json.RawMessage, error) {
				if run.Job.Queue != queue || run.Job.Attempt != 2 ||
					run.Job.Lease != 30*time.Second {
					t.Errorf("handler of %s got %+v", queue, run.Job)
				}
				n := now.Add(1)
				defer now.Add(-1)
				for old := peak.Load(); n > old && !peak.CompareAndSwap(old, n); old = peak.Load() {
					runtime.Gosched()
				}
				time.Sleep(time.Second)
				return nil, nil
			}
		}
		w := client.JobWorker{API: directWorker(t, d), Contract: client.ContractTaskFlow,
			Concurrency: slots,
			Handlers:    map[string]client.JobHandler{"a": handle("a"), "b": handle("b")},
			Middleware: []client.JobMiddleware{func(next client.JobHandler) client.JobHandler {
				return func(ctx context.Context, run *client.JobRun) (json.RawMessage, error) {
					wrapped.Add(1)
					return next(ctx, run)
				}
			}},
			AfterRun: func(client.ClaimedJob, error) {
				if done.Add(1) == jobs {
					stop()
				}
			}}
		if err := w.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
		if peak.Load() != slots || wrapped.Load() != jobs || len(d.outcomes()) != jobs {
			t.Errorf("at most %d at once, %d wrapped, %d outcomes", peak.Load(), wrapped.Load(),
				len(d.outcomes()))
		}
	})
}

func TestJobWorker_validates(t *testing.T) {
	t.Parallel()
	err := (&client.JobWorker{Concurrency: -1,
		Handlers: map[string]client.JobHandler{"q": nil}}).Run(t.Context())
	for _, part := range []string{"API", "Contract", `queue "q"`, "Concurrency"} {
		if !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("Run = %v, want a complaint about %s", err, part)
		}
	}
}
