package testkit

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// MetricSum sums a metric's values, or the number of what a histogram has seen, over
// all children that have the labels, and counts these.
func MetricSum(tb testing.TB, registry prometheus.Gatherer, name string,
	labels map[string]string) (sum float64, children int) {
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
				children++
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum, children
	}
	tb.Errorf("there is no metric %s", name)
	return 0, 0
}

func hasLabels(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.Label {
		if labels[l.GetName()] == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}
