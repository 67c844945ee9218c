package testkit

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// MetricSum adds up the values of a metric, or the counts of a histogram, over all series that have
// the labels. It also returns the number of these series. A metric that does not exist fails the
// test; a series that does not exist counts as none.
func MetricSum(tb testing.TB, registry prometheus.Gatherer, name string,
	labels map[string]string) (sum float64, series int) {
	tb.Helper()
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if hasLabels(m, labels) {
				series++
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum, series
	}
	tb.Errorf("there is no metric %s", name)
	return 0, 0
}

// hasLabels reports whether a series has all of the labels; it may have others.
func hasLabels(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.Label {
		if labels[l.GetName()] == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}
