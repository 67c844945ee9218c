package bulk

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Dead letters are found as jobs are: windows of them by ID, without their jobs, of which the store
// has indexes by job type, queue and fingerprint; then those that match are read whole, unless a
// page is bare.

// The sizes of windows, in dead letters of a job type: each is larger than the one before.
const (
	firstDeadLetters = PageSize
	lastDeadLetters  = 2000
)

// FoundDeadLetters are the dead letters of a page.
type FoundDeadLetters struct {
	DeadLetters []job.DeadLetter
	Next        int64 // the After of the next page, 0 at the end
	Read        int   // how many were looked at
	// SearchedTo is when the last one was created that was looked at, where there is a next page.
	SearchedTo time.Time
}

// end ends a page at a dead letter.
func (f *FoundDeadLetters) end(l *job.DeadLetter) FoundDeadLetters {
	f.Next, f.SearchedTo = l.ID, l.CreatedAt
	return *f
}

// FindDeadLetters returns a page of the dead letters that match a filter, the oldest first.
func (b *Bulk) FindDeadLetters(ctx context.Context, f *DeadLetterFilter,
	p JobPage) (found FoundDeadLetters, err error) {
	budget, after, selectors := b.newPageBudget(&p, f.SearchesTexts()), p.After, f.selectors()
	window, chunkSize := firstDeadLetters, PageSize
	if p.WithoutBodies { // they are read at little cost, and mostly all of them match
		window, chunkSize = p.Limit+1, p.Limit+1
	}
	for {
		deadLetters, next, err := b.deadLetterWindow(ctx, selectors, after, window)
		if err != nil {
			return FoundDeadLetters{}, err
		}
		for chunk := range slices.Chunk(deadLetters, chunkSize) {
			matching, err := b.matchingDeadLetters(ctx, f, chunk, p.WithoutBodies)
			if err != nil {
				return FoundDeadLetters{}, err
			}
			budget.endStep()
			found.Read += len(chunk)
			found.DeadLetters = append(found.DeadLetters, matching...)
			if len(found.DeadLetters) > p.Limit {
				found.DeadLetters = found.DeadLetters[:p.Limit]
				last := &found.DeadLetters[p.Limit-1]
				isLast := func(l job.DeadLetter) bool { return l.ID == last.ID }
				found.Read -= countAfter(chunk, isLast)
				return found.end(last), nil
			}
			last := &chunk[len(chunk)-1]
			isEnd := next == 0 && last.ID == deadLetters[len(deadLetters)-1].ID
			if !isEnd && budget.isExhausted(found.Read) {
				return found.end(last), nil
			}
		}
		if after = next; after == 0 {
			return found, nil
		}
		if window = min(2*window, lastDeadLetters); f.SearchesTexts() {
			window = budget.fit(window, found.Read, firstDeadLetters)
		}
	}
}

// selectors select the dead letters that may match, of each job type in the order of their IDs.
func (f *DeadLetterFilter) selectors() (all []store.DeadLetterSelector) {
	if f.Fingerprint != "" { // it is of one job type and queue
		return []store.DeadLetterSelector{{WithoutJobs: true, Fingerprint: f.Fingerprint}}
	}
	for _, name := range f.JobTypes {
		all = append(all, store.DeadLetterSelector{WithoutJobs: true, JobType: name,
			Queue: f.Queue})
	}
	return all
}

// deadLetterWindow returns the dead letters of the next window behind an ID, without their jobs,
// and the ID up to which it goes; 0 is the end.
func (b *Bulk) deadLetterWindow(ctx context.Context, selectors []store.DeadLetterSelector,
	after int64, limit int) (all []job.DeadLetter, next int64, err error) {
	for i := range selectors {
		selectors[i].After, selectors[i].Limit = after, limit
	}
	lists, err := b.Engine.DeadLetters(ctx, selectors...)
	if err != nil {
		return nil, 0, err
	}
	for _, list := range lists {
		all = append(all, list...)
		if len(list) == limit && (next == 0 || list[limit-1].ID < next) {
			next = list[limit-1].ID
		}
	}
	all = slices.DeleteFunc(all, func(l job.DeadLetter) bool {
		return next != 0 && l.ID > next // not all lists were read beyond it
	})
	slices.SortFunc(all, func(x, y job.DeadLetter) int { return cmp.Compare(x.ID, y.ID) })
	return all, next, nil
}

// matchingDeadLetters returns those of some dead letters that match, with their jobs unless
// withoutJobs.
func (b *Bulk) matchingDeadLetters(ctx context.Context, f *DeadLetterFilter,
	deadLetters []job.DeadLetter, withoutJobs bool) (matching []job.DeadLetter, err error) {
	var ids []int64
	for i := range deadLetters {
		// A dead letter of an older schema has none stored, so its job decides.
		lacksFingerprint := deadLetters[i].StoredFingerprint == ""
		switch {
		case lacksFingerprint:
			ids = append(ids, deadLetters[i].ID)
		case !f.matches(&deadLetters[i]):
		case withoutJobs:
			matching = append(matching, deadLetters[i])
		default:
			ids = append(ids, deadLetters[i].ID)
		}
	}
	found, err := b.Engine.DeadLettersByID(ctx, ids...)
	for i := range found {
		if f.matches(&found[i]) && f.matchesJob(&found[i]) {
			matching = append(matching, found[i])
		}
	}
	slices.SortFunc(matching, func(x, y job.DeadLetter) int { return cmp.Compare(x.ID, y.ID) })
	return matching, err
}
