package telemetry

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/internal/job"
)

// StatusClassObserver returns the function that records the duration of a route's requests in
// seconds, a histogram whose labels are the route and the class of the status (2xx). A class
// exists from its first request on: most routes have one or two, and each is a dozen lines of a
// scrape.
func StatusClassObserver(seconds *prometheus.HistogramVec, route string) func(status int,
	took time.Duration) {
	var observers sync.Map // class to its histogram
	return func(status int, took time.Duration) {
		class := status / 100
		h, ok := observers.Load(class)
		if !ok {
			h, _ = observers.LoadOrStore(class,
				seconds.WithLabelValues(route, fmt.Sprintf("%dxx", class)))
		}
		h.(prometheus.Observer).Observe(took.Seconds())
	}
}

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

// Stopwatch measures elapsed time. Decisions about jobs never use it, only the time of the engine.
type Stopwatch struct{ start time.Time }

// StartStopwatch starts a Stopwatch.
func StartStopwatch() Stopwatch { return Stopwatch{time.Now()} }

// Elapsed returns the time since the start.
func (s Stopwatch) Elapsed() time.Duration { return time.Since(s.start) }

// Deadline returns the time d from now, for the deadlines of connections.
func Deadline(d time.Duration) time.Time { return time.Now().Add(d) }

// HasPassed reports whether a deadline has passed.
func HasPassed(deadline time.Time) bool { return !time.Now().Before(deadline) }
