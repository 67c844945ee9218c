package bulk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/job"
)

// What an operation is about is found in one order, by number, first jobs that are stored and then
// jobs that are deleted, of which dead letters are left. The number of the last item of a batch is
// the cursor of the operation, so a node that goes on with it needs to know nothing else:
//
//	0 ──── numbers of stored jobs ────▶ firstDeleted ──── firstDeleted + IDs of dead letters ────▶
//
// Numbers are given in the order of insertion and never again, so what comes later stands behind.

// maxPageTime is how long one page of jobs is searched.
const maxPageTime = 500 * time.Millisecond

// PageSize is how many jobs or dead letters are read at once, as each holds bodies, and
// pageSizeWithoutBodies how many jobs without them.
const (
	PageSize              = 100
	pageSizeWithoutBodies = 2000
)

// firstDeleted is above the numbers of all stored jobs. A job that is deleted has as its number
// firstDeleted plus the ID of its dead letter, and so comes after the stored ones.
const firstDeleted = 1 << 62

// item is a job or dead letter that matches.
type item struct {
	number     int64 // of the job, or the ID of the dead letter; see firstDeleted
	changed    bool  // since the operation began
	allowed    bool  // the action is allowed now
	job        *job.Job
	deadLetter *job.DeadLetter
}

// items is a page of what matches.
type items struct {
	all  []item
	next int64 // up to which number was looked; 0 at the end
	read int   // how many jobs or dead letters were looked at
	// searchedTo is when the last of them was created.
	searchedTo time.Time
}

// find returns the items of the next page behind a number that match. p has the bounds of the page.
func (b *Bulk) find(ctx context.Context, o *Operation, after int64, p JobPage) (items, error) {
	p.After, p.Oldest = after, true
	switch {
	case p.Limit > 0:
	case p.WithoutBodies:
		p.Limit = pageSizeWithoutBodies
	default:
		p.Limit = PageSize
	}
	switch {
	case o.DeadLetters != nil:
		found, err := b.FindDeadLetters(ctx, o.DeadLetters, p)
		return itemsOf(o, &found), err
	case after >= firstDeleted:
		p.After = after - firstDeleted
		return b.findDeleted(ctx, o, p)
	}
	page, err := b.findJobs(ctx, o, p)
	if page.next == 0 && len(b.deletedIn(o)) > 0 {
		page.next = firstDeleted
	}
	return page, err
}

// findJobs is find for jobs.
func (b *Bulk) findJobs(ctx context.Context, o *Operation, p JobPage) (page items, err error) {
	found, err := b.FindJobs(ctx, o.Jobs, p)
	if err != nil {
		return page, err
	}
	page.next, page.read, page.searchedTo = found.Next, found.Read, found.SearchedTo
	for _, j := range found.Jobs {
		if !j.CreatedAt.After(o.meantAt()) {
			page.all = append(page.all, item{number: j.Seq, job: j,
				changed: changedAt(j).After(o.meantAt()), allowed: b.allows(o.Action, j)})
		}
		if found.SearchedTo.IsZero() {
			page.searchedTo = j.CreatedAt
		}
	}
	return page, nil
}

// allows reports whether a job allows an action now.
func (b *Bulk) allows(action string, j *job.Job) bool {
	return slices.Contains(b.operatorOf(j.ID.JobType).Allowed(j), action)
}

// deletedIn returns the job types whose deleted jobs an operation reruns: those of a filter that
// selects by dead letters, or by the numbers of jobs.
func (b *Bulk) deletedIn(o *Operation) (names []string) {
	if o.Action != contract.ActionRerun || !(o.Jobs.Dead || len(o.Jobs.Numbers) > 0) {
		return nil
	}
	for _, name := range o.Jobs.JobTypes {
		if b.operatorOf(name).RerunsDeleted() {
			names = append(names, name)
		}
	}
	return names
}

