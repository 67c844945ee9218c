package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// adminFill stores n jobs of all contracts as some busy weeks leave them, in large transactions of
// the store, without the engine:
//
//	60 %  TaskFlow   as fillFlow has them; what has failed has left a dead letter
//	20 %  Relay      in relayQueues queues, a tenth of them for later
//	15 %  ForgeRun   of many clients; four of five have succeeded, a tenth has failed
//	 2 %  FetchBox   resources that are done or dead, of a manifest in each batch
//	 3 %  Images     completed, failed, waiting for their retry and queued
type adminFill struct {
	store  store.Store
	n      int
	now    time.Time
	owners []string // the clients of ForgeRun
}

// The job types whose packages the bench does not need.
const (
	forgeRunName  = "forgerun"
	fetchBoxName  = "fetchbox"
	fetchBoxTasks = "fetchbox.task"
	imagesName    = "images"
)

const (
	fillBatch   = 5000
	relayQueues = 200
	// One job in rareJob has the text rareText in its payload or failure.
	rareJob  = 100_003
	rareText = "needle"
)

func (f *adminFill) run(ctx context.Context) error {
	cut := batches(f.n, fillBatch)
	_, err := runParallel(ctx, 2, len(cut), func(ctx context.Context, _, i int) error {
		return f.store.Update(ctx, func(tx store.Tx) error { return f.batch(tx, i, cut[i]) })
	})
	return err
}

// batch stores the jobs of a batch, which are the same each time.
func (f *adminFill) batch(tx store.Tx, at int, cut [2]int) error {
	random := rand.New(rand.NewPCG(4, uint64(at)))
	m := f.manifest(random, cut[0])
	var jobs, resources []*job.Job
	for i := cut[0]; i < cut[1]; i++ {
		j := f.job(random, i, m)
		if jobs = append(jobs, j); j.ID.JobType == fetchBoxTasks {
			resources = append(resources, j)
		}
	}
	for _, j := range resources {
		if m.Children++; j.State == "dead" {
			m.FailedDeps++
			m.State = "failed"
		}
	}
	if err := tx.Apply(store.Changes{Insert: []*job.Job{m}}); err != nil {
		return err
	}
	for _, j := range resources {
		j.Parent = m.Seq
	}
	if err := tx.Apply(store.Changes{Insert: jobs}); err != nil {
		return err
	}
	jobs = append(jobs, m)
	deadLetters := deadLettersOf(jobs)
	return tx.Apply(store.Changes{DeadLetters: deadLetters, Events: eventsOf(jobs),
		Counts: countsOf(jobs, deadLetters)})
}

func (f *adminFill) job(random *rand.Rand, i int, manifest *job.Job) *job.Job {
	var j *job.Job
	switch pick := i % 100; {
	case pick < 60:
		j = flowJob(random, i, f.n, f.now)
	case pick < 80:
		j = f.relayJob(random, i)
	case pick < 95:
		j = f.forgeJob(random, i)
	case pick < 97:
		j = f.resource(random, i, manifest)
	default:
		j = f.imageJob(random, i)
	}
	if i%rareJob == rareJob/2 {
		j.Payload = fmt.Appendf(nil, `{"num":%d,"body":"%s"}`, i, rareText)
	}
	switch j.Phase {
	case job.Leased:
		j.Worker, j.Attempts, j.StartedAt = workerOf(random), 1, f.now
	case job.Done:
		j.Worker, j.Attempts = workerOf(random), 1+random.IntN(3)
		j.StartedAt = j.CreatedAt.Add(time.Duration(random.IntN(60)) * time.Second)
		j.FinishedAt = j.StartedAt.Add(time.Duration(random.IntN(60)) * time.Second)
		if j.FinishedAt.After(f.now) {
			j.StartedAt, j.FinishedAt = f.now, f.now
		}
		j.UpdatedAt = j.FinishedAt
	}
	if isDead(j) {
		j.FailedAttempts, j.Failure = j.Attempts, failureOf(random, i)
	}
	return j
}

// newJob begins a job that was created in the order of the others.
func (f *adminFill) newJob(jobType, key string, i int) *job.Job {
	at := flowTime(i, f.n, f.now)
	return &job.Job{ID: job.ID{JobType: jobType, Key: key}, CreatedAt: at, UpdatedAt: at,
		OrderTime: at, DueAt: at, Lease: time.Hour, MaxAttempts: 4}
}

