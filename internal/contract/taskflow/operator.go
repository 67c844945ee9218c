package taskflow

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// operators says what operators may do with jobs.
func (t *TaskFlow) operators() []contract.Operator {
	return []contract.Operator{{Jobs: Name, Submit: t.submitFor, Check: t.checkFor, Replay: t.rerun,
		Answer: errorTable.Answer,
		Name:   func(j *job.Job) string { return decodeDefinition(j.Definition).name },
		Path:   func(j *job.Job) string { return jobsPath + "/" + j.ID.Key },
		Actions: []contract.Action{
			{Name: contract.ActionRerun, States: []job.State{Failed, Blocked}, Do: t.rerun},
			contract.RunNow(t.Engine),
			contract.Release(t.Engine, Running),
			contract.Change(t.Engine, contract.ActionDelete, job.Removed, nil, statuses...),
		}}}
}

// readCreate reads and validates the body of a create.
func readCreate(text []byte) (jobSpec, error) {
	if err := checkObject(text); err != nil {
		return jobSpec{}, err
	}
	s, err := readSpec(text, &jobNames)
	if err != nil {
		return s, err
	}
	return s, s.complete()
}

// readFor reads and validates a request of an operator.
func readFor(r contract.Request) (jobSpec, error) {
	if r.Owner != "" {
		return jobSpec{}, invalid("owner: the jobs of TaskFlow have none")
	}
	return readCreate(r.Body)
}

// submitFor submits a job by the rules of POST /api/v1/jobs (AD-017).
func (t *TaskFlow) submitFor(ctx context.Context, r contract.Request) (*job.Job, error) {
	s, err := readFor(r)
	if err != nil {
		return nil, err
	}
	var once engine.Once
	if r.Key != "" {
		once.Alias = job.AliasOf(Name, "operator", r.Key)
	}
	d := definition{s.name, s.dependencies}
	j, _, err := t.Engine.SubmitOnce(ctx, once,
		[]engine.Submission{t.submission(ctx, &s, &d, t.ids.Next(1)[0])})
	return j, unknownDependency(err)
}

// checkFor checks a request as submitFor does, apart from whether its dependencies exist.
func (t *TaskFlow) checkFor(_ context.Context, r contract.Request) error {
	_, err := readFor(r)
	return err
}

// rerun copies, in one transaction, a job that is FAILED or BLOCKED, with those of its ancestors
// and all of its dependents that are as well, and returns the copy of the job. Dependencies on
// copied jobs go to the copies, all others stay.
func (t *TaskFlow) rerun(ctx context.Context, j *job.Job) (*job.Job, error) {
	related, edges, truncated, err := t.Engine.Graph(ctx, j.ID, maxGraph)
	if err != nil {
		return nil, err
	}
	if truncated {
		return nil, conflict("the graph of the job has more than %d jobs", maxGraph)
	}
	seqs := rerunSet(j.Seq, related, edges)
	full, err := t.Engine.GetAll(ctx, idsOf(related, seqs))
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(full, func(o *job.Job) bool { return o.Seq == j.Seq })
	if at < 0 {
		return nil, errNotFound
	}
	full[0], full[at] = full[at], full[0] // the first of the batch is what the change is about
	ids := t.ids.Next(len(full))
	copyOf := make(map[string]string, len(full))
	for i, original := range full {
		copyOf[original.ID.Key] = ids[i]
	}
	batch := make([]engine.Submission, len(full))
	for i, original := range full {
		d := decodeDefinition(original.Definition)
		for k, key := range d.dependencies {
			if made, copied := copyOf[key]; copied {
				d.dependencies[k] = made
			}
		}
		s := jobSpec{name: d.name, queue: original.Queue, payload: original.Payload,
			priority: original.Priority, dependencies: d.dependencies, policy: policyOf(original)}
		batch[i] = t.submission(ctx, &s, &d, ids[i])
	}
	stored, err := t.Engine.Submit(ctx, engine.Unique, batch)
	if err != nil {
		return nil, unknownDependency(err)
	}
	return stored.Jobs[0], nil
}

// rerunSet returns the numbers of the jobs that a rerun of one copies: the job itself, and of its
// ancestors and dependents, transitively, those that are FAILED or BLOCKED.
func rerunSet(root int64, related []*job.Job, edges []job.Edge) map[int64]bool {
	over := map[int64]bool{}
	for _, j := range related {
		over[j.Seq] = j.State == Failed || j.State == Blocked
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
				if over[n] && !chosen[n] {
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

// idsOf returns the identities of the jobs with the numbers.
func idsOf(jobs []*job.Job, seqs map[int64]bool) (ids []job.ID) {
	for _, j := range jobs {
		if seqs[j.Seq] {
			ids = append(ids, j.ID)
		}
	}
	return ids
}
