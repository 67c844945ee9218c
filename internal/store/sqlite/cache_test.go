package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/storetest"
)

// TestCacheIsExact runs groups of random updates, of which some fail, and compares what Load and
// LockReady return after every step with the rows, which List reads.
func TestCacheIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := Config{Path: Memory, Now: time.Now,
			cachedBytes: rapid.SampledFrom([]int64{0, 1, 20_000}).Draw(rt, "cached bytes")}
		s, err := Open(context.Background(), c)
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		for range rapid.IntRange(1, 2).Draw(rt, "groups") {
			seeds := rapid.SliceOfN(rapid.Uint64(), 1, 4).Draw(rt, "seeds of updates")
			if err := runGroup(s, seeds); err != nil {
				rt.Fatal(err)
			}
			for bodies := range store.OnlyBodies + 1 {
				if err := s.Update(context.Background(), func(tx store.Tx) error {
					return compare(tx, bodies)
				}); err != nil {
					rt.Fatal("after the group: ", err)
				}
			}
		}
	})
}

var errUnwanted = errors.New("unwanted")

// runGroup runs an update for each seed, in one transaction where none but the last fails.
func runGroup(s *Store, seeds []uint64) error {
	locked, free := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		_ = s.Update(context.Background(), func(store.Tx) error {
			close(locked)
			<-free
			return nil
		})
	})
	<-locked
	errs := make([]error, len(seeds))
	for i, seed := range seeds {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil && p != errUnwanted {
					panic(p)
				}
			}()
			err := s.Update(context.Background(), func(tx store.Tx) error {
				errs[i] = runSteps(tx, rand.New(rand.NewPCG(seed, 0)))
				return errs[i]
			})
			if !errors.Is(err, errUnwanted) {
				errs[i] = cmp.Or(errs[i], err)
			}
		})
		for len(s.requests) < i+1 {
			runtime.Gosched()
		}
	}
	close(free)
	all.Wait()
	for i, err := range errs {
		if err != nil && !errors.Is(err, errUnwanted) {
			return fmt.Errorf("update %d: %w", i, err)
		}
	}
	return nil
}

// runSteps runs some random steps. It fails on purpose at times, also by a panic.
func runSteps(tx store.Tx, r *rand.Rand) error {
	for range 1 + r.IntN(5) {
		step := []func(store.Tx, *rand.Rand) error{insertSome, updateSome, updateSome, claimSome,
			claimSome, deleteSome, pruneSome}[r.IntN(7)]
		if err := step(tx, r); err != nil {
			return err
		}
		if err := compare(tx, store.Bodies(r.IntN(int(store.OnlyBodies)+1))); err != nil {
			return err
		}
	}
	switch r.IntN(6) {
	case 0:
		panic(errUnwanted)
	case 1, 2:
		return errUnwanted
	default:
		return nil
	}
}

// insertSome inserts up to 70 jobs, of which some are taken.
func insertSome(tx store.Tx, r *rand.Rand) error {
	jobs := make([]*job.Job, 1+r.IntN(70)>>r.IntN(7))
	for i := range jobs {
		jobs[i] = randomJob(r)
	}
	return tx.Apply(store.Changes{Insert: jobs})
}

func randomJob(r *rand.Rand) *job.Job {
	j := &job.Job{}
	if r.IntN(3) == 0 {
		j = storetest.FilledJob(r.IntN(2))
		j.Alias = job.IdentityHash{}
	}
	if r.IntN(8) == 0 {
		j.Alias = job.AliasOf("c", "", fmt.Sprint(r.IntN(20)))
	}
	j.ID = job.ID{JobType: "c", Key: fmt.Sprint(r.IntN(100))}
	j.Queue = fmt.Sprint("q", r.IntN(2))
	j.Phase = []job.Phase{job.Ready, job.Ready, job.Leased, job.Waiting, job.Done}[r.IntN(5)]
	j.Priority = r.IntN(2)
	j.Parent = 0
	j.OrderTime = time.UnixMicro(r.Int64N(5)).UTC()
	for p := range job.Bodies {
		*j.Body(p) = randomBody(r)
	}
	return j
}

// randomBody returns a body that is missing, empty, in the row or, at times, out of line.
func randomBody(r *rand.Rand) []byte {
	switch n := r.IntN(40); {
	case n < 20:
		return nil
	case n < 25:
		return []byte{}
	case n < 39:
		return []byte(fmt.Sprint("body ", r.IntN(9)))
	default:
		return make([]byte, 8<<10+1)
	}
}

// someJobs returns some of the stored jobs, as they are.
func someJobs(tx store.Tx, r *rand.Rand) ([]*job.Job, error) {
	all, err := storetest.Listed(tx, store.Filter{})
	r.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	return all[:r.IntN(len(all)+1)], err
}