func (f *adminFill) relayJob(random *rand.Rand, i int) *job.Job {
	j := f.newJob(relay.Name, strconv.Itoa(i), i)
	j.Queue = "r" + strconv.Itoa(random.IntN(relayQueues))
	j.ID.Scope, j.State, j.Phase = j.Queue, "queued", job.Ready
	j.Payload, j.Progress = appendPayload(nil, i), []byte(`{"step":1}`)
	if random.IntN(10) == 0 {
		f.delay(random, j)
	}
	return j
}

// delay lets a job wait for a time of the next days.
func (f *adminFill) delay(random *rand.Rand, j *job.Job) {
	j.Phase = job.Waiting
	j.DueAt = f.now.Add(24*time.Hour + time.Duration(random.IntN(1e6))*time.Second)
	j.OrderTime = j.DueAt
}

// forgeKinds are kinds of ForgeRun's catalogue.
var forgeKinds = []string{"SUCCESS_FAST", "SUCCESS_NORMAL", "FAIL_IMMEDIATE", "CPU_BURST",
	"IO_HEAVY"}

// forgeJob has the first client for a third of the jobs.
func (f *adminFill) forgeJob(random *rand.Rand, i int) *job.Job {
	_, key := randomUUID(random)
	j := f.newJob(forgeRunName, key, i)
	j.Queue, j.Kind = "default", forgeKinds[random.IntN(len(forgeKinds))]
	j.Owner = f.owners[max(0, random.IntN(len(f.owners)*3/2)-len(f.owners)/2)]
	j.Payload = fmt.Appendf(nil, `{"type":"EXECUTE","work_kind":"%s"}`, j.Kind)
	j.Definition = fmt.Appendf(nil, `{"work_kind":"%s","duration_ms":1000,"should_fail":false,`+
		`"payload_size":4096,"seed":%d}`, j.Kind, i)
	switch pick := random.IntN(100); {
	case pick < 80:
		j.State, j.Phase = "SUCCEEDED", job.Done
		j.Result = []byte(`{"output":"done"}`)
	case pick < 90:
		j.State, j.Phase = "FAILED", job.Done
	case pick < 95:
		j.State, j.Phase = "CANCELED", job.Done
	case pick < 98:
		j.State = "CREATED"
		f.delay(random, j)
	default:
		j.State, j.Phase = "QUEUED", job.Ready
	}
	return j
}

// manifest is one whose resources follow.
func (f *adminFill) manifest(random *rand.Rand, i int) *job.Job {
	_, key := randomUUID(random)
	j := f.newJob(fetchBoxName, key, i)
	j.Queue, j.State, j.Phase, j.FinishedAt = "gallery", "completed", job.Done, j.CreatedAt
	j.Searchable, j.Size = true, 400
	j.Definition = []byte(`{"manifest_key":"manifests/m.json","tenant":"t","resources":100,` +
		`"cursor":1,"trace_id":""}`)
	return j
}

func (f *adminFill) resource(random *rand.Rand, i int, manifest *job.Job) *job.Job {
	_, key := randomUUID(random)
	j := f.newJob(fetchBoxTasks, key, i)
	j.Queue, j.State, j.Phase, j.Size = manifest.Queue, "done", job.Done, 600
	j.Definition = fmt.Appendf(nil, `{"job_id":"%s","resource_id":"r%d","trace_id":""}`,
		manifest.ID.Key, i)
	j.Payload = fmt.Appendf(nil, `{"job_id":"%s","resource_id":"r%d","url":"http://localhost/%d"}`,
		manifest.ID.Key, i, i)
	if random.IntN(20) == 0 {
		j.State = "dead"
	}
	return j
}

