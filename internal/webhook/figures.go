package webhook

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// The figures of a subscription are read from its newest deliveries, so that nothing has to be
// written for them and they cost the same however many deliveries there were.
const (
	// figureSample is the number of deliveries that the figures of a subscription cover, and
	// allSamples of several together, of which each has minSample at least.
	figureSample = 100
	allSamples   = 500
	minSample    = 10
	// figureAttempts is how many of these are looked at for the last attempt. Those that were given
	// up without one, as the subscription was disabled, are among them.
	figureAttempts = 5
)

// Figures are how the newest deliveries of a subscription have fared, at most 100.
type Figures struct {
	Pending, Delivered, Exhausted int
	LastAttempt                   *Attempt // nil if there was none lately
}

// SuccessRate returns the share of the deliveries that are done that were delivered. ok is false
// if none is done.
func (f *Figures) SuccessRate() (rate float64, ok bool) {
	done := f.Delivered + f.Exhausted
	return float64(f.Delivered) / float64(max(1, done)), done > 0
}

// Figures returns the figures of subscriptions, in their order. They cover fewer deliveries of each
// where they are of many.
func (w *Webhooks) Figures(ctx context.Context, ids []string) ([]Figures, error) {
	all := make([]Figures, len(ids))
	sample := max(minSample, min(figureSample, allSamples/max(1, len(ids))))
	var tried []job.ID
	var filters []store.Filter
	for _, id := range ids {
		filters = append(filters, store.Filter{JobType: Name, Owner: id, NewestFirst: true,
			WithoutBodies: true, Limit: sample})
	}
	samples, err := w.Engine.ListEach(ctx, filters...)
	if err != nil {
		return nil, err
	}
	for i, jobs := range samples {
		tried = append(tried, all[i].count(jobs)...)
	}
	if len(tried) == 0 {
		return all, nil
	}
	jobs, err := w.Engine.GetByIDs(ctx, tried, store.AllBodies)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		attempts, err := decodeAttempts(j)
		if err != nil || len(attempts) == 0 {
			continue // the delivery was given up, or its attempts cannot be read
		}
		f := &all[slices.Index(ids, j.Owner)]
		last := &attempts[len(attempts)-1]
		if f.LastAttempt == nil || last.StartedAt.After(f.LastAttempt.StartedAt) {
			f.LastAttempt = last
		}
	}
	return all, nil
}

// count counts deliveries and returns those that may have the last attempt: they are done or have
// failed, and were changed last.
func (f *Figures) count(sample []*job.Job) (tried []job.ID) {
	var changed []*job.Job
	for _, j := range sample {
		switch statusOf(j) {
		case Delivered:
			f.Delivered++
		case Exhausted:
			f.Exhausted++
		default:
			f.Pending++
		}
		if j.Phase == job.Done || j.FailedAttempts > 0 {
			changed = append(changed, j)
		}
	}
	slices.SortStableFunc(changed, func(a, b *job.Job) int {
		return cmp.Compare(b.UpdatedAt.UnixMicro(), a.UpdatedAt.UnixMicro())
	})
	for _, j := range changed[:min(len(changed), figureAttempts)] {
		tried = append(tried, j.ID)
	}
	return tried
}
