package series

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// Minute is what was counted of a queue in a minute.
type Minute struct {
	Depth     uint64 // the most ready jobs that were seen
	Succeeded uint64
	Failed    uint64
	// Unknown says that the queue may have been counted among those beyond the bound.
	Unknown bool
}

// TrendMinutes is how many minutes a trend has.
const TrendMinutes = 60

// Trend has the last minutes of a queue, the oldest first. The last one has not ended, and its
// depth may not be measured yet.
type Trend [TrendMinutes]Minute

// Trends are the trends of some queues, by job type and name.
type Trends map[string]map[string]*Trend

// Of returns the trend of a queue, nil for one that was not asked for.
func (t Trends) Of(jobType, queue string) *Trend { return t[jobType][queue] }

// Trends returns what all nodes have counted in the last hour of some queues, which are named by
// their job types. It reads the minutes of each job type once, whatever the number of queues.
func (r *Recorder) Trends(ctx context.Context, queues map[string][]string) (Trends, error) {
	all := Trends{}
	err := r.Engine.ViewRecords(ctx, func(reader engine.RecordReader) error {
		now := reader.Now()
		begin := now.Truncate(time.Minute).Add(-(TrendMinutes - 1) * time.Minute)
		for _, jobType := range slices.Sorted(maps.Keys(queues)) {
			names := queues[jobType]
			of := make(trendsOfJobType, len(names))
			for _, name := range names {
				of[name] = &Trend{}
			}
			all[jobType] = of
			err := eachRecord(ofOwner(reader, minuteLayer.kind, jobType), begin,
				func(at time.Time, record *job.Record) (bool, error) {
					minute := int(at.Sub(begin) / time.Minute)
					if minute >= TrendMinutes { // the clock of its node was ahead
						return false, nil
					}
					return true, of.join(minute, record)
				})
			if err != nil {
				return err
			}
			of.joinUnwritten(r, jobType)
		}
		return nil
	})
	return all, err
}

// minuteLayer has the steps of a minute.
var minuteLayer = &layers[1]

// trendsOfJobType are trends by the names of their queues.
type trendsOfJobType map[string]*Trend

// join adds the record of a minute to the trends.
func (t trendsOfJobType) join(minute int, record *job.Record) error {
	hasBeyond, present := false, map[string]bool{}
	isWanted := func(name []byte) bool {
		hasBeyond = hasBeyond || string(name) == beyond
		return t[string(name)] != nil
	}
	err := eachBucket(record, isWanted, func(name []byte, b *Bucket) {
		t[string(name)][minute].join(b)
		present[string(name)] = true
	})
	if hasBeyond {
		t.forget(minute, func(name string) bool { return present[name] })
	}
	return err
}

// joinUnwritten adds to the last minute what this node has counted and not written.
func (t trendsOfJobType) joinUnwritten(r *Recorder, jobType string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted := r.collect().queues[jobType]
	for name, trend := range t {
		if b := counted[name]; b != nil {
			trend[TrendMinutes-1].join(b)
		}
	}
	if counted[beyond] != nil {
		t.forget(TrendMinutes-1, func(name string) bool { return counted[name] != nil })
	}
}

// forget marks a minute as unknown for the queues that were not counted by their names in it.
func (t trendsOfJobType) forget(minute int, isCounted func(name string) bool) {
	for name, trend := range t {
		if !isCounted(name) {
			trend[minute].Unknown = true
		}
	}
}

// join adds what was counted in the minute, here or on another node.
func (m *Minute) join(b *Bucket) {
	m.Depth = max(m.Depth, b.Depth)
	m.Succeeded += b.Succeeded
	m.Failed += b.Failed
}
