package telemetry_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/internal/telemetry"
)

// TestMetrics checks that every kind of metric is registered as it is made, and that the first
// metric that is refused is reported.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	all := telemetry.NewMetrics(r)
	all.Counter("a_total", "help").Inc()
	all.Counters("b_total", "help", "x").WithLabelValues("1").Inc()
	all.Gauge("c", "help").Set(1)
	all.Gauges("d", "help", "x").WithLabelValues("1").Set(1)
	all.GaugeFunc("e", "help", func() float64 { return 1 })
	all.Histogram("f", "help", []float64{1}).Observe(1)
	all.Histograms("g", "help", []float64{1}, "x").WithLabelValues("1").Observe(1)
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(r); err != nil || n != 7 {
		t.Errorf("registered %d metrics, want 7: %v", n, err)
	}
	all.Counter("a_total", "another help")
	all.Counter("h_total", "help")
	if all.Err() == nil {
		t.Error("a second metric of one name was taken")
	}
}
