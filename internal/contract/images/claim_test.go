package images_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestClaimable brings a job into every situation there is and has it proposed to a worker.
func TestClaimable(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name     string
			bring    func(t *testing.T, id string)
			want     bool
			attempts int // with the one that is claimed
			status   job.State
		}{
			{"G-IP-02 queued", func(*testing.T, string) {}, true, 1, queued},
			{"IP-045 a fresh lock", func(t *testing.T, id string) {
				w.mustClaim(t, id)
			}, false, 1, processing},
			{"IP-045 a lock of exactly its time-out", func(t *testing.T, id string) {
				w.mustClaim(t, id)
				w.clock.Advance(lockTimeout)
				w.sweep(t)
			}, false, 1, processing},
			{"IP-044 G-IP-02 an older lock", func(t *testing.T, id string) {
				w.mustClaim(t, id)
				w.clock.Advance(lockTimeout + time.Microsecond)
			}, true, 2, processing},
			{"IP-044 G-IP-02 an older lock that was found", func(t *testing.T, id string) {
				w.mustClaim(t, id)
				w.clock.Advance(lockTimeout + time.Microsecond)
				w.sweep(t)
			}, true, 2, processing},
			{"IP-055 failed_retryable before its time", func(t *testing.T, id string) {
				w.fail(t, id)
				w.clock.Advance(5*time.Second - time.Microsecond)
				w.sweep(t)
			}, false, 1, retryable},
			{"IP-044 G-IP-02 failed_retryable, and the delay is over",
				func(t *testing.T, id string) {
					w.fail(t, id)
					w.clock.Advance(5 * time.Second)
				}, true, 2, retryable},
			{"IP-044 G-IP-02 failed_retryable, and the end of the delay was found",
				func(t *testing.T, id string) {
					w.fail(t, id)
					w.clock.Advance(5 * time.Second)
					w.sweep(t)
				}, true, 2, retryable},
			{"G-IP-21 given back", func(t *testing.T, id string) {
				if err := w.end(w.mustClaim(t, id), engine.Outcome{On: job.Released}); err != nil {
					t.Fatal(err)
				}
			}, true, 2, retryable},
			{"IP-047 completed", func(t *testing.T, id string) {
				w.attempt(t, id)
			}, false, 1, completed},
			{"IP-047 failed", func(t *testing.T, id string) {
				j := w.mustClaim(t, id)
				if err := w.end(j, images.FailureOutcome(j, "no picture", "decode_error",
					false)); err != nil {
					t.Fatal(err)
				}
				lines := w.log.Lines(t, map[string]any{"msg": "a job failed for good",
					"job_id": id, "reason": "decode_error",
					"error_message": "decode_error: no picture"})
				assertEqual(t, "lines", len(lines), 1)
			}, false, 1, failed},
		} {
			t.Run(c.name, func(t *testing.T) {
				id := w.put(t, pngOf(t, 2, 2)).JobID
				c.bring(t, id)
				w.status(t, id, c.status)
				if c.want { // a change is later than the one before, also while the clock stands
					w.clock.Advance(time.Second)
				}
				now := w.clock.Now()
				assertEqual(t, "claimed", w.claim(t, id) != nil, c.want)
				v := w.job(t, id)
				assertEqual(t, "IP-049 attempts", v.AttemptCount, c.attempts)
				if c.want {
					w.status(t, id, processing)
					assertEqual(t, "IP-049 locked now", v.LockedAt.Equal(now), true)
					// of two changes at once the second is later
					if after := v.UpdatedAt.Sub(now); after < 0 || after > time.Microsecond {
						t.Errorf("IP-049 updated %s after the claim", after)
					}
				} else {
					assertEqual(t, "status", v.Status, string(c.status))
				}
			})
		}
	})
}

// The time-out of locks is a setting.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	t.Run("IP-048 the lock time-out is what is set", func(t *testing.T) {
		c := config()
		c.LockTimeout = 90 * time.Second
		w := inMemory(t, c)
		id := w.put(t, pngOf(t, 2, 2)).JobID
		w.mustClaim(t, id)
		w.clock.Advance(90 * time.Second)
		assertEqual(t, "claimed after exactly that", w.claim(t, id) != nil, false)
		w.clock.Advance(time.Microsecond)
		assertEqual(t, "claimed after more", w.claim(t, id) != nil, true)
	})
}

// The delays before an attempt, where there are enough of them to reach the longest.
func TestBackoff(t *testing.T) {
	t.Parallel()
	t.Run("G-IP-06 IP-055 5 s, doubled each time, up to 5 min", func(t *testing.T) {
		c := config()
		c.MaxAttempts = 10
		w := inMemory(t, c)
		id := w.put(t, pngOf(t, 2, 2)).JobID
		for _, seconds := range []time.Duration{5, 10, 20, 40, 80, 160, 300, 300, 300} {
			w.fail(t, id)
			w.clock.Advance(seconds*time.Second - time.Microsecond)
			if w.claim(t, id) != nil {
				t.Fatalf("claimed before %d s", seconds)
			}
			w.clock.Advance(time.Microsecond)
		}
		w.fail(t, id)
		assertEqual(t, "attempts", w.status(t, id, failed).AttemptCount, 10)
	})
}
