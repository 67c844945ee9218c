package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// An answer to "why does this job not run" is made in two halves. This one gathers facts, in one
// view of the store: the job and what it waits for, its queue and who polls that, the jobs before
// it. The other half, job.Explain, turns them into sentences by pure rules:
//
//	gatherRelatives   open dependencies and children, down a chain to the job that holds it up
//	gatherQueue       pause, limits, rate, pollers
//	gatherMessages    the message by which a worker gets the job, where it is claimed by message
//	gatherAhead       how many ready jobs are claimed before it, and how fast jobs start
//	gatherEnd         of a job that is done: its dead letter, a cancel, or what it waited for
//
// Each fact has a bound: a number beyond it is "more than" the bound.

// WhySources are what Why needs to know that the engine does not keep. Pollers is required.
type WhySources struct {
	// Pollers returns which workers of all nodes ask for the jobs of a queue.
	Pollers func(r RecordReader, jobType, queue string) (job.Pollers, error)
	// PausedBy returns who has paused a queue, and when; the empty name where that is not known.
	PausedBy func(r RecordReader, jobType, queue string) (string, time.Time, error)
	// StartedPerMinute returns how many jobs of a queue start; 0 where that is not known.
	StartedPerMinute func(r RecordReader, jobType, queue string) (float64, error)
	// HidesFailure leaves the errors of jobs out of the answer.
	HidesFailure bool
}

// Why says why the job with a number does not run, or that it does (AD-015). What it says is of one
// moment: all facts are read in one view. NotFound if there is no such job and no dead letter of
// it.
func (e *Engine) Why(ctx context.Context, seq int64, from WhySources) (why job.Why, err error) {
	err = e.view(ctx, func(r reader) error {
		g := whyGatherer{reader: r, e: e, from: from}
		if err := g.gather(seq); err != nil {
			return err
		}
		why = job.Explain(&g.input)
		return nil
	})
	return why, err
}

// whyGatherer gathers the facts about one job.
type whyGatherer struct {
	reader
	input   job.ExplainInput
	e       *Engine
	jobType *JobType // nil where this node does not serve it
	from    WhySources
}

func (g *whyGatherer) gather(seq int64) error {
	g.input.Now, g.input.HidesFailure = g.Now(), g.from.HidesFailure
	found, err := g.Load(store.Selector{Seqs: []int64{seq}, Bodies: store.FailureOnly})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return g.findDeadLetter(seq)
	}
	g.input.Job = found[0]
	if err := g.gatherRelatives(); err != nil {
		return err
	}
	return g.gatherJob()
}

// gatherJob gathers all but what the job waits for.
func (g *whyGatherer) gatherJob() error {
	g.jobType = g.e.jobTypes[g.input.Job.ID.JobType]
	switch g.input.Job.Phase {
	case job.Leased:
		return nil
	case job.Done:
		return g.gatherEnd()
	}
	for _, step := range []func() error{g.gatherQueue, g.gatherMessages} {
		if err := step(); err != nil {
			return err
		}
	}
	if g.input.Job.Phase == job.Ready {
		return g.gatherAhead()
	}
	return nil
}

// gatherAhead gathers the jobs that are claimed before the job, and how fast they go.
func (g *whyGatherer) gatherAhead() (err error) {
	g.input.Ahead, err = countUpTo(g.reader, store.CountSelector{Ahead: g.input.Job},
		job.MaxAhead+1)
	if err != nil || g.input.Ahead == 0 || g.from.StartedPerMinute == nil {
		return err
	}
	g.input.StartedPerMinute, err = g.from.StartedPerMinute(recordView{g.reader},
		g.input.Job.ID.JobType, g.input.Job.Queue)
	return err
}

// findDeadLetter finds the latest dead letter of a job that is not stored any more. It may have
// been replayed.
func (g *whyGatherer) findDeadLetter(seq int64) error {
	deadLetters, err := g.DeadLetters(store.DeadLetterSelector{Jobs: []int64{seq}})
	if err != nil {
		return err
	}
	if len(deadLetters) == 0 {
		return &job.Error{Kind: job.NotFound, Op: "engine.why", Msg: "there is no such job"}
	}
	g.input.DeadLetter = &deadLetters[len(deadLetters)-1]
	g.input.Job = &g.input.DeadLetter.Job
	g.input.Job.Phase = job.Done
	return nil
}

// gatherDeadLetter gathers the open dead letter of a job that is stored.
func (g *whyGatherer) gatherDeadLetter() error {
	deadLetters, err := g.DeadLetters(store.DeadLetterSelector{Jobs: []int64{g.input.Job.Seq}})
	for i := range deadLetters {
		if deadLetters[i].IsOpen() {
			g.input.DeadLetter = &deadLetters[i]
		}
	}
	return err
}

// gatherEnd gathers why a job is done.
func (g *whyGatherer) gatherEnd() error {
	if err := g.gatherDeadLetter(); err != nil {
		return err
	}
	if g.input.DeadLetter == nil {
		if err := g.gatherCancel(); err != nil {
			return err
		}
	}
	if g.jobType == nil || !g.jobType.isUnsatisfied(g.input.Job.State) {
		return nil
	}
	g.input.Unsatisfied = true
	failed, err := g.dependencies(g.input.Job, func(d *job.Job) bool {
		return d.Phase == job.Done && !g.jobType.Machine.IsSuccess(d.State)
	})
	g.input.Dependencies = firstRelatives(failed)
	return err
}

// firstRelatives returns the first of some jobs as they are shown.
func firstRelatives(jobs []*job.Job) []job.Relative {
	var all []job.Relative
	for _, d := range jobs[:min(len(jobs), job.MaxRelativesShown)] {
		all = append(all, relativeOf(d))
	}
	return all
}

