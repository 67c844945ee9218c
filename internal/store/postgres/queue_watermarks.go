package postgres

import (
	"maps"
	"math"
	"slices"
)

// queueWatermarks say where the ready jobs of a queue begin: of each range of priorities, high to
// low, those before the order time since need not be read, but for late ones (decision 0046). The
// ranges are in claim order and cover all priorities. A priority with a watermark is a range of its
// own. Watermarks are not changed once they are made.
type queueWatermarks struct{ high, low, since []int64 }

// newQueueWatermarks returns the watermarks that leave out nothing.
func newQueueWatermarks() *queueWatermarks { return watermarksOf(nil) }

// head is the place in claim order of the first job of a range.
type head struct{ priority, orderTime int64 }

// advance returns the watermarks when these are the heads of the ranges, those that have one, and
// there can be nothing else before an order time. A priority that is met for the first time gets a
// range.
func (w *queueWatermarks) advance(heads []head, before int64) *queueWatermarks {
	since := map[int64]int64{}
	for i, p := range w.high {
		if p == w.low[i] {
			since[p] = before
		}
	}
	for _, h := range heads {
		if _, known := since[h.priority]; known || len(since) < maxWatermarks {
			since[h.priority] = min(h.orderTime, before)
		}
	}
	return watermarksOf(since)
}

// maxWatermarks limits the priorities of a queue that have a watermark.
const maxWatermarks = 16

// watermarksOf returns the ranges of all priorities, where those of since have their watermarks.
func watermarksOf(since map[int64]int64) *queueWatermarks {
	w, high := &queueWatermarks{}, int64(math.MaxInt32)
	add := func(high, low, since int64) {
		if high >= low {
			w.high, w.low = append(w.high, high), append(w.low, low)
			w.since = append(w.since, since)
		}
	}
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(since))) {
		add(high, p+1, noWatermark)
		add(p, p, since[p])
		high = p - 1
	}
	add(high, math.MinInt32, noWatermark)
	return w
}

// hasWatermark reports whether a range has a watermark.
func (w *queueWatermarks) hasWatermark() bool { return slices.Max(w.since) > noWatermark }

// noWatermarks returns the beginnings of the ranges, as if none had a watermark.
func (w *queueWatermarks) noWatermarks() []int64 {
	return slices.Repeat([]int64{noWatermark}, len(w.since))
}
