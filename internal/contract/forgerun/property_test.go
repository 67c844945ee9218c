package forgerun_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// TestProperties drives a server with random operations. At rest what it shows is checked against
// what it shows elsewhere: events, jobs, reports, metrics.
func TestProperties(t *testing.T) {
	t.Parallel()
	t.Run("FR-148 FR-149 FR-151 FR-129 FR-118 FR-179 at rest all agrees", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) { runScenario(t, rt) })
	})
}

func runScenario(t *testing.T, rt *rapid.T) {
	tb := &scope{TB: t}
	defer tb.end()
	clock := testkit.NewClock()
	s := testkit.MemoryStore(tb, clock.Now)
	w := newWorld(tb, clock, s, config())
	p := &player{world: w, T: rt, t: tb, c: w.customer(tb), delivered: map[string][]string{}}
	rt.Repeat(map[string]func(*rapid.T){
		"submit":    p.submits,
		"scheduled": p.schedules,
		"claim":     p.claims,
		"start":     p.starts,
		"end":       p.ends,
		"cancel":    func(rt *rapid.T) { p.post(rt, "cancel") },
		"retry":     func(rt *rapid.T) { p.post(rt, "retry") },
		"wait":      p.waits,
		"deliver":   func(*rapid.T) { p.publish() },
		"":          func(*rapid.T) {},
	})
	p.publish()
	p.audit()
}

// scope is a part of a test that cleans up behind itself.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(fn func()) { s.cleanups = append(s.cleanups, fn) }

func (s *scope) end() {
	for _, fn := range slices.Backward(s.cleanups) {
		fn()
	}
}

// player plays clients and workers.
type player struct {
	*world
	*rapid.T
	t         testing.TB
	c         *customer
	ids       []string
	runs      []*job.Job
	delivered map[string][]string // event ids by job, as the outbox had them
}

func (p *player) submits(rt *rapid.T) {
	kind := rapid.SampledFrom([]string{"", "SUCCESS_FAST", "FAIL_IMMEDIATE",
		"RETRY_ON_FAIL"}).Draw(rt, "kind")
	if key := rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(rt, "key"); key != "" {
		r := p.c.Do(p.t, "POST", "/v1/jobs", submitBody(kind), "Idempotency-Key", key)
		if r.Status == 409 {
			return
		}
		p.addJob(testkit.DecodeReply[jobView](p.t, r.WantStatus(p.t, 202)).JobID)
		return
	}
	p.addJob(p.c.submit(p.t, submitBody(kind)))
}

func (p *player) addJob(id string) {
	for _, known := range p.ids {
		if known == id {
			return
		}
	}
	p.ids = append(p.ids, id)
}

func (p *player) schedules(rt *rapid.T) {
	in := time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds")) * time.Second
	p.addJob(p.c.submit(p.t, submitBody("SUCCESS_FAST", executionAtMember(p.clock.Now().Add(in)))))
}

func (p *player) claims(rt *rapid.T) {
	p.runs = append(p.runs, p.world.claims(p.t, rapid.IntRange(1, 3).Draw(rt, "max"))...)
}

// pick returns a run that was claimed, lost ones included.
func (p *player) pick(rt *rapid.T) *job.Job {
	if len(p.runs) == 0 {
		return nil
	}
	return rapid.SampledFrom(p.runs).Draw(rt, "run")
}

func (p *player) starts(rt *rapid.T) {
	if j := p.pick(rt); j != nil {
		_, err := p.engine.Start(context.Background(), currentRun(j))
		p.ignoreExpected(err)
	}
}

func (p *player) ends(rt *rapid.T) {
	if j := p.pick(rt); j != nil {
		on := rapid.SampledFrom([]job.Cause{job.Succeeded, job.Failed, job.Released}).Draw(rt, "on")
		_, err := p.engine.Finish(context.Background(), currentRun(j), engine.Outcome{On: on})
		p.ignoreExpected(err)
	}
}

// ignoreExpected accepts the errors that a worker may get.
func (p *player) ignoreExpected(err error) {
	if err != nil && !job.IsKind(err, job.RunLost) && !job.IsKind(err, job.Conflict) {
		p.Fatal(err)
	}
}

func (p *player) post(rt *rapid.T, what string) {
	if len(p.ids) == 0 {
		return
	}
	r := p.c.Do(p.t, "POST", "/v1/jobs/"+rapid.SampledFrom(p.ids).Draw(rt, "job")+"/"+what, "")
	if r.Status != 200 && (r.Status != 409 || what == "cancel") {
		p.Fatalf("%s: %d %s", what, r.Status, r.Body)
	}
}

func (p *player) waits(rt *rapid.T) {
	p.clock.Advance(time.Duration(rapid.IntRange(0, 40).Draw(rt, "seconds")) * time.Second)
	p.runMaintenance(p.t)
}

