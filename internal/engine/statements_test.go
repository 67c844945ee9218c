package engine_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// costMachine is the machine of job types whose cost is counted: a job that is done goes to end.
func costMachine(end job.State, more ...job.Transition) *job.Machine {
	return job.MustMachine(map[job.State]job.Phase{"pending": job.Waiting, "queued": job.Ready,
		"running": job.Leased, "over": job.Done},
		append([]job.Transition{
			{From: job.StateNone, On: job.Submitted, To: "pending"},
			{From: "pending", On: job.Satisfied, To: "queued"},
			{From: "queued", On: job.Claimed, To: "running"},
			{From: "queued", On: job.Canceled, To: end},
			{From: "running", On: job.Succeeded, To: end},
			{From: "running", On: job.Expired, To: "queued"},
		}, more...))
}

// costJobTypes are the kinds of jobs whose cost is counted. Those of "dependencies" wait for one
// other job each.
func costJobTypes() []engine.JobType {
	kept := costMachine("over")
	body := func(j *job.Job, _ job.Event) []byte { return j.Payload }
	return []engine.JobType{
		{Name: "removed", Machine: costMachine(job.StateNone)},
		{Name: "kept", Machine: kept, Retention: time.Hour},
		{Name: "events", Machine: kept, History: true, Retention: time.Hour},
		{Name: "outbox", Machine: kept, History: true, Publish: true, Retention: time.Hour},
		{Name: "bodies", Machine: kept, History: true, Publish: true, MessageBody: body,
			Retention: time.Hour},
		{Name: "dependencies", Machine: costMachine("over",
			job.Transition{From: "pending", On: job.Unsatisfiable, To: "over"}), History: true,
			Graph: true, Retention: time.Hour},
	}
}

// costMeter runs verbs, one caller at a time and without maintenance, and keeps the statements of
// each.
type costMeter struct {
	testing.TB
	engine  *engine.Engine
	clock   *testkit.Clock
	log     testkit.StatementLog
	jobType string
	kept    time.Duration // how long jobs are kept that are done
	jobs    int           // submitted so far, which is the next key

	lines []string                    // the verbs and job types in the order in which they ran
	costs map[string]map[int][]string // of a line by the number of jobs, the statements
}

// run runs a verb for n jobs and keeps its statements.
func (c *costMeter) run(verb string, n int, do func() error) {
	c.Helper()
	c.log.Take()
	c.must(do())
	line := verb + ", " + c.jobType
	if c.costs[line] == nil {
		c.lines = append(c.lines, line)
		c.costs[line] = map[int][]string{}
	}
	c.costs[line][n] = c.log.Take()
}

func (c *costMeter) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %v", c.jobType, err)
	}
}

// batch returns n new jobs. Where jobs wait for others, each of them waits for the job n before.
func (c *costMeter) batch(n int, first bool) []engine.Submission {
	all := make([]engine.Submission, n)
	key := func(i int) job.ID { return job.ID{JobType: c.jobType, Key: fmt.Sprint(i)} }
	for i := range all {
		all[i] = engine.Submission{Job: job.Job{ID: key(c.jobs), Queue: "q", Lease: time.Hour,
			Payload: []byte(`{"file":"a/b/c/d.txt"}`)}}
		if c.jobType == "dependencies" && !first {
			all[i].DependsOn = []job.ID{key(c.jobs - n)}
		}
		c.jobs++
	}
	return all
}

func (c *costMeter) submit(batch []engine.Submission) error {
	_, err := c.engine.Submit(context.Background(), engine.Unique, batch)
	return err
}

// claim claims n jobs, which must be ready, and returns their runs.
func (c *costMeter) claim(n int) ([]engine.Run, error) {
	jobs, err := c.engine.Claim(context.Background(), c.claimRequest(n))
	if err != nil {
		return nil, err
	}
	return c.runsOf(jobs, n), nil
}

func (c *costMeter) claimRequest(n int) engine.ClaimRequest {
	return engine.ClaimRequest{JobType: c.jobType, Queues: []string{"q"}, Max: n, Worker: "w"}
}

