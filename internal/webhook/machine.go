package webhook

import "github.com/millrace/millrace/internal/job"

// The states of a delivery.
const (
	waiting   job.State = "waiting"
	pending   job.State = "pending"
	sending   job.State = "sending"
	delivered job.State = "delivered"
	exhausted job.State = "exhausted"
)

// machine is the state machine of a delivery. Only requests that were made count as attempts: a
// crash, or a receiver without a free slot, uses up none, and a claim without a request is no
// attempt either. Expired leads back to pending, so a delivery whose node died is made again
// (FR-195).
var machine = job.MustMachine(map[job.State]job.Phase{
	waiting:   job.Waiting,
	pending:   job.Ready,
	sending:   job.Leased,
	delivered: job.Done,
	exhausted: job.Done,
}, []job.Transition{
	{From: job.StateNone, On: job.Submitted, To: waiting},
	{From: waiting, On: job.Satisfied, To: pending},
	{From: waiting, On: job.Unsatisfiable, To: pending}, // the delivery before it is exhausted
	{From: pending, On: job.Claimed, To: sending},
	{From: sending, On: job.Succeeded, To: delivered},
	{From: sending, On: job.Failed, To: pending, CountsFailed: true},
	{From: sending, On: job.FailedForGood, To: exhausted, DeadLetter: true},
	{From: sending, On: job.Released, To: pending},
	{From: sending, On: job.Expired, To: pending},
})
