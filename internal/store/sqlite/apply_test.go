package sqlite_test

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlite"
)

// Changes cost one statement for each kind of write, however many jobs they are of, in the order
// that the port promises.
func TestStatementsOfChanges(t *testing.T) {
	t.Parallel()
	var names []string
	s := mustOpen(t, sqlite.Config{Path: sqlite.Memory,
		Observe: func(name string, _ time.Duration, _ error) { names = append(names, name) }})
	stored := []*job.Job{newJob("0"), newJob("1"), newJob("2"), newJob("3"), newJob("4")}
	apply := func(c store.Changes) []string {
		t.Helper()
		if err := s.Update(t.Context(), func(tx store.Tx) error {
			names = nil
			err := tx.Apply(c)
			names = slices.Clone(names)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return names[:slices.Index(names, "COMMIT")]
	}
	apply(store.Changes{Insert: stored})
	each := func(fields ...store.Fields) (c store.Changes) {
		for i, f := range fields {
			c.Update = append(c.Update, store.JobUpdate{Job: stored[i], Fields: f})
		}
		return c
	}
	seqs, one := []int64{stored[0].Seq}, job.QueueSettings{JobType: "x", Queue: "q"}
	result, failure := store.BodyField(job.Result), store.BodyField(job.Failure)
	for _, tc := range []struct {
		changes store.Changes
		want    []string
	}{
		{store.Changes{}, nil},
		{each(store.StateFields, store.StateFields), []string{"update_ready"}},
		{each(store.StateFields|result, store.StateFields|result), []string{"update_ready_with_result"}},
		{each(store.StateFields | result | failure), []string{"update_ready_with_result",
			"set_failure"}},
		{each(store.LeaseFields, store.LeaseFields|store.BodyField(job.Progress)),
			[]string{"update_lease_of_ready", "set_progress"}},
		{each(store.AllFields|result, store.AllFields), []string{"update_definitions",
			"update_ready_with_result", "update_ready"}},
		{each(store.AllFields, store.LeaseFields, store.StateFields, result,
			store.StateFields|failure),
			[]string{"update_definitions", "update_lease_of_ready", "update_ready", "update_ready",
				"update_ready_with_failure", "set_result"}},
		{store.Changes{
			Delete: stored[:2], DeleteEvents: seqs, DeleteEdges: seqs, DeleteMessages: seqs,
			DeleteDeadLetters: seqs,
			DeleteRecords:     []store.RecordKey{{Kind: "a"}, {Kind: "a", Key: "b"}},
			Insert:            []*job.Job{newJob("5"), newJob("6")},
			Edges:             make([]job.Edge, 2), DeadLetters: make([]job.DeadLetter, 2),
			Events: make([]job.Event, 2), Messages: make([]job.Message, 2),
			Queues:  []job.QueueSettings{one},
			Records: make([]job.Record, 2), Counts: make([]job.QueueCount, 2),
		}, []string{"delete_ready", "delete_jobs", "delete_events", "delete_edges", "delete_messages",
			"delete_dead_letters", "delete_records", "insert_jobs", "insert_ready",
			"add_edges", "add_dead_letters", "add_events",
			"add_messages", "set_queue", "put_records", "add_counts"}},
	} {
		if got := apply(tc.changes); !slices.Equal(got, tc.want) {
			t.Errorf("got %v, want %v", got, tc.want)
		}
	}
}
