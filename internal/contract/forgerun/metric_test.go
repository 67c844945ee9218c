package forgerun_test

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// metric sums a metric's values, or the number of what a histogram has seen, over
// all children that have the labels.
func (w *world) metric(t testing.TB, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if has(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sum
	}
	t.Errorf("there is no metric %s", name)
	return 0
}

func has(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.Label {
		if labels[l.GetName()] == l.GetValue() {
			found++
		}
	}
	return found == len(labels)
}
