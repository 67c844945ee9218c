package series

import (
	"slices"

	"github.com/millrace/millrace/internal/engine"
)

// Metric is a number that a series has of each step (AD-060).
type Metric struct {
	Name string
	// Counts says that it is how often something has happened in a step.
	Counts bool
	// OfJobTypes says that it is recorded for job types only, not for queues.
	OfJobTypes bool
	// isSampled says that it is measured now and then. In a step that has not ended, 0 may mean
	// that it was not measured yet.
	isSampled bool
	value     func(*Bucket) (n float64, known bool)
}

// metrics are all metrics. Durations are in seconds.
var metrics = []Metric{
	count("submitted", func(b *Bucket) uint64 { return b.Submitted }),
	count("started", func(b *Bucket) uint64 { return b.Started }),
	count("succeeded", func(b *Bucket) uint64 { return b.Succeeded }),
	count("failed", func(b *Bucket) uint64 { return b.Failed }),
	sampled("depth", func(b *Bucket) float64 { return float64(b.Depth) }),
	sampled("oldest", func(b *Bucket) float64 { return b.Oldest.Seconds() }),
	quantile("wait_p50", 0.5, waits), quantile("wait_p95", 0.95, waits),
	quantile("run_p50", 0.5, runs), quantile("run_p95", 0.95, runs),
	ofJobTypes(count("requests", func(b *Bucket) uint64 { return b.Requests })),
	ofJobTypes(count("errors", func(b *Bucket) uint64 { return b.Errors })),
}

func waits(b *Bucket) *engine.Durations { return &b.Wait }
func runs(b *Bucket) *engine.Durations  { return &b.Run }

// count makes a metric of what adds up.
func count(name string, of func(*Bucket) uint64) Metric {
	return Metric{Name: name, Counts: true,
		value: func(b *Bucket) (float64, bool) { return float64(of(b)), true }}
}

// sampled makes a metric that is measured now and then.
func sampled(name string, of func(*Bucket) float64) Metric {
	return Metric{Name: name, isSampled: true,
		value: func(b *Bucket) (float64, bool) { return of(b), true }}
}

// quantile makes a metric of durations, which has no value where none was counted.
func quantile(name string, q float64, of func(*Bucket) *engine.Durations) Metric {
	return Metric{Name: name, value: func(b *Bucket) (float64, bool) {
		d, counted := of(b).Quantile(q)
		return d.Seconds(), counted
	}}
}

// ofJobTypes makes a metric one that is not recorded for queues.
func ofJobTypes(m Metric) Metric {
	m.OfJobTypes = true
	return m
}

// FindMetric returns the metric with a name, nil if there is none.
func FindMetric(name string) *Metric {
	at := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	return &metrics[at]
}

// MetricNames returns the names of all metrics, in alphabetical order.
func MetricNames() (names []string) {
	for _, m := range metrics {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	return names
}

// Of returns the number in a step; false where it is not known.
func (m *Metric) Of(p *Point) (float64, bool) {
	n, known := m.value(&p.Bucket)
	return n, known && !p.Unknown && !(m.isSampled && p.Partial && n == 0)
}
