package telemetry

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/job"
)

// queueCountTimeout bounds the query that one scrape makes.
const queueCountTimeout = 5 * time.Second

// QueueGauges is a collector of gauges that are computed from the counts of a contract's queues.
// Each scrape reads the counts; nothing is kept between scrapes. When the counts cannot be read,
// the scrape reports an invalid metric and the other metrics stay.
type QueueGauges struct {
	// Counts reads the counts.
	Counts func(ctx context.Context) ([]job.QueueCount, error)
	Descs  []*prometheus.Desc
	// Gauges calls set for every gauge that the counts yield.
	Gauges func(counts []job.QueueCount, set SetGauge)
}

// SetGauge reports the value of one gauge, with the values of its labels.
type SetGauge func(desc *prometheus.Desc, value int64, labels ...string)

// Describe implements prometheus.Collector.
func (q *QueueGauges) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range q.Descs {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (q *QueueGauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), queueCountTimeout)
	defer cancel()
	counts, err := q.Counts(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(q.Descs[0], err)
		return
	}
	q.Gauges(counts, func(desc *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	})
}

// OtherQueues is the label of the queues that have no label of their own.
const OtherQueues = "_other"

// NewQueueDepth makes a collector of one metric: the unfinished jobs of a contract, by queue and
// phase. The fullest queues get a label of their own, at most maxQueues; the sum of the others is
// under OtherQueues.
func NewQueueDepth(metric string, maxQueues int,
	counts func(context.Context) ([]job.QueueCount, error)) *QueueGauges {
	desc := prometheus.NewDesc(metric, "Jobs that are not done, by queue and phase.",
		[]string{"queue", "phase"}, nil)
	return &QueueGauges{Counts: counts, Descs: []*prometheus.Desc{desc},
		Gauges: func(counts []job.QueueCount, set SetGauge) {
			for _, q := range limitQueues(counts, maxQueues) {
				set(desc, q.Waiting+q.Delayed, q.Queue, job.Waiting.String())
				set(desc, q.Ready, q.Queue, job.Ready.String())
				set(desc, q.Leased, q.Queue, job.Leased.String())
			}
		}}
}

// limitQueues returns the fullest queues and the sum of the others.
func limitQueues(counts []job.QueueCount, limit int) []job.QueueCount {
	named, other, remaining := slices.Clone(counts), job.QueueCount{Queue: OtherQueues}, 0
	slices.SortFunc(named, func(a, b job.QueueCount) int {
		return cmp.Or(cmp.Compare(b.Jobs(), a.Jobs()), cmp.Compare(a.Queue, b.Queue))
	})
	shown := named[:0]
	for _, q := range named {
		if len(shown) < limit && q.Queue != OtherQueues {
			shown = append(shown, q)
			continue
		}
		remaining++
		other = other.Plus(q)
	}
	if remaining > 0 {
		shown = append(shown, other)
	}
	return shown
}
