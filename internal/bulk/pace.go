package bulk

import "time"

// pace is how far a page has come of its bounds. A page is read in steps, each a window or a part
// of one, and looks at its bounds after each. One that searches texts, where a step reads bodies of
// any size, does not begin a step that would likely end behind its time: one as long as the longest
// was.
type pace struct {
	page     *JobPage
	elapsed  func() time.Duration
	foresees bool // what the next step will take counts
	started  time.Duration
	spent    time.Duration // from the beginning to the end of the last step
	longest  time.Duration // of the steps
}

// newPace begins a page.
func (b *Bulk) newPace(p *JobPage, foresees bool) pace {
	return pace{page: p, elapsed: b.Elapsed, foresees: foresees, started: b.Elapsed()}
}

// endStep ends a step.
func (p *pace) endStep() {
	now := p.elapsed() - p.started
	p.longest, p.spent = max(p.longest, now-p.spent), now
}

// isAtBound reports whether a bound of the page is reached when so many were read.
func (p *pace) isAtBound(read int) bool {
	if p.page.MaxJobs > 0 && read >= p.page.MaxJobs {
		return true
	}
	isForeseen := p.foresees && p.spent+p.longest > p.page.MaxTime
	return p.page.MaxTime > 0 && (p.spent >= p.page.MaxTime || isForeseen)
}

// affordable returns how many of n can be read in the time that is left, by what was read until
// now, and at least a few.
func (p *pace) affordable(n, read, few int) int {
	if p.page.MaxTime == 0 || p.spent <= 0 {
		return n
	}
	left := p.page.MaxTime - p.spent
	return min(n, max(few, int(float64(read)*float64(left)/float64(p.spent))))
}
