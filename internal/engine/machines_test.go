package engine_test

import (
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// The job types of the tests need of the engine what the five real ones need of it: see the tables
// of docs/contracts/across.md. None needs anything of the engine that is not in engine.JobType and
// job.Machine.

// phased begins scheduled, is assigned before it runs, loses an assignment without harm and a run
// for good, and may be retried by its owner.
var phased = job.MustMachine(map[job.State]job.Phase{
	"created": job.Waiting, "queued": job.Ready, "assigned": job.Leased, "running": job.Leased,
	"succeeded": job.Done, "failed": job.Done, "canceled": job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "created"},
	{From: "created", On: job.Due, To: "queued"},
	{From: "created", On: job.Canceled, To: "canceled"},
	{From: "queued", On: job.Claimed, To: "assigned"},
	{From: "queued", On: job.Canceled, To: "canceled"},
	{From: "assigned", On: job.Started, To: "running"},
	{From: "assigned", On: job.Expired, To: "queued"},
	{From: "assigned", On: job.Released, To: "queued"},
	{From: "assigned", On: job.Canceled, To: "canceled"},
	{From: "running", On: job.Succeeded, To: "succeeded"},
	{From: "running", On: job.Failed, To: "failed", CountsFailed: true},
	{From: "running", On: job.FailedForGood, To: "failed", DeadLetter: true},
	{From: "running", On: job.Expired, To: "failed", CountsFailed: true},
	{From: "running", On: job.ExpiredForGood, To: "failed", DeadLetter: true},
	{From: "running", On: job.Released, To: "failed"},
	{From: "running", On: job.Canceled, To: "canceled"},
	{From: "failed", On: job.Retried, To: "queued"},
})

// graph waits for dependencies and is retried by its policy.
var graph = job.MustMachine(map[job.State]job.Phase{
	"pending": job.Waiting, "ready": job.Ready, "running": job.Leased,
	"completed": job.Done, "failed": job.Done, "blocked": job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "pending"},
	{From: "pending", On: job.Satisfied, To: "ready"},
	{From: "pending", On: job.Unsatisfiable, To: "blocked", DeadLetter: true},
	{From: "pending", On: job.Replaced, To: "pending"},
	{From: "ready", On: job.Claimed, To: "running"},
	{From: "ready", On: job.Replaced, To: "ready"},
	{From: "running", On: job.Replaced, To: "running"},
	{From: "running", On: job.Succeeded, To: "completed"},
	{From: "running", On: job.Released, To: "ready"},
	{From: "running", On: job.Failed, To: "ready", CountsFailed: true},
	{From: "running", On: job.FailedForGood, To: "failed", DeadLetter: true},
	{From: "running", On: job.Expired, To: "ready", CountsFailed: true},
	{From: "running", On: job.ExpiredForGood, To: "failed", DeadLetter: true},
	{From: "pending", On: job.Removed, To: job.StateNone},
	{From: "ready", On: job.Removed, To: job.StateNone},
	{From: "running", On: job.Removed, To: job.StateNone},
	{From: "completed", On: job.Removed, To: job.StateNone},
	{From: "failed", On: job.Removed, To: job.StateNone},
	{From: "blocked", On: job.Removed, To: job.StateNone},
})

// family is the parent of parts: it is finished by a run of its own once all of them are done, and
// opens again when one of them is replayed.
var family = job.MustMachine(map[job.State]job.Phase{
	"queued": job.Waiting, "in_progress": job.Waiting, "reopened": job.Waiting,
	"finalizing": job.Ready, "finishing": job.Leased, "closing": job.Ready, "closed_by": job.Leased,
	"completed": job.Done, "failed": job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Started, To: "in_progress"},
	{From: "queued", On: job.Satisfied, To: "finalizing"},
	{From: "in_progress", On: job.Satisfied, To: "finalizing"},
	{From: "finalizing", On: job.Claimed, To: "finishing"},
	{From: "finalizing", On: job.Retried, To: "in_progress"},
	{From: "finishing", On: job.Retried, To: "in_progress"},
	{From: "finishing", On: job.Succeeded, To: "completed"},
	{From: "finishing", On: job.FailedForGood, To: "failed"},
	{From: "finishing", On: job.Released, To: "finalizing"},
	{From: "finishing", On: job.Expired, To: "finalizing"},
	{From: "completed", On: job.Retried, To: "reopened"},
	{From: "failed", On: job.Retried, To: "reopened"},
	{From: "reopened", On: job.Satisfied, To: "closing"},
	{From: "closing", On: job.Claimed, To: "closed_by"},
	{From: "closing", On: job.Retried, To: "reopened"},
	{From: "closed_by", On: job.Retried, To: "reopened"},
	{From: "closed_by", On: job.Succeeded, To: "completed"},
	{From: "closed_by", On: job.FailedForGood, To: "failed"},
	{From: "closed_by", On: job.Released, To: "closing"},
	{From: "closed_by", On: job.Expired, To: "closing"},
})