// runsOf returns the runs of claimed jobs, which must be n.
func (c *costMeter) runsOf(jobs []*job.Job, n int) []engine.Run {
	c.Helper()
	if len(jobs) != n {
		c.Fatalf("%s: claimed %d jobs of %d", c.jobType, len(jobs), n)
	}
	runs := make([]engine.Run, n)
	for i, j := range jobs {
		runs[i] = engine.Run{ID: j.ID, Run: j.Run}
	}
	return runs
}

func (c *costMeter) heartbeatAll(runs []engine.Run, progress []byte) error {
	requests := make([]engine.HeartbeatRequest, len(runs))
	for i, r := range runs {
		requests[i] = engine.HeartbeatRequest{Run: r, Progress: progress}
	}
	for _, result := range c.engine.HeartbeatAll(context.Background(), requests) {
		if result.Err != nil {
			return result.Err
		}
	}
	return nil
}

// finish ends runs. With next each of them claims a job in its place.
func (c *costMeter) finish(runs []engine.Run, result []byte, next bool) (claimed []*job.Job,
	err error) {
	requests := make([]engine.FinishRequest, len(runs))
	for i, r := range runs {
		requests[i] = engine.FinishRequest{Run: r,
			Outcome: engine.Outcome{On: job.Succeeded, Result: result}}
		if next {
			one := c.claimRequest(1)
			requests[i].Next = &one
		}
	}
	for _, r := range c.engine.FinishAll(context.Background(), requests) {
		if r.Err != nil {
			return nil, r.Err
		}
		claimed = append(claimed, r.Next...)
	}
	return claimed, nil
}

// verbs runs each verb for n jobs of a job type:
//
//	jobs     submit   claim, heartbeat, finish
//	others            submit                     claim   finish and next
//	last                                                 submit, (claim)  finish with a result
func (c *costMeter) verbs(n int) {
	c.Helper()
	var runs []engine.Run
	var err error
	c.must(c.submit(c.batch(n, true)))
	others := c.batch(n, false)
	c.run("submit", n, func() error { return c.submit(others) })
	c.run("claim", n, func() error {
		runs, err = c.claim(n)
		return err
	})
	c.run("heartbeat", n, func() error { return c.heartbeatAll(runs, nil) })
	c.run("heartbeat with progress", n,
		func() error { return c.heartbeatAll(runs, []byte("half")) })
	c.run("finish", n, func() error {
		_, err := c.finish(runs, nil, false)
		return err
	})
	runs, err = c.claim(n)
	c.must(err)
	c.must(c.submit(c.batch(n, false)))
	var last []*job.Job
	c.run("finish and claim", n, func() error {
		last, err = c.finish(runs, nil, true)
		return err
	})
	runs = c.runsOf(last, n)
	c.run("finish with a result", n, func() error {
		_, err := c.finish(runs, []byte("{}"), false)
		return err
	})
}

// prune runs Prune once for the jobs that n jobs of each verb have left, where they are kept, and
// deletes the rest of them. One job runs meanwhile, so that the queue keeps its counters.
func (c *costMeter) prune(n int) {
	c.Helper()
	if c.kept == 0 {
		return
	}
	c.clock.Advance(2 * c.kept)
	c.must(c.submit(c.batch(1, true)))
	runs, err := c.claim(1)
	c.must(err)
	deleted := 0
	c.run("prune", n, func() error {
		deleted, err = c.engine.Prune(context.Background())
		return err
	})
	if deleted == 0 {
		c.Errorf("%s: nothing is pruned", c.jobType)
	}
	for deleted > 0 {
		deleted, err = c.engine.Prune(context.Background())
		c.must(err)
	}
	_, err = c.finish(runs, nil, false)
	c.must(err)
}

// cancel cancels a job, for which another one waits where the job type has dependencies.
func (c *costMeter) cancel() {
	c.Helper()
	for range 2 { // the first job of a job type to be canceled is no other case
		canceled := c.batch(1, true)
		c.must(c.submit(canceled))
		others := c.batch(1, false)
		c.must(c.submit(others))
		c.run("cancel", 1, func() error {
			_, err := c.engine.Cancel(context.Background(), canceled[0].Job.ID)
			return err
		})
		if c.jobType != "dependencies" {
			_, err := c.engine.Cancel(context.Background(), others[0].Job.ID)
			c.must(err)
		}
	}
}

