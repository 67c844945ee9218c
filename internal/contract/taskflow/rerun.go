package taskflow

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/telemetry"
)

// A rerun makes new jobs of those that failed and of those that they blocked, as final statuses
// stay final (TF-031). It goes through these steps:
//
//	load      the graph around a job, and which of its jobs were rerun before
//	choose    which jobs are copied: rerunSet of a job, all that are done badly of a graph
//	copies    dependencies on jobs that are copied go to the copies, also to those of earlier
//	          reruns; all others stay
//	store     the copies and, for each original, a record of its copy, in one transaction
//
// The originals are not changed. FAILED and BLOCKED jobs change no more, so what was read before
// the transaction still holds in it, except for reruns at the same time: these are distinguished by
// the records, under a lock.

// rerunKind is the kind of the records of reruns. Their key is the id of an original and their body
// that of its latest copy.
const rerunKind = "taskflow.rerun"

// rerunError is wrapped by the Conflict of a second rerun. It has the ids of the copies by those of
// their originals.
type rerunError struct{ copies map[string]string }

// Error adds nothing to the message of the Conflict.
func (e *rerunError) Error() string { return "it was rerun before" }

// rerun is one call.
type rerun struct {
	*TaskFlow

	root   *job.Job          // the job that the call names
	jobs   []*job.Job        // it and those that are connected with it, nearest first
	edges  []job.Edge        // between them
	copyOf map[string]string // the copies of earlier reruns, by the ids of their originals
	chosen []string          // the ids of the jobs that are copied
	once   []string          // those of them that must not have been rerun before
}

// loadRerun reads the graph around a job. The records of earlier reruns are read before the jobs
// that they have made: a rerun in between is found in the transaction then (recordCopies).
func (t *TaskFlow) loadRerun(ctx context.Context, id job.ID) (*rerun, error) {
	r := &rerun{TaskFlow: t}
	if err := r.loadGraph(ctx, id); err != nil {
		return nil, err
	}
	var err error
	r.copyOf, err = t.copiesOf(ctx, keysOfRerunnable(r.jobs))
	if err != nil || len(r.copyOf) == 0 {
		return r, err
	}
	return r, r.loadGraph(ctx, id)
}

// loadGraph reads the jobs that are connected with one.
func (r *rerun) loadGraph(ctx context.Context, id job.ID) (err error) {
	truncated := false
	r.jobs, r.edges, truncated, err = r.Engine.Graph(ctx, id, maxGraph)
	if err != nil {
		return err
	}
	if truncated {
		return conflict("the graph of the job has more than %d jobs", maxGraph)
	}
	r.root = r.jobs[0]
	return nil
}

// isRerunnable reports whether a job is done and has not succeeded.
func isRerunnable(j *job.Job) bool { return j.State == Failed || j.State == Blocked }

// keysOfRerunnable returns the ids of those jobs that may have been rerun.
func keysOfRerunnable(jobs []*job.Job) (keys []string) {
	for _, j := range jobs {
		if isRerunnable(j) {
			keys = append(keys, j.ID.Key)
		}
	}
	return keys
}

// copiesOf returns the copy of each of the jobs that was rerun, by their ids; of several the
// latest.
func (t *TaskFlow) copiesOf(ctx context.Context, keys []string) (copies map[string]string,
	err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err = t.Engine.ViewRecords(ctx, func(r engine.RecordReader) error {
		found, err := r.RecordsOf(rerunKind, keys...)
		copies = copiesIn(found)
		return err
	})
	return copies, err
}

// copiesIn returns the copies that records name, by the ids of their originals.
func copiesIn(records []job.Record) map[string]string {
	copies := make(map[string]string, len(records))
	for _, r := range records {
		copies[r.Key] = string(r.Body)
	}
	return copies
}