// part is a child of a family.
var part = job.MustMachine(map[job.State]job.Phase{
	"todo": job.Ready, "fetching": job.Leased, "done": job.Done, "dead": job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "todo"},
	{From: "todo", On: job.Claimed, To: "fetching"},
	{From: "fetching", On: job.Succeeded, To: "done"},
	{From: "fetching", On: job.Released, To: "todo"},
	{From: "fetching", On: job.Failed, To: "todo", CountsFailed: true},
	{From: "fetching", On: job.FailedForGood, To: "dead", DeadLetter: true},
	{From: "fetching", On: job.Expired, To: "todo", CountsLost: true},
	{From: "fetching", On: job.ExpiredForGood, To: "dead", DeadLetter: true},
	{From: "dead", On: job.Retried, To: "todo"},
})

// locked is claimed by key, and its stale lock is taken over: that is a state which its contract
// shows as processing.
var locked = job.MustMachine(map[job.State]job.Phase{
	"queued": job.Ready, "processing": job.Leased, "stale": job.Ready,
	"failed_retryable": job.Ready, "completed": job.Done, "failed": job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: "queued"},
	{From: "queued", On: job.Claimed, To: "processing"},
	{From: "stale", On: job.Claimed, To: "processing"},
	{From: "failed_retryable", On: job.Claimed, To: "processing"},
	{From: "processing", On: job.Succeeded, To: "completed"},
	{From: "processing", On: job.Released, To: "failed_retryable"},
	{From: "processing", On: job.Failed, To: "failed_retryable", CountsFailed: true},
	{From: "processing", On: job.FailedForGood, To: "failed", DeadLetter: true},
	{From: "processing", On: job.Expired, To: "stale", CountsFailed: true, Immediate: true},
	{From: "processing", On: job.ExpiredForGood, To: "failed", DeadLetter: true},
})

// brief keeps nothing of a job that is done but dead letters.
var brief = job.MustMachine(map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Replaced, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "queued", On: job.Removed, To: job.StateNone},
		{From: "running", On: job.Succeeded, To: job.StateNone},
		{From: "running", On: job.Requeued, To: job.StateNone},
		{From: "running", On: job.Removed, To: job.StateNone},
		{From: "running", On: job.Replaced, To: "queued"},
		{From: "running", On: job.Released, To: "queued"},
		{From: "running", On: job.Expired, To: "queued", CountsFailed: true},
		{From: "running", On: job.ExpiredForGood, To: job.StateNone, DeadLetter: true},
	})

// perFailure are the policies of the job types whose jobs wait after a failure: the delay shows how
// many failures there were.
var perFailure = map[string]job.RetryPolicy{
	"graph":  {Strategy: job.Linear, Base: 10 * time.Second, Max: time.Hour},
	"part":   {Strategy: job.Linear, Base: 10 * time.Second, Max: time.Hour},
	"locked": {Strategy: job.Linear, Base: 10 * time.Second, Max: time.Hour},
}

func bodyOf(j *job.Job, ev job.Event) []byte {
	return []byte(string(ev.Next) + " runs=" + string(rune('0'+j.Attempts)) + " payload=" +
		short(j.Payload) + " result=" + short(j.Result))
}

// testJobTypes returns all contracts of the tests.
func testJobTypes() []engine.JobType {
	return []engine.JobType{
		{Name: "phased", Machine: phased, History: true, Publish: true, MessageBody: bodyOf,
			Retention: time.Hour},
		{Name: "graph", Machine: graph, History: true, Publish: true, Graph: true},
		{Name: "family", Machine: family, History: true},
		{Name: "part", Machine: part, History: true, MaxLostAttempts: 2},
		{Name: "locked", Machine: locked, History: true, DeadLetterRetention: time.Hour},
		{Name: "brief", Machine: brief},
	}
}

// testJobTypesWith returns them with one changed.
func testJobTypesWith(name string, change func(*engine.JobType)) []engine.JobType {
	all := testJobTypes()
	for i := range all {
		if all[i].Name == name {
			change(&all[i])
		}
	}
	return all
}
