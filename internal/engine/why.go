package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// PollersFunc says in a view who asks for the jobs of a queue, over all nodes.
type PollersFunc func(r RecordReader, contract, queue string) (job.Pollers, error)

// Why says why the job with a number does not run, or that it does (AD-015). What it says is of one
// moment: all facts are read in one view. NotFound if there is no such job and no dead letter of
// it.
func (e *Engine) Why(ctx context.Context, seq int64, pollers PollersFunc) (why job.Why, err error) {
	err = e.view(ctx, func(r reader) error {
		g := whyGatherer{reader: r, e: e, pollers: pollers}
		if err := g.gather(seq); err != nil {
			return err
		}
		why = job.Explain(&g.facts)
		return nil
	})
	return why, err
}

// whyGatherer gathers the facts about one job.
type whyGatherer struct {
	reader
	facts   job.WhyFacts
	e       *Engine
	c       *Contract // nil where this node does not serve it
	pollers PollersFunc
}

func (g *whyGatherer) gather(seq int64) error {
	g.facts.Now = g.Now()
	found, err := g.Load(store.Selector{Seqs: []int64{seq}, Bodies: store.NoBodies})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return g.findLetter(seq)
	}
	g.facts.Job = found[0]
	g.c = g.e.contracts[g.facts.Job.ID.Contract]
	switch g.facts.Job.Phase {
	case job.Leased:
		return nil
	case job.Done:
		return g.gatherEnd()
	}
	for _, step := range []func() error{g.gatherRelatives, g.gatherQueue, g.gatherMessages} {
		if err := step(); err != nil {
			return err
		}
	}
	if g.facts.Job.Phase == job.Ready {
		g.facts.Ahead, err = g.CountUpTo(store.CountSelector{Ahead: g.facts.Job},
			job.MaxAhead+1)
	}
	return err
}

// findLetter finds the open dead letter of a job that is not stored any more.
func (g *whyGatherer) findLetter(seq int64) error {
	if err := g.gatherLetter(seq); err != nil {
		return err
	}
	if g.facts.Letter == nil {
		return &job.Error{Kind: job.NotFound, Op: "engine.why", Msg: "there is no such job"}
	}
	g.facts.Job = &g.facts.Letter.Job
	g.facts.Job.Phase = job.Done
	return nil
}

// gatherLetter gathers the open dead letter of a job.
func (g *whyGatherer) gatherLetter(seq int64) error {
	letters, err := g.DeadLetters(store.DeadLetterSelector{Jobs: []int64{seq}})
	for i := range letters {
		if letters[i].IsOpen() {
			g.facts.Letter = &letters[i]
		}
	}
	return err
}

// gatherEnd gathers why a job is over.
func (g *whyGatherer) gatherEnd() error {
	if err := g.gatherLetter(g.facts.Job.Seq); err != nil {
		return err
	}
	if g.c == nil || !g.c.isUnsatisfied(g.facts.Job.State) {
		return nil
	}
	g.facts.Unsatisfied = true
	relatives, err := g.dependencies(func(d *job.Job) bool {
		return d.Phase == job.Done && !g.c.Machine.IsSuccess(d.State)
	})
	g.facts.Dependencies = relatives[:min(len(relatives), job.MaxRelativesShown)]
	return err
}

// isUnsatisfied reports whether a state is one of jobs that are over because a dependency failed.
func (c *Contract) isUnsatisfied(s job.State) bool {
	return slices.ContainsFunc(c.Machine.States(), func(from job.State) bool {
		mv, ok := c.Machine.Next(from, job.Unsatisfiable)
		return ok && mv.To == s && c.Machine.Phase(s) == job.Done
	})
}

// gatherRelatives gathers what the job waits for.
func (g *whyGatherer) gatherRelatives() error {
	if g.facts.Job.OpenDeps == 0 {
		return nil
	}
	open, err := g.dependencies(func(d *job.Job) bool { return d.Phase != job.Done })
	g.facts.OpenDependencies = min(len(open), g.facts.Job.OpenDeps)
	g.facts.OpenChildren = g.facts.Job.OpenDeps - g.facts.OpenDependencies
	g.facts.Dependencies = open[:min(len(open), job.MaxRelativesShown)]
	return err
}

// dependencies returns those of the dependencies of the job that are as wanted, by number.
func (g *whyGatherer) dependencies(wanted func(*job.Job) bool) (all []job.Relative, err error) {
	edges, err := g.Edges(store.EdgeSelector{From: []int64{g.facts.Job.Seq}})
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
			all = append(all, job.Relative{Number: d.Seq, ID: d.ID.Key, State: d.State})
		}
	}
	slices.SortFunc(all, func(a, b job.Relative) int { return cmp.Compare(a.Number, b.Number) })
	return all, err
}

// gatherQueue gathers what holds for the queue of the job: settings, counts and who asks.
func (g *whyGatherer) gatherQueue() error {
	key := queueKeyOf(g.facts.Job)
	all, err := countedQueues(g.reader, key.contract)
	if err != nil {
		return err
	}
	for _, q := range all {
		g.facts.ContractRunning += int(q.Leased)
		g.facts.QueueSize += int(q.Ready + q.Delayed)
	}
	if g.c != nil {
		g.facts.ContractLimit, g.facts.MaxQueueSize = g.c.MaxRunning, g.c.MaxQueueSize
	}
	if q := all[key]; q != nil {
		if err := readNextStarts(g.reader, map[queueKey]*QueueStatus{key: q}); err != nil {
			return err
		}
		limits := q.Settings.Limits()
		g.facts.Paused = q.Settings.Paused
		g.facts.Rate, g.facts.NextStart = limits.Rate, q.NextStart
		g.facts.QueueLimit, g.facts.QueueRunning = limits.MaxRunning, int(q.Leased)
	}
	g.facts.Pollers, err = g.pollers(recordView{g.reader}, key.contract, key.queue)
	return err
}

// gatherMessages gathers whether the message by which the job is claimed was sent.
func (g *whyGatherer) gatherMessages() error {
	if g.c == nil || !g.c.ByMessage || g.facts.Job.Phase != job.Ready {
		return nil
	}
	messages, err := g.Messages([]string{g.c.Name}, job.MaxMessagesAhead+1)
	for i := range messages {
		if messages[i].Job == g.facts.Job.Seq {
			g.facts.MessagePending, g.facts.MessagesAhead = true, i
			return err
		}
	}
	if n := len(messages); n > job.MaxMessagesAhead && !messages[n-1].At.After(g.facts.Job.UpdatedAt) {
		g.facts.MessagePending, g.facts.MessagesAhead = true, n // it is behind those that were read
	}
	return err
}
