package series_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/series"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// machine has an end of each kind.
var machine = job.MustMachine(
	map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased, "dead": job.Done},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "running", On: job.Expired, To: "queued"},
		{From: "running", On: job.Failed, To: "dead"},
		{From: "running", On: job.Succeeded, To: job.StateNone},
	})

// node is a node with its recorder.
type node struct {
	*testing.T
	clock    *testkit.Clock
	engine   *engine.Engine
	recorder *series.Recorder
	next     int
}

func newNode(t *testing.T, p testkit.Database, jobTypes ...string) *node {
	t.Helper()
	e := testkit.NewEngine(t, p.Store, p.Clock)
	for _, name := range jobTypes {
		testkit.Register(t, e, engine.JobType{Name: name, Machine: machine})
	}
	return &node{T: t, clock: p.Clock, engine: e, recorder: newRecorder(t, e)}
}

// newRecorder makes the recorder of a node after its start.
func newRecorder(t *testing.T, e *engine.Engine) *series.Recorder {
	t.Helper()
	r, err := series.New(series.Config{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// submit submits n jobs to a queue.
func (n *node) submit(jobType, queue string, jobs int) {
	n.Helper()
	var all []engine.Submission
	for range jobs {
		n.next++
		all = append(all, engine.Submission{Job: job.Job{Queue: queue, Lease: time.Hour,
			ID: job.ID{JobType: jobType, Key: fmt.Sprint(n.next)}}})
	}
	if _, err := n.engine.Submit(n.Context(), engine.Unique, all); err != nil {
		n.Fatal(err)
	}
}

// run claims jobs of a queue and ends them after a time.
func (n *node) run(jobType, queue string, jobs int, took time.Duration, on job.Cause) {
	n.Helper()
	claimed, err := n.engine.Claim(n.Context(), engine.ClaimRequest{JobType: jobType,
		Queues: []string{queue}, Max: jobs, Worker: "w"})
	if err != nil || len(claimed) != jobs {
		n.Fatalf("claimed %d, %v", len(claimed), err)
	}
	n.clock.Advance(took)
	var ends []engine.FinishRequest
	for _, j := range claimed {
		ends = append(ends, engine.FinishRequest{Run: engine.Run{Run: j.Run},
			Outcome: engine.Outcome{On: on}})
	}
	for _, r := range n.engine.FinishAll(n.Context(), ends) {
		if r.Err != nil {
			n.Fatal(r.Err)
		}
	}
}

func (n *node) write() {
	n.Helper()
	if _, err := n.recorder.Write(n.Context()); err != nil {
		n.Fatal(err)
	}
}

// read reads a series and returns it with the sum of its points.
func (n *node) read(q series.Query) (s series.Series, sum series.Bucket) {
	n.Helper()
	s, err := n.recorder.Read(n.Context(), q)
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range s.Points {
		sum.Activity.Add(&p.Activity)
		sum.Depth, sum.Oldest = max(sum.Depth, p.Depth), max(sum.Oldest, p.Oldest)
		sum.Requests, sum.Errors = sum.Requests+p.Requests, sum.Errors+p.Errors
	}
	return s, sum
}

// windows reads the last five minutes of queues.
func (n *node) windows(queues map[string][]string) (windows *series.Windows, err error) {
	err = n.engine.ViewRecords(n.Context(), func(r engine.RecordReader) error {
		windows, err = n.recorder.Windows(r, queues)
		return err
	})
	return windows, err
}

// records returns how many steps are stored.
func (n *node) records() (count int) {
	n.Helper()
	err := n.engine.ViewRecords(n.Context(), func(r engine.RecordReader) error {
		for _, kind := range []string{"series.10s", "series.1m", "series.5m", "series.1h"} {
			for _, owner := range append(n.engine.JobTypes(), "") {
				records, err := r.Records(kind, owner, "", 500)
				if err != nil {
					return err
				}
				count += len(records)
			}
		}
		return nil
	})
	if err != nil {
		n.Fatal(err)
	}
	return count
}

// AD-060: what is counted is found in each length of steps, by queue, job type and together.
func TestSeries(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p, "a", "b")
		n.recorder.CountRequests("a", func() (uint64, uint64) { return 7, 2 })
		n.submit("a", "mail", 5)
		n.submit("a", "other", 1)
		n.submit("b", "mail", 2)
		n.clock.Advance(4 * time.Second)
		n.write()
		n.run("a", "mail", 2, 20*time.Second, job.Succeeded)
		n.run("a", "mail", 1, time.Second, job.Failed)
		check := func(when string) {
			t.Helper()
			for _, step := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, time.Hour} {
				s, mail := n.read(series.Query{JobType: "a", Queue: "mail", Step: step})
				wait, _ := mail.Wait.Quantile(0.5)
				run, _ := mail.Run.Quantile(0.9)
				if mail.Submitted != 5 || mail.Started != 3 || mail.Succeeded != 2 ||
					mail.Failed != 1 || mail.Depth != 5 || wait < 2500*time.Millisecond ||
					wait > 5*time.Second || run < 10*time.Second || run > 30*time.Second {
					t.Errorf("%s, %s: got %+v", when, step, mail)
				}
				if len(s.Points) < int(time.Hour/step) || !s.Points[len(s.Points)-1].Partial ||
					s.Points[0].At != s.From || (step < time.Hour && s.Points[0].Partial) {
					t.Errorf("%s, %s: got the points %+v", when, step, s.Points)
				}
				_, a := n.read(series.Query{JobType: "a", Step: step})
				_, all := n.read(series.Query{Step: step})
				if a.Submitted != 6 || a.Depth != 6 || a.Requests != 7 || a.Errors != 2 ||
					all.Submitted != 8 || all.Depth != 8 || all.Oldest != 4*time.Second {
					t.Errorf("%s, %s: got %+v of a, %+v of all", when, step, a, all)
				}
			}
		}
		check("before the second write") // what is not written is there
		n.submit("b", "last", 1)         // keeps the depth of the second sample below the first
		n.run("b", "last", 1, 0, job.Succeeded)
		n.write()
		windows, err := n.windows(map[string][]string{"a": {"mail"}})
		if got := windows.Of("a", "mail"); err != nil || got.Started != 3 || got.Submitted != 5 {
			t.Errorf("the last five minutes have %+v, %v", got, err)
		}
		n.clock.Advance(6 * time.Minute)
		windows, err = n.windows(map[string][]string{"a": {"mail"}})
		if got := windows.Of("a", "mail"); err != nil || got == nil || got.Started != 0 ||
			windows.Of("b", "mail") != nil {
			t.Errorf("six minutes later there are %+v, %v", got, err)
		}
	})
}

