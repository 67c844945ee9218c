package taskflow

import (
	"context"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// operators says what operators may do with jobs.
func (t *TaskFlow) operators() []contract.Operator {
	return []contract.Operator{{JobType: Name, HasNoKinds: true,
		Submit: t.submitFor, Check: t.checkFor, Replay: t.rerunAgain,
		Example: contract.Request{Body: []byte(
			`{"name":"report","queue":"mail","payload":{"to":"you"}}`)},
		Answer: errorTable.Answer, Events: eventTypes,
		Name: func(j *job.Job) string { return decodeDefinition(j.Definition).name },
		Path: func(j *job.Job) string { return jobsPath + "/" + j.ID.Key },
		Actions: []contract.Action{
			{Name: contract.ActionRerun, States: []job.State{Failed, Blocked}, Do: t.rerunOnce},
			contract.RunNow(t.Engine),
			contract.Change(t.Engine, contract.ActionCancel, job.Canceled, cancelRun, Running),
			contract.Release(t.Engine, Running),
			t.deletion(),
		}}}
}

// readCreate reads and validates the body of a create.
func (t *TaskFlow) readCreate(text []byte) (jobSpec, error) {
	if err := checkObject(text); err != nil {
		return jobSpec{}, err
	}
	s, err := readSpec(text, &jobNames)
	if err != nil {
		return s, err
	}
	if err := s.complete(); err != nil {
		return s, err
	}
	return s, t.encodeCallback(&s)
}

// readFor reads and validates a request of an operator.
func (t *TaskFlow) readFor(r contract.Request) (jobSpec, error) {
	if r.Owner != "" {
		return jobSpec{}, invalid("owner: the jobs of TaskFlow have none")
	}
	return t.readCreate(r.Body)
}

// submitFor submits a job by the rules of POST /api/v1/jobs (AD-017).
func (t *TaskFlow) submitFor(ctx context.Context, r contract.Request) (*job.Job, error) {
	s, err := t.readFor(r)
	if err != nil {
		return nil, err
	}
	var once engine.Idempotency
	if r.Key != "" {
		once.Alias = job.AliasOf(Name, "operator", r.Key)
	}
	d := definition{name: s.name, dependencies: s.dependencies}
	made, err := t.Engine.SubmitOnce(ctx, once,
		[]engine.Submission{t.submission(ctx, &s, &d, t.ids.Next(1)[0])})
	return made.Job, unknownDependency(err)
}

// checkFor checks a request as submitFor does, apart from whether its dependencies exist.
func (t *TaskFlow) checkFor(_ context.Context, r contract.Request) error {
	_, err := t.readFor(r)
	return err
}

// deletion is the action that deletes a job.
func (t *TaskFlow) deletion() contract.Action {
	a := contract.Change(t.Engine, contract.ActionDelete, job.Removed, nil, statuses...)
	do := a.Do
	a.Do = func(ctx context.Context, j *job.Job) (*job.Job, error) {
		return do(forgettingReruns(ctx), j)
	}
	return a
}
