package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
)

// metrics count requests by contract. Producers write the names of contracts, so all that are not
// known share the label _other.
type metrics struct {
	known              []string
	submitted, refused *prometheus.CounterVec
}

const otherContract = "_other"

func newMetrics(r prometheus.Registerer, e *engine.Engine, known []string) (*metrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
			[]string{"target"})
	}
	m := &metrics{known: known,
		submitted: counter("millrace_inbox_submitted_total",
			"Requests of the inbox that this node has submitted, by contract."),
		refused: counter("millrace_inbox_refused_total",
			"Requests of the inbox that were refused on this node, by contract.")}
	for _, c := range []prometheus.Collector{m.submitted, m.refused, newGauges(e)} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// label returns the label of a contract.
func (m *metrics) label(contract string) string {
	if slices.Contains(m.known, contract) {
		return contract
	}
	return otherContract
}

func (m *metrics) countSubmitted(contract string) {
	m.submitted.WithLabelValues(m.label(contract)).Inc()
}

// report counts and logs what was refused, and counts what was submitted before.
func (in *Inbox) report(marks []job.InboxRequest) {
	refused := map[string][]*job.InboxRequest{}
	for i := range marks {
		r := &marks[i]
		label := in.metrics.label(r.Contract)
		switch r.State {
		case job.InboxSubmitted:
			in.metrics.countSubmitted(r.Contract)
		case job.InboxRefused:
			in.metrics.refused.WithLabelValues(label).Inc()
			refused[label] = append(refused[label], r)
		}
	}
	for label, all := range refused {
		in.Log.Warn("requests in the inbox were refused", "target", label, "count", len(all),
			"request", all[0].ID, telemetry.ErrorMessage, all[0].Error)
	}
}

// reportUnserved logs requests that have begun to wait for a node that serves their contract.
func (in *Inbox) reportUnserved(unserved []job.InboxRequest) {
	byContract := map[string][]job.InboxRequest{}
	for _, r := range unserved {
		byContract[r.Contract] = append(byContract[r.Contract], r)
	}
	for name, all := range byContract {
		in.Log.Warn("requests in the inbox wait, as no node serves their contract", "target", name,
			"count", len(all), "request", all[0].ID)
	}
}

const (
	maxCounted   = 10_000 // of each state
	countTimeout = 5 * time.Second
)

// gauges is a collector of how many requests are in the inbox. Each scrape reads it.
type gauges struct {
	engine           *engine.Engine
	requests, oldest *prometheus.Desc
}

func newGauges(e *engine.Engine) *gauges {
	return &gauges{engine: e,
		requests: prometheus.NewDesc("millrace_inbox_requests",
			"Requests in the inbox that wait or were refused, each counted up to 10000.",
			[]string{"state"}, nil),
		oldest: prometheus.NewDesc("millrace_inbox_oldest_timestamp_seconds",
			"When the oldest request that waits in the inbox was made; 0 if none waits.", nil, nil)}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- g.requests
	out <- g.oldest
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	count, err := g.engine.CountInbox(ctx, maxCounted)
	if err != nil {
		out <- prometheus.NewInvalidMetric(g.requests, err)
		return
	}
	set := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	set(g.requests, float64(count.Waiting), string(job.InboxWaiting))
	set(g.requests, float64(count.Refused), string(job.InboxRefused))
	oldest := 0.0
	if !count.OldestWaiting.IsZero() {
		oldest = float64(count.OldestWaiting.UnixMicro()) / 1e6
	}
	set(g.oldest, oldest)
}
