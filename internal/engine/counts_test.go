package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// afterOne returns a function that is true from its second call on.
func afterOne() func() bool {
	calls := 0
	return func() bool { calls++; return calls > 1 }
}

// AD-018: jobs are counted by state from the counts of queues where a phase has one state; the
// others, and kinds and workers, are counted one by one up to the limit, and what may be more says
// so.
func TestCountJobs(t *testing.T) {
	onEveryStore(t, testJobTypes(), func(w *world) {
		var batch []engine.Submission
		for i := range 9 {
			s := sub(fmt.Sprint("phased/", i))
			s.Job.Kind, s.Job.Queue = fmt.Sprint("k", i%2), []string{"a", "a", "b"}[i%3]
			batch = append(batch, s)
		}
		w.submit(batch...)
		w.noError(errOf(w.engine.Cancel(w.ctx, id("phased/8"))))
		var runs []engine.Run
		for _, queue := range []string{"a", "b"} {
			jobs, err := w.engine.Claim(w.ctx, engine.ClaimRequest{JobType: "phased",
				Queues: []string{queue}, Max: 9, Worker: "w" + queue})
			w.noError(err)
			for _, j := range jobs {
				w.noError(errOf(w.engine.Start(w.ctx, engine.Run{Run: j.Run})))
				runs = append(runs, engine.Run{Run: j.Run})
			}
		}
		for i, run := range runs[:6] { // of six of queue a
			on := job.Succeeded
			if i == 5 {
				on = job.FailedForGood
			}
			w.noError(errOf(w.engine.Finish(w.ctx, run, engine.Outcome{On: on})))
		}
		w.checkInvariants()
		for _, tt := range []struct {
			query engine.CountQuery
			want  string
		}{
			{engine.CountQuery{By: store.ByState, Limit: 9},
				"canceled=1 failed=1 running=2 succeeded=5"},
			{engine.CountQuery{By: store.ByState, Limit: 3}, // succeeded is what the others leave
				"canceled=1 failed=1 running=2 succeeded=5"},
			{engine.CountQuery{By: store.ByState, Limit: 1},
				"assigned>=0 canceled=1 failed=1 running>=1 succeeded=5"},
			{engine.CountQuery{By: store.ByState, Limit: 9, Queue: "b"}, "canceled=1 running=2"},
			{engine.CountQuery{By: store.ByState, Limit: 9, Queue: "a"}, "failed=1 succeeded=5"},
			{engine.CountQuery{By: store.ByState, Limit: 9, Queue: "c"}, ""},
			{engine.CountQuery{By: store.ByKind, Limit: 9}, "k0=5 k1=4"},
			{engine.CountQuery{By: store.ByKind, Limit: 9, Queue: "b"}, "k0=2 k1=1"},
			{engine.CountQuery{By: store.ByKind, Limit: 9, Kinds: map[string][]string{
				"phased": {"k0", "k1", "k2"}}}, "k0=5 k1=4"},
			{engine.CountQuery{By: store.ByKind, Limit: 4, Kinds: map[string][]string{
				"phased": {"k0", "k1", "k2"}}}, "k0>=4 k1=4"},
			{engine.CountQuery{By: store.ByKind, Limit: 9, Kinds: map[string][]string{
				"phased": {"k0"}}}, "k0=5 k1=4"}, // there are others, so all are counted one by one
			{engine.CountQuery{By: store.ByWorker, Limit: 9}, "=1 wa=6 wb=2"},
			{engine.CountQuery{By: store.ByWorker, Limit: 9, ShouldStop: afterOne()}, "wb>=2"},
			{engine.CountQuery{By: store.ByWorker, Limit: 1, Queue: "b"}, ">=1 wb>=1"},
		} {
			tt.query.JobTypes = []string{"phased", "brief"}
			counted, err := w.engine.CountJobs(w.ctx, tt.query)
			w.noError(err)
			var got []string
			for _, n := range counted {
				relation := "="
				if n.AtLeast {
					relation = ">="
				}
				got = append(got, fmt.Sprintf("%s%s%d", n.Value, relation, n.Jobs))
			}
			if text := fmt.Sprint(sorted(got)); text != "["+tt.want+"]" {
				w.Errorf("AD-018 %+v: got %s, want %s", tt.query, text, tt.want)
			}
		}
		if _, err := w.engine.CountJobs(w.ctx,
			engine.CountQuery{JobTypes: []string{"unknown"}}); !job.IsKind(
			err, job.NotFound) {
			w.Errorf("got %v", err)
		}
	})
}

// The counters of all job types, and the names of all queues that are remembered, are read by one
// statement each, and so are the first few jobs of each state that an index has. A queue of a
// job type that the node does not have is not listed.
func TestStatementsOfOperators(t *testing.T) {
	t.Parallel()
	for _, database := range testkit.Databases {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			var log testkit.StatementLog
			clock := testkit.NewClock()
			e := testkit.NewEngine(t, testkit.ObservedStore(t, database, clock.Now, log.Observe),
				clock, testJobTypes()...)
			_, err := e.Submit(t.Context(), engine.Unique, []engine.Submission{sub("phased/1"),
				sub("brief/1")})
			if err == nil {
				_, err = e.Cancel(t.Context(), id("phased/1"))
			}
			if err == nil {
				err = e.ChangeRecords(t.Context(), "test", func(w engine.RecordWriter) error {
					return w.UpsertRecords(
						job.Record{Kind: "engine.queue", Key: "1", Owner: "brief",
							Body: []byte(`{"Contract":"brief","Queue":"before"}`)},
						job.Record{Kind: "engine.queue", Key: "2", Owner: "unknown",
							Body: []byte(`{"Contract":"unknown","Queue":"before"}`)})
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			log.Take()
			_, err = e.CountJobs(t.Context(), engine.CountQuery{JobTypes: e.JobTypes(),
				By: store.ByState, Limit: 9})
			want := "[sum_all_counts count_over COMMIT]"
			if got := fmt.Sprint(log.Take()[1:]); got != want || err != nil {
				t.Errorf("a count by state runs %s, want %s (%v)", got, want, err)
			}
			var queues []string
			err = e.ViewQueues(t.Context(), func(r engine.QueueReader) error {
				all, err := r.List("")
				for _, q := range all {
					queues = append(queues, q.JobType+"/"+q.Queue)
				}
				return err
			})
			want = "[get_counts get_queues list_any_records COMMIT]"
			if got := fmt.Sprint(log.Take()[1:]); got != want || err != nil {
				t.Errorf("a list of queues runs %s, want %s (%v)", got, want, err)
			}
			if !slices.Contains(queues, "brief/before") || slices.Contains(queues,
				"unknown/before") {
				t.Errorf("got the queues %v", queues)
			}
		})
	}
}
