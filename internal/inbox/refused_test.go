package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TX-003: what a contract refuses stays with its error, and what comes before and after it in the
// same transaction is submitted. A contract that panics has refused the request.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node = w.newNode(nodeConfig{relay: func(submit submitFunc) submitFunc {
		return func(ctx context.Context, r contract.Request) (*job.Job, error) {
			if strings.Contains(string(r.Body), "panic") {
				panic("secret")
			}
			return submit(ctx, r)
		}
	}})
	tx := w.begin()
	first := w.submit(tx, "relay", fmt.Sprintf(relayJob, "first"))
	wrong := map[string]string{
		w.submit(tx, "relay", `{"queue":"q"}`):                "payload is missing",
		w.submit(tx, "relay", fmt.Sprintf(relayJob, "first")): "exists already",
		w.submit(tx, "relay", fmt.Sprintf(relayJob, "panic")): "the server has failed",
		w.submit(tx, "nobody", "{}"): "contract must be one of " +
			"relay, taskflow, forgerun, fetchbox, images",
		w.submit(tx, "relay", "{}", nil, "owner"):     "owner: the jobs of Relay have none",
		w.submit(tx, "relay", "{}", nil, nil, "type"): "requests of relay take no job_type",
		w.submit(tx, "taskflow", `{"name":"n","queue":"q","payload":{},"dependencies":[
			"00000000-0000-4000-8000-000000000000"]}`): "there is no job",
		w.submit(tx, "relay", fmt.Sprintf(relayJob, strings.Repeat("ä", 5000))): "id",
	}
	last := w.submit(tx, "relay", fmt.Sprintf(relayJob, "last"))
	w.must(tx.Commit())
	w.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"first", "last"}) {
		t.Errorf("TX-003 the jobs are %v", got)
	}
	for id, reason := range wrong {
		s := w.see(id)
		if r := w.request(id); s.state != "refused" || !strings.Contains(s.reason, reason) || s.jobID != "" ||
			len(s.reason) > 500 || r.FinishedAt.IsZero() || len(r.Body) == 0 {
			t.Errorf("TX-003 %s: %+v, want refused for %q", r.Body[:min(40, len(r.Body))], s, reason)
		}
	}
	for _, id := range []string{first, last} {
		if s := w.see(id); s.state != "submitted" {
			t.Errorf("TX-003 %+v", s)
		}
	}
	if log := w.log.String(); !strings.Contains(log, "a contract has panicked") ||
		!strings.Contains(log, "requests in the inbox were refused") {
		t.Errorf("TX-003 the log has %s", log)
	}
}

// TX-003: a request that was refused is submitted once it is retried and its contract takes it, and
// one that is discarded is not.
func TestRetriedAndDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"))
	w.run(w)
	again := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"), "key")
	w.run(w)
	record := func(engine.RecordWriter, *job.InboxRequest) error { return nil }
	w.must(w.engine.Remove(ctx, job.ID{JobType: "relay", Scope: "q", Key: "1"}))
	w.must(w.engine.RetryInbox(ctx, again, record))
	if s := w.see(again); s != (seen{"waiting", "relay", "", ""}) {
		t.Errorf("TX-003 a request that is retried is %+v", s)
	}
	w.run(w)
	if s := w.see(again); s != (seen{"submitted", "relay", "1", ""}) {
		t.Errorf("TX-003 a request that was retried is %+v", s)
	}
	waits := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "2"), "other")
	failing := errors.New("no")
	if err := w.engine.DiscardInbox(ctx, waits, func(engine.RecordWriter, *job.InboxRequest) error {
		return failing
	}); !errors.Is(err, failing) || w.see(waits).state != "waiting" {
		t.Errorf("AD-006 a discard that is not recorded: %v, %+v", err, w.see(waits))
	}
	w.must(w.engine.DiscardInbox(ctx, waits, record))
	w.run(w)
	if got := w.jobs("relay"); !slices.Equal(got, []string{"1"}) || w.see(waits) != (seen{}) {
		t.Errorf("TX-003 the jobs are %v after a discard", got)
	}
	if id := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "3"), "other"); id == waits {
		t.Error("TX-003 a key is kept beyond its request")
	}
	if id := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"), "key"); id != again {
		t.Error("TX-003 a key gives another request")
	}
}

// TX-003: requests that were submitted or refused are kept for inbox.retention, with their keys;
// those that wait are kept for as long as they do.
func TestRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := context.Background()
	good := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"), "key")
	bad := w.submit(w.db, "relay", "{}")
	w.run(w)
	waits := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "2"))
	prune := func() {
		t.Helper()
		for n := 1; n > 0; {
			var err error
			if n, err = w.engine.Prune(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.clock.Advance(168 * time.Hour)
	prune()
	if w.see(good).state != "submitted" || w.see(bad).state != "refused" {
		t.Error("TX-003 requests are gone before their retention")
	}
	w.clock.Advance(time.Second)
	prune()
	if w.see(good) != (seen{}) || w.see(bad) != (seen{}) || w.see(waits).state != "waiting" {
		t.Errorf("TX-003 after the retention: %+v %+v %+v", w.see(good), w.see(bad), w.see(waits))
	}
	if id := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "3"), "key"); id == good {
		t.Error("TX-003 a key is kept beyond its request")
	}
}

// TX-003: the metrics tell what waits, since when, and what was submitted and refused by contract;
// producers cannot make up further names of contracts.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	check := func(want string, names ...string) {
		t.Helper()
		err := testutil.GatherAndCompare(w.metrics, strings.NewReader(want), names...)
		if err != nil {
			t.Errorf("TX-003 %v", err)
		}
	}
	const oldest = "millrace_inbox_oldest_timestamp_seconds"
	check(`# HELP `+oldest+` When the oldest request that waits in the inbox was made; 0 if none waits.
# TYPE `+oldest+` gauge
`+oldest+` 0
`, oldest)
	id := w.submit(w.db, "relay", fmt.Sprintf(relayJob, "1"))
	made := w.request(id).CreatedAt
	check(fmt.Sprintf(`# HELP %[1]s When the oldest request that waits in the inbox was made; 0 if none waits.
# TYPE %[1]s gauge
%[1]s %[2]v
`, oldest, float64(made.UnixMicro())/1e6), oldest)
	for _, contract := range []string{"relay", "nobody", "no one"} {
		w.submit(w.db, contract, "{}")
	}
	w.run(w)
	w.submit(w.db, "relay", "{}")
	check(`# HELP millrace_inbox_requests Requests in the inbox that wait or were refused, each counted up to 10000.
# TYPE millrace_inbox_requests gauge
millrace_inbox_requests{state="refused"} 3
millrace_inbox_requests{state="waiting"} 1
# HELP millrace_inbox_refused_total Requests of the inbox that were refused on this node, by contract.
# TYPE millrace_inbox_refused_total counter
millrace_inbox_refused_total{target="_other"} 2
millrace_inbox_refused_total{target="relay"} 1
# HELP millrace_inbox_submitted_total Requests of the inbox that this node has submitted, by contract.
# TYPE millrace_inbox_submitted_total counter
millrace_inbox_submitted_total{target="relay"} 1
`, "millrace_inbox_requests", "millrace_inbox_refused_total", "millrace_inbox_submitted_total")
}