// table returns a line for each verb and job type with the number of its statements and their
// names. Where these depend on the number of jobs there is a line for each.
func (c *costMeter) table() (table []string) {
	for _, line := range c.lines {
		all := c.costs[line]
		text := func(names []string) string {
			return fmt.Sprintf("%d: %s", len(names), strings.Join(names, ", "))
		}
		sizes := slices.Sorted(maps.Keys(all))
		first := text(all[sizes[0]])
		same := !slices.ContainsFunc(sizes, func(n int) bool { return text(all[n]) != first })
		if same {
			table = append(table, line+": "+first)
			continue
		}
		for _, n := range sizes {
			table = append(table, fmt.Sprintf("%s, %d jobs: %s", line, n, text(all[n])))
		}
	}
	return table
}

// newCostMeter makes an engine of one job type on a store of its own, in which few enough jobs are
// stored that their numbers are of one block. It has run a transaction: the first one reads the
// settings of queues and takes the block.
func newCostMeter(tb testing.TB, database string, jobType engine.JobType,
	feed engine.Feed) *costMeter {
	tb.Helper()
	clock := testkit.NewClock()
	c := &costMeter{TB: tb, clock: clock, jobType: jobType.Name, kept: jobType.Retention,
		costs: map[string]map[int][]string{}}
	s := testkit.ObservedStore(tb, database, clock.Now, c.log.Observe)
	c.engine = testkit.NewEngine(tb, s, clock, jobType)
	c.engine.SetFeed(feed)
	c.must(c.submit(c.batch(1, true)))
	runs, err := c.claim(1)
	c.must(err)
	_, err = c.finish(runs, nil, false)
	c.must(err)
	return c
}

// TestStatements counts the statements of each verb for 1, 100 and 1,000 jobs and compares them
// with testdata/statements_*.txt. They do not depend on the number of jobs, and they should not
// become more. With the race detector there are no more than 100 jobs. To change a table on
// purpose, put what the test prints in its place.
//
// WH-004 They are the same where a feed has the jobs of another job type, or nobody listens.
// Those of a feed that wants all events, and their bodies, are in a table of their own.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, database := range testkit.Databases {
		for name, c := range map[string]struct {
			feed  engine.Feed
			table string
		}{
			"no feed":        {engine.Feed{}, database},
			"nobody listens": {listening(nil), database},
			"others":         {listening(&listener{jobType: "another"}), database},
			"all events":     {listening(&listener{}), database + "_feed"},
		} {
			t.Run(database+", "+name, func(t *testing.T) {
				t.Parallel()
				compareStatements(t, "testdata/statements_"+c.table+".txt",
					statementsOf(t, database, c.feed))
			})
		}
	}
}

// statementsOf returns the table of all verbs and job types.
func statementsOf(t *testing.T, database string, feed engine.Feed) (table []string) {
	t.Helper()
	sizes := []int{1, 100, 1000}
	if slow {
		sizes = sizes[:2]
	}
	for _, jobType := range costJobTypes() {
		c := newCostMeter(t, database, jobType, feed)
		for _, n := range sizes {
			c.verbs(n)
			c.prune(n)
		}
		c.cancel()
		table = append(table, c.table()...)
	}
	return table
}

// compareStatements reports in which lines a table differs from that of a file.
func compareStatements(t *testing.T, file string, got []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(data)) {
		verb, statements, _ := strings.Cut(strings.TrimSpace(line), ": ")
		want[verb] = statements
	}
	for _, line := range got {
		verb, is, _ := strings.Cut(line, ": ")
		had := want[verb]
		delete(want, verb)
		var before, now int
		fmt.Sscan(had, &before)
		fmt.Sscan(is, &now)
		switch {
		case now < before:
			t.Errorf("%s: fewer statements than the table has, lower it\n got %s\nwant %s", verb, is,
				had)
		case now > before:
			t.Errorf("%s: more statements than the table has\n got %s\nwant %s", verb, is, had)
		case is != had:
			t.Errorf("%s: other statements than the table has\n got %s\nwant %s", verb, is, had)
		}
	}
	for verb := range want {
		t.Errorf("%s: in the table, but not run", verb)
	}
	if t.Failed() {
		t.Logf("%s would be\n%s", file, strings.Join(got, "\n"))
	}
}
