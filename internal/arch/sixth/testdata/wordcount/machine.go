package wordcount

import "github.com/millrace/millrace/internal/job"

// Name is the contract's name in the store, in settings and in metrics.
const Name = "wordcount"

// The states.
const (
	waiting  job.State = "waiting"
	counting job.State = "counting"
	counted  job.State = "counted"
	lost     job.State = "lost"
)

// machine is the state machine of a text; doc.go draws it.
var machine = job.MustMachine(
	map[job.State]job.Phase{waiting: job.Ready, counting: job.Leased, counted: job.Done,
		lost: job.Done},
	[]job.Transition{
		{From: job.StateNone, On: job.Submitted, To: waiting},
		{From: waiting, On: job.Claimed, To: counting},
		{From: counting, On: job.Succeeded, To: counted},
		{From: counting, On: job.Released, To: waiting},
		{From: counting, On: job.Expired, To: waiting, CountsFailed: true},
		{From: counting, On: job.ExpiredForGood, To: lost},
		{From: counting, On: job.FailedForGood, To: lost},
	})
