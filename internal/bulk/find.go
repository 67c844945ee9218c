package bulk

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// pageTime is how long one page of jobs is searched.
const pageTime = 500 * time.Millisecond

// PageSize is how many jobs or dead letters are read at once, as each holds bodies.
const PageSize = 100

// item is a job or dead letter that matches.
type item struct {
	number  int64 // of the job, or the ID of the dead letter
	changed bool  // since the operation began
	allowed bool  // the action is allowed now
	job     *job.Job
	letter  *job.DeadLetter
}

// find returns the items of the next page behind a number that match, and up to which number it
// has looked; 0 at the end.
func (b *Bulk) find(ctx context.Context, o *Operation, after int64) ([]item, int64, error) {
	if o.DeadLetters != nil {
		return b.findDeadLetters(ctx, o, after)
	}
	return b.findJobs(ctx, o, after)
}

// findJobs is find for jobs.
func (b *Bulk) findJobs(ctx context.Context, o *Operation, after int64) (items []item, next int64,
	err error) {
	found, err := b.FindJobs(ctx, o.Jobs, JobPage{After: after, Oldest: true, Limit: PageSize,
		MaxTime: pageTime})
	if err != nil {
		return nil, 0, err
	}
	for _, j := range found.Jobs {
		if !j.CreatedAt.After(o.StartedAt) {
			items = append(items, item{number: j.Seq, job: j,
				changed: changedAt(j).After(o.StartedAt), allowed: b.allows(o.Action, j)})
		}
	}
	return items, found.Next, nil
}

// allows reports whether a job allows an action now.
func (b *Bulk) allows(action string, j *job.Job) bool {
	o := contract.OperatorOf(b.Contracts, j.ID.Contract)
	return o != nil && slices.Contains(o.Allowed(j), action)
}

// findDeadLetters is find for dead letters.
func (b *Bulk) findDeadLetters(ctx context.Context, o *Operation, after int64) (items []item,
	next int64, err error) {
	page, err := b.DeadLetters(ctx, o.DeadLetters, after)
	if err != nil {
		return nil, 0, err
	}
	for i := range page {
		l := &page[i]
		if !o.DeadLetters.Matches(l) || l.CreatedAt.After(o.StartedAt) {
			continue
		}
		since := l.ReplayedAt.After(o.StartedAt)
		if l.IsOpen() || since {
			items = append(items, item{number: l.ID, letter: l, changed: since, allowed: true})
		}
	}
	if len(page) == PageSize {
		next = page[PageSize-1].ID
	}
	return items, next, nil
}

// DeadLetters returns the next dead letters that may match, with an ID above after.
func (b *Bulk) DeadLetters(ctx context.Context, f *DeadLetterFilter,
	after int64) (all []job.DeadLetter, err error) {
	if f.Fingerprint != "" {
		return b.Engine.DeadLetters(ctx, "", f.Fingerprint, after, PageSize)
	}
	for _, name := range f.Contracts {
		some, err := b.Engine.DeadLetters(ctx, name, "", after, PageSize)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(x, y job.DeadLetter) int { return cmp.Compare(x.ID, y.ID) })
	return all[:min(len(all), PageSize)], nil
}

// MaxCounted is up to how many matches are counted.
const MaxCounted = 100_000

// maxSample is how many items a preview shows.
const maxSample = 10

// Preview is what an operation would be about (AD-020).
type Preview struct {
	Matching    int  // at most MaxCounted
	More        bool // more than that match
	Refused     int  // what the action does not fit
	Jobs        []*job.Job
	DeadLetters []*job.DeadLetter
}

// errEnough ends a count.
var errEnough = errors.New("bulk: enough was counted")

// Preview looks at what matches a request now, and changes nothing.
func (b *Bulk) Preview(ctx context.Context, r Request) (p Preview, err error) {
	o := &Operation{Request: r}
	if err := b.Engine.ViewRecords(ctx, func(v engine.RecordReader) error {
		o.StartedAt = v.Now()
		return nil
	}); err != nil {
		return p, err
	}
	err = b.each(ctx, o, func(i *item) error {
		if p.More = p.Matching == MaxCounted; p.More {
			return errEnough
		}
		p.Matching++
		if !i.allowed {
			p.Refused++
		}
		if len(p.Jobs)+len(p.DeadLetters) == maxSample {
			return nil
		}
		if i.letter != nil {
			p.DeadLetters = append(p.DeadLetters, i.letter)
		} else {
			p.Jobs = append(p.Jobs, i.job)
		}
		return nil
	})
	return p, err
}

// each calls fn with all that matches an operation, until it returns errEnough.
func (b *Bulk) each(ctx context.Context, o *Operation, fn func(*item) error) error {
	for after := int64(0); ; {
		items, next, err := b.find(ctx, o, after)
		if err != nil {
			return err
		}
		for i := range items {
			switch err := fn(&items[i]); {
			case errors.Is(err, errEnough):
				return nil
			case err != nil:
				return err
			}
		}
		if next == 0 {
			return nil
		}
		after = next
	}
}
