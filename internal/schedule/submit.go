package schedule

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// refusedError is why a tick could not be done now.
type refusedError struct {
	tick Tick
	why  string
}

func (e *refusedError) Error() string { return e.why }

// maxError bounds the error of a tick, in bytes.
const maxError = 500

// key is the idempotency key of a time: no two schedules have the same number, one after the other
// under one name included.
func (s *Schedule) key(at time.Time) string {
	return fmt.Sprintf("schedule/%s/%d/%s", s.Name, s.Number, at.UTC().Format(time.RFC3339Nano))
}

// submit submits the job of a time. Its transaction ends the run, with the tick and the state after
// it, so a time that has a job is done, and a change of the schedule comes before both or after.
func (r *run) submit(ctx context.Context, t Tick) error {
	t.Outcome = Submitted
	request := r.request(r.key(t.Time))
	o, err := contract.SubmitterOf(r.Contracts, r.Contract, &request)
	if err != nil {
		return &refusedError{t, err.Error()}
	}
	busy, err := r.isBusy(ctx)
	if err != nil {
		return err
	}
	replaced := int64(0)
	if busy && r.Overlap == Replace {
		replaced = r.state.Earlier
	}
	j, err := o.Submit(engine.WithFinish(ctx, r.id,
		func(made *job.Job, now time.Time) engine.Outcome {
			after, t := r.copy(), t
			t.Job, after.state.Replaced = made.Seq, replaced
			after.add(t, now)
			return after.outcome(after.wakeAt(r.calendar, now))
		}), request)
	switch {
	case job.IsKind(err, job.RunLost):
		return err
	case err != nil:
		return &refusedError{t, contractDetail(o, err)}
	}
	t.Job, r.state.Replaced = j.Seq, replaced
	r.add(t, r.now)
	return nil
}

// contractDetail returns how a contract explains an error.
func contractDetail(o *contract.Operator, err error) string {
	words := o.Answer(err).Detail
	if words == "" {
		words = err.Error()
	}
	return words[:min(len(words), maxError)]
}

// explain turns what a contract refuses into an invalid request, in its words.
func explain(o *contract.Operator, err error) error {
	switch answer := o.Answer(err); {
	case err == nil:
		return nil
	case answer.Status >= http.StatusInternalServerError ||
		answer.Status == http.StatusTooManyRequests:
		return err
	}
	// The error itself has a code of the contract, which others do not know.
	return &job.Error{Kind: job.Invalid, Op: "schedule.check",
		Msg: "request: " + contractDetail(o, err)}
}

// retryAt notes that a tick was refused and returns when the next run is due. A time is tried for
// a minute and is missed then (SC-006): counted from the time itself where it is recent, so that
// those after it wait no longer.
func (r *run) retryAt(e *refusedError) time.Time {
	s, t := &r.state, e.tick
	dueAt := r.dueAt(r.Name, t.Time)
	if s.Failing == nil || !s.Failing.Time.Equal(t.Time) {
		s.Since = r.now
		if late := r.now.Sub(dueAt); late < downtime && !t.Time.Equal(s.Queued) {
			s.Since = dueAt
		}
	}
	s.Failing, s.Error = &t, e.why
	if before := t.Time.Add(-time.Microsecond); before.After(s.Last) {
		s.Last = before // the times that this one stands for are done
	}
	tried := r.now.Sub(s.Since)
	if tried < downtime {
		return r.now.Add(min(max(tried, minRetry), maxRetry, downtime-tried))
	}
	r.miss(t, e.why)
	return r.wakeAt(r.calendar, r.now)
}

// miss adds the tick of a time that was refused for a minute.
func (r *run) miss(t Tick, why string) {
	r.Log.Warn("a schedule could not submit its job", "schedule", r.Name, "time", t.Time,
		telemetry.ErrorMessage, why)
	t.Outcome, t.Error = Missed, why
	r.add(t, r.now)
}
