package forgerun

import "github.com/millrace/millrace/internal/job"

// Name is the contract's name in the store, in settings and in metrics.
const Name = "forgerun"

// queue is the one there is (FR-169, G-FR-66).
const queue = "default"

// The states (FR-154).
const (
	created   job.State = "CREATED"
	queued    job.State = "QUEUED"
	assigned  job.State = "ASSIGNED"
	running   job.State = "RUNNING"
	succeeded job.State = "SUCCEEDED"
	failed    job.State = "FAILED"
	canceled  job.State = "CANCELED"
)

// states are all of them, in the order of the document.
var states = []job.State{created, queued, assigned, running, succeeded, failed, canceled}

// machine is the whole life of a job. A run that fails, whatever the reason,
// ends in FAILED and counts: only a client leads out of there (G-FR-06), as long
// as retries are left (FR-142). A job that was handed out and did not start is
// nobody's failure.
var machine = job.MustMachine(
	map[job.State]job.Phase{created: job.Waiting, queued: job.Ready, assigned: job.Leased,
		running: job.Leased, succeeded: job.Done, failed: job.Done, canceled: job.Done},
	[]job.Move{
		{From: job.StateNone, On: job.Submitted, To: created},

		{From: created, On: job.Due, To: queued},
		{From: created, On: job.Canceled, To: canceled},

		{From: queued, On: job.Claimed, To: assigned},
		{From: queued, On: job.Canceled, To: canceled},

		{From: assigned, On: job.Started, To: running},
		{From: assigned, On: job.Canceled, To: canceled},
		{From: assigned, On: job.Expired, To: queued},  // G-FR-01
		{From: assigned, On: job.Released, To: queued}, // a node that stops (G-X-13)

		{From: running, On: job.Succeeded, To: succeeded},
		{From: running, On: job.Canceled, To: canceled},
		{From: running, On: job.Failed, To: failed, CountsFailed: true},
		{From: running, On: job.FailedForGood, To: failed},
		{From: running, On: job.Expired, To: failed, CountsFailed: true}, // G-FR-35
		{From: running, On: job.ExpiredForGood, To: failed},
		// a run that was given up is lost (G-X-18)
		{From: running, On: job.Released, To: failed, CountsFailed: true},

		{From: failed, On: job.Retried, To: queued},
	})

// final reports whether nothing but a retry can follow.
func final(s job.State) bool { return s == succeeded || s == failed || s == canceled }

// outcome is how a final state is called in a job and its report (FR-121);
// empty while there is none.
func outcome(s job.State) string {
	switch s {
	case succeeded:
		return "SUCCESS"
	case failed:
		return "FAILED"
	case canceled:
		return "CANCELED"
	}
	return ""
}

// attempt is how often a job was retried (G-FR-20): each failure but the one it
// is in was left by a retry.
func attempt(j *job.Job) int {
	if j.State == failed {
		return max(0, j.FailedAttempts-1)
	}
	return j.FailedAttempts
}
