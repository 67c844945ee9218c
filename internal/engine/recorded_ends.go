package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A worker may record the end of its run in a transaction of its own, see job.RunEnd. From its
// commit on the run has ended, and a node carries the end out:
//
//	the worker's COMMIT ─▶ notification, or NextDue ─▶ EndsRecorded ─▶ CarryOutEnds, VerifyEnds
//
// Until then the job is leased. Whoever locks it sees Job.End:
//
//	currentRun   the run is lost: a worker's verb gets RunLost, as after any end
//	expire       passes over the job: its lease does not end
//	lockOne      returns a recordedEndsError, as do other locks of jobs that are to be moved:
//	             update, in update.go, then carries the end out, as if the worker had been a
//	             moment earlier, and runs the verb again
//	transitionWith refuses by a recordedEndsError whatever the others have let pass
//
// So nothing comes between the commit of the worker and what the end leads to.

// RecordedEnds says what the recorded ends of a job type's runs lead to. Complete, or Verify, and
// Fail are required; package workerapi has the functions of the contracts.
type RecordedEnds struct {
	// Complete and Fail return the outcome of a run, as a DecideFunc does.
	Complete func(j *job.Job, result []byte) Outcome
	Fail     func(j *job.Job, message, errorType string, retryable bool) Outcome
	// Verify replaces Complete in a job type that verifies a result by more than the job. It is
	// called before the transaction, with the job and its definition. An error fails the run, but
	// for one that is transient: the end is tried again later then.
	Verify func(ctx context.Context, j *job.Job, result []byte) (Outcome, error)
	// Check returns why this node must not carry out ends now; nil means that it always may.
	Check func() error
	// Ended, if not nil, is called with each job whose end was carried out, after the commit.
	Ended func(j *job.Job, end *job.RunEnd)
}

// At most endsBatch ends are carried out in one transaction, and fewer where their results together
// have more than maxEndsBytes, but at least one.
const (
	endsBatch    = 500
	maxEndsBytes = 64 << 20
)

// RefusedType is the type of the failure of a run whose recorded end was refused.
const RefusedType = "end_refused" // the end that the worker has recorded was refused

// RefusedEnd is the message of the failure of a run whose recorded end was refused.
func RefusedEnd(err error) string {
	why := err.Error()
	if e, ok := errors.AsType[*job.Error](err); ok {
		why = cmp.Or(e.Msg, why)
	}
	return "the end that the worker has recorded was refused: " + why
}

// endsHash stands for recorded ends in notifications. The function record_run_end of PostgreSQL
// sends it.
var endsHash = job.QueueHashOf("", "\x00ends")

// EndsRecorded receives when CarryOutEnds may have something to do.
func (e *Engine) EndsRecorded() <-chan struct{} { return e.hub.endsRecorded }

// EndsToVerify receives when VerifyEnds has something to do.
func (e *Engine) EndsToVerify() <-chan struct{} { return e.hub.endsToVerify }

// CarryOutEnds carries out the recorded ends of runs, and returns how many. Several nodes may do it
// at once. It leaves those whose results are to be verified to VerifyEnds. One that fails is
// logged, tried again later, and holds up no other, see failed_ends.go. The error is the store's.
func (e *Engine) CarryOutEnds(ctx context.Context) (n int, err error) {
	var verify []int64
	for after := int64(0); ctx.Err() == nil; {
		b, err := e.carryOutPage(ctx, after)
		n += b.done
		if err != nil {
			return n, err
		}
		for i := range b.verify {
			verify = append(verify, b.verify[i].Seq)
		}
		if b.isLast {
			break
		}
		after = b.last
	}
	if len(verify) > 0 {
		e.toVerify.Store(&verify)
		signal(e.hub.endsToVerify)
	}
	return n, nil
}

// The bounds of EndsPause.
const (
	minEndsPause = 5 * time.Millisecond
	maxEndsPause = 5 * time.Second
)

