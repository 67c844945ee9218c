package postgres_test

import (
	"bytes"
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlstore"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// circle runs two updates that want the same three rows. The middle one is held until both wait: in
// one order the second waits for the first; in opposite orders each has what the other comes to,
// and the database has one of them run again.
type circle struct {
	*testing.T
	db    *sql.DB
	name  string // of the connections whose waits are looked at
	tries atomic.Int32
	again int32 // how many updates are to be run again
	all   sync.WaitGroup
}

func (c *circle) update(s *postgres.Store, fn func(store.Tx) error) {
	c.all.Go(func() {
		if err := s.Update(c.Context(), func(tx store.Tx) error {
			c.tries.Add(1)
			return fn(tx)
		}); err != nil {
			c.Error(err)
		}
	})
}

// awaits waits until so many updates wait for a lock.
func (c *circle) awaits(n int) {
	c.Helper()
	testkit.WaitUntil(c, fmt.Sprint(n, " updates to wait"), func() bool {
		waiting := 0
		if err := c.db.QueryRow(`SELECT count(*) FROM pg_stat_activity
			WHERE application_name=$1 AND wait_event_type='Lock'`, c.name).Scan(&waiting); err != nil {
			c.Fatal(err)
		}
		return waiting == n
	})
}

// ends waits for both updates.
func (c *circle) ends() {
	c.Helper()
	c.all.Wait()
	if tries := c.tries.Load(); tries != 2+c.again {
		c.Errorf("2 updates had %d tries", tries)
	}
}

// Counting and folding lock the counts of queues in one order, whatever the order in which the
// database finds them.
func TestCountsAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	url, name := named(t)
	db := pgtest.DB(t, url+"-looks")
	counts := mustOpen(t, postgres.Config{URL: url, Conns: 1}) // one slot: the same rows again
	folds := mustOpen(t, postgres.Config{Conns: 1,             // finds rows as they were stored
		URL: url + "&enable_seqscan=on&enable_indexscan=off&enable_indexonlyscan=off"})
	three := []job.QueueCount{{JobType: "x", Queue: "a"}, {JobType: "x", Queue: "b"},
		{JobType: "x", Queue: "c"}}
	slices.SortFunc(three, func(a, b job.QueueCount) int {
		return cmp.Compare(hashOf(b), hashOf(a))
	})
	for _, q := range three { // those that are counted last are stored first
		if err := counts.Update(t.Context(), func(tx store.Tx) error {
			return tx.Apply(store.Changes{Counts: []job.QueueCount{q}})
		}); err != nil {
			t.Fatal(err)
		}
	}
	holder, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback()
	const hold = "SELECT FROM counts WHERE queue_hash=$1 FOR UPDATE"
	if _, err := holder.Exec(hold, int64(hashOf(three[1]))); err != nil {
		t.Fatal(err)
	}
	c := &circle{T: t, db: db, name: name}
	c.update(counts, func(tx store.Tx) error { return tx.Apply(store.Changes{Counts: three}) })
	c.awaits(1)
	c.update(folds, func(tx store.Tx) error { _, err := tx.CompactCounts(3); return err })
	c.awaits(2)
	if err := holder.Rollback(); err != nil {
		t.Error(err)
	}
	c.ends()
}

// noDeadlock returns an observer that fails the test where a statement met a deadlock.
func noDeadlock(t *testing.T) sqlstore.Observer {
	return func(statement string, _ time.Duration, err error) {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "40P01" {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

func hashOf(q job.QueueCount) job.QueueHash { return job.QueueHashOf(q.JobType, q.Queue) }

// Inserts of the same jobs take their identities in one order, whatever that of the jobs. Without
// ON CONFLICT the second of two updates is run again once it sees that they are taken.
func TestInsertsTakeIdentitiesInOneOrder(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int32{"without ON CONFLICT": 1, "with it": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			insertsInOneOrder(t, again)
		})
	}
}

func insertsInOneOrder(t *testing.T, again int32) {
	url, name := named(t)
	db := pgtest.DB(t, url+"-looks")
	s := mustOpen(t, postgres.Config{URL: url, Conns: 4, Observe: noDeadlock(t)})
	if again == 0 {
		mustInsert(t, s, "taken")
		mustConflict(t, s, "taken")
	}
	three := func() []*job.Job { return []*job.Job{newJob("a"), newJob("b"), newJob("c")} }
	byIdentity := func(a, b *job.Job) int {
		x, y := a.ID.IdentityHash(), b.ID.IdentityHash()
		return bytes.Compare(x[:], y[:])
	}
	first, second := three(), three()
	slices.SortFunc(first, byIdentity)
	slices.SortFunc(second, byIdentity)
	slices.Reverse(second)
	c := &circle{T: t, db: db, name: name, again: again}
	errUnwanted := errors.New("this update is not wanted")
	err := s.Update(t.Context(), func(tx store.Tx) error {
		changes := store.Changes{Insert: []*job.Job{newJob(first[1].ID.Key)}}
		if err := tx.Apply(changes); err != nil {
			return err
		}
		c.update(s, func(tx store.Tx) error { return tx.Apply(store.Changes{Insert: first}) })
		c.awaits(1)
		c.update(s, func(tx store.Tx) error { return tx.Apply(store.Changes{Insert: second}) })
		c.awaits(2)
		return errUnwanted
	})
	if err != errUnwanted {
		t.Error(err)
	}
	c.ends()
}

// A claim that passes over a job which another transaction has locked keeps nothing of it: the
// other one moves it without waiting for the claim.
func TestClaimsLockNothingInVain(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, postgres.Config{URL: pgtest.URL(t), Conns: 2})
	mustInsert(t, s, "a")
	passed, moved := make(chan struct{}), make(chan struct{})
	var claim sync.WaitGroup
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		locked, err := tx.Load(store.Selector{IDs: []job.ID{newJob("a").ID}, Lock: true})
		if err != nil {
			return err
		}
		claim.Go(func() {
			if err := s.Update(t.Context(), func(tx store.Tx) error {
				ready, err := tx.LockReady(locked[0].ID.JobType, locked[0].Queue, 1)
				if len(ready) > 0 {
					t.Error("a locked job was claimed")
				}
				close(passed)
				<-moved
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		<-passed
		defer close(moved)
		locked[0].Phase = job.Leased
		return tx.Apply(store.Changes{Update: []store.JobUpdate{{Job: locked[0],
			Fields: store.StateFields}}})
	}); err != nil {
		t.Error(err)
	}
	claim.Wait()
}