func relativeOf(d *job.Job) job.Relative {
	return job.Relative{Number: d.Seq, ID: d.ID.Key, State: d.State}
}

// maxEventsOfEnd bounds the events that are read for the last one.
const maxEventsOfEnd = 2000

// gatherCancel gathers whether a cancel has ended the job, which is its last event then.
func (g *whyGatherer) gatherCancel() error {
	events, err := g.Events(g.input.Job.Seq, maxEventsOfEnd)
	if n := len(events); n > 0 && n < maxEventsOfEnd {
		g.input.Canceled = events[n-1].Cause == job.Canceled
	}
	return err
}

// isUnsatisfied reports whether a state is one of jobs that are done because a dependency failed.
func (t *JobType) isUnsatisfied(s job.State) bool {
	return slices.ContainsFunc(t.Machine.States(), func(from job.State) bool {
		tr, ok := t.Machine.Next(from, job.Unsatisfiable)
		return ok && tr.To == s && t.Machine.Phase(s) == job.Done
	})
}

// gatherRelatives gathers what the job waits for.
func (g *whyGatherer) gatherRelatives() error {
	open, err := g.openDependencies(g.input.Job)
	g.input.OpenDependencies = min(len(open), g.input.Job.OpenDeps)
	g.input.OpenChildren = g.input.Job.OpenDeps - g.input.OpenDependencies
	g.input.Dependencies = firstRelatives(open)
	if err != nil || len(open) == 0 {
		return err
	}
	return g.followChain(open)
}

func isOpen(d *job.Job) bool { return d.Phase != job.Done }

// followChain goes from the open dependencies of the job to theirs, to the job that waits for none,
// and gathers what holds that one. Of several it follows the first that does not run.
func (g *whyGatherer) followChain(open []*job.Job) (err error) {
	root := whyGatherer{reader: g.reader, e: g.e, from: g.from}
	root.input.Now, root.input.HidesFailure = g.input.Now, g.input.HidesFailure
	for len(open) > 0 && len(g.input.Chain) < job.MaxChain {
		at := max(0, slices.IndexFunc(open, func(d *job.Job) bool { return d.Phase != job.Leased }))
		root.input.Job = open[at]
		g.input.Chain = append(g.input.Chain, relativeOf(open[at]))
		if open, err = g.openDependencies(open[at]); err != nil {
			return err
		}
	}
	root.input.OpenDependencies = len(open)
	root.input.OpenChildren = root.input.Job.OpenDeps - len(open)
	root.input.Dependencies = firstRelatives(open)
	g.input.Root = &root.input
	return root.gatherJob()
}

// openDependencies returns the dependencies for which a job waits.
func (g *whyGatherer) openDependencies(of *job.Job) ([]*job.Job, error) {
	if of.OpenDeps == 0 || of.Phase == job.Leased || of.Phase == job.Done {
		return nil, nil
	}
	return g.dependencies(of, isOpen)
}

// dependencies returns those of the dependencies of a job that are as wanted, by number.
func (g *whyGatherer) dependencies(of *job.Job, wanted func(*job.Job) bool) (all []*job.Job,
	err error) {
	edges, err := g.Edges(store.EdgeSelector{From: []int64{of.Seq}})
	if err != nil || len(edges) == 0 {
		return nil, err
	}
	seqs := make([]int64, len(edges))
	for i, e := range edges {
		seqs[i] = e.Dependency
	}
	jobs, err := g.Load(store.Selector{Seqs: seqs, Bodies: store.NoBodies})
	for _, d := range jobs {
		if wanted(d) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *job.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	return all, err
}

// gatherQueue gathers what holds for the queue of the job: settings, counts and who asks.
func (g *whyGatherer) gatherQueue() error {
	key := queueKeyOf(g.input.Job)
	if g.jobType != nil && (g.jobType.MaxRunning > 0 || g.jobType.MaxQueueSize > 0) {
		sums, err := g.Counts(store.QueueSelector{JobType: key.jobType, Sums: true})
		if err != nil {
			return err
		}
		for _, all := range sums {
			g.input.JobTypeRunning = int(all.Leased)
			g.input.QueueSize = int(all.Ready + all.Delayed)
		}
		g.input.JobTypeLimit, g.input.MaxQueueSize = g.jobType.MaxRunning, g.jobType.MaxQueueSize
	}
	q, err := queueIn(g.reader, key)
	if err != nil {
		return err
	}
	limits := q.Settings.Limits()
	g.input.Paused = q.Settings.Paused
	g.input.Rate, g.input.NextStart = limits.Rate, q.NextStart
	g.input.QueueLimit, g.input.QueueRunning = limits.MaxRunning, int(q.Leased)
	if g.input.Paused && g.from.PausedBy != nil {
		g.input.PausedBy, g.input.PausedAt, err = g.from.PausedBy(recordView{g.reader},
			key.jobType, key.queue)
		if err != nil {
			return err
		}
	}
	g.input.Pollers, err = g.from.Pollers(recordView{g.reader}, key.jobType, key.queue)
	return err
}

// gatherMessages gathers whether the message by which the job is claimed was sent.
func (g *whyGatherer) gatherMessages() error {
	if g.jobType == nil || !g.jobType.ByMessage || g.input.Job.Phase != job.Ready {
		return nil
	}
	messages, err := g.Messages([]string{g.jobType.Name}, job.MaxMessagesAhead+1)
	for i := range messages {
		if messages[i].Job == g.input.Job.Seq {
			g.input.MessagePending, g.input.MessagesAhead = true, i
			return err
		}
	}
	n := len(messages)
	if n > job.MaxMessagesAhead && !messages[n-1].At.After(g.input.Job.UpdatedAt) {
		g.input.MessagePending, g.input.MessagesAhead = true, n // it is behind those that were read
	}
	return err
}
