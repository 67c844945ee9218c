package forgerun_test

import (
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// metric sums a metric over all children that have the labels.
func (w *world) metric(t testing.TB, name string, labels map[string]string) float64 {
	t.Helper()
	sum, _ := testkit.MetricSum(t, w.registry, name, labels)
	return sum
}
