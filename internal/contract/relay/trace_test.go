package relay_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

// Callers of TestTraces.
const (
	completer = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	loser     = "00-1123456789abcdef0123456789abcdef-0123456789abcdef-01"
	swapper   = "00-2123456789abcdef0123456789abcdef-0123456789abcdef-01"
	older     = "00-3123456789abcdef0123456789abcdef-0123456789abcdef-01"
	batcher   = "00-4123456789abcdef0123456789abcdef-0123456789abcdef-01"
	ender     = "00-5123456789abcdef0123456789abcdef-0123456789abcdef-01"
)

// TestTraces: what happens to a job goes on in the trace of the request that stored it, until the
// job is gone.
func TestTraces(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		collector := testkit.NewCollector(t)
		c := config()
		var flush func()
		c.Tracing, flush = collector.Tracing(t)
		w := newWorldAt(t, p, c)
		put := func(trace, spec string) {
			w.Do(t, "POST", "/v2/queues/jobs", "["+spec+"]", "Traceparent", trace, "Tracestate",
				"vendor=a-b").WantStatus(t, 202)
		}
		put(completer, jobBody("trace", "a"))
		run := w.claim(t, "trace")
		w.Do(t, "DELETE", run.runPath(), "").WantStatus(t, 200)

		put(loser, jobBody("trace", "b", `"max_retries":1`, `"timeout":30`))
		for range 2 {
			w.claim(t, "trace")
			p.Clock.Advance(31 * time.Second)
			testkit.RunMaintenance(t, w.engine)
		}

		put(completer, jobBody("trace", "c"))
		run = w.claim(t, "trace")
		w.Do(t, "PUT", run.runPath(), "["+jobBody("trace", "d")+"]", "Traceparent",
			swapper).WantStatus(t, 202)
		w.Do(t, "DELETE", jobPath("trace", "d"), "").WantStatus(t, 200)

		w.Do(t, "POST", "/v1/queues/jobs", "["+jobBody("trace", "e")+"]", "Traceparent",
			older).WantStatus(t, 202)
		w.claim(t, "trace")
		w.Do(t, "DELETE", "/v1/queues/trace/jobs/e", "").WantStatus(t, 200)

		put(batcher, jobBody("trace", "f"))
		run = w.claim(t, "trace")
		w.Do(t, "POST", heartbeats, "["+runEntry(run)+"]", "Traceparent", ender).WantStatus(t, 200)
		w.Do(t, "POST", completions, "["+runEntry(run)+"]", "Traceparent", ender).WantStatus(t, 200)
		flush()

		for trace, want := range map[string]string{
			completer: "end end enqueue enqueue queue queue run run",
			loser:     "end enqueue queue queue run! run!",
			swapper:   "end requeue",
			older:     "end enqueue queue run",
			batcher:   "end enqueue queue run",
			ender:     "completions heartbeats",
		} {
			if got := testkit.NamesOf(collector.Trace(trace)); got != want {
				t.Errorf("the trace of %s has the spans %s, want %s", trace, got, want)
			}
		}
		for _, s := range collector.Trace(completer) {
			if s.TraceState != "vendor=a-b" {
				t.Errorf("%s has the tracestate %q", s.Name, s.TraceState)
			}
			if s.Name == "run" && (testkit.AttributeOf(s, telemetry.JobID) == "" ||
				testkit.AttributeOf(s, telemetry.Queue) != "trace") {
				t.Errorf("the run does not say of what it is: %v", s)
			}
		}
	})
}