// latestCopies returns the last copy in the chain of reruns of each of the jobs, as far as it
// exists.
func (t *TaskFlow) latestCopies(ctx context.Context,
	copies map[string]string) (map[string]string, error) {
	latest := map[string]string{}
	if len(copies) == 0 {
		return latest, nil
	}
	maps.Copy(latest, copies)
	for {
		newer, err := t.copiesOf(ctx, slices.Collect(maps.Values(latest)))
		if err != nil {
			return nil, err
		}
		if len(newer) == 0 {
			break
		}
		for original, made := range latest {
			if newer[made] != "" {
				latest[original] = newer[made]
			}
		}
	}
	ids := engineJobIDs(slices.Collect(maps.Values(latest)))
	found, err := t.Engine.GetByIDs(ctx, ids, store.NoBodies)
	exists := map[string]bool{}
	for _, j := range found {
		exists[j.ID.Key] = true
	}
	maps.DeleteFunc(latest, func(_, made string) bool { return !exists[made] })
	return latest, err
}

// maxRerunAttempts bounds how often a rerun begins again because another one came first.
const maxRerunAttempts = 20

// errRerunMeanwhile says that another rerun has copied jobs of the graph since it was read.
var errRerunMeanwhile = errors.New("another rerun has copied jobs of the graph")

// retryRerun reads the graph around a job and calls fn with it, once more where another rerun has
// come in between.
func (t *TaskFlow) retryRerun(ctx context.Context, id job.ID, fn func(*rerun) error) error {
	for range maxRerunAttempts {
		r, err := t.loadRerun(ctx, id)
		if err != nil {
			return err
		}
		if err = fn(r); !errors.Is(err, errRerunMeanwhile) {
			return err
		}
	}
	return &job.Error{Kind: job.Unavailable, Op: Name, Err: errRerunMeanwhile,
		Msg: "other requests keep rerunning jobs of the graph"}
}

// rerunJob reruns a job with those of its ancestors and all of its dependents, transitively, that
// are FAILED or BLOCKED. It returns the copies by the ids of their originals, and that of the job.
// Without again the job must not have been rerun before.
func (t *TaskFlow) rerunJob(ctx context.Context, id job.ID, again bool) (copies map[string]string,
	made *job.Job, err error) {
	err = t.retryRerun(ctx, id, func(r *rerun) (err error) {
		if !isRerunnable(r.root) {
			return conflict("the job is %s; a job that is FAILED or BLOCKED can be rerun",
				r.root.State)
		}
		set := rerunSet(r.root.Seq, r.jobs, r.edges)
		r.choose(func(j *job.Job) bool { return set[j.Seq] }, r.root)
		if !again {
			r.once = r.chosen[:1] // the root is the nearest of all
		}
		copies, made, err = r.run(ctx)
		return err
	})
	return copies, made, err
}

// rerunGraph reruns all jobs that are connected with a job and are FAILED or BLOCKED; without again
// those of them that were not rerun before. It returns the copies by the ids of their originals.
func (t *TaskFlow) rerunGraph(ctx context.Context, id job.ID, again bool) (
	copies map[string]string, err error) {
	err = t.retryRerun(ctx, id, func(r *rerun) (err error) {
		r.choose(func(j *job.Job) bool {
			return isRerunnable(j) && (again || r.copyOf[j.ID.Key] == "")
		}, nil)
		switch {
		case len(r.chosen) == 0 && len(r.copyOf) > 0:
			return rerunBefore(r.copyOf)
		case len(r.chosen) == 0:
			return conflict("no job of the graph is FAILED or BLOCKED")
		case !again:
			r.once = r.chosen
		}
		copies, _, err = r.run(ctx)
		return err
	})
	return copies, err
}

// rerunOnce and rerunAgain are the actions of operators.
func (t *TaskFlow) rerunOnce(ctx context.Context, j *job.Job) (*job.Job, error) {
	_, made, err := t.rerunJob(ctx, j.ID, false)
	return made, err
}

func (t *TaskFlow) rerunAgain(ctx context.Context, j *job.Job) (*job.Job, error) {
	_, made, err := t.rerunJob(ctx, j.ID, true)
	return made, err
}

