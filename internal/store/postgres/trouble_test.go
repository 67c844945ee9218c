package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

func newJob(key string) *job.Job {
	return &job.Job{ID: job.ID{JobType: "relay", Scope: "q", Key: key}, Queue: "q",
		State: "queued", Phase: job.Ready}
}

func mustInsert(tb testing.TB, s *postgres.Store, keys ...string) (jobs []*job.Job) {
	tb.Helper()
	for _, key := range keys {
		jobs = append(jobs, newJob(key))
	}
	if err := s.Update(context.Background(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{Insert: jobs})
	}); err != nil {
		tb.Fatal(err)
	}
	return jobs
}

// addRun adds one to the runs of a job.
func addRun(tx store.Tx, id job.ID) error {
	locked, err := tx.Load(store.Selector{IDs: []job.ID{id}, Lock: true})
	if err != nil {
		return err
	}
	locked[0].Attempts++
	return tx.Apply(store.Changes{Update: []store.JobUpdate{
		{Job: locked[0], Fields: store.StateFields},
	}})
}

func mustHaveRuns(tb testing.TB, s *postgres.Store, want int) {
	tb.Helper()
	if err := s.View(context.Background(), func(r store.Reader) error {
		jobs, err := storetest.Listed(r, store.Filter{})
		for _, j := range jobs {
			if j.Attempts != want {
				tb.Errorf("%s has %d runs, want %d", j.ID.Key, j.Attempts, want)
			}
		}
		return err
	}); err != nil {
		tb.Error(err)
	}
}

