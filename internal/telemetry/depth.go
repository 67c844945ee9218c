package telemetry

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/job"
)

// OtherQueues is the label of queues beyond the bound.
const OtherQueues = "_other"

// QueueDepth is a collector of how many jobs the queues of a contract hold. It asks
// at each scrape and keeps nothing.
type QueueDepth struct {
	Name     string // of the metric
	Contract string
	// Queues is engine.Queues.
	Queues func(ctx context.Context, contract string) ([]job.QueueCount, error)
	// MaxQueues is how many queues get a label of their own, the fullest first; the
	// others are summed up under OtherQueues.
	MaxQueues int
	Timeout   time.Duration
}

func (d *QueueDepth) desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, "Jobs that are not over, by queue and phase.",
		[]string{"queue", "phase"}, nil)
}

// Describe implements prometheus.Collector, as does Collect.
func (d *QueueDepth) Describe(out chan<- *prometheus.Desc) { out <- d.desc() }

// Collect is Describe's other half.
func (d *QueueDepth) Collect(out chan<- prometheus.Metric) {
	desc := d.desc()
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	counts, err := d.Queues(ctx, d.Contract)
	if err != nil {
		out <- prometheus.NewInvalidMetric(desc, err)
		return
	}
	for _, q := range limitQueues(counts, d.MaxQueues) {
		for _, v := range []struct {
			phase job.Phase
			n     int64
		}{{job.Waiting, q.Waiting + q.Delayed}, {job.Ready, q.Ready}, {job.Leased, q.Leased}} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(v.n), q.Queue,
				v.phase.String())
		}
	}
}

// limitQueues returns the fullest queues and the sum of the rest.
func limitQueues(counts []job.QueueCount, limit int) []job.QueueCount {
	named, other, remaining := slices.Clone(counts), job.QueueCount{Queue: OtherQueues}, 0
	slices.SortFunc(named, func(a, b job.QueueCount) int {
		return cmp.Or(cmp.Compare(b.Jobs(), a.Jobs()), cmp.Compare(a.Queue, b.Queue))
	})
	kept := named[:0]
	for _, q := range named {
		if len(kept) < limit && q.Queue != OtherQueues {
			kept = append(kept, q)
			continue
		}
		remaining++
		other = other.Plus(q)
	}
	if remaining > 0 {
		kept = append(kept, other)
	}
	return kept
}
