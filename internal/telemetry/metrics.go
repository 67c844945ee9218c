package telemetry

import (
	"cmp"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics makes metrics and registers them, so that a metric is declared where it is made and
// nowhere else. The first metric that the registry refuses is the error of Err.
type Metrics struct {
	registry prometheus.Registerer
	err      error
}

// NewMetrics returns the Metrics of a registry.
func NewMetrics(r prometheus.Registerer) *Metrics { return &Metrics{registry: r} }

// Err returns why a metric could not be registered. It is asked for once, after the last metric.
func (m *Metrics) Err() error { return m.err }

// Register registers a collector.
func (m *Metrics) Register(c prometheus.Collector) {
	if err := m.registry.Register(c); err != nil {
		m.err = cmp.Or(m.err, fmt.Errorf("telemetry: %w", err))
	}
}

// register registers a collector and returns it.
func register[C prometheus.Collector](m *Metrics, c C) C {
	m.Register(c)
	return c
}

// Counter makes a counter.
func (m *Metrics) Counter(name, help string) prometheus.Counter {
	return register(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// Counters makes counters with labels.
func (m *Metrics) Counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		labels))
}

// Gauge makes a gauge.
func (m *Metrics) Gauge(name, help string) prometheus.Gauge {
	return register(m, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

// Gauges makes gauges with labels.
func (m *Metrics) Gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

// GaugeFunc makes a gauge whose value is asked for at each scrape.
func (m *Metrics) GaugeFunc(name, help string, value func() float64) {
	m.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Histogram makes a histogram.
func (m *Metrics) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(m, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
		Buckets: buckets}))
}

// Histograms makes histograms with labels.
func (m *Metrics) Histograms(name, help string, buckets []float64,
	labels ...string) *prometheus.HistogramVec {
	return register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
		Buckets: buckets}, labels))
}
