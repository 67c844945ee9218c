package sqlstore

import (
	"maps"
	"math"
	"slices"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Watermarks say where the ready jobs of a queue begin: of each range of priorities, High to Low,
// those before the order time Since need not be read, but for late ones (decision 0046). The ranges
// are in claim order and cover all priorities. A priority with a watermark is a range of its own.
// Watermarks are not changed once they are made.
type Watermarks struct{ High, Low, Since []int64 }

// noWatermark is before every order time.
const noWatermark = math.MinInt64

// NewWatermarks returns the watermarks that leave out nothing.
func NewWatermarks() *Watermarks { return watermarksOf(nil) }

// Head is the place in claim order of the first job of a range.
type Head struct{ Priority, OrderTime int64 }

// Moved returns the watermarks when these are the heads of the ranges, those that have one, and
// there can be nothing else before an order time. A priority that is met for the first time gets a
// range.
func (w *Watermarks) Moved(heads []Head, before int64) *Watermarks {
	since := map[int64]int64{}
	for i, p := range w.High {
		if p == w.Low[i] {
			since[p] = before
		}
	}
	for _, h := range heads {
		if _, known := since[h.Priority]; known || len(since) < maxWatermarks {
			since[h.Priority] = min(h.OrderTime, before)
		}
	}
	return watermarksOf(since)
}

// maxWatermarks limits the priorities of a queue that have a watermark.
const maxWatermarks = 16

// watermarksOf returns the ranges of all priorities, where those of since have their watermarks.
func watermarksOf(since map[int64]int64) *Watermarks {
	w, high := &Watermarks{}, int64(math.MaxInt32)
	add := func(high, low, since int64) {
		if high >= low {
			w.High, w.Low = append(w.High, high), append(w.Low, low)
			w.Since = append(w.Since, since)
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

// HideSome reports whether a range has a watermark.
func (w *Watermarks) HideSome() bool { return slices.Max(w.Since) > noWatermark }

// Begin returns the beginnings of the ranges, as if none had a watermark.
func (w *Watermarks) Begin() []int64 {
	return slices.Repeat([]int64{noWatermark}, len(w.Since))
}

// The statements of watermarks. Range by range, in claim order, they read the late jobs before the
// watermark, from an index of these alone, and then the jobs from the watermark on. A range is read
// only when those before it had too few.
var (
	// LockReadyFrom is LockReady with the watermarks $5 to $7.
	LockReadyFrom = &Statement{"lock_ready_from", `SELECT r.*
		FROM unnest($5::int8[],$6::int8[],$7::int8[]) AS f(high,low,since) CROSS JOIN LATERAL (
		SELECT * FROM (` + jobsIn(job.Ready, store.AllBodies) + `
			WHERE s.order_time<s.arrived-2000000 AND s.queue_hash=$1
			AND -s.priority::bigint=-f.high AND f.high=f.low AND s.order_time<f.since AND j.contract=$2 AND j.queue=$3
			ORDER BY s.order_time, s.seq {limit $4} {skip locked jobs}) AS late
		UNION ALL
		SELECT * FROM (` + jobsIn(job.Ready, store.AllBodies) + `
			WHERE s.queue_hash=$1 AND s.priority<=f.high AND s.priority>=f.low
			AND s.order_time>=f.since AND j.contract=$2 AND j.queue=$3
			ORDER BY s.priority DESC, s.order_time, s.seq {limit $4} {skip locked jobs}) AS others
		) AS r {limit $4}`}
	// ReadyHeads returns the first job of each range of the watermarks $2 to $4 that has one, read
	// from the order times $5 on. It passes over late jobs before the watermark, and locks nothing:
	// a job that a transaction has claimed without a commit is found.
	ReadyHeads = &Statement{"ready_heads", `SELECT r.priority,r.order_time
		FROM unnest($2::int8[],$3::int8[],$4::int8[],$5::int8[]) AS f(high,low,since,start)
		CROSS JOIN LATERAL (SELECT priority,order_time FROM ready
			WHERE queue_hash=$1 AND priority<=f.high AND priority>=f.low AND order_time>=f.start
			AND (order_time>=f.since OR order_time>=arrived-2000000)
			ORDER BY priority DESC, order_time, seq LIMIT 1) AS r`}
)