// updateSome gives jobs other values in all fields and writes some of the fields.
func updateSome(tx store.Tx, r *rand.Rand) error {
	jobs, err := someJobs(tx, r)
	var c store.Changes
	for _, j := range jobs {
		to := randomJob(r)
		to.Seq, to.ID, to.Alias, to.OutOfLine = j.Seq, j.ID, j.Alias, j.OutOfLine
		fields := []store.Fields{0, store.LeaseFields, store.StateFields, store.AllFields}[r.IntN(4)]
		if fields != store.AllFields { // the definitions are those that are stored
			to.Queue, to.Priority, to.OrderTime = j.Queue, j.Priority, j.OrderTime
		}
		for p := range job.Bodies {
			if r.IntN(6) == 0 {
				fields |= store.BodyField(p)
			}
		}
		c.Update = append(c.Update, store.JobUpdate{Job: to, Fields: fields})
	}
	return cmp.Or(err, tx.Apply(c))
}

func deleteSome(tx store.Tx, r *rand.Rand) error {
	jobs, err := someJobs(tx, r)
	return cmp.Or(err, tx.Apply(store.Changes{Delete: jobs[:len(jobs)/2]}))
}

func pruneSome(tx store.Tx, r *rand.Rand) error {
	_, err := tx.PruneFinished("c", time.Now().AddDate(1, 0, 0), 0, r.IntN(20))
	return err
}

// claimSome compares LockReady with the rows. What it does with the jobs changes nothing.
func claimSome(tx store.Tx, r *rand.Rand) error {
	all, err := storetest.Listed(tx, store.Filter{Queue: "q0", Phases: []job.Phase{job.Ready}})
	if err != nil {
		return err
	}
	slices.SortFunc(all, job.CompareClaim)
	n := 1 + r.IntN(40)
	got, err := tx.LockReady("c", "q0", n)
	if err != nil {
		return err
	}
	want := all[:min(n, len(all))]
	if len(got) != len(want) {
		return fmt.Errorf("%d jobs are ready, want %d", len(got), len(want))
	}
	for i, j := range got {
		if !reflect.DeepEqual(j, want[i]) {
			return fmt.Errorf("job %d is ready with other %v", want[i].Seq,
				storetest.DifferentFields(j, want[i]))
		}
		for p := range job.Bodies {
			clear(*j.Body(p))
		}
		*j = job.Job{Seq: j.Seq}
	}
	return nil
}

// compare compares what Load returns by number with the rows.
func compare(tx store.Tx, bodies store.Bodies) error {
	rows, err := storetest.Listed(tx, store.Filter{})
	if err != nil {
		return err
	}
	var seqs []int64 // of all jobs that there are or were, and more
	last := int64(20)
	for _, j := range rows {
		last = j.Seq + 20
		seqs = append(seqs, j.Seq)
	}
	for seq := range last {
		seqs = append(seqs, seq)
	}
	got, err := tx.Load(store.Selector{Seqs: seqs, Bodies: bodies, Lock: true})
	if err != nil {
		return err
	}
	if len(got) != len(rows) {
		return fmt.Errorf("%d jobs with bodies %d, want %d", len(got), bodies, len(rows))
	}
	for i, j := range got {
		want := loaded(rows[i], bodies)
		if !reflect.DeepEqual(j, want) {
			return fmt.Errorf("job %d with bodies %d has other %v", want.Seq, bodies,
				storetest.DifferentFields(j, want))
		}
	}
	return nil
}

// loaded returns a job as Load returns it.
func loaded(j *job.Job, bodies store.Bodies) *job.Job {
	then := *j
	switch bodies {
	case store.NoBodies, store.DefinitionOnly, store.FailureOnly:
		then.Payload, then.Progress, then.Result = nil, nil, nil
		if bodies != store.DefinitionOnly {
			then.Definition = nil
		}
		if bodies != store.FailureOnly {
			then.Failure = nil
		}
	case store.OnlyBodies:
		then = job.Job{Seq: j.Seq, OutOfLine: j.OutOfLine}
		for p := range job.Bodies {
			*then.Body(p) = *j.Body(p)
		}
	}
	return &then
}

// What another connection writes, such as that of an operator's shell, is seen by the next
// transaction. It gives the jobs of two queues the same hash here: LockReady tells them apart.
func TestCacheAndForeignWrites(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "millrace.db")
	s, err := Open(t.Context(), Config{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	update := func(fn func(store.Tx) error) {
		t.Helper()
		if err := s.Update(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	update(func(tx store.Tx) error {
		var c store.Changes
		for i := range 6 {
			c.Insert = append(c.Insert, &job.Job{ID: job.ID{JobType: "c", Key: fmt.Sprint(i)},
				Queue: fmt.Sprint("q", i%2), Phase: job.Ready})
		}
		return tx.Apply(c)
	})
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ready := func() {
		t.Helper()
		update(func(tx store.Tx) error {
			jobs, err := tx.LockReady("c", "q1", 2)
			if len(jobs) != 2 || jobs[0].ID.Key != "1" || jobs[1].ID.Key != "3" {
				t.Errorf("got %v", jobs)
			}
			for _, j := range jobs {
				if j.Worker != "somebody" {
					t.Errorf("job %s has worker %q", j.ID.Key, j.Worker)
				}
			}
			return err
		})
	}
	for _, text := range []string{"UPDATE ready SET worker='somebody'",
		"UPDATE ready SET queue_hash=" +
			"(SELECT queue_hash FROM ready JOIN jobs USING (seq) WHERE queue='q1')"} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
		ready()
		ready() // now the cache has the jobs
	}
}
