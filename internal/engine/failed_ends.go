package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// The recorded ends of a page are carried out in one transaction. Where that fails, usually one of
// them is the reason, such as one with a text that the database does not take. So they are tried
// again in halves, down to those that fail alone. These are passed over for a while, so that they
// cost the others neither their transaction nor time; until then their jobs stay leased.

// Where a page fails by a failure of the store, the store is asked whether it works at all: if not,
// it is the store that fails and no end. It is asked again where maxFailedAttempts tries fail one
// after another. A page with one end that fails has at most nine.
const maxFailedAttempts = 16

// The pauses before an end that has failed alone is tried again: the first one, and any.
const (
	firstFailedPause = time.Second
	maxFailedPause   = time.Minute
)

// tryEnds is updateOnce for ends. A panic is an error, so that it ends nothing else.
func (e *Engine) tryEnds(ctx context.Context, fn func(*unit) error) error {
	return recovered(func() error { return e.updateOnce(ctx, fn) })
}

// failingPage is a page of which some ends fail.
type failingPage struct {
	*Engine
	ctx    context.Context
	b      foundEnds
	failed []job.RunID // the runs whose ends have failed alone
	why    []error     // for each of them
	inARow int         // how many tries have failed since one has succeeded
}

// carryOutParts carries out the ends of a page for which one transaction has failed. The error is
// that of the store.
func (e *Engine) carryOutParts(ctx context.Context, page []*job.Job, err error) (foundEnds, error) {
	if isStoreFailure(err) && !e.storeWorks(ctx) {
		return foundEnds{}, err
	}
	p := &failingPage{Engine: e, ctx: ctx}
	if err := p.divide(page, err); err != nil {
		return p.b, err
	}
	for i, run := range p.failed {
		pause := e.failedEnds.note(run, e.guard.monotonic())
		e.log.Log(ctx, slog.LevelError,
			"the end that a worker has recorded cannot be carried out; it is tried again",
			"run_id", run.String(), "error_message", p.why[i], "after", pause)
	}
	return p.b, nil
}

// storeWorks reports whether the store takes a write. It changes nothing, as no run has the zero
// id.
func (e *Engine) storeWorks(ctx context.Context) bool {
	return e.tryEnds(ctx, func(u *unit) error {
		u.writes.DeleteEnds = append(u.writes.DeleteEnds, job.RunID{})
		return nil
	}) == nil
}

// divide carries out the ends of a part in halves. err is why it has failed as a whole.
func (p *failingPage) divide(part []*job.Job, err error) error {
	if len(part) == 1 {
		p.failed, p.why = append(p.failed, part[0].End.Run), append(p.why, err)
		return nil
	}
	half := len(part) / 2
	for _, some := range [][]*job.Job{part[:half], part[half:]} {
		var b foundEnds
		err := p.tryEnds(p.ctx, func(u *unit) error {
			b = foundEnds{}
			return u.carryOutPage(some, &b)
		})
		if err != nil {
			if p.inARow++; p.inARow > maxFailedAttempts && isStoreFailure(err) {
				if !p.storeWorks(p.ctx) {
					return err
				}
				p.inARow = 0
			}
			if err := p.divide(some, err); err != nil {
				return err
			}
			continue
		}
		p.inARow = 0
		p.b.done += b.done
		p.b.verify = append(p.b.verify, b.verify...)
	}
	return nil
}

// failedEnds are the recorded ends that have failed alone on this node.
type failedEnds struct {
	mu sync.Mutex
	of map[job.RunID]failedEnd
}

// failedEnd is how often an end has failed, and when it may be tried again by the monotonic clock.
type failedEnd struct {
	tries int
	until time.Duration
}

// due returns those of a page that may be tried. It may change the page.
func (f *failedEnds) due(page []*job.Job, now time.Duration) []*job.Job {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.of) == 0 {
		return page
	}
	return slices.DeleteFunc(page, func(j *job.Job) bool { return now < f.of[j.End.Run].until })
}

// note notes that an end has failed, and returns the pause until it may be tried again. It forgets
// those that have not been tried for long, as they are carried out or gone.
func (f *failedEnds) note(run job.RunID, now time.Duration) (pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.of, func(_ job.RunID, e failedEnd) bool {
		return e.until+2*maxFailedPause < now
	})
	tries := f.of[run].tries + 1
	pause = min(firstFailedPause<<min(tries-1, 10), maxFailedPause)
	put(&f.of, run, failedEnd{tries, now + pause})
	return pause
}
