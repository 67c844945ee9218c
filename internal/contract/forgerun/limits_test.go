package forgerun_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
)

func TestRateLimits(t *testing.T) {
	t.Parallel()
	config := config()
	config.RatePerMinute, config.AnonymousPerMinute = 10, 30
	w := inMemory(t, config)
	c, other := w.customer(t), w.customer(t)
	// G-FR-15: every authenticated request counts
	t.Run("FR-205 FR-019 over the limit", func(t *testing.T) {
		for i := range 10 {
			if i%2 == 0 {
				c.submit(t, submitBody(""))
			} else {
				c.Do(t, "GET", "/v1/jobs/"+nobody, "").WantStatus(t, 404)
			}
		}
		r := c.Do(t, "POST", "/v1/jobs", submitBody(""), "Idempotency-Key", "limited")
		r.WantError(t, 429, "RFA_REQUEST_RATE_LIMITED", "per minute")
		if n, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
			t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
		}
		assertEqual(t, "jobs", w.jobs(t), 5)
	})
	t.Run("FR-205 others are unaffected", func(t *testing.T) { other.submit(t, submitBody("")) })
	t.Run("FR-029 FR-019 before the body", func(t *testing.T) {
		c.Do(t, "POST", "/v1/jobs", "{").WantError(t, 429, "RFA_REQUEST_RATE_LIMITED")
	})
	t.Run("FR-205 FR-072 a minute later", func(t *testing.T) {
		w.clock.Advance(time.Minute)
		c.submit(t, submitBody("IO_HEAVY"), "Idempotency-Key", "limited")
	})
	t.Run("FR-205 health does not count", func(t *testing.T) {
		for range 50 {
			w.Do(t, "GET", "/health/ready", "").WantStatus(t, 200)
		}
	})
	t.Run("FR-019 addresses without a key", func(t *testing.T) { // G-FR-16
		w.clock.Advance(time.Minute)
		for i := range 30 {
			if i%2 == 0 {
				w.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 401)
			} else {
				w.newClient(t)
			}
		}
		w.Do(t, "POST", "/v1/clients", "").WantError(t, 429, "RFA_REQUEST_RATE_LIMITED",
			"per minute")
		w.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer x").WantError(t, 429,
			"RFA_REQUEST_RATE_LIMITED")
		c.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
	})
}

func TestQuota(t *testing.T) {
	t.Parallel()
	config := config()
	config.QuotaPerDay = 5
	w := inMemory(t, config)
	c := w.customer(t)
	t.Run("FR-206 FR-247 a quota per day", func(t *testing.T) { // G-FR-14
		for range 5 {
			c.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
		}
		r := c.Do(t, "GET", "/v1/jobs", "")
		r.WantError(t, 429, "RFA_REQUEST_RATE_LIMITED", "per day")
		if n, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || n < 3600 {
			t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
		}
		w.clock.Advance(24 * time.Hour)
		c.Do(t, "GET", "/v1/jobs", "").WantStatus(t, 200)
	})
}

