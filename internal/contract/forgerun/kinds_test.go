package forgerun_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
)

// catalogue is the document's table: what a job of each kind is, and how its first and its second
// run end.
var catalogue = []struct {
	id, kind      string
	ms, kib       int64
	fails         bool
	first, second string // second: after a retry; empty where there can be none
}{
	{"FR-083", "SUCCESS_FAST", 1_000, 4, false, "SUCCEEDED", ""},
	{"FR-084", "SUCCESS_NORMAL", 10_000, 16, false, "SUCCEEDED", ""},
	{"FR-085", "SUCCESS_SLOW", 90_000, 32, false, "SUCCEEDED", ""},
	{"FR-086", "FAIL_IMMEDIATE", 500, 1, true, "FAILED", "FAILED"},
	{"FR-087", "FAIL_AFTER_PROGRESS", 20_000, 8, true, "FAILED", "FAILED"},
	{"FR-088", "FAIL_AFTER_RETRYABLE", 5_000, 8, true, "FAILED", "FAILED"},
	{"FR-089", "RUNS_LONG", 110_000, 32, false, "SUCCEEDED", ""},
	{"FR-090", "RUNS_OVER_TIMEOUT", 121_000, 8, true, "FAILED", "FAILED"},
	{"FR-091", "CPU_BURST", 8_000, 4, false, "SUCCEEDED", ""},
	{"FR-092", "MEMORY_SPIKE", 12_000, 64, false, "SUCCEEDED", ""},
	{"FR-093", "IO_HEAVY", 15_000, 32, false, "SUCCEEDED", ""},
	{"FR-094", "MANY_SMALL_OUTPUTS", 9_000, 16, false, "SUCCEEDED", ""},
	{"FR-095", "LARGE_OUTPUT", 9_000, 256, false, "SUCCEEDED", ""},
	{"FR-096", "CANCEL_BEFORE_START", 5_000, 4, false, "SUCCEEDED", ""},
	{"FR-097", "CANCEL_DURING_RUN", 10_000, 4, false, "SUCCEEDED", ""},
	{"FR-098", "RETRY_ON_FAIL", 3_000, 4, true, "FAILED", "SUCCEEDED"},
	{"FR-099", "RETRY_LIMIT_REACHED", 3_000, 4, true, "FAILED", "FAILED"},
	{"FR-100", "DUPLICATE_SUBMIT_SAME_KEY", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-101", "DUPLICATE_SUBMIT_DIFFERENT_KEY", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-102", "WEBHOOK_SUCCESS", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-103", "WEBHOOK_TIMEOUT", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-104", "WEBHOOK_5XX", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-105", "WEBHOOK_RETRIES_EXHAUSTED", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-106", "WEBHOOK_SLOW_RECEIVER", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-107", "SCHEDULED_ON_TIME", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-108", "SCHEDULED_LATE_RECOVERY", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-109", "SCHEDULED_FAR_FUTURE", 2_000, 4, false, "SUCCEEDED", ""},
	{"FR-110", "PAYLOAD_SMALL", 2_000, 1, false, "SUCCEEDED", ""},
	{"FR-111", "PAYLOAD_MEDIUM", 2_000, 16, false, "SUCCEEDED", ""},
	{"FR-112", "PAYLOAD_LARGE", 2_000, 256, false, "SUCCEEDED", ""},
}

// TestKinds submits a job of each kind and runs it, and once more where that is allowed.
func TestKinds(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	for _, k := range catalogue {
		t.Run(k.id+" "+k.kind, func(t *testing.T) {
			id := c.submit(t, submitBody(k.kind))
			v := c.get(t, id)
			assertEqual(t, "work_kind", v.WorkKind+" "+v.Definition.WorkKind, k.kind+" "+k.kind)
			assertEqual(t, "duration_ms", v.Definition.DurationMS, k.ms)
			assertEqual(t, "payload_size", v.Definition.PayloadSize, k.kib*1024) // G-FR-60
			assertEqual(t, "FR-114 should_fail", v.Definition.ShouldFail, k.fails)
			j := w.claimAndRun(t)
			assertEqual(t, "the job that ran", j.ID.Key, id)
			c.wantState(t, id, k.first)
			ran := min(k.ms, 120_000) // FR-116: as long as the kind takes, or as it may
			if r := c.report(t, id); r.DurationMS != ran {
				t.Errorf("FR-128 the run took %d ms, want %d", r.DurationMS, ran)
			}
			if k.second == "" {
				c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT")
				return
			}
			c.retry(t, id)
			w.clock.Advance(time.Minute)
			w.claimAndRun(t)
			c.wantState(t, id, k.second)
		})
	}
	t.Run("FR-113 PAYLOAD_INVALID", func(t *testing.T) {
		before := w.jobs(t)
		c.Do(t, "POST", "/v1/jobs", submitBody("PAYLOAD_INVALID")).WantError(t, 400,
			"RFA_JOB_VALIDATION_FAILED", "work_kind")
		assertEqual(t, "jobs", w.jobs(t), before)
	})
	t.Run("FR-114 the table and nothing else", func(t *testing.T) {
		all := forgerun.Kinds(120 * time.Second)
		assertEqual(t, "kinds", len(all), len(catalogue)+1)
		for i, k := range catalogue {
			g := all[i]
			if g.Name != k.kind || g.Fails != k.fails || g.Size != k.kib<<10 ||
				g.Duration.Milliseconds() != k.ms || g.Refused {
				t.Errorf("%+v, want %+v", g, k)
			}
		}
	})
	t.Run("FR-088 FR-099 retryable", func(t *testing.T) {
		for kind, want := range map[string]bool{"FAIL_IMMEDIATE": false,
			"FAIL_AFTER_RETRYABLE": true, "RETRY_ON_FAIL": true,
			"RETRY_LIMIT_REACHED": true, "RUNS_OVER_TIMEOUT": false} {
			id := c.submit(t, submitBody(kind))
			w.claimAndRun(t)
			v := c.wantState(t, id, "FAILED")
			assertEqual(t, kind+" is retryable", v.Failure.Retryable, want)
		}
	})
}

// TestKindScripts plays the kinds that are about more than a run.
func TestKindScripts(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	t.Run("FR-096 canceled while QUEUED", func(t *testing.T) {
		id := c.submit(t, submitBody("CANCEL_BEFORE_START"))
		c.wantState(t, id, "QUEUED")
		assertEqual(t, "state", c.cancel(t, id).State, "CANCELED")
		assertEqual(t, "claimable", len(w.claims(t, 1)), 0)
	})
	t.Run("FR-097 canceled while RUNNING", func(t *testing.T) {
		id := c.submit(t, submitBody("CANCEL_DURING_RUN"))
		w.claimAndStart(t)
		assertEqual(t, "state", c.cancel(t, id).State, "CANCELED")
	})
	t.Run("FR-099 until retries are used up", func(t *testing.T) {
		id := c.submit(t, submitBody("RETRY_LIMIT_REACHED"))
		for n := range 4 {
			w.claimAndRun(t)
			v := c.wantState(t, id, "FAILED")
			assertEqual(t, "attempt", v.Attempt, n)
			if n < 3 {
				c.retry(t, id)
				w.clock.Advance(time.Minute)
			}
		}
		c.Do(t, "POST", "/v1/jobs/"+id+"/retry", "").WantError(t, 409, "RFA_JOB_CONFLICT", "FAILED")
		c.wantState(t, id, "FAILED")
	})
	t.Run("FR-100 one job for one key", func(t *testing.T) {
		a := c.submit(t, submitBody("DUPLICATE_SUBMIT_SAME_KEY"), "Idempotency-Key", "same")
		b := c.submit(t, submitBody("DUPLICATE_SUBMIT_SAME_KEY"), "Idempotency-Key", "same")
		assertEqual(t, "id", a, b)
		w.claimAndRun(t)
		c.wantState(t, a, "SUCCEEDED")
	})
	t.Run("FR-101 FR-073 two jobs for two keys", func(t *testing.T) {
		a := c.submit(t, submitBody("DUPLICATE_SUBMIT_DIFFERENT_KEY"), "Idempotency-Key", "one")
		b := c.submit(t, submitBody("DUPLICATE_SUBMIT_DIFFERENT_KEY"), "Idempotency-Key", "other")
		if a == b {
			t.Error("they are one job")
		}
		w.claimAndRun(t)
		w.claimAndRun(t)
		c.wantState(t, a, "SUCCEEDED")
		c.wantState(t, b, "SUCCEEDED")
	})
	t.Run("FR-115 labels change nothing", func(t *testing.T) {
		for _, k := range forgerun.Kinds(time.Minute) {
			if !strings.HasPrefix(k.Name, "WEBHOOK_") && !strings.HasPrefix(k.Name, "DUPLICATE_") {
				continue
			}
			assertEqual(t, k.Name, fmt.Sprintln(k.Duration, k.Size, k.Fails, k.Expected),
				"2s 4096 false SUCCEEDED\n")
		}
	})
}

// TestDefinitions: what the server makes of a request.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	t.Run("FR-075 same time and kind, same definition", func(t *testing.T) {
		for _, kind := range []string{"", "IO_HEAVY"} {
			a, b := c.get(t, c.submit(t, submitBody(kind))), c.get(t, c.submit(t, submitBody(kind)))
			assertEqual(t, "definition", *a.Definition, *b.Definition)
			assertEqual(t, "seed", a.Definition.Seed, w.clock.Now().UnixMilli()) // G-FR-36
		}
	})
	t.Run("FR-075 other times, other kinds", func(t *testing.T) {
		seen := map[string]bool{}
		for range 60 {
			w.clock.Advance(time.Millisecond)
			seen[c.get(t, c.submit(t, submitBody(""))).WorkKind] = true
		}
		if len(seen) < 8 {
			t.Errorf("60 jobs are of the kinds %v", seen)
		}
	})
	t.Run("FR-076 bounds", func(t *testing.T) {
		kinds := map[string]forgerun.Kind{}
		for _, k := range forgerun.Kinds(120 * time.Second) {
			kinds[k.Name] = k
		}
		for seed := range int64(20_000) {
			k := kinds[forgerun.Choose(seed, 0.5, 256<<10)]
			if ms := k.Duration.Milliseconds(); ms < 500 || ms > 120_000 || k.Size < 1<<10 ||
				k.Size > 256<<10 {
				t.Fatalf("%+v", k)
			}
		}
	})
	t.Run("FR-074 G-FR-02 only kinds that need nobody", func(t *testing.T) {
		for seed := range int64(20_000) {
			name := forgerun.Choose(seed, 0.5, 256<<10)
			for _, not := range []string{"PAYLOAD_INVALID", "RUNS_OVER_TIMEOUT", "CANCEL_",
				"WEBHOOK_", "DUPLICATE_", "SCHEDULED_", "RETRY_"} {
				if strings.HasPrefix(name, not) {
					t.Fatalf("%s was chosen", name)
				}
			}
		}
	})
	t.Run("FR-078 FR-248 share of failures", func(t *testing.T) {
		for _, share := range []float64{0, 0.2, 0.5, 1} {
			fails := 0
			for seed := range int64(10_000) {
				if strings.HasPrefix(forgerun.Choose(1_770_000_000_000+seed, share, 256<<10),
					"FAIL_") {
					fails++
				}
			}
			if got := float64(fails) / 10_000; got < share-0.02 || got > share+0.02 {
				t.Errorf("%v of the jobs fail, want %v", got, share)
			}
		}
	})
	t.Run("FR-082 a choice fits the payload limit", func(t *testing.T) {
		for seed := range int64(2_000) {
			if name := forgerun.Choose(seed, 0,
				4<<10); !slices.Contains([]string{"SUCCESS_FAST", "CPU_BURST", "PAYLOAD_SMALL"},
				name) {
				t.Fatalf("%s is too large", name)
			}
		}
	})
	t.Run("FR-077 members", func(t *testing.T) {
		due := w.clock.Now().Add(time.Hour)
		instant := c.get(t, c.submit(t, submitBody("IO_HEAVY")))
		deferred := c.get(t, c.submit(t,
			submitBody("IO_HEAVY", `"type":"DEFERRED"`, executionAtMember(due))))
		if instant.Definition.ExecutionAt != nil {
			t.Error("an instant definition has a time")
		}
		if got := deferred.Definition.ExecutionAt; got == nil || !got.Equal(due) {
			t.Errorf("a deferred definition has the time %v", got)
		}
	})
}

