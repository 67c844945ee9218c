package admin_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// BenchmarkManyQueues asks a node whose store has 100,000 queues, with a ready job in each, for
// what operators look at.
func BenchmarkManyQueues(b *testing.B) {
	const queues, batch = 100_000, 1000
	for _, database := range []struct {
		name string
		open func(testing.TB) testkit.Database
	}{{"sqlite", testkit.InMemory}, {"postgres", testkit.OnPostgres}} {
		b.Run(database.name, func(b *testing.B) {
			w, p := &jobsWorld{}, database.open(b)
			w.world = newWorld(b, p.Store, p.Clock, func(c *admin.Config) { w.addContracts(b, c) })
			var number int64
			for first := 0; first < queues; first += batch {
				jobs := make([]engine.Submission, batch)
				for i := range jobs {
					name := fmt.Sprintf("queue-%06d", first+i)
					jobs[i].Job = job.Job{ID: job.ID{JobType: "taskflow", Key: name}, Queue: name}
				}
				stored, err := w.engine.Submit(b.Context(), engine.Unique, jobs)
				if err != nil {
					b.Fatal(err)
				}
				number = stored.Jobs[0].Seq
			}
			for _, path := range []string{"queues", "queues?order=depth", "queues?order=age",
				"queues?order=failures", "counts?by=phase", "counts?by=queue",
				"counts?by=state&contract=taskflow&queue=queue-000500",
				fmt.Sprintf("jobs/%d/why", number), "jobs?state=READY", "jobs?queue=queue-000500",
				"jobs?state=FAILED"} {
				b.Run(path, func(b *testing.B) {
					for range b.N {
						w.do(b, w.api.Token(), "GET", "/admin/v1/"+path, "").WantStatus(b, 200)
					}
				})
			}
			b.Run("overview", func(b *testing.B) {
				for range b.N {
					all, err := w.api.Queues(b.Context())
					if err != nil || len(all) != queues {
						b.Fatalf("%d queues: %v", len(all), err)
					}
				}
			})
		})
	}
}
