package taskflow

import "github.com/millrace/millrace/internal/job"

// Name is the contract's name in the store, in settings and in metrics.
const Name = "taskflow"

// The statuses (TF-022).
const (
	Pending   job.State = "PENDING"
	Ready     job.State = "READY"
	Running   job.State = "RUNNING"
	Completed job.State = "COMPLETED"
	Failed    job.State = "FAILED"
	Blocked   job.State = "BLOCKED"
)

// statuses are all of them, in the order of the document.
var statuses = []job.State{Pending, Ready, Running, Completed, Failed, Blocked}

// machine is the whole life of a job. An update is a move from a state to itself:
// it is no transition, and there is none where the state is terminal (TF-075).
var machine = job.MustMachine(
	map[job.State]job.Phase{Pending: job.Waiting, Ready: job.Ready, Running: job.Leased,
		Completed: job.Done, Failed: job.Done, Blocked: job.Done},
	[]job.Move{
		{From: job.StateNone, On: job.Submitted, To: Pending},

		{From: Pending, On: job.Satisfied, To: Ready},
		{From: Pending, On: job.Unsatisfiable, To: Blocked},
		{From: Pending, On: job.Replaced, To: Pending},
		{From: Pending, On: job.Removed, To: job.StateNone},

		{From: Ready, On: job.Claimed, To: Running},
		{From: Ready, On: job.Replaced, To: Ready},
		{From: Ready, On: job.Removed, To: job.StateNone},

		{From: Running, On: job.Succeeded, To: Completed},
		{From: Running, On: job.Failed, To: Ready, CountsFailed: true},
		{From: Running, On: job.FailedForGood, To: Failed},
		{From: Running, On: job.Expired, To: Ready, CountsFailed: true}, // G-TF-26
		{From: Running, On: job.ExpiredForGood, To: Failed},
		{From: Running, On: job.Released, To: Ready}, // G-TF-30
		{From: Running, On: job.Replaced, To: Running},
		{From: Running, On: job.Removed, To: job.StateNone}, // G-TF-19

		{From: Completed, On: job.Removed, To: job.StateNone},
		{From: Failed, On: job.Removed, To: job.StateNone},
		{From: Blocked, On: job.Removed, To: job.StateNone},
	})

// terminal reports whether nothing follows a status (TF-031).
func terminal(s job.State) bool { return machine.Phase(s) == job.Done }

// attemptCount is the number of failed attempts (G-TF-30). A failure that nobody
// may retry does not use up the run limit, so the engine has not counted it: it is
// the one that left a failed job with attempts.
func attemptCount(j *job.Job) int {
	if j.State == Failed && j.FailedAttempts < j.MaxAttempts {
		return j.FailedAttempts + 1
	}
	return j.FailedAttempts
}