// Two updates lock two jobs in opposite order and meet in the middle.
func TestDeadlockRunsAgain(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t)})
	jobs := mustInsert(t, s, "a", "b")
	var tries, conflicts atomic.Int32
	both := make(chan struct{})
	var all sync.WaitGroup
	for i := range 2 {
		first := true
		all.Go(func() {
			err := s.Update(context.Background(), func(tx store.Tx) error {
				tries.Add(1)
				if err := addRun(tx, jobs[i].ID); err != nil {
					return err
				}
				if first {
					if first = false; conflicts.Add(1) == 2 {
						close(both)
					}
					<-both
				}
				if err := addRun(tx, jobs[1-i].ID); err != nil {
					return errors.New("fn hides what happened")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if tries.Load() < 3 {
		t.Errorf("%d tries, want 3 or more", tries.Load())
	}
	mustHaveRuns(t, s, 2)
}

// Where a database's default is another isolation, updates have the one they need: who waited for a
// lock sees what its last holder did, and nothing fails.
func TestIsolationIsOurOwn(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t) +
		"&default_transaction_isolation=serializable"})
	jobs := mustInsert(t, s, "a")
	var failures atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 10 {
				if err := s.Update(context.Background(), func(tx store.Tx) error {
					err := addRun(tx, jobs[0].ID)
					var pg *pgconn.PgError
					if errors.As(err, &pg) && pg.Code == "40001" { // serialization_failure
						failures.Add(1)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if failures.Load() != 0 {
		t.Errorf("%d updates failed by their isolation", failures.Load())
	}
	mustHaveRuns(t, s, 40)
}

func TestLockedJobsArePassedOver(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t), Now: func() time.Time { return now }})
	var jobs []*job.Job
	for i := range 12 {
		j := newJob(fmt.Sprint(i))
		j.Phase, j.DueAt, j.LeaseUntil, j.FinishedAt = job.Phase(i%4), now, now, now
		jobs = append(jobs, j)
	}
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{Insert: jobs})
	}); err != nil {
		t.Fatal(err)
	}
	verbs := map[string]func(tx store.Tx, n int) (int, error){
		"due": func(tx store.Tx, n int) (int, error) {
			all, err := tx.LockDue(n, nil)
			return len(all), err
		},
		"ready": func(tx store.Tx, n int) (int, error) {
			all, err := tx.LockReady("relay", "q", n)
			return len(all), err
		},
		"expired": func(tx store.Tx, n int) (int, error) {
			all, err := tx.LockExpired(time.Time{}, n)
			return len(all), err
		},
		"finished": func(tx store.Tx, n int) (int, error) {
			gone, err := tx.PruneFinished("relay", now.Add(time.Second), 0, n)
			return gone.Jobs, err
		},
	}
	for name, verb := range verbs {
		if err := s.Update(t.Context(), func(tx store.Tx) error {
			first, err := verb(tx, 2)
			if err != nil {
				return err
			}
			var second int
			err = s.Update(t.Context(), func(tx store.Tx) (err error) {
				second, err = verb(tx, 10)
				return err
			})
			if first != 2 || second != 1 {
				t.Errorf("%s: %d, then %d", name, first, second)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// named returns a URL whose connections have an application name of their own, and that name.
func named(tb testing.TB) (url, name string) {
	name = rand.Text()
	return pgtest.URL(tb) + "&application_name=" + name, name
}

const killAll = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE " +
	"application_name=$1 AND pid<>pg_backend_pid()"

func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	url, name := named(t)
	s := mustOpen(t, postgres.Config{URL: url, Conns: 4})
	db := pgtest.DB(t, strings.Split(url, "&application_name")[0])
	stop := make(chan struct{})
	answers := make(chan map[string]error)
	go func() { answers <- insertUntil(t, s, stop) }()
	killed := 0
	for range 30 {
		var n int
		if err := db.QueryRow(killAll, name).Scan(&n); err != nil {
			t.Error(err)
		}
		killed += n
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	outcomes := <-answers
	if killed == 0 {
		t.Error("nothing was terminated")
	}
	// The pool is well by itself, also with connections that died idle.
	if _, err := db.Exec(killAll, name); err != nil {
		t.Error(err)
	}
	mustInsert(t, s, "last")
	t.Logf("%d backends terminated", killed)
	audit(t, s, outcomes)
}

// insertUntil has callers insert and look until stop, and returns what each key's update ended
// with.
func insertUntil(t *testing.T, s *postgres.Store, stop chan struct{}) map[string]error {
	var mu sync.Mutex
	answers := map[string]error{}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint(i, "-", n)
				err := s.Update(context.Background(), func(tx store.Tx) error {
					return tx.Apply(store.Changes{Insert: []*job.Job{newJob(key)}})
				})
				mu.Lock()
				answers[key] = err
				mu.Unlock()
				verr := s.View(context.Background(), func(r store.Reader) error {
					_, err := r.Exists(newJob(key).ID)
					return err
				})
				for _, err := range []error{err, verr} {
					if err != nil && !job.IsKind(err, job.Unavailable) {
						t.Errorf("got %v", err)
					}
				}
			}
		})
	}
	all.Wait()
	return answers
}

// audit compares what callers were answered with what is stored. Only the answer to a commit may be
// lost.
func audit(t *testing.T, s *postgres.Store, answers map[string]error) {
	failed, unknown := 0, 0
	if err := s.View(t.Context(), func(r store.Reader) error {
		for key, err := range answers {
			there, verr := r.Exists(newJob(key).ID)
			if verr != nil {
				return verr
			}
			var e *job.Error
			errors.As(err, &e)
			switch {
			case err == nil && !there:
				t.Errorf("%s is lost", key)
			case err != nil && there && e.Op != "store.commit":
				t.Errorf("%s is stored, but the update failed: %v", key, err)
			case err != nil && there:
				unknown++
			case err != nil:
				failed++
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d updates, %d failed, %d stored though the answer was lost", len(answers), failed,
		unknown)
}

func TestStatementsHaveDeadlines(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var answers []job.Kind // to the observer
	s := mustOpen(t, postgres.Config{URL: url + "&lock_timeout=100",
		Observe: func(_ string, _ time.Duration, err error) {
			if err != nil {
				answers = append(answers, job.KindOf(err))
			}
		}})
	err := s.Update(t.Context(), func(tx store.Tx) error {
		if err := tx.LockName("name"); err != nil {
			return err
		}
		err := s.Update(t.Context(), func(tx store.Tx) error { return tx.LockName("name") })
		if !job.IsKind(err, job.Unavailable) {
			t.Errorf("lock deadline: %v", err)
		}
		if !slices.Contains(answers, job.Unavailable) || slices.Contains(answers, job.Internal) {
			t.Errorf("the observer got %v", answers)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	slow := mustOpen(t, postgres.Config{URL: url + "&statement_timeout=2000"})
	err = slow.Update(t.Context(), func(tx store.Tx) error {
		if err := tx.LockName("name"); err != nil {
			return err
		}
		err := slow.Update(t.Context(), func(tx store.Tx) error { return tx.LockName("name") })
		var pg *pgconn.PgError
		if !job.IsKind(err, job.Unavailable) || !errors.As(err, &pg) || pg.Code != "57014" {
			t.Errorf("statement deadline: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestIdleTransactionsEnd(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	mustOpen(t, postgres.Config{URL: url}) // so that the schema is made without the limit
	s := mustOpen(t, postgres.Config{URL: url + "&idle_in_transaction_session_timeout=1s"})
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		time.Sleep(1500 * time.Millisecond) // to be idle is what is tested
		_, err := tx.Exists(job.ID{})
		return err
	}); !job.IsKind(err, job.Unavailable) {
		t.Errorf("got %v", err)
	}
	mustInsert(t, s, "a")
}

// Nodes look at the outbox at the same time, of several job types one after the other, while the
// one that publishes removes what it has delivered: reading locks nothing, or there would be
// deadlocks.
func TestMessagesAreLookedAtWithoutLocks(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t)})
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{Messages: []job.Message{
			{JobID: job.ID{JobType: "a", Key: "1"}},
			{JobID: job.ID{JobType: "b", Key: "2"}},
		}})
	}); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), testkit.WaitTimeout)
	defer cancel()
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		waiting, err := tx.Messages([]string{"a"}, 10)
		if err != nil || len(waiting) != 1 {
			t.Errorf("%v, %v", waiting, err)
			return err
		}
		return s.Update(within, func(tx store.Tx) error {
			return tx.Apply(store.Changes{DeleteMessages: []int64{waiting[0].ID}})
		})
	}); err != nil {
		t.Error(err)
	}
}

