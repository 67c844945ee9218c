package images_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

// TestTraces: what happens to a job goes on in the trace of the upload; an attempt that failed has
// an error.
func TestTraces(t *testing.T) {
	t.Parallel()
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	collector := testkit.NewCollector(t)
	c := config()
	var flush func()
	c.Tracing, flush = collector.Tracing(t)
	w := inMemory(t, c)
	id := w.put(t, jpegOf(t, 8, 8), "Traceparent", caller, "Tracestate", "vendor=a-b").JobID
	w.fail(t, id)
	w.clock.Advance(time.Hour)
	w.sweep(t)
	w.attempt(t, id)
	flush()
	assertEqual(t, "spans", testkit.NamesOf(collector.Trace(caller)), "queue queue run! run upload")
	for _, s := range collector.Trace(caller) {
		assertEqual(t, "the tracestate of "+s.Name, s.TraceState, "vendor=a-b")
	}
}
