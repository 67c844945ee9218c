package fetchbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
)

func TestLimits(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		w.submit(t, manifest(5))
		w.submit(t, manifest(5), "X-Fetchbox-Job-Type", "default")
		w.room.Limit(context.Background())
		t.Run("FB-072 FB-074 max_parallel_downloads bounds one job type", func(t *testing.T) {
			running := map[string]int{}
			for _, j := range w.claim(t, 100) {
				running[j.Queue]++
			}
			equal(t, "of gallery", running[gallery], 2)
			equal(t, "of default", running["default"], 5)
			w.finishHeld(t, storedOutcome)
			equal(t, "more", len(w.claim(t, 100)), 1)
		})
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	ages := map[string]time.Duration{}
	for _, s := range fetchbox.Streams(7*day, 30*day, 90*day) {
		ages[s.Name] = s.MaxAge
		if s.Name == "JOBS_TASKS" && s.Consumer == "" {
			t.Error("tasks that nobody has taken in are not kept (FB-094)")
		}
	}
	for id, c := range map[string]struct {
		stream string
		age    time.Duration
	}{"FB-090": {"JOBS_TASKS", 7 * day}, "G-FB-36": {"JOBS_STATUS", 14 * day}, "FB-091": {"JOBS_LOGS", 30 * day}, "FB-092": {"JOBS_DLQ", 90 * day}} {
		t.Run(id+" "+c.stream, func(t *testing.T) { equal(t, "age", ages[c.stream], c.age) })
	}
}