func (p *player) publish() {
	for _, m := range p.deliver(p.t) {
		key, name := m.JobID.Key, forgerun.EventName(m.Prev, m.Next)
		p.delivered[key] = append(p.delivered[key], forgerun.EventID(key, m.At, name))
	}
}

// audit is the check at rest (FR-148, FR-149, FR-151, FR-118, FR-179).
func (p *player) audit() {
	jobs, err := p.engine.List(context.Background(), store.Filter{JobType: forgerun.Name})
	if err != nil || len(jobs) != len(p.ids) {
		p.Fatalf("%d jobs are stored of %d: %v", len(jobs), len(p.ids), err)
	}
	entered, outcomes, depth := map[job.State]float64{}, map[string]float64{}, 0.0
	for _, j := range jobs {
		history, err := p.engine.History(context.Background(), j.ID)
		if err != nil {
			p.Fatal(err)
		}
		p.auditJob(j, history)
		for _, e := range history {
			entered[e.Next]++
			if forgerun.Machine.Phase(e.Next) == job.Done {
				outcomes[j.Kind+string(e.Next)]++
			}
		}
		if j.State == "QUEUED" {
			depth++
		}
	}
	for name, state := range map[string]job.State{"jobs_submitted_total": "CREATED",
		"jobs_queued_total": "QUEUED", "jobs_running_total": "RUNNING",
		"jobs_succeeded_total": "SUCCEEDED", "jobs_failed_total": "FAILED",
		"jobs_canceled_total": "CANCELED"} {
		if got := p.metric(p.t, name, nil); got != entered[state] {
			p.Fatalf("%s is %v, the events say %v", name, got, entered[state])
		}
	}
	if got := p.metric(p.t, "job_queue_depth", nil); got != depth {
		p.Fatalf("job_queue_depth is %v, %v jobs are QUEUED", got, depth)
	}
	p.auditScenarios(outcomes)
}

// auditScenarios compares the counters by scenario with the events.
func (p *player) auditScenarios(outcomes map[string]float64) {
	families, err := p.registry.Gather()
	if err != nil {
		p.Fatal(err)
	}
	states := map[string]string{"SUCCESS": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}
	seen := 0
	for _, f := range families {
		if f.GetName() != "jobs_by_scenario_total" {
			continue
		}
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			seen++
			if got, want := m.GetCounter().GetValue(),
				outcomes[labels["scenario"]+states[labels["outcome"]]]; got != want {
				p.Fatalf("%v: %v, the events say %v", labels, got, want)
			}
		}
	}
	if want := 3 * len(forgerun.Kinds(time.Minute)); seen != want {
		p.Fatalf("%d counters by scenario, want %d", seen, want)
	}
}

// auditJob checks one job against its history, its report and what was delivered of it.
func (p *player) auditJob(j *job.Job, history []job.Event) {
	state, at, retries := job.StateNone, time.Time{}, 0
	var ids []string
	for _, e := range history {
		_, listed := allowed[string(e.Prev+" "+e.Next)]
		if e.Prev != state || !e.At.After(at) || (!listed && e.Prev != job.StateNone) {
			p.Fatalf("job %s has the history %+v", j.ID.Key, history)
		}
		if e.Prev == "FAILED" {
			retries++
		}
		state, at = e.Next, e.At
		ids = append(ids, forgerun.EventID(j.ID.Key, e.At, forgerun.EventName(e.Prev, e.Next)))
	}
	v := p.c.get(p.t, j.ID.Key)
	if v.State != string(state) || v.Attempt != retries || !v.UpdatedAt.Equal(at) || retries > 3 {
		p.Fatalf("job %+v after the history %+v", v, history)
	}
	if got := strings.Join(p.delivered[j.ID.Key], " "); got != strings.Join(ids, " ") {
		p.Fatalf("delivered %s, happened %s", got, strings.Join(ids, " "))
	}
	r := p.c.Do(p.t, "GET", "/v1/jobs/"+j.ID.Key+"/report", "")
	if final := forgerun.Machine.Phase(state) == job.Done; (r.Status == 200) != final ||
		(v.Outcome != nil) != final {
		p.Fatalf("a job that is %s has the report %d and the outcome %v", state, r.Status,
			v.Outcome)
	}
	if r.Status == 200 {
		report := testkit.DecodeReply[jobReport](p.t, r)
		if report.Outcome != *v.Outcome || len(report.Events) != len(history) ||
			report.Events[len(history)-1].EventID != ids[len(ids)-1] ||
			!report.FinishedAt.Equal(at) {
			p.Fatalf("the report %s after the history %+v", fmt.Sprint(report), history)
		}
	}
}