// rerunSet returns the numbers of the jobs that a rerun of one copies: the job itself, and of its
// ancestors and dependents, transitively, those that are FAILED or BLOCKED.
func rerunSet(root int64, related []*job.Job, edges []job.Edge) map[int64]bool {
	rerunnable := map[int64]bool{}
	for _, j := range related {
		rerunnable[j.Seq] = isRerunnable(j)
	}
	up, down := map[int64][]int64{}, map[int64][]int64{}
	for _, e := range edges {
		up[e.Dependent] = append(up[e.Dependent], e.Dependency)
		down[e.Dependency] = append(down[e.Dependency], e.Dependent)
	}
	chosen := map[int64]bool{root: true}
	walk := func(next map[int64][]int64, from ...int64) {
		for len(from) > 0 {
			seq := from[0]
			from = from[1:]
			for _, n := range next[seq] {
				if rerunnable[n] && !chosen[n] {
					chosen[n] = true
					from = append(from, n)
				}
			}
		}
	}
	walk(up, root)
	walk(down, root)
	return chosen
}

// choose sets which jobs are copied, the nearest first. Of a job and its copy that are both chosen
// the copy is taken: it depends on what was rerun before. Only a job that is rerun itself, unless
// nil, is taken beside its copy; a graph is rerun from any of its jobs alike.
func (r *rerun) choose(is func(*job.Job) bool, itself *job.Job) {
	chosen := map[string]bool{}
	for _, j := range r.jobs {
		chosen[j.ID.Key] = is(j)
	}
	for _, j := range r.jobs {
		key := j.ID.Key
		if chosen[key] && (j == itself || !chosen[r.copyOf[key]]) {
			r.chosen = append(r.chosen, key)
		}
	}
}

// run copies the chosen jobs. It returns the copies by the ids of their originals, and the copy of
// the first of them.
func (r *rerun) run(ctx context.Context) (map[string]string, *job.Job, error) {
	batch, copies, err := r.copies(ctx)
	if err != nil {
		return nil, nil, err
	}
	stored, err := r.Engine.Submit(engine.WithTxFunc(ctx, func(w engine.RecordWriter,
		_, _ *job.Job) error {
		return r.recordCopies(w, copies)
	}), engine.Unique, batch)
	if e, is := errors.AsType[*job.Error](err); is && e.Kind == job.NotFound && e.ID.Key != "" {
		return nil, nil, errGraphDeleted // a dependency, as in unknownDependency
	}
	if err != nil {
		return nil, nil, err
	}
	return copies, stored.Jobs[0], nil
}

// copies returns the jobs to submit, in the order of the chosen ones, and their ids by those of
// their originals.
func (r *rerun) copies(ctx context.Context) ([]engine.Submission, map[string]string, error) {
	full, err := r.originals(ctx)
	if err != nil {
		return nil, nil, err
	}
	moved, err := r.latestCopies(ctx, r.copyOf)
	if err != nil {
		return nil, nil, err
	}
	ids := r.ids.Next(len(r.chosen))
	copies := make(map[string]string, len(ids))
	position := make(map[string]int, len(ids))
	for i, key := range r.chosen {
		copies[key], position[key] = ids[i], i
	}
	maps.Copy(moved, copies)
	batch := make([]engine.Submission, len(ids))
	for _, original := range full {
		key := original.ID.Key
		batch[position[key]] = r.resubmission(ctx, original, copies[key], moved)
	}
	return batch, copies, nil
}

// resubmission returns the copy of a job under an id. It has all that the submitter has set, and
// the engine leaves out the fields that it sets itself; moved has the copies that take the place of
// dependencies.
func (r *rerun) resubmission(ctx context.Context, original *job.Job, id string,
	moved map[string]string) engine.Submission {
	d := decodeDefinition(original.Definition)
	d.rerunOf = original.ID.Key
	d.dependencies = movedTo(d.dependencies, moved)
	again := *original
	again.ID, again.Alias, again.Definition = engineJobID(id), job.IdentityHash{}, d.encode()
	again.OrderTime, again.DueAt = time.Time{}, time.Time{} // now
	again.Lease, again.Trace = r.Lease, telemetry.Carrier(ctx)
	return engine.Submission{Job: again, DependsOn: engineJobIDs(d.dependencies)}
}

// movedTo returns dependencies with the copies in the place of their originals, each once.
func movedTo(dependencies []string, copies map[string]string) (moved []string) {
	for _, key := range dependencies {
		if to := cmp.Or(copies[key], key); !slices.Contains(moved, to) {
			moved = append(moved, to)
		}
	}
	return moved
}

