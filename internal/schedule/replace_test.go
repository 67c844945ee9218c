package schedule_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/account"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

// queueSize is how many jobs may wait in the ForgeRun of replacing.
const queueSize = 3

// replacing makes the node of a world one with ForgeRun, whose jobs can be canceled, and a schedule
// s that replaces. It returns the job of its first time, which a worker has.
func (w *world) replacing() (earlier *job.Job) {
	w.Helper()
	e := testkit.NewEngine(w, w.open(w), w.clock)
	log := slog.New(slog.DiscardHandler)
	pepper := []byte("a pepper that is long enough for everybody")
	must := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	f, err := forgerun.New(forgerun.Config{Engine: e, Log: log, Node: "node", Pepper: pepper,
		Registry: prometheus.NewRegistry(), Now: w.clock.Now, Elapsed: w.clock.Monotonic,
		Random: testkit.RandomBytes, Client: http.DefaultClient, NoLocalWorkers: true,
		Settings: forgerun.Settings{Types: []string{"EXECUTE"}, JobsPerWorker: 1,
			Lease: time.Hour, Heartbeat: time.Second, MaxRunTime: 2 * time.Minute,
			MaxRetries: 1, RatePerMinute: 1000, AnonymousPerMinute: 1000, MaxActiveJobs: 1000,
			QueueSize: queueSize, BodyLimit: 1 << 20, PayloadLimit: 256 << 10, DurationScale: 1,
			Webhook: forgerun.Webhook{Timeout: time.Second, MaxAttempts: 1, BackoffBase: time.Second,
				BackoffMax: time.Hour, BackoffFactor: 2}}})
	must(err)
	offer := f.Offer()
	made, err := schedule.New(schedule.Config{Engine: e, Log: log,
		Contracts: []*contract.Contract{offer}})
	must(err)
	testkit.Register(w, e, append(offer.JobTypes, made.JobType())...)
	w.node = &node{made, e}
	accounts, err := account.New(account.Config{Engine: e, Pepper: pepper, KeyLifetime: time.Hour,
		RevokedRetention: time.Hour, RatePerMinute: 1, AnonymousPerMinute: 1, Log: log,
		Elapsed: w.clock.Monotonic})
	must(err)
	client, err := accounts.CreateClient(context.Background(), "")
	must(err)
	w.create("s", func(d *schedule.Definition) {
		d.Overlap, d.Contract, d.Owner = schedule.Replace, forgerun.Name, client.ID
		d.Request = json.RawMessage(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)
	})
	w.passes(time.Minute, time.Minute)
	return w.claimForgeRun()
}

// claimForgeRun claims a job of ForgeRun as a worker.
func (w *world) claimForgeRun() *job.Job {
	w.Helper()
	jobs, err := w.engine.Claim(context.Background(), engine.ClaimRequest{
		JobType: forgerun.Name, Max: 1, Worker: "w"})
	if err != nil || len(jobs) != 1 {
		w.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	return jobs[0]
}

// wantForgeRun fails unless ForgeRun has so many jobs that are not done, and reports whether one
// of them is the given one.
func (w *world) wantForgeRun(what string, want int, one *job.Job) (has bool) {
	w.Helper()
	jobs, err := w.engine.List(context.Background(), store.Filter{JobType: forgerun.Name})
	count := 0
	for _, j := range jobs {
		if j.Phase != job.Done {
			count++
			has = has || j.Seq == one.Seq
		}
	}
	if err != nil || count != want {
		w.Errorf("SC-004 %s: %d of %d jobs are not done, want %d: %v", what, count, len(jobs),
			want, err)
	}
	return has
}

// SC-004: a time that replaces cancels the earlier job once its own is submitted, although the node
// is killed or the schedule paused in between.
func TestReplaceCancelsAfterItsSubmission(t *testing.T) {
	for what, between := range map[string]func(*world) error{
		"killed": func(*world) error { return nil },
		"paused": func(w *world) error {
			_, err := w.Pause(context.Background(), "s", true, nil)
			return err
		},
	} {
		t.Run("SC-004 "+what, func(t *testing.T) {
			onEveryStore(t, func(w *world) {
				earlier := w.replacing()
				w.clock.Advance(time.Minute)
				w.Handle(context.Background(), &worker.ClaimedJob{Job: w.claim(w, 1)[0]})
				if !w.wantForgeRun("the run was killed", 2, earlier) {
					w.Error("SC-004 the earlier job was canceled before it was replaced")
				}
				if err := between(w); err != nil {
					w.Fatal(err)
				}
				w.run(w)
				if w.wantForgeRun("replaced", 1, earlier) {
					w.Error("SC-004 the earlier job is left")
				}
				w.wantTicks("SC-006", "s", "60 submitted", "120 submitted")
			})
		})
	}
}

// SC-001, SC-004: a run that was overtaken by a pause cancels nothing, as it submits nothing.
func TestReplaceOfAPausedSchedule(t *testing.T) {
	onEveryStore(t, func(w *world) {
		earlier := w.replacing()
		w.clock.Advance(time.Minute)
		j := w.claim(w, 1)[0]
		if _, err := w.Pause(context.Background(), "s", true, nil); err != nil {
			w.Fatal(err)
		}
		w.finish(w, j, w.Handle(context.Background(), &worker.ClaimedJob{Job: j}))
		w.run(w)
		if !w.wantForgeRun("paused", 1, earlier) {
			w.Error("SC-004 the earlier job was canceled and not replaced")
		}
	})
}

// SC-004, SC-006: a time that cannot be submitted cancels nothing until it can.
func TestReplaceIsRefused(t *testing.T) {
	onEveryStore(t, func(w *world) {
		earlier := w.replacing()
		for range queueSize {
			if _, err := w.SubmitNow(context.Background(), "s"); err != nil {
				w.Fatal(err)
			}
		}
		w.passes(time.Minute, time.Minute)
		w.wantFailing()
		if !w.wantForgeRun("the queue is full", 1+queueSize, earlier) {
			w.Error("SC-004 the earlier job was canceled and not replaced")
		}
		w.claimForgeRun()
		w.passes(10*time.Second, time.Second)
		if w.wantForgeRun("there is a place", 1+queueSize, earlier) {
			w.Error("SC-004 the earlier job is left")
		}
		w.wantTicks("SC-006", "s", "60 submitted", "120 submitted")
	})
}

// TestEqualSeesAllFields: a file in which one field has changed is applied, whichever field that
// is.
func TestEqualSeesAllFields(t *testing.T) {
	t.Parallel()
	values := map[reflect.Type]any{
		reflect.TypeFor[string]():           "x",
		reflect.TypeFor[time.Duration]():    time.Second,
		reflect.TypeFor[time.Time]():        time.Unix(1, 0),
		reflect.TypeFor[json.RawMessage]():  json.RawMessage("1"),
		reflect.TypeFor[schedule.Overlap](): schedule.Skip,
		reflect.TypeFor[schedule.CatchUp](): schedule.CatchUpAll,
	}
	fields := reflect.TypeFor[schedule.Definition]()
	for i := range fields.NumField() {
		var before, after schedule.Definition
		field := reflect.ValueOf(&after).Elem().Field(i)
		value, ok := values[field.Type()]
		if !ok {
			t.Errorf("%s is of a type that has no value here", fields.Field(i).Name)
			continue
		}
		field.Set(reflect.ValueOf(value))
		if before.Equal(&after) || !after.Equal(&after) {
			t.Errorf("Equal does not see that %s has changed", fields.Field(i).Name)
		}
	}
}