// AD-060: a node adds to the steps that another one, or it itself before a restart, has written; a
// node that is idle writes nothing.
func TestSeveralNodes(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		a, b := newNode(t, p, "a"), newNode(t, p, "a")
		b.next = 1000
		for range 3 {
			a.submit("a", "mail", 2)
			a.run("a", "mail", 2, time.Second, job.Succeeded)
			a.write()
			b.submit("a", "mail", 3)
			b.run("a", "mail", 3, time.Second, job.Succeeded)
			b.write()
			a.clock.Advance(30 * time.Second)
		}
		for _, step := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
			for _, n := range []*node{a, b} {
				if _, got := n.read(series.Query{JobType: "a", Queue: "mail",
					Step: step}); got.Started != 15 || got.Succeeded != 15 || got.Depth != 0 {
					t.Errorf("%s: got %+v", step, got)
				}
			}
		}
		before := a.records()
		a.clock.Advance(time.Hour)
		a.write()
		if after := a.records(); after != before {
			t.Errorf("an idle node went from %d records to %d", before, after)
		}
		a.submit("a", "mail", 1)
		a.write()
		a.clock.Advance(time.Minute)
		with := a.records()
		a.write()
		if after := a.records(); after <= with {
			t.Errorf("a backlog is not written: %d records", after)
		}
	})
}

