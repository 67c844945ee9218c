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

// errStale ends a run that is no longer the schedule's: another one has done the tick, or the
// schedule was changed or is gone.
var errStale = &job.Error{Kind: job.RunLost, Op: "schedule.tick",
	Msg: "another run has processed this time"}

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

// submit submits the job of a time.
func (r *run) submit(ctx context.Context, t Tick) error {
	t.Count, t.Outcome = r.state.Count, Submitted
	request := r.request(r.key(t.Time))
	o, err := contract.SubmitterOf(r.Contracts, r.Contract, &request)
	if err != nil {
		return &refusedError{t, err.Error()}
	}
	stored := t
	j, err := o.Submit(engine.Attach(ctx, r.storing(&stored)), request)
	switch {
	case err != nil && job.IsKind(err, job.RunLost):
		return errStale
	case err != nil:
		return &refusedError{t, contractDetail(o, err)}
	case stored.Job != j.Seq: // the request is one that has made a job before
		stored.Job = j.Seq
		r.ticks = append(r.ticks, stored.record(r.Name))
	}
	r.done(&stored)
	return nil
}

// storing stores a tick in the transaction that stores its job, unless the tick is stored already.
// The insert of the job comes before: of two runs that submit the same key, the one whose insert
// waits for the other's sees the tick of that.
func (r *run) storing(t *Tick) engine.AttachedFunc {
	return func(w engine.RecordWriter, _, after *job.Job) error {
		done, err := readTick(w, r.Name, t.Count)
		if err != nil {
			return err
		}
		record, err := w.Record(indexKind, r.Name)
		if err != nil {
			return err
		}
		if done != nil || !r.isCurrent(record) {
			return errStale
		}
		t.Job, t.At = after.Seq, w.Now()
		t.Lateness = max(0, t.At.Sub(r.dueAt(r.Name, t.Time)))
		return w.UpsertRecords(t.record(r.Name))
	}
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
		s.Last = before // the times that this one stands for are over
	}
	tried := r.now.Sub(s.Since)
	if tried < downtime {
		return r.now.Add(min(max(tried, minRetry), maxRetry, downtime-tried))
	}
	r.Log.Warn("a schedule could not submit its job", "schedule", r.Name, "time", t.Time,
		telemetry.ErrorMessage, e.why)
	t.Outcome, t.Error = Missed, e.why
	r.add(t)
	return r.wakeAt(r.calendar, r.now)
}
