package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// TimelineReader reads what a source adds to the facts of a timeline.
type TimelineReader interface {
	RecordReader
	// Load returns those of the selected jobs that exist, in no particular order.
	Load(s store.Selector) ([]*job.Job, error)
}

// TimelineSource adds to the facts of a timeline what the engine does not know. It reads in the
// view of the other facts.
type TimelineSource func(r TimelineReader, f *job.TimelineInput) error

// Timeline returns the facts of the timeline of the job with a number (AD-014), read in one view,
// with those that the sources add. A job that is deleted is shown from its dead letter. NotFound if
// there is no such job and no dead letter of it.
func (e *Engine) Timeline(ctx context.Context, seq int64,
	sources ...TimelineSource) (f job.TimelineInput, err error) {
	err = e.view(ctx, func(r reader) error {
		f = job.TimelineInput{Now: r.Now()}
		if f.Job, f.DeadLetters, err = jobOrDeadLetter(r, seq); err != nil {
			return err
		}
		g := timelineGatherer{r, e.jobTypes[f.Job.ID.JobType], &f}
		for _, step := range []func() error{g.gatherHistory, g.gatherRelatives,
			g.gatherMessages} {
			if err := step(); err != nil {
				return err
			}
		}
		for _, add := range sources {
			if err := add(recordView{r}, &f); err != nil {
				return err
			}
		}
		return nil
	})
	return f, err
}

// jobOrDeadLetter returns the job with a number, with its bodies, and its dead letters. A job that
// is gone is as its latest dead letter has it.
func jobOrDeadLetter(r reader, seq int64) (*job.Job, []job.DeadLetter, error) {
	deadLetters, err := r.DeadLetters(store.DeadLetterSelector{Jobs: []int64{seq}})
	if err != nil {
		return nil, nil, err
	}
	found, err := r.Load(store.Selector{Seqs: []int64{seq}, Bodies: store.AllBodies})
	switch {
	case err != nil:
		return nil, nil, err
	case len(found) > 0:
		return found[0], deadLetters, nil
	case len(deadLetters) == 0:
		return nil, nil, &job.Error{Kind: job.NotFound, Op: "engine.job",
			Msg: "there is no such job"}
	}
	l := deadLetters[len(deadLetters)-1]
	l.Job.Phase, l.Job.FinishedAt = job.Done, l.CreatedAt
	return &l.Job, deadLetters, nil
}

// GetWithDeadLetters returns the job with a number, with its bodies, and its dead letters, the
// oldest first. A job that is gone is as its latest dead letter has it. NotFound if there is no
// such job and no dead letter of it.
func (e *Engine) GetWithDeadLetters(ctx context.Context, seq int64) (j *job.Job,
	deadLetters []job.DeadLetter, err error) {
	err = e.view(ctx, func(r reader) error {
		j, deadLetters, err = jobOrDeadLetter(r, seq)
		return err
	})
	return j, deadLetters, err
}

// timelineGatherer gathers the facts about one job. Of each kind it reads one more than a timeline
// shows.
type timelineGatherer struct {
	reader
	jobType *JobType // nil where this node does not serve it
	input   *job.TimelineInput
}

// gatherHistory gathers the events.
func (g *timelineGatherer) gatherHistory() (err error) {
	g.input.Events, err = g.Events(g.input.Job.Seq, job.MaxEntries+1)
	return err
}

// gatherRelatives gathers the dependencies and the children.
func (g *timelineGatherer) gatherRelatives() error {
	j := g.input.Job
	edges, err := g.Edges(store.EdgeSelector{From: []int64{j.Seq}})
	if err != nil {
		return err
	}
	if seqs := dependenciesOf(edges); len(seqs) > 0 {
		g.input.Dependencies, err = g.Load(store.Selector{
			Seqs: seqs[:min(len(seqs), job.MaxEntries+1)], Bodies: store.NoBodies})
		slices.SortFunc(g.input.Dependencies, func(a, b *job.Job) int {
			return cmp.Compare(a.Seq, b.Seq)
		})
	}
	if err != nil || j.Children == 0 {
		return err
	}
	page, err := g.List(store.Filter{Parent: j.Seq, Limit: job.MaxEntries + 1,
		WithoutBodies: true})
	g.input.Children = page.Jobs
	return err
}

// dependenciesOf returns the dependencies of edges from one job, by number.
func dependenciesOf(edges []job.Edge) []int64 {
	seqs := make([]int64, len(edges))
	for i, e := range edges {
		seqs[i] = e.Dependency
	}
	slices.Sort(seqs)
	return seqs
}

// gatherMessages gathers those messages of the job that wait, among the oldest of its job type.
func (g *timelineGatherer) gatherMessages() error {
	if g.jobType == nil || !g.jobType.Publish {
		return nil
	}
	waiting, err := g.Messages([]string{g.jobType.Name}, job.MaxMessagesAhead)
	for i := range waiting {
		if waiting[i].Job == g.input.Job.Seq {
			g.input.Messages = append(g.input.Messages, waiting[i])
		}
	}
	return err
}