// EndsPause returns how long to wait between two calls of CarryOutEnds: so the ends of several
// workers share one. It is longer where a call passes over many ends that were removed, as while a
// session of the database holds a snapshot.
func (e *Engine) EndsPause() time.Duration {
	return max(minEndsPause, min(4*time.Duration(e.endsSearchTime.Load()), maxEndsPause))
}

// VerifyEnds carries out those ends that CarryOutEnds has left to it, and returns how many. What
// they are verified with may be slow or unavailable, so this takes its time. It fails if one end
// has to be tried again; CarryOutEnds finds it then.
func (e *Engine) VerifyEnds(ctx context.Context) (n int, err error) {
	verify := e.toVerify.Swap(nil)
	if verify == nil {
		return 0, nil
	}
	for _, seq := range *verify {
		if ctx.Err() != nil {
			return n, err
		}
		failed := e.carryOutEndsOf(ctx, []int64{seq})
		if failed != nil {
			err = failed
			continue
		}
		n++
	}
	return n, err
}

// carryOutEndsOf carries out the recorded ends of the current runs of jobs. Conflict where one of
// them fails; Unavailable where this node cannot carry it out now.
func (e *Engine) carryOutEndsOf(ctx context.Context, seqs []int64) error {
	var b foundEnds
	err := e.tryEnds(ctx, func(u *unit) error {
		b = foundEnds{}
		return u.carryOutAll(store.Selector{Seqs: seqs, Lock: true}, &b)
	})
	switch {
	case err != nil && isStoreFailure(err):
		return err
	case err != nil:
		return errEndFails(err)
	}
	for i := range b.verify {
		if err := e.verifyEnd(ctx, &b.verify[i]); err != nil {
			return err
		}
	}
	if b.done+len(b.verify) < b.found {
		return errEndPending()
	}
	return nil
}

func errEndFails(err error) error {
	return &job.Error{Kind: job.Conflict, Op: "engine.end", Err: err,
		Msg: "the worker has recorded the end of the job's run, which cannot be carried out"}
}

func errEndPending() error {
	return &job.Error{Kind: job.Unavailable, Op: "engine.end",
		Msg: "the worker has recorded the end of the job's run, which cannot be carried out now"}
}

// foundEnds is what one transaction has found of recorded ends.
type foundEnds struct {
	last   int64     // the number of the last job that was looked at
	isLast bool      // there is none behind it
	found  int       // how many it has locked
	done   int       // how many of these were carried out
	verify []job.Job // those whose results are to be verified
}

// carryOutPage carries out the ends of the first jobs that have one and a number above after, but
// for those that another transaction has locked or that have failed a short while ago.
func (e *Engine) carryOutPage(ctx context.Context, after int64) (b foundEnds, err error) {
	var page []*job.Job
	last, isLast := after, true
	err = e.tryEnds(ctx, func(u *unit) error {
		b, page, isLast = foundEnds{}, nil, true
		began := e.guard.monotonic()
		found, err := u.tx.Load(store.Selector{RecordedEnds: endsBatch, After: after})
		if err != nil || len(found) == 0 {
			return err
		}
		if after == 0 {
			e.endsSearchTime.Store(int64(e.guard.monotonic() - began))
		}
		page = found[:batchSizeOf(found)]
		last = page[len(page)-1].Seq
		isLast = len(page) == len(found) && len(found) < endsBatch
		page = e.failedEnds.due(page, began)
		return u.carryOutPage(page, &b)
	})
	if err != nil && len(page) > 0 {
		b, err = e.carryOutParts(ctx, page, err)
	}
	b.last, b.isLast = last, isLast
	return b, err
}

// carryOutPage carries out the ends of a page, and removes those that are stale.
func (u *unit) carryOutPage(page []*job.Job, b *foundEnds) error {
	if len(page) == 0 {
		return nil
	}
	u.deleteStaleEnds(page)
	seqs := make([]int64, len(page))
	for i, j := range page {
		seqs[i] = j.Seq
	}
	return u.carryOutAll(store.Selector{Seqs: seqs, Lock: true, SkipLocked: true}, b)
}

