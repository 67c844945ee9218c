package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// Bench measures the verbs of a job's life, a hundred jobs at a time, and single inserts of a
// crowd. It reports the time of one job. Payloads have 200 bytes, so what is measured is the cost
// of the statements and of the commit, which the hundred share. The crowd shows what group commit
// or a pool of connections makes of callers that come one by one.
func Bench(b *testing.B, open func(tb testing.TB, clock func() time.Time) store.Store) {
	const set = 100
	payload := bytesOf(200)
	made := 0
	jobs := func() (all []*job.Job) {
		for range set {
			made++
			all = append(all, newJob(fmt.Sprint(made), func(j *job.Job) { j.Payload = payload }))
		}
		return all
	}
	for _, bench := range []struct {
		name   string
		before func(w *world) []*job.Job // not measured
		run    func(tx store.Tx, jobs []*job.Job) error
	}{
		{"insert", func(*world) []*job.Job {
			return jobs()
		}, func(tx store.Tx, jobs []*job.Job) error {
			_, err := insert(tx, jobs...)
			return err
		}},
		{"claim", func(w *world) []*job.Job {
			w.insert(jobs()...)
			return nil
		}, func(tx store.Tx, _ []*job.Job) error {
			return claim(tx, set)
		}},
		{"finish", func(w *world) []*job.Job {
			all := jobs()
			w.insert(all...)
			return all
		}, func(tx store.Tx, jobs []*job.Job) error {
			locked, err := tx.Load(locked(jobs...))
			if err != nil {
				return err
			}
			return tx.Apply(store.Changes{Delete: locked})
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := newWorld(b, open)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				jobs := bench.before(w)
				b.StartTimer()
				w.update(func(tx store.Tx) error { return bench.run(tx, jobs) })
			}
			perJob(b, set)
		})
	}
	b.Run("crowd insert", func(b *testing.B) {
		w := newWorld(b, open)
		var n atomic.Int64
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				j := newJob(fmt.Sprint("crowd", n.Add(1)), func(j *job.Job) { j.Payload = payload })
				if err := w.store.Update(b.Context(), func(tx store.Tx) error {
					_, err := insert(tx, j)
					return err
				}); err != nil {
					b.Error(err)
				}
			}
		})
		perJob(b, 1)
	})
}

// perJob reports the time of one job in the place of that of one operation, which has several.
func perJob(b *testing.B, jobs int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*jobs), "ns/job")
	b.ReportMetric(0, "ns/op")
}

// claim is what the engine does for waiting workers, and must find n jobs.
func claim(tx store.Tx, n int) error {
	ready, err := tx.LockReady("relay", "q", n)
	if err != nil {
		return err
	}
	if len(ready) != n {
		return fmt.Errorf("%d ready jobs", len(ready))
	}
	for i, j := range ready {
		j.Phase, j.State, j.Run, j.Attempts = job.Leased, "running",
			job.NewRunID(j.Seq, [16]byte{15: byte(i)}), j.Attempts+1
		j.Worker, j.LeaseUntil, j.UpdatedAt = "a worker", tx.Now().Add(time.Minute), tx.Now()
	}
	return tx.Apply(updates(store.StateFields, ready...))
}
