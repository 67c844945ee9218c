package admin_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// failTasks submits n jobs of TaskFlow and lets them fail for good, each with the failure of its
// number.
func (w *jobsWorld) failTasks(t *testing.T, first, n int, failure func(i int) string) {
	t.Helper()
	var batch []engine.Submission
	for i := first; i < first+n; i++ {
		batch = append(batch, engine.Submission{Job: job.Job{Queue: "q", Lease: time.Minute,
			ID: job.ID{JobType: "taskflow", Key: fmt.Sprint(i)}}})
	}
	if _, err := w.engine.Submit(t.Context(), engine.Unique, batch); err != nil {
		t.Fatal(err)
	}
	jobs, err := w.engine.Claim(t.Context(), engine.ClaimRequest{JobType: "taskflow", Max: n,
		Worker: "w"})
	if err != nil || len(jobs) != n {
		t.Fatalf("claimed %d: %v", len(jobs), err)
	}
	var ends []engine.FinishRequest
	for i, j := range jobs {
		ends = append(ends, engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run},
			Outcome: engine.Outcome{On: job.FailedForGood, Failure: []byte(failure(first + i))}})
	}
	for _, r := range w.engine.FinishAll(t.Context(), ends) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// AD-050: a list of dead letters of which few or none match is bounded in time, says how far it has
// searched and goes on with its cursor. Contract, queue and fingerprint pass over no other dead
// letters.
func TestDeadLettersSearch(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		var passed, elapsed atomic.Int64 // passed lies between two looks at the clock
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) {
			c.Elapsed = func() time.Duration { return time.Duration(elapsed.Add(passed.Load())) }
			w.addContracts(t, c)
		})
		start := w.clock.Now()
		const all, batch = 1230, 30
		for first := 0; first < all; first += batch {
			w.failTasks(t, first, batch, func(i int) string {
				if i%600 == 3 {
					return fmt.Sprintf(`{"type":"rare","error":"Needle of %d"}`, i)
				}
				return `{"type":"often","error":"hay"}`
			})
			w.clock.Advance(10 * time.Second)
		}
		rare := w.deadLetters(t, "?error=needle&limit=1", 1).Items[0].Fingerprint
		late := w.clock.Now().Format(time.RFC3339)
		for _, tt := range []struct {
			query  string
			passed time.Duration
			pages  int
			found  string
		}{
			{"error=nEEdle", 0, 1, "3 603 1203"},
			{"error=needle", 150 * time.Millisecond, 5, "3 603 1203"}, // 300 dead letters each
			{"error=nothing", 150 * time.Millisecond, 5, ""},
			{"from=" + late, 0, 1, ""},
			{"from=" + late, 40 * time.Millisecond, 13, ""}, // 100 dead letters each
			{"queue=none", 40 * time.Millisecond, 1, ""},
			{"contract=relay", 40 * time.Millisecond, 1, ""},
			{"fingerprint=none", 40 * time.Millisecond, 1, ""},
			{"fingerprint=" + rare, 40 * time.Millisecond, 1, "3 603 1203"},
		} {
			elapsed.Store(0)
			passed.Store(int64(tt.passed))
			pages, found, before := 0, []string(nil), start
			for cursor := ""; ; {
				page := get[struct {
					deadLetters
					SearchedTo *time.Time `json:"searched_to"`
				}](t, w.world, "/admin/v1/dead-letters?"+tt.query+cursor)
				pages++
				for _, l := range page.Items {
					found = append(found, l.JobID)
				}
				if page.NextCursor == nil {
					if page.SearchedTo != nil {
						t.Errorf("AD-050 %s: the last page says %v", tt.query, page.SearchedTo)
					}
					break
				}
				if page.SearchedTo == nil || page.SearchedTo.Before(before) {
					t.Fatalf("AD-050 %s: searched to %v after %v", tt.query, page.SearchedTo, before)
				}
				before, cursor = *page.SearchedTo, "&cursor="+*page.NextCursor
			}
			if strings.Join(found, " ") != tt.found || pages != tt.pages {
				t.Errorf("AD-050 %s: found %v in %d pages, want %s in %d", tt.query, found, pages,
					tt.found, tt.pages)
			}
		}
	})
}