// The bounds of what a rerun holds in memory: how many jobs are loaded at once, and of how many
// bytes the payloads of all may be.
const (
	maxLoaded        = 250
	maxRerunPayloads = 64 << 20
)

// originals loads the chosen jobs with their payloads.
func (r *rerun) originals(ctx context.Context) (full []*job.Job, err error) {
	payloads := 0
	for chunk := range slices.Chunk(r.chosen, maxLoaded) {
		found, err := r.Engine.GetByIDs(ctx, engineJobIDs(chunk), store.AllBodies)
		if err != nil {
			return nil, err
		}
		if len(found) < len(chunk) {
			return nil, errGraphDeleted
		}
		for _, j := range found {
			j.Progress, j.Result, j.Failure = nil, nil, nil // no copy has them
			payloads += len(j.Payload)
		}
		if payloads > maxRerunPayloads {
			return nil, conflict("the payloads of the jobs to rerun have more than %d bytes",
				maxRerunPayloads)
		}
		full = append(full, found...)
	}
	return full, nil
}

// recordCopies stores the copies of a rerun, which is the replay of the dead letters of the
// originals (decision 0084). It is a Conflict where a job that may be rerun once was rerun before.
func (r *rerun) recordCopies(w engine.RecordWriter, copies map[string]string) error {
	if err := w.Lock(rerunKind); err != nil {
		return err
	}
	stored, err := w.RecordsOf(rerunKind, keysOfRerunnable(r.jobs)...)
	if err != nil {
		return err
	}
	now := copiesIn(stored)
	isRerun := func(key string) bool { return now[key] != "" }
	switch {
	case slices.ContainsFunc(r.once, isRerun):
		maps.DeleteFunc(now, func(key, _ string) bool { return !slices.Contains(r.chosen, key) })
		return rerunBefore(now)
	case !maps.Equal(now, r.copyOf):
		return errRerunMeanwhile
	}
	records, ids := make([]job.Record, 0, len(copies)), map[job.ID]job.ID{}
	for _, key := range r.chosen {
		ids[engineJobID(key)] = engineJobID(copies[key])
		records = append(records, job.Record{Kind: rerunKind, Key: key, Body: []byte(copies[key])})
	}
	engine.MarkReplayed(w, ids)
	return w.UpsertRecords(records...)
}

// errGraphDeleted is the error of a rerun beside the deletion of jobs that it needs.
var errGraphDeleted = conflict("jobs of the graph are being deleted; try again")

// forgetReruns deletes the records of the reruns of jobs that are deleted. Only those that ended
// without success have been rerun.
func forgetReruns(w engine.RecordWriter, deleted ...*job.Job) error {
	keys := keysOfRerunnable(deleted)
	if len(keys) == 0 {
		return nil
	}
	return w.DeleteRecords(rerunKind, keys...)
}

// removeJob deletes a job and the records of its reruns.
func (t *TaskFlow) removeJob(ctx context.Context, id job.ID) error {
	return t.Engine.Remove(forgettingReruns(ctx), id)
}

// forgettingReruns returns the context of the deletion of a job.
func forgettingReruns(ctx context.Context) context.Context {
	return engine.WithTxFunc(ctx, func(w engine.RecordWriter, before, _ *job.Job) error {
		return forgetReruns(w, before)
	})
}

// removeWithDependents deletes a job and all that depends on it, and the records of their reruns.
func (t *TaskFlow) removeWithDependents(ctx context.Context, id job.ID) error {
	removed, err := t.Engine.RemoveWithDependents(ctx, id, maxGraph)
	if err != nil || len(keysOfRerunnable(removed)) == 0 {
		return err
	}
	return t.Engine.ChangeRecords(ctx, rerunKind, func(w engine.RecordWriter) error {
		return forgetReruns(w, removed...)
	})
}

// rerunBefore is the error of a rerun of what was rerun before.
func rerunBefore(copies map[string]string) error {
	return &job.Error{Kind: job.Conflict, Op: Name, Err: &rerunError{copies},
		Msg: `it was rerun before; send {"again": true} to rerun it once more`}
}
