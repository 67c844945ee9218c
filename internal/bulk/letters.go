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
	firstLetters = PageSize
	lastLetters  = 2000
)

// FoundLetters are the dead letters of a page.
type FoundLetters struct {
	Letters []job.DeadLetter
	Next    int64 // the After of the next page, 0 at the end
	Read    int   // how many were looked at
	// SearchedTo is when the last one was created that was looked at, where there is a next page.
	SearchedTo time.Time
}

// end ends a page at a letter.
func (f *FoundLetters) end(l *job.DeadLetter) FoundLetters {
	f.Next, f.SearchedTo = l.ID, l.CreatedAt
	return *f
}

// FindDeadLetters returns a page of the dead letters that match a filter, the oldest first.
func (b *Bulk) FindDeadLetters(ctx context.Context, f *DeadLetterFilter,
	p JobPage) (found FoundLetters, err error) {
	budget, after, selectors := b.newPageBudget(&p, f.SearchesTexts()), p.After, f.selectors()
	window, chunkSize := firstLetters, PageSize
	if p.WithoutBodies { // they are read at little cost, and mostly all of them match
		window, chunkSize = p.Limit+1, p.Limit+1
	}
	for {
		letters, next, err := b.letterWindow(ctx, selectors, after, window)
		if err != nil {
			return FoundLetters{}, err
		}
		for chunk := range slices.Chunk(letters, chunkSize) {
			matching, err := b.matchingLetters(ctx, f, chunk, p.WithoutBodies)
			if err != nil {
				return FoundLetters{}, err
			}
			budget.endStep()
			found.Read += len(chunk)
			found.Letters = append(found.Letters, matching...)
			if len(found.Letters) > p.Limit {
				found.Letters = found.Letters[:p.Limit]
				last := &found.Letters[p.Limit-1]
				isLast := func(l job.DeadLetter) bool { return l.ID == last.ID }
				found.Read -= countAfter(chunk, isLast)
				return found.end(last), nil
			}
			last := &chunk[len(chunk)-1]
			isEnd := next == 0 && last.ID == letters[len(letters)-1].ID
			if !isEnd && budget.isExhausted(found.Read) {
				return found.end(last), nil
			}
		}
		if after = next; after == 0 {
			return found, nil
		}
		if window = min(2*window, lastLetters); f.SearchesTexts() {
			window = budget.fit(window, found.Read, firstLetters)
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

// letterWindow returns the dead letters of the next window behind an ID, without their jobs, and
// the ID up to which it goes; 0 is the end.
func (b *Bulk) letterWindow(ctx context.Context, selectors []store.DeadLetterSelector, after int64,
	limit int) (all []job.DeadLetter, next int64, err error) {
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

// matchingLetters returns those of some dead letters that match, with their jobs unless
// withoutJobs.
func (b *Bulk) matchingLetters(ctx context.Context, f *DeadLetterFilter, letters []job.DeadLetter,
	withoutJobs bool) (matching []job.DeadLetter, err error) {
	var ids []int64
	for i := range letters {
		// A letter of an older schema has none stored, so its job decides.
		lacksFingerprint := letters[i].StoredFingerprint == ""
		switch {
		case lacksFingerprint:
			ids = append(ids, letters[i].ID)
		case !f.matches(&letters[i]):
		case withoutJobs:
			matching = append(matching, letters[i])
		default:
			ids = append(ids, letters[i].ID)
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
