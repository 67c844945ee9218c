package bulk

import "time"

// budget is what a page has used of its bounds. A page is read in steps, each a window or a part of
// one, and looks at its bounds after each. One that searches texts, where a step reads bodies of
// any size, reserves time for its next step: it does not begin one that would end after its time if
// it took as long as the longest did.
type budget struct {
	page         *JobPage
	elapsed      func() time.Duration
	reservesStep bool
	started      time.Duration
	spent        time.Duration // from the beginning to the end of the last step
	longest      time.Duration // of the steps
}

// newPageBudget begins a page.
func (b *Bulk) newPageBudget(p *JobPage, reservesStep bool) budget {
	return budget{page: p, elapsed: b.Elapsed, reservesStep: reservesStep, started: b.Elapsed()}
}

// endStep ends a step.
func (p *budget) endStep() {
	now := p.elapsed() - p.started
	p.longest, p.spent = max(p.longest, now-p.spent), now
}

// isExhausted reports whether a page that has read so many may not begin another step.
func (p *budget) isExhausted(read int) bool {
	if p.page.MaxJobs > 0 && read >= p.page.MaxJobs {
		return true
	}
	lacksTime := p.reservesStep && p.spent+p.longest > p.page.MaxTime
	return p.page.MaxTime > 0 && (p.spent >= p.page.MaxTime || lacksTime)
}

// fit returns how many of n can be read in the time that is left, by what was read until now, and
// at least a few.
func (p *budget) fit(n, read, least int) int {
	if p.page.MaxTime == 0 || p.spent <= 0 {
		return n
	}
	left := p.page.MaxTime - p.spent
	return min(n, max(least, int(float64(read)*float64(left)/float64(p.spent))))
}