// AD-060: steps of 10 s are there for 2 hours, of 1 min for 48 hours and of 1 h for 90 days, and
// are deleted then.
func TestRetention(t *testing.T) {
	t.Parallel()
	n := newNode(t, testkit.InMemory(t), "a")
	n.clock.Advance(10*time.Minute + 7*time.Second) // all within one step of each length
	n.submit("a", "mail", 1)
	n.run("a", "mail", 1, time.Second, job.Succeeded)
	n.write()
	began := n.clock.Now()
	for _, last := range []struct{ age, step time.Duration }{
		{2 * time.Hour, 10 * time.Second}, {48 * time.Hour, time.Minute},
		{90 * 24 * time.Hour, time.Hour}} {
		n.clock.Advance(began.Add(last.age).Sub(n.clock.Now()))
		q := series.Query{From: began, To: began.Add(last.step), Step: last.step}
		if _, got := n.read(q); got.Started != 1 {
			t.Errorf("after %s the steps of %s have %+v", last.age, last.step, got)
		}
		n.clock.Advance(2*time.Hour - time.Minute)
		for {
			removed, err := n.engine.Prune(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if removed == 0 {
				break
			}
		}
		if _, err := n.recorder.Read(t.Context(), q); !job.IsKind(err, job.Invalid) {
			t.Errorf("steps of %s after %s: got %v, want Invalid", last.step, last.age, err)
		}
	}
	if left := n.records(); left != 0 {
		t.Errorf("%d records are left", left)
	}
}

// AD-060, AD-030: users name queues, and a step has no more than its bound of them; the others
// count in their job type. Of a queue that is among them no number is known, and none is 0.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	n := newNode(t, testkit.InMemory(t), "a")
	n.submit("a", "before", 1)
	n.write()
	n.clock.Advance(14 * time.Second)
	const queues = 250
	names := []string{"before", "never"}
	for i := range queues {
		names = append(names, fmt.Sprint("queue", i))
		n.submit("a", fmt.Sprint("queue", i), 1)
	}
	for _, when := range []string{"before it is written", "then"} {
		windows, err := n.windows(map[string][]string{"a": names})
		if err != nil || windows.Of("a", "before") != nil || windows.Of("a", "never") != nil {
			t.Errorf("%s: a queue that may be beyond the bound has %+v, %v", when,
				windows.Of("a", "before"), err)
		}
		known := 0
		for i := range queues {
			queue := fmt.Sprint("queue", i)
			s, _ := n.read(series.Query{JobType: "a", Queue: queue})
			unknown := 0
			for j := range s.Points {
				if _, ok := series.FindMetric("submitted").Of(&s.Points[j]); !ok {
					unknown++
				}
			}
			b := windows.Of("a", queue)
			if b == nil && unknown == 0 {
				t.Errorf("%s: %s is not known and shown as 0", when, queue)
			}
			if b != nil && b.Submitted == 1 && unknown == 0 {
				known++
			}
		}
		if known != 200 {
			t.Errorf("%s: %d queues are known", when, known)
		}
		n.write()
	}
	if _, got := n.read(series.Query{JobType: "a"}); got.Submitted != queues+1 ||
		got.Depth != queues+1 {
		t.Errorf("got %+v", got)
	}
}

// refusingStore is a store that refuses updates while it is full.
type refusingStore struct {
	store.Store
	full bool
}

func (s *refusingStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	if s.full {
		return &job.Error{Kind: job.Unavailable, Op: "update", Msg: "the disk is full"}
	}
	return s.Store.Update(ctx, fn)
}

// AD-060: a write that fails loses nothing and counts nothing twice.
func TestFailedWrite(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	s := &refusingStore{Store: p.Store}
	p.Store = s
	n := newNode(t, p, "a")
	n.submit("a", "mail", 3)
	n.run("a", "mail", 3, 0, job.Succeeded)
	s.full = true
	if _, err := n.recorder.Write(t.Context()); err == nil {
		t.Fatal("the write did not fail")
	}
	s.full = false
	for range 2 {
		n.write()
		if _, got := n.read(series.Query{}); got.Submitted != 3 || got.Succeeded != 3 {
			t.Errorf("got %+v", got)
		}
	}
}
