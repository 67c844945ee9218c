package engine

import (
	"sync"
	"time"
)

// histogramBounds are the upper bounds of the buckets of a Histogram. The last bucket has none.
var histogramBounds = [...]time.Duration{time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
	5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour}

// Histogram counts durations by length. Histograms of several nodes and times add up.
type Histogram [len(histogramBounds) + 1]uint32

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(histogramBounds) && d > histogramBounds[i] {
		i++
	}
	h[i]++
}

// Add adds what another histogram has counted.
func (h *Histogram) Add(o *Histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// Quantile returns the duration that a part q of those counted do not exceed, estimated within its
// bucket; false if none was counted. One in the last bucket counts as its lower bound.
func (h *Histogram) Quantile(q float64) (time.Duration, bool) {
	total := 0.0
	for _, n := range h {
		total += float64(n)
	}
	if total == 0 {
		return 0, false
	}
	rank, below := q*total, 0.0
	for i, n := range h {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		lower := time.Duration(0)
		if i > 0 {
			lower = histogramBounds[i-1]
		}
		if i == len(histogramBounds) {
			return lower, true
		}
		part := (rank - below) / float64(n)
		return lower + time.Duration(part*float64(histogramBounds[i]-lower)), true
	}
	return histogramBounds[len(histogramBounds)-1], true
}

// Durations are a histogram with the longest of what it has counted.
type Durations struct {
	Histogram
	Longest time.Duration
}

// Observe counts a duration.
func (d *Durations) Observe(length time.Duration) {
	d.Histogram.Observe(length)
	d.Longest = max(d.Longest, length)
}

// Add adds what others have counted.
func (d *Durations) Add(o *Durations) {
	d.Histogram.Add(&o.Histogram)
	d.Longest = max(d.Longest, o.Longest)
}

// Quantile estimates a quantile by the histogram. It is at most the longest duration, if that is
// known.
func (d *Durations) Quantile(q float64) (time.Duration, bool) {
	length, counted := d.Histogram.Quantile(q)
	if d.Longest > 0 {
		length = min(length, d.Longest)
	}
	return length, counted
}

// latencies are how long the transactions of this node have taken.
type latencies struct {
	mu  sync.Mutex
	all Histogram
}

func (l *latencies) observe(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Observe(d)
}

// TakeLatencies returns how long the transactions of this node have taken since the last call of
// it, from their beginning to the commit.
func (e *Engine) TakeLatencies() Histogram {
	l := &e.latencies
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.all
	l.all = Histogram{}
	return taken
}
