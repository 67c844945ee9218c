package console

import (
	"testing"
	"time"
)

// TestSearchPauses: a search alone takes a third of the time, and so do many together, each of
// which comes as often as the others; one page has no longer pause than maxSearchPause.
func TestSearchPauses(t *testing.T) {
	t.Parallel()
	const took = 40 * time.Millisecond
	for _, searches := range []int{1, 2, 20} {
		var limiter searchLimiter
		begin := time.Unix(1e9, 0)
		next, pages := make([]time.Time, searches), make([]int, searches)
		for i := range next {
			next[i] = begin // they begin at once
		}
		now, used := begin, time.Duration(0)
		for now.Before(begin.Add(time.Minute)) {
			first := 0
			for i := range next {
				if next[i].Before(next[first]) {
					first = i
				}
			}
			if next[first].After(now) {
				now = next[first]
			}
			now = now.Add(took)
			used += took
			pages[first]++
			next[first] = now.Add(limiter.reserve(now, took))
		}
		share := float64(used) / float64(now.Sub(begin))
		if share < 0.32 || share > 0.36 {
			t.Errorf("%d searches take %.3f of the time", searches, share)
		}
		for i, n := range pages {
			if want := 500 / searches; n < want-2 || n > want+2 {
				t.Errorf("search %d of %d has read %d pages, want %d", i, searches, n, want)
			}
		}
	}
	var limiter searchLimiter
	now := time.Unix(1e9, 0)
	for range 1000 {
		if pause := limiter.reserve(now, time.Second); pause > maxSearchPause {
			t.Fatalf("a page pauses for %v", pause)
		}
	}
	if pause := limiter.reserve(now.Add(time.Hour), took); pause != 2*took {
		t.Errorf("an hour later a page pauses for %v", pause)
	}
}