// Callers that insert the same jobs, each in an order of its own, wait for each other without
// deadlocks. Those that insert at the moment of the first conflict are run again once, and nobody
// afterwards.
func TestInsertsWaitInOneOrder(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t), Observe: noDeadlock(t)})
	const callers, rounds, set = 8, 4, 300
	var tries, stored atomic.Int32
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for round := range rounds {
				jobs := make([]*job.Job, set)
				for i, k := range mathrand.Perm(set) {
					jobs[i] = newJob(fmt.Sprint(round, "-", k))
				}
				changes := store.Changes{Insert: jobs}
				if err := s.Update(context.Background(), func(tx store.Tx) (err error) {
					tries.Add(1)
					return tx.Apply(changes)
				}); err != nil {
					t.Error(err)
				}
				stored.Add(int32(set - len(changes.Existing())))
			}
		})
	}
	all.Wait()
	if tries.Load() > callers*(rounds+1) || stored.Load() != rounds*set {
		t.Errorf("%d tries of %d updates, %d of %d stored", tries.Load(), callers*rounds,
			stored.Load(), rounds*set)
	}
}

// Callers that set the same queues, each in an order of its own, never deadlock either.
func TestQueuesAreSetInOneOrder(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t)})
	const callers, rounds, queues = 8, 10, 20
	var tries atomic.Int32
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range rounds {
				var c store.Changes
				for _, k := range mathrand.Perm(queues) {
					c.Queues = append(c.Queues,
						job.QueueSettings{JobType: "relay", Queue: fmt.Sprint(k)})
				}
				if err := s.Update(context.Background(), func(tx store.Tx) error {
					tries.Add(1)
					return tx.Apply(c)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if tries.Load() != callers*rounds {
		t.Errorf("%d tries of %d updates", tries.Load(), callers*rounds)
	}
}

func TestTimeIsTheDatabases(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s, db := mustOpen(t, postgres.Config{URL: url}), pgtest.DB(t, url)
	clock := func() (now time.Time) {
		if err := db.QueryRow("SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Error(err)
		}
		return now
	}
	before := clock()
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		first, after := tx.Now(), clock()
		if first.Before(before) || first.After(after) || first.Location() != time.UTC {
			t.Errorf("now is %v, between %v and %v", first, before, after)
		}
		if _, err := tx.Exists(job.ID{}); err != nil || tx.Now() != first {
			t.Errorf("now is %v, was %v, %v", tx.Now(), first, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A database that refuses writes, as a standby does, is reported clearly; reads go on.
func TestReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	mustInsert(t, mustOpen(t, postgres.Config{URL: url}), "a")
	s := mustOpen(t, postgres.Config{URL: url + "&default_transaction_read_only=on"})
	err := s.Update(t.Context(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{Insert: []*job.Job{newJob("b")}})
	})
	if !job.IsKind(err, job.Unavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a write: %v", err)
	}
	if err := s.View(t.Context(), func(r store.Reader) error {
		is, err := r.Exists(newJob("a").ID)
		if err == nil && !is {
			t.Error("a job is not seen")
		}
		return err
	}); err != nil {
		t.Errorf("a read: %v", err)
	}
}
