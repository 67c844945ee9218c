package schedule

import (
	"time"

	"github.com/millrace/millrace/internal/job"
)

// Name is the job type of the schedules' jobs in the store.
const Name = "schedule"

// The states of a schedule's job.
const (
	waiting job.State = "waiting"
	due     job.State = "due"
	ticking job.State = "ticking"
)

// machine is the state machine of a schedule's job. Retried is a change by an operator, which comes
// with a new due time.
var machine = job.MustMachine(map[job.State]job.Phase{
	waiting: job.Waiting,
	due:     job.Ready,
	ticking: job.Leased,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: waiting},
	{From: waiting, On: job.Due, To: due},
	{From: due, On: job.Claimed, To: ticking},
	{From: ticking, On: job.Released, To: waiting},
	{From: ticking, On: job.Expired, To: due},
	{From: waiting, On: job.Retried, To: waiting},
	{From: due, On: job.Retried, To: waiting},
	{From: ticking, On: job.Retried, To: waiting},
	{From: waiting, On: job.Removed, To: job.StateNone},
	{From: due, On: job.Removed, To: job.StateNone},
	{From: ticking, On: job.Removed, To: job.StateNone},
})

// never is when a schedule is due that is paused or has no further time.
var never = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
