package wordcount

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/engine"
)

// metrics are the contract's metrics.
type metrics struct {
	counted prometheus.Counter
	errors  prometheus.Counter
}

// newMetrics registers the metrics. It fails if one of the names is taken.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		counted: prometheus.NewCounter(prometheus.CounterOpts{Name: "wordcount_texts_total",
			Help: "Texts whose words were counted."}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "wordcount_errors_total",
			Help: "Requests answered with an error."}),
	}
	for _, c := range []prometheus.Collector{m.counted, m.errors} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// observeTransition counts a text that was counted.
func (m *metrics) observeTransition(_ *engine.Transitioned) { m.counted.Inc() }
