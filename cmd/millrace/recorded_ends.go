package main

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
)

// endMetrics is a collector of the ends of runs that workers have recorded in transactions of their
// own: those that wait, which each scrape counts, and those that this node has carried out. Those
// that wait are in the database and the same on every node; that they grow older says that no node
// carries them out.
type endMetrics struct {
	engine *engine.Engine
	// waiting counts those that wait; nil for a database without them.
	waiting func(ctx context.Context, limit int) (int, time.Time, error)

	count, oldest, total *prometheus.Desc
}

const (
	maxCountedEnds  = 10_000
	endCountTimeout = 5 * time.Second
)

func newEndMetrics(e *engine.Engine,
	waiting func(context.Context, int) (int, time.Time, error)) *endMetrics {
	return &endMetrics{engine: e, waiting: waiting,
		count: prometheus.NewDesc("millrace_recorded_ends_waiting",
			"Ends of runs that workers have recorded by SQL and that wait to be carried out, "+
				"counted up to 10000.", nil, nil),
		oldest: prometheus.NewDesc("millrace_recorded_ends_oldest_timestamp_seconds",
			"When the transaction of the oldest end that waits began; 0 if none waits.", nil, nil),
		total: prometheus.NewDesc("millrace_recorded_ends_total",
			"Recorded ends that this node has carried out, by contract and outcome: refused is one "+
				"that became a failure, or that changed nothing.", []string{"target", "outcome"},
			nil)}
}

// Describe implements prometheus.Collector.
func (m *endMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.count
	out <- m.oldest
	out <- m.total
}

// Collect implements prometheus.Collector.
func (m *endMetrics) Collect(out chan<- prometheus.Metric) {
	for name, n := range m.engine.RecordedEndCounts() {
		contract, _, _ := strings.Cut(name, ".")
		for outcome, value := range map[string]int64{"completed": n.Completed, "failed": n.Failed,
			"refused": n.Refused} {
			out <- prometheus.MustNewConstMetric(m.total, prometheus.CounterValue, float64(value),
				contract, outcome)
		}
	}
	if m.waiting == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endCountTimeout)
	defer cancel()
	n, at, err := m.waiting(ctx, maxCountedEnds)
	if err != nil {
		out <- prometheus.NewInvalidMetric(m.count, err)
		return
	}
	oldest := 0.0
	if n > 0 {
		oldest = float64(at.UnixMicro()) / 1e6
	}
	out <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(n))
	out <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, oldest)
}
