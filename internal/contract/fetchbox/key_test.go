package fetchbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/testkit"
)

const keyHeader = "X-Fetchbox-Idempotency-Key"

func TestKeys(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("FB-008 FB-046 a repeat is answered with the first job and publishes nothing",
			func(t *testing.T) {
				first := w.post(t, manifest(3), keyHeader, "a").WantStatus(t, 202)
				w.deliver(t)
				before := len(w.messages(t))
				second := w.post(t, manifest(3), keyHeader, "a").WantStatus(t, 202)
				assertEqual(t, "answer", second.Body, first.Body)
				w.deliver(t)
				assertEqual(t, "messages", len(w.messages(t)), before)
				assertEqual(t, "jobs", len(w.all(t, fetchbox.Name)), 1)
				assertEqual(t, "manifests", len(w.stored(t)), 1)
			})
		t.Run("G-FB-05 whatever the body", func(t *testing.T) {
			first := w.submit(t, manifest(2), keyHeader, "b")
			assertEqual(t, "again", w.submit(t, manifest(9), keyHeader, "b"), first)
		})
		t.Run("FB-047 tenant, job type and key together", func(t *testing.T) {
			seen := map[string]bool{}
			for _, tenant := range []string{"", "t", "u"} {
				for _, kind := range []string{gallery, "default"} {
					for _, key := range []string{"x", "y"} {
						seen[w.submit(t, manifest(1), keyHeader, key, "X-Fetchbox-Tenant", tenant,
							"X-Fetchbox-Job-Type", kind).JobID] = true
					}
				}
			}
			assertEqual(t, "jobs", len(seen), 12)
		})
		t.Run("FB-008 without a key each is a job", func(t *testing.T) {
			if a, b := w.submit(t, manifest(1)),
				w.submit(t, manifest(1), keyHeader, ""); a.JobID == b.JobID {
				t.Error("they are one")
			}
		})
		t.Run("FB-051 a broken body with a known key", func(t *testing.T) {
			w.submit(t, manifest(1), keyHeader, "c")
			w.post(t, "{}", keyHeader, "c").WantError(t, 400, "INVALID_PAYLOAD")
		})
		t.Run("FB-049 a refused submit does not take the key", func(t *testing.T) {
			w.post(t, "{}", keyHeader, "d").WantError(t, 400, "INVALID_PAYLOAD")
			assertEqual(t, "resources", w.submit(t, manifest(4), keyHeader, "d").ResourceCount, 4)
		})
		t.Run("G-FB-06 in every state", func(t *testing.T) {
			first := w.submit(t, manifest(1), keyHeader, "e", "X-Fetchbox-Job-Type", "default")
			for _, move := range []func(){
				func() {},
				func() { w.awaitEnd(t, first.JobID, brokeOutcome) },
				func() { w.finalize(t, 1) },
			} {
				move()
				assertEqual(t, "in "+w.get(t, first.JobID).Status,
					w.submit(t, manifest(1), keyHeader, "e", "X-Fetchbox-Job-Type", "default"),
					first)
			}
		})
		t.Run("FB-050 G-FB-07 a key ends with its window", func(t *testing.T) {
			for i, state := range []string{"queued", "in_progress", "failed"} {
				key := fmt.Sprint("f", i)
				first := w.submit(t, manifest(2), keyHeader, key)
				switch i {
				case 1:
					w.awaitEnd(t, first.JobID, storedOutcome)
				case 2:
					w.awaitEnd(t, first.JobID, brokeOutcome)
					w.awaitEnd(t, first.JobID, brokeOutcome)
					w.finalize(t, 1)
				}
				w.clock.Advance(window - time.Second)
				assertEqual(t, "within", w.submit(t, manifest(1), keyHeader, key), first)
				w.clock.Advance(time.Second)
				second := w.submit(t, manifest(1), keyHeader, key)
				if second.JobID == first.JobID {
					t.Error("the key is remembered")
				}
				assertEqual(t, "again", w.submit(t, manifest(1), keyHeader, key), second)
				w.status(t, first.JobID, state)
			}
		})
	})
}

// TestCrowd is FB-048: of many who come at once with one key one wins, on however many nodes.
func TestCrowd(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, nodes ...*world) {
		w := nodes[0]
		answers := testkit.RunConcurrently(50, func(i int) testkit.Reply {
			return nodes[i%len(nodes)].post(t, manifest(5), keyHeader, "one")
		})
		for _, r := range answers {
			assertEqual(t, "answer", r.WantStatus(t, 202).Body, answers[0].Body)
		}
		assertEqual(t, "jobs", len(w.all(t, fetchbox.Name)), 1)
		assertEqual(t, "tasks", len(w.all(t, fetchbox.Tasks)), 5)
		assertEqual(t, "manifests", len(w.stored(t)), 1)
		w.deliver(t)
		assertEqual(t, "messages", len(w.messages(t)), 5)
		accepted, repeated := 0.0, 0.0
		for _, n := range nodes {
			accepted += n.counter(t, "ingest_jobs_total", "result", "accepted")
			repeated += n.counter(t, "ingest_jobs_total", "result", "repeated")
		}
		assertEqual(t, "accepted and repeated", fmt.Sprint(accepted, repeated), "1 49")
	}
	t.Run("FB-048 sqlite", func(t *testing.T) { run(t, inMemory(t, config())) })
	t.Run("FB-048 postgres, two nodes", func(t *testing.T) {
		w := newWorldAt(t, testkit.OnPostgres(t), config())
		run(t, w, w.node(t, config()))
	})
	t.Run("FB-048 FB-050 a crowd at the end of the window", func(t *testing.T) {
		w := inMemory(t, config())
		first := w.submit(t, manifest(1), keyHeader, "one")
		w.clock.Advance(window)
		seen := map[string]bool{}
		for _, r := range testkit.RunConcurrently(50, func(int) testkit.Reply {
			return w.post(t, manifest(2), keyHeader, "one")
		}) {
			seen[testkit.DecodeReply[receipt](t, r.WantStatus(t, 202)).JobID] = true
		}
		if len(seen) != 1 || seen[first.JobID] {
			t.Errorf("got %d jobs, the first among them: %t", len(seen), seen[first.JobID])
		}
		assertEqual(t, "jobs", len(w.all(t, fetchbox.Name)), 2)
	})
}
