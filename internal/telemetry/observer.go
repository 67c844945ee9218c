package telemetry

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