// findDeleted is find for jobs that are deleted. Their numbers are the IDs of their dead letters.
func (b *Bulk) findDeleted(ctx context.Context, o *Operation, p JobPage) (page items, err error) {
	p.WithoutBodies, p.Limit = false, PageSize // their jobs decide
	found, err := b.deadLettersOf(ctx, b.deletedIn(o), o.Jobs, p)
	if err != nil {
		return page, err
	}
	found.DeadLetters = slices.DeleteFunc(found.DeadLetters, func(l job.DeadLetter) bool {
		return !o.Jobs.matchesDeleted(&l, b.operatorOf(l.Job.ID.JobType))
	})
	page = itemsOf(o, &found)
	for i := range page.all {
		it := &page.all[i]
		it.number, it.job, it.deadLetter = firstDeleted+it.number, &it.deadLetter.Job, nil
		page.searchedTo = it.job.CreatedAt
	}
	if page.next > 0 {
		page.next += firstDeleted
	}
	return page, nil
}

// deadLettersOf returns a page of the dead letters of job types that may be of jobs which match a
// filter: those of some jobs where it has numbers.
func (b *Bulk) deadLettersOf(ctx context.Context, jobTypes []string, jobs *JobFilter,
	p JobPage) (found FoundDeadLetters, err error) {
	f := &DeadLetterFilter{JobTypes: jobTypes, Queue: jobs.Queue, JobID: jobs.ID}
	if len(jobs.Numbers) == 0 {
		return b.FindDeadLetters(ctx, f, p)
	}
	deadLetters, err := b.Engine.DeadLettersOf(ctx, jobs.Numbers)
	for _, of := range deadLetters {
		for i := range of {
			if of[i].ID > p.After && f.matches(&of[i]) {
				found.DeadLetters = append(found.DeadLetters, of[i])
			}
		}
	}
	slices.SortFunc(found.DeadLetters, func(x, y job.DeadLetter) int {
		return cmp.Compare(x.ID, y.ID)
	})
	if found.Read = len(found.DeadLetters); found.Read > p.Limit {
		found.DeadLetters = found.DeadLetters[:p.Limit]
		return found.end(&found.DeadLetters[p.Limit-1]), err
	}
	return found, err
}

// itemsOf returns the items of a page of dead letters.
func itemsOf(o *Operation, found *FoundDeadLetters) items {
	page := items{next: found.Next, read: found.Read, searchedTo: found.SearchedTo}
	for i := range found.DeadLetters {
		l := &found.DeadLetters[i]
		since := l.ReplayedAt.After(o.meantAt())
		if !l.CreatedAt.After(o.meantAt()) && (l.IsOpen() || since) {
			page.all = append(page.all, item{number: l.ID, deadLetter: l, changed: since,
				allowed: true})
		}
	}
	return page
}

// MaxCounted is up to how many matches are counted.
const MaxCounted = 100_000

// coverage is how much was looked at for what matches an operation.
type coverage struct {
	more bool // more may match
	read int  // how many jobs or dead letters were looked at
	// searchedTo is when the last of them was created, where a bound has ended the search.
	searchedTo time.Time
}

// each calls fn with all behind the cursor that matches an operation, until it returns
// errNoMoreNeeded. The bounds hold for all pages together.
func (b *Bulk) each(ctx context.Context, o *Operation, bounds JobPage,
	fn func(*item) error) (seen coverage, err error) {
	budget, after := b.newPageBudget(&bounds, !bounds.WithoutBodies), o.Cursor
	for {
		left := JobPage{MaxTime: maxPageTime, WithoutBodies: bounds.WithoutBodies,
			Limit: bounds.Limit}
		if bounds.MaxTime > 0 {
			left.MaxTime = min(maxPageTime, bounds.MaxTime-budget.spent)
		}
		if bounds.MaxJobs > 0 {
			left.MaxJobs = bounds.MaxJobs - seen.read
		}
		page, err := b.find(ctx, o, after, left)
		if err != nil {
			return coverage{}, err
		}
		budget.endStep()
		seen.read += page.read
		for i := range page.all {
			switch err := fn(&page.all[i]); {
			case errors.Is(err, errNoMoreNeeded):
				return coverage{more: true, read: seen.read}, nil
			case err != nil:
				return coverage{}, err
			}
		}
		if page.next == 0 {
			return coverage{read: seen.read}, nil
		}
		after, seen.searchedTo = page.next, page.searchedTo
		if budget.isExhausted(seen.read) {
			seen.more = true
			return seen, nil
		}
	}
}