// batchSizeOf returns how many of the first jobs of a page one transaction takes.
func batchSizeOf(page []*job.Job) (n int) {
	bytes := int64(0)
	for n < len(page) {
		if bytes += page[n].Size; bytes > maxEndsBytes && n > 0 {
			break
		}
		n++
	}
	return n
}

// deleteStaleEnds removes ends whose run is not its job's current one. Only a node of an older
// version can have taken the job from a run whose end is recorded.
func (u *unit) deleteStaleEnds(page []*job.Job) {
	for _, j := range page {
		if j.Run.IsZero() {
			u.writes.DeleteEnds = append(u.writes.DeleteEnds, j.End.Run)
			u.after.staleEnds = append(u.after.staleEnds, j.End.Run)
		}
	}
}

// carryOutAll carries out the ends of the selected jobs, but for those to be verified first.
func (u *unit) carryOutAll(s store.Selector, b *foundEnds) error {
	jobs, err := u.tx.Load(s)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.End == nil {
			continue
		}
		b.found++
		if err := u.carryOut(j, b); err != nil {
			return err
		}
	}
	return nil
}

// carryOut carries out the end of a job, or leaves it for later.
func (u *unit) carryOut(j *job.Job, b *foundEnds) error {
	t := u.e.jobTypes[j.ID.JobType]
	if t == nil {
		return nil // another node serves it
	}
	ends := t.RecordedEnds
	switch {
	case ends == nil:
		b.done++
		u.deleteEnd(j)
		return nil
	case ends.Check != nil && ends.Check() != nil:
		return nil
	case j.End.Succeeded && ends.Verify != nil:
		b.verify = append(b.verify, *j)
		return nil
	}
	b.done++
	return u.finishRecorded(j, ends.outcome(j))
}

// outcome returns what the recorded end of a job leads to. One for which the contract panics, as
// nobody has checked the result before, fails the run and holds up no other.
func (r *RecordedEnds) outcome(j *job.Job) (o Outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = r.Fail(j, RefusedEnd(fmt.Errorf("panic: %v", p)), RefusedType, false)
		}
	}()
	if j.End.Succeeded {
		return r.Complete(j, j.End.Result)
	}
	return r.Fail(j, j.End.Error, j.End.ErrorType, j.End.Retryable)
}

// finishRecorded ends the run of a job as its worker has recorded. A run that was not started is
// started first. Where the job type has no such end for the job's state the run fails for good, and
// where it has no failure either it goes on.
func (u *unit) finishRecorded(j *job.Job, o Outcome) error {
	end := j.End
	j.End = nil
	if !u.allows(j, o.On) && u.allows(j, job.Started) {
		if err := u.transition(j, job.Started); err != nil {
			return err
		}
	}
	err := u.finishRun(j, o)
	if job.IsKind(err, job.Conflict) {
		o = u.e.jobTypes[j.ID.JobType].RecordedEnds.Fail(j, RefusedEnd(err), RefusedType, false)
		err = u.finishRun(j, o)
	}
	if job.IsKind(err, job.Conflict) {
		j.End = end
		u.deleteEnd(j)
		return nil
	}
	u.writes.DeleteEnds = append(u.writes.DeleteEnds, end.Run)
	refused := end.Succeeded && (o.On == job.Failed || o.On == job.FailedForGood)
	u.after.carriedOut = append(u.after.carriedOut, carriedOutEnd{*j, end, refused, o.Reason})
	return err
}

// deleteEnd removes a recorded end that leads to no transition of the job: its run goes on.
func (u *unit) deleteEnd(j *job.Job) {
	u.writes.DeleteEnds = append(u.writes.DeleteEnds, j.End.Run)
	u.after.carriedOut = append(u.after.carriedOut, carriedOutEnd{job: *j, refused: true,
		reason: "workers cannot end this run, which goes on"})
	j.End = nil
}

// carriedOutEnd is a job whose recorded end was carried out; end is nil where it was dropped.
type carriedOutEnd struct {
	job     job.Job
	end     *job.RunEnd
	refused bool // the run has not come to what its worker has recorded
	reason  string
}

// EndCounts is how many recorded ends of a job type's runs this node has carried out.
type EndCounts struct{ Completed, Failed, Refused int64 }

