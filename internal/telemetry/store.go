package telemetry

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/job"
)

// StoreObserver registers a histogram of the store's statements by name and kind of error, and
// returns the function that a store calls after each statement.
func StoreObserver(r prometheus.Registerer) (func(statement string, took time.Duration, err error),
	error) {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "millrace_store_statement_seconds",
		Help: "Time that a statement of the store took, by its name and the kind of its error.",
		Buckets: []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3,
			100e-3, 250e-3, 1, 5},
	}, []string{"statement", "error"})
	if err := r.Register(vec); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	var succeeded sync.Map // statement name to its histogram without error: the usual case
	return func(statement string, took time.Duration, err error) {
		if err != nil {
			vec.WithLabelValues(statement, job.KindOf(err).String()).Observe(took.Seconds())
			return
		}
		h, ok := succeeded.Load(statement)
		if !ok {
			h, _ = succeeded.LoadOrStore(statement, vec.WithLabelValues(statement, ""))
		}
		h.(prometheus.Observer).Observe(took.Seconds())
	}, nil
}
