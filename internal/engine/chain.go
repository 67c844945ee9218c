package engine

import (
	"context"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// A chain has jobs that run one after another, in the order in which they were stored, with no
// queue of their own and no lock that lasts: each depends on the one before it, and the alias,
// which one job at a time can hold, says which job is the last.
//
//	before   a ◀── b            b holds the alias
//	after    a ◀── b ◀── c      c depends on b and holds the alias
//
// Two submissions to one chain lock the same holder, so the second waits for the first and finds
// its job as the holder. Webhooks make their deliveries so: those of one subscription and job
// arrive in the order of its events.

// SubmitChained stores those jobs of a batch that do not exist yet. Jobs with one alias form a
// chain: its newest job holds the alias, and a new job depends on the holder and takes the alias
// over from it (takeAliases). The job type has a graph.
//
// It fails as Submit does. A chain whose newest job was removed begins again.
func (e *Engine) SubmitChained(ctx context.Context, batch []Submission) error {
	if len(batch) == 0 {
		return nil
	}
	if err := e.check(Unique, batch); err != nil {
		return err
	}
	return e.updateRetryingRaces(ctx, func(u *unit) error { return u.submitChained(batch) })
}

func (u *unit) submitChained(batch []Submission) error {
	missing, err := u.missing(batch)
	if err != nil || len(missing) == 0 {
		return err
	}
	last, err := u.takeAliases(missing)
	if err != nil {
		return err
	}
	for i := range missing {
		s := &missing[i]
		alias := s.Job.Alias
		if alias == (job.IdentityHash{}) {
			continue
		}
		if before, ok := last[alias]; ok {
			s.DependsOn = []job.ID{before.id}
			if before.index >= 0 {
				missing[before.index].Job.Alias = job.IdentityHash{}
			}
		}
		last[alias] = chainTail{s.Job.ID, i}
	}
	_, existing, err := u.insert(missing)
	switch {
	case job.IsKind(err, job.Conflict), job.IsKind(err, job.NotFound), len(existing) > 0:
		return errConcurrentChange // another node stores the same, or has pruned the end of a chain
	case err != nil:
		return err
	}
	return u.checkQueueSize()
}

// chainTail is the last job of a chain, with its index in the batch, below 0 for one of the store.
type chainTail struct {
	id    job.ID
	index int
}

// missing returns a copy of those of a batch that are not stored.
func (u *unit) missing(batch []Submission) (rest []Submission, err error) {
	ids := make([]job.ID, len(batch))
	for i := range batch {
		ids[i] = batch[i].Job.ID
	}
	stored, err := u.tx.Load(store.Selector{IDs: ids})
	if err != nil {
		return nil, err
	}
	known := make(map[job.ID]bool, len(batch))
	for _, j := range stored {
		known[j.ID] = true
	}
	for _, s := range batch {
		if !known[s.Job.ID] {
			known[s.Job.ID] = true
			rest = append(rest, s)
		}
	}
	return rest, nil
}

// takeAliases takes the aliases of a batch from the jobs of the store that have them, and returns
// these by alias.
func (u *unit) takeAliases(batch []Submission) (map[job.IdentityHash]chainTail, error) {
	last := map[job.IdentityHash]chainTail{}
	var aliases []job.IdentityHash
	wanted := map[job.IdentityHash]bool{{}: true}
	for i := range batch {
		if alias := batch[i].Job.Alias; !wanted[alias] {
			wanted[alias] = true
			aliases = append(aliases, alias)
		}
	}
	if len(aliases) == 0 {
		return last, nil
	}
	holders, err := u.tx.Load(store.Selector{Aliases: aliases, Lock: true})
	if err != nil || len(holders) == 0 {
		return last, err
	}
	for _, j := range holders {
		isNew := func(s Submission) bool { return s.Job.ID == j.ID }
		if slices.ContainsFunc(batch, isNew) { // another node has stored it meanwhile
			return nil, errConcurrentChange
		}
		last[j.Alias] = chainTail{j.ID, -1}
		j.Alias = job.IdentityHash{}
		u.updateAll(j)
	}
	return last, u.flushJobs() // before the insert, which needs the aliases
}