// endCounts are the EndCounts of each job type.
type endCounts struct {
	mu sync.Mutex
	of map[string]EndCounts
}

// RecordedEndCounts returns what this node has carried out, for each job type whose runs workers
// may end so.
func (e *Engine) RecordedEndCounts() map[string]EndCounts {
	e.carriedOut.mu.Lock()
	defer e.carriedOut.mu.Unlock()
	all := map[string]EndCounts{}
	for _, name := range e.jobTypeNames {
		if e.jobTypes[name].RecordedEnds != nil {
			all[name] = e.carriedOut.of[name]
		}
	}
	return all
}

// count counts one end.
func (c *endCounts) count(r *carriedOutEnd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[r.job.ID.JobType]
	switch {
	case r.refused:
		n.Refused++
	case r.end.Succeeded:
		n.Completed++
	default:
		n.Failed++
	}
	put(&c.of, r.job.ID.JobType, n)
}

// reportEnds reports the ends that a unit has carried out, and those that were stale.
func (e *Engine) reportEnds(carriedOut []carriedOutEnd, stale []job.RunID) {
	for _, run := range stale {
		e.log.Log(context.Background(), slog.LevelError,
			"the end that a worker has recorded was lost: a node of an older version has taken the job",
			"run_id", run.String())
	}
	for i := range carriedOut {
		r := &carriedOut[i]
		e.carriedOut.count(r)
		if r.refused {
			level := slog.LevelWarn
			if r.end == nil { // what the worker has committed is of a run that goes on
				level = slog.LevelError
			}
			e.log.Log(context.Background(), level,
				"the end that a worker has recorded was refused", "contract", r.job.ID.JobType,
				"job_id", r.job.ID.Key, "error_message", r.reason)
		}
		ends := e.jobTypes[r.job.ID.JobType].RecordedEnds
		if r.end != nil && ends.Ended != nil {
			ends.Ended(&r.job, r.end)
		}
	}
}

// verifyEnd verifies the result of a run and carries out its end.
func (e *Engine) verifyEnd(ctx context.Context, j *job.Job) error {
	o, err := e.verifiedOutcome(ctx, j)
	if err != nil {
		return err
	}
	return e.tryEnds(ctx, func(u *unit) error { return u.finishVerified(j, o) })
}

// verifiedOutcome returns the outcome of a run by its job type's Verify.
func (e *Engine) verifiedOutcome(ctx context.Context, j *job.Job) (o Outcome, err error) {
	ends := e.jobTypes[j.ID.JobType].RecordedEnds
	full, err := e.GetBySeqs(ctx, []int64{j.Seq}, store.DefinitionOnly)
	if err != nil || len(full) == 0 {
		return o, err
	}
	err = recovered(func() (err error) {
		o, err = ends.Verify(ctx, full[0], j.End.Result)
		return err
	})
	if err != nil && !IsTransient(err) {
		return ends.Fail(j, RefusedEnd(err), RefusedType, false), nil
	}
	return o, err
}

// finishVerified carries out an end that was verified, unless another node has done it.
func (u *unit) finishVerified(verified *job.Job, o Outcome) error {
	locked, err := u.tx.Load(store.Selector{Seqs: []int64{verified.Seq}, Lock: true})
	if err != nil || len(locked) == 0 || locked[0].End == nil || locked[0].Run != verified.Run {
		return err
	}
	return u.finishRecorded(locked[0], o)
}

// recordedEndsError says that jobs cannot be moved before the recorded ends of their runs are
// carried out.
type recordedEndsError struct{ seqs []int64 }

func (*recordedEndsError) Error() string { return "ends of runs have to be carried out first" }

// ensureNoRecordedEnds returns a recordedEndsError if runs of the jobs, which are all to be moved,
// have recorded ends.
func ensureNoRecordedEnds(jobs []*job.Job) error {
	var recorded []int64
	for _, j := range jobs {
		if j.End != nil {
			recorded = append(recorded, j.Seq)
		}
	}
	if len(recorded) == 0 {
		return nil
	}
	return &recordedEndsError{recorded}
}
