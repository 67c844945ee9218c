package fetchbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// exported collects an export; each is called for every job.
func exported(t *testing.T, w *world, from, before time.Time, each func()) (all []string) {
	t.Helper()
	for line, err := range fetchbox.Export(context.Background(), w.store.View, from, before) {
		if err != nil {
			t.Fatal(err)
		}
		each()
		all = append(all, string(line))
	}
	return all
}

func TestExport(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("FB-093 an export has each job as operators see it", func(t *testing.T) {
			first := w.submit(t, manifest(1), "X-Fetchbox-Tenant", "acme")
			w.awaitEnd(t, first.JobID, fetchbox.Stored())
			w.finalize(t, 1)
			w.clock.Advance(time.Hour)
			second := w.submit(t, manifest(2))
			lines := exported(t, w, time.Time{}, time.Time{}, func() {})
			for i, id := range []string{second.JobID, first.JobID} { // the newest first
				if want := w.Do(t, "GET", "/operators/jobs/"+id, "").WantStatus(t,
					200).Body; i >= len(lines) || lines[i] != want {
					t.Errorf("job %d is %v, want %s", i, lines, want)
				}
			}
			half := w.clock.Now().Add(-30 * time.Minute)
			if late := exported(t, w, half, time.Time{}, func() {}); len(late) != 1 ||
				!strings.Contains(late[0], second.JobID) {
				t.Errorf("since then came %v", late)
			}
			if early := exported(t, w, time.Time{}, half, func() {}); len(early) != 1 ||
				!strings.Contains(early[0], first.JobID) {
				t.Errorf("until then came %v", early)
			}
		})
	})
}

// Jobs that come, change and go while an export of several pages is under way leave no gap in it,
// and come once.
func TestExportUnderWrites(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		const many = 1100 // three pages
		there := map[string]bool{}
		row := func(n int) engine.Submission {
			return engine.Submission{Job: job.Job{ID: job.ID{JobType: fetchbox.Name,
				Key: fmt.Sprintf("019a0000-0000-7000-8000-%012d", n)},
				Queue:      gallery,
				Definition: []byte(`{"manifest_key":"s3://millrace/x"}`)}}
		}
		put := func(batch []engine.Submission) {
			if _, err := w.engine.Submit(context.Background(), engine.Unique, batch); err != nil {
				t.Fatal(err)
			}
		}
		var batch []engine.Submission
		for n := range many {
			batch = append(batch, row(n))
			there[row(n).Job.ID.Key] = true
			if len(batch) == 100 {
				put(batch) // created at the same time
				batch = nil
				w.clock.Advance(time.Millisecond)
			}
		}
		n, came := 0, map[string]int{}
		lines := exported(t, w, time.Time{}, time.Time{}, func() {
			if n++; n%100 == 50 {
				w.clock.Advance(time.Millisecond)
				put([]engine.Submission{row(many + n)})
				if _, err := w.engine.Change(context.Background(), row(n*7%many).Job.ID,
					job.Retried, nil); err != nil {
					t.Fatal(err)
				}
			}
		})
		for _, line := range lines {
			var v view
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			came[v.JobID]++
		}
		for id := range there {
			if came[id] != 1 {
				t.Errorf("%s came %d times", id, came[id])
			}
		}
	})
}
