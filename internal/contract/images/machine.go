package images

import (
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// Name is the contract, and the job type of its pictures; Purges is the job type of its purges.
const (
	Name   = "images"
	Purges = "images.purge"
)

// The types of jobs, which are queues (IP-006, G-IP-21).
const (
	processFile = "process_file"
	deleteFile  = "delete_file"
)

// jobTypes are all types.
var jobTypes = []string{processFile, deleteFile}

// The states of the document (IP-009), and those that only the machine distinguishes.
const (
	queued     job.State = "queued"
	processing job.State = "processing"
	retryable  job.State = "failed_retryable"
	completed  job.State = "completed"
	failed     job.State = "failed"

	stale    job.State = "stale"     // processing, but the lease expired (G-IP-03)
	retryDue job.State = "retry_due" // failed_retryable, after the delay
	released job.State = "released"  // failed_retryable, released by its worker (G-IP-21)
)

// statesByStatus lists the states of each status of the document.
var statesByStatus = map[string][]job.State{
	string(queued):     {queued},
	string(processing): {processing, stale},
	string(retryable):  {retryable, retryDue, released},
	string(completed):  {completed},
	string(failed):     {failed},
}

// statusOf is the status that the document has for a state.
func statusOf(s job.State) string {
	switch s {
	case stale:
		s = processing
	case retryDue, released:
		s = retryable
	}
	return string(s)
}

// machine is the whole life of a job. Nothing leaves completed and failed (IP-021, IP-022). A
// failed attempt is followed by a delay (IP-055), a lost or released one is not.
var machine = job.MustMachine(
	map[job.State]job.Phase{queued: job.Ready, processing: job.Leased, stale: job.Ready,
		retryable: job.Waiting,
		retryDue:  job.Ready, released: job.Ready, completed: job.Done, failed: job.Done},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: queued},

		{From: queued, On: job.Claimed, To: processing},
		{From: stale, On: job.Claimed, To: processing},
		{From: retryDue, On: job.Claimed, To: processing},
		{From: released, On: job.Claimed, To: processing},

		{From: processing, On: job.Succeeded, To: completed},
		{From: processing, On: job.Failed, To: retryable, CountsFailed: true},
		{From: processing, On: job.FailedForGood, To: failed, DeadLetter: true},
		{From: processing, On: job.Expired, To: stale, CountsFailed: true,
			Immediate: true},
		{From: processing, On: job.Released, To: released, CountsFailed: true,
			Immediate: true},
		{From: processing, On: job.ExpiredForGood, To: failed, DeadLetter: true},

		{From: retryable, On: job.Due, To: retryDue},
		{From: retryable, On: job.Canceled, To: failed, DeadLetter: true}, // G-IP-07
		{From: retryDue, On: job.Canceled, To: failed, DeadLetter: true},
		{From: released, On: job.Canceled, To: failed, DeadLetter: true},
	})

// The states of a purge.
const (
	purgeQueued  job.State = "queued"
	purgeRunning job.State = "running"
	purgeDone    job.State = "done"
	purgeFailed  job.State = "failed"
)

// purgeMachine is the life of a purge: it is retried until it succeeds or its attempts are used up.
// Then an operator may let it begin again.
var purgeMachine = job.MustMachine(
	map[job.State]job.Phase{purgeQueued: job.Ready, purgeRunning: job.Leased, purgeDone: job.Done,
		purgeFailed: job.Done},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: purgeQueued},
		{From: purgeQueued, On: job.Claimed, To: purgeRunning},
		{From: purgeRunning, On: job.Succeeded, To: purgeDone},
		{From: purgeRunning, On: job.Failed, To: purgeQueued, CountsFailed: true},
		{From: purgeRunning, On: job.FailedForGood, To: purgeFailed, DeadLetter: true},
		{From: purgeRunning, On: job.Expired, To: purgeQueued, CountsFailed: true},
		{From: purgeRunning, On: job.ExpiredForGood, To: purgeFailed, DeadLetter: true},
		{From: purgeRunning, On: job.Released, To: purgeQueued},
		{From: purgeFailed, On: job.Retried, To: purgeQueued},
	})

// eventTypes are the types of events that operators may subscribe to (WH-002).
var eventTypes = []contract.EventType{
	contract.JobEvent(Name, contract.Submitted).When(job.Submitted),
	contract.JobEvent(Name, contract.Started).When(job.Claimed),
	contract.JobEvent(Name, contract.Retrying).When(job.Failed, job.Expired, job.Released),
	contract.JobEvent(Name, contract.Completed).To(completed),
	contract.JobEvent(Name, contract.Failed).To(failed),
	{Name: "images.file.ready", Kind: processFile, States: []job.State{completed},
		Meaning: "The pictures of a file were made."},
	{Name: "images.file.failed", Kind: processFile, States: []job.State{failed},
		Meaning: "The pictures of a file could not be made."},
	{Name: "images.file.deleted", Kind: deleteFile, Causes: []job.Cause{job.Submitted},
		Meaning: "A file was deleted; its objects are removed by the job."},
}