func (f *adminFill) imageJob(random *rand.Rand, i int) *job.Job {
	_, key := randomUUID(random)
	_, file := randomUUID(random)
	j := f.newJob(imagesName, key, i)
	j.Owner, j.Searchable, j.Queue = file, true, "process_file"
	if random.IntN(10) == 0 {
		j.Queue = "delete_file"
	}
	j.Kind, j.Definition = j.Queue, []byte(`{"name":"picture.jpg","mime":"image/jpeg","size":4096}`)
	switch pick := random.IntN(100); {
	case pick < 85:
		j.State, j.Phase = "completed", job.Done
	case pick < 93:
		j.State, j.Phase = "failed", job.Done
	case pick < 97:
		j.State = "failed_retryable"
		f.delay(random, j)
	default:
		j.State, j.Phase = "queued", job.Ready
	}
	return j
}

// workerOf names one of a hundred workers; the first has half of the attempts.
func workerOf(random *rand.Rand) string {
	return "worker-" + strconv.Itoa(max(0, random.IntN(200)-100))
}

// failureTexts are why jobs fail. The number differs from failure to failure.
var failureTexts = []string{"connection to 10.0.3.7:5432 refused after %d ms",
	"the answer had status 503 after %d bytes", `no file "/data/%d.csv"`,
	"deadline exceeded: the step took %d s", "cannot unmarshal number %d into a string",
	"payment %d was declined", "out of memory while sorting %d rows",
	"account %d is locked"}

func failureOf(random *rand.Rand, i int) []byte {
	text := fmt.Sprintf(failureTexts[random.IntN(len(failureTexts))], i)
	if i%(rareJob/10) == 0 {
		text = rareText + " in a failure"
	}
	return fmt.Appendf(nil, `{"type":"error","error":%q}`, text)
}

// deadStates are the states in which jobs have left a dead letter, by job type.
var deadStates = map[string]job.State{taskflow.Name: taskflow.Failed, forgeRunName: "FAILED",
	fetchBoxTasks: "dead", imagesName: "failed"}

func isDead(j *job.Job) bool { return j.State == deadStates[j.ID.JobType] }

// deadLettersOf are the dead letters of jobs. Their bodies stay with the jobs.
func deadLettersOf(jobs []*job.Job) (all []job.DeadLetter) {
	for _, j := range jobs {
		if isDead(j) {
			l := job.DeadLetter{Job: *j, Cause: job.FailedForGood, CreatedAt: j.FinishedAt}
			l.Job.Payload, l.Job.Progress, l.Job.Result = nil, nil, nil
			all = append(all, l)
		}
	}
	return all
}

// eventsInterval is of how many jobs of ForgeRun that have succeeded one has a history.
const eventsInterval = 10

// eventsOf are the histories of jobs.
func eventsOf(jobs []*job.Job) (all []job.Event) {
	for _, j := range jobs {
		if j.State != "SUCCEEDED" || j.Seq%eventsInterval != 0 {
			continue
		}
		before := job.StateNone
		for k, move := range []struct {
			on job.Cause
			to job.State
		}{{job.Submitted, "CREATED"}, {job.Due, "QUEUED"}, {job.Claimed, "ASSIGNED"},
			{job.Started, "RUNNING"}, {job.Succeeded, j.State}} {
			all = append(all, job.Event{Job: j.Seq, Cause: move.on, Prev: before, Next: move.to,
				At: j.CreatedAt.Add(time.Duration(k) * time.Millisecond)})
			before = move.to
		}
	}
	return all
}

// countsOf are what the jobs and dead letters add to the counts of their queues. Of the jobs that
// wait, those of Relay are ready apart from their time.
func countsOf(jobs []*job.Job, deadLetters []job.DeadLetter) (all []job.QueueCount) {
	index := map[[2]string]int{}
	of := func(j *job.Job) *job.QueueCount {
		key := [2]string{j.ID.JobType, j.Queue}
		if _, known := index[key]; !known {
			index[key] = len(all)
			all = append(all, job.QueueCount{JobType: key[0], Queue: key[1]})
		}
		return &all[index[key]]
	}
	for _, j := range jobs {
		switch c := of(j); {
		case j.Phase == job.Waiting && j.ID.JobType == relay.Name:
			c.Delayed++
		case j.Phase == job.Waiting:
			c.Waiting++
		case j.Phase == job.Ready:
			c.Ready++
		case j.Phase == job.Leased:
			c.Leased++
		default:
			c.Done++
		}
	}
	for i := range deadLetters {
		of(&deadLetters[i].Job).Dead++
	}
	return all
}