func TestQueueLimits(t *testing.T) {
	t.Parallel()
	limited := config()
	limited.QueueSize, limited.MaxActiveJobs = 3, 2
	for _, world := range []func(testing.TB) *world{
		func(t testing.TB) *world { return inMemory(t, limited) },
		func(t testing.TB) *world { return onPostgres(t, limited) },
	} {
		w := world(t)
		c := w.customer(t)
		t.Run("FR-208 FR-023 FR-247 the queue is full", func(t *testing.T) { // G-FR-12
			kept := c.submit(t, submitBody(""), "Idempotency-Key", "first")
			c.submit(t, submitBody(""))
			// not in the queue yet
			scheduled := c.submit(t, submitBody("",
				executionAtMember(w.clock.Now().Add(time.Minute))))
			c.submit(t, submitBody(""))
			r := c.Do(t, "POST", "/v1/jobs", submitBody(""), "Idempotency-Key", "refused")
			r.WantError(t, 503, "RFA_EXEC_QUEUE_FULL")
			assertEqual(t, "retry-after", r.Header.Get("Retry-After"), "1")
			assertEqual(t, "jobs", w.jobs(t), 4)
			assertEqual(t, "a replay", c.submit(t, submitBody(""), "Idempotency-Key", "first"),
				kept)
			// waits elsewhere
			c.submit(t, submitBody("", executionAtMember(w.clock.Now().Add(time.Hour))))
			w.clock.Advance(time.Minute)
			w.runMaintenance(t)
			c.wantState(t, scheduled, "CREATED")
			c.cancel(t, kept)
			w.runMaintenance(t)
			c.wantState(t, scheduled, "QUEUED")
			c.Do(t, "POST", "/v1/jobs", submitBody(""), "Idempotency-Key", "refused").WantError(t,
				503, "RFA_EXEC_QUEUE_FULL")
		})
		t.Run("FR-207 FR-247 so many are active", func(t *testing.T) { // G-FR-13
			jobs := w.claims(t, 10)
			assertEqual(t, "claimed", len(jobs), 2)
			assertEqual(t, "claimed beyond", len(w.claims(t, 10)), 0)
			w.engine.Start(context.Background(), currentRun(jobs[0]))
			assertEqual(t, "claimed beyond", len(w.claims(t, 10)), 0)
			assertEqual(t, "active", w.metric(t, "jobs_active", nil), 2)
			c.cancel(t, jobs[0].ID.Key)
			assertEqual(t, "claimed after one ended", len(w.claims(t, 10)), 1)
			c.submit(t, submitBody("")) // waits, and is not refused
		})
		t.Run("FR-208 a crowd does not get past it", func(t *testing.T) {
			for _, j := range w.claims(t, 10) {
				c.cancel(t, j.ID.Key)
			}
			w.clock.Advance(2 * time.Hour)
			w.runMaintenance(t)
			accepted := 0
			before := w.metric(t, "job_queue_depth", nil)
			for _, r := range testkit.RunConcurrently(30, func(int) testkit.Reply {
				return c.Do(t, "POST", "/v1/jobs", submitBody(""))
			}) {
				if r.Status == 202 {
					accepted++
					continue
				}
				r.WantError(t, 503, "RFA_EXEC_QUEUE_FULL")
			}
			assertEqual(t, "depth", w.metric(t, "job_queue_depth", nil), 3)
			assertEqual(t, "accepted", float64(accepted), 3-before)
		})
	}
}

func TestRetention(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		prune := func() {
			t.Helper()
			for {
				n, err := w.engine.Prune(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					return
				}
			}
		}
		id := c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", "kept as long")
		w.claimAndRun(t)
		again := c.submit(t, submitBody("RETRY_ON_FAIL"))
		w.claimAndRun(t)
		open, _ := c.submitIntoState(t, "CREATED")
		t.Run("FR-212 thirty days after the end", func(t *testing.T) {
			w.clock.Advance(720*time.Hour - time.Hour)
			c.key = *testkit.DecodeReply[issuedKey](t,
				c.Do(t, "POST", "/v1/clients/"+c.id+"/keys/renew", "").WantStatus(t, 200)).APIKey
			c.retry(t, again) // is not final any more
			prune()
			c.report(t, id)
			assertEqual(t, "FR-071 id", c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key",
				"kept as long"), id)
			w.clock.Advance(time.Hour + 5*time.Second)
			prune()
		})
		t.Run("FR-213 FR-126 job, events and report are gone", func(t *testing.T) {
			for _, path := range []string{"", "/report"} {
				c.Do(t, "GET", "/v1/jobs/"+id+path, "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
			}
			if fresh := c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key",
				"kept as long"); fresh == id {
				t.Error("FR-079 the id is used again")
			}
		})
		t.Run("FR-212 never while not final", func(t *testing.T) {
			c.wantState(t, open, "CREATED")
			c.wantState(t, again, "QUEUED")
		})
	})
	t.Run("FR-214 FR-247 the period is a setting", func(t *testing.T) {
		config := config()
		config.Retention = time.Hour
		w := inMemory(t, config)
		c := w.customer(t)
		id := c.submit(t, submitBody("SUCCESS_FAST"))
		c.cancel(t, id)
		for _, wait := range []time.Duration{59 * time.Minute, 2 * time.Minute} {
			w.clock.Advance(wait)
			if _, err := w.engine.Prune(context.Background()); err != nil {
				t.Fatal(err)
			}
			status := map[bool]int{true: 200, false: 404}[wait > time.Hour/2]
			c.Do(t, "GET", fmt.Sprintf("/v1/jobs/%s/report", id), "").WantStatus(t, status)
		}
	})
}
