package fetchbox_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/job"
)

// TestTimeline (AD-014): that of a manifest has its log and its resources, that of a resource its
// attempts with the worker.
func TestTimeline(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		one := w.submit(t, manifest(2))
		w.deliver(t)
		w.awaitEnd(t, one.JobID, storedOutcome)
		w.deliver(t)
		shown := func(jobs string, number int64) map[job.EntryKind][]job.Entry {
			t.Helper()
			f, err := w.engine.Timeline(t.Context(), number)
			if err != nil {
				t.Fatal(err)
			}
			o := contract.OperatorOf([]*contract.Contract{w.fetchbox.Offer()}, jobs)
			if o.Log != nil {
				if f.More, err = o.Log(t.Context(), f.Job); err != nil {
					t.Fatal(err)
				}
			}
			entries, truncated := job.Timeline(&f)
			assertEqual(t, "truncated", truncated, false)
			byKind := map[job.EntryKind][]job.Entry{}
			for _, e := range entries {
				byKind[e.Kind] = append(byKind[e.Kind], e)
			}
			return byKind
		}
		manifestJob := w.all(t, fetchbox.Name)[0]
		entries := shown(fetchbox.Name, manifestJob.Seq)
		assertEqual(t, "children", len(entries[job.EntryChild]), 2)
		log := w.logs(t, one.JobID, "")
		assertEqual(t, "log", len(entries[job.EntryLog]), len(log))
		for i, e := range entries[job.EntryLog] {
			if e.At.UnixMilli() != log[i].TimestampMS || !strings.Contains(e.Text, log[i].Message) {
				t.Errorf("AD-014 entry %d is %+v, want %+v", i, e, log[i])
			}
		}
		ended := 0
		for _, task := range w.all(t, fetchbox.Tasks) {
			for _, e := range shown(fetchbox.Tasks, task.Seq)[job.EntryAttempt] {
				if e.Outcome == string(job.Succeeded) && e.Worker != "" {
					ended++
				}
			}
		}
		assertEqual(t, "attempts with their worker", ended, 1)
	})
}