// TestCancelWindow is the setting of G-FR-32.
func TestCancelWindow(t *testing.T) {
	t.Parallel()
	c := config()
	c.CancelWindow = 10 * time.Second
	w := inMemory(t, c)
	who := w.customer(t)
	id := who.submit(t, submitBody("CANCEL_BEFORE_START"))
	other := who.submit(t, submitBody("SUCCESS_FAST"))
	t.Run("FR-096 it is QUEUED and not claimed", func(t *testing.T) {
		who.wantState(t, id, "QUEUED")
		assertEqual(t, "claimed", w.claim(t).ID.Key, other)
		assertEqual(t, "more", len(w.claims(t, 1)), 0)
	})
	t.Run("FR-096 then it runs as any other", func(t *testing.T) {
		w.clock.Advance(10 * time.Second)
		w.claimAndRun(t)
		who.wantState(t, id, "SUCCEEDED")
		assertEqual(t, "events", who.report(t, id).names(),
			"created queued assigned started succeeded")
	})
	t.Run("FR-096 a scheduled one has its own time", func(t *testing.T) {
		id := who.submit(t, submitBody("CANCEL_BEFORE_START",
			executionAtMember(w.clock.Now().Add(time.Minute))))
		who.wantState(t, id, "CREATED")
	})
}
