package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/sqlstore"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// watermarkWorld is a queue on which every claim uses watermarks. The time passes by making all
// that is stored older.
type watermarkWorld struct {
	*testing.T
	*postgres.Store
	db      *sql.DB
	renewal *postgres.Renewal
	rand    *rand.Rand
	jobs    int
	open    []*openTx
}

var (
	watermarkQueue = int64(job.QueueHashOf("relay", "q"))
	errRollback    = errors.New("rolled back")
)

func newWatermarkWorld(t *testing.T, seed uint64) *watermarkWorld {
	url := pgtest.URL(t)
	// Transactions stay open for many steps: on a slow machine for longer than a session may idle.
	withoutTimeout := mustOpen(t, postgres.Config{URL: url + "&idle_in_transaction_session_timeout=0"})
	w := &watermarkWorld{T: t, Store: withoutTimeout, db: pgtest.DB(t, url),
		rand: rand.New(rand.NewPCG(seed, 0))}
	w.renewal = w.UseWatermarks()
	w.db.SetMaxOpenConns(1)
	w.exec("SET session_replication_role=replica") // so that jobs that age do not arrive again
	for range 4 {
		w.check(1)
	}
	return w
}

func (w *watermarkWorld) exec(text string, args ...any) {
	w.Helper()
	if _, err := w.db.Exec(text, args...); err != nil {
		w.Fatal(err)
	}
}

func (w *watermarkWorld) ints(text string, args ...any) (all []int64) {
	w.Helper()
	rows, err := w.db.Query(text, args...)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			w.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func (w *watermarkWorld) now() time.Time {
	return time.UnixMicro(w.ints("SELECT (extract(epoch FROM clock_timestamp())*1000000)::int8")[0])
}

func (w *watermarkWorld) update(fn func(store.Tx) error) {
	w.Helper()
	if err := w.Update(w.Context(), fn); err != nil && !errors.Is(err, errRollback) {
		w.Fatal(err)
	}
}

// openTx is a transaction that has done its work and waits for its end.
type openTx struct {
	end  chan error // nil commits
	done chan struct{}
	seqs []int64 // of the jobs that it has locked
}

// begin does work in a transaction that stays open.
func (w *watermarkWorld) begin(fn func(store.Tx) ([]int64, error)) *openTx {
	o := &openTx{end: make(chan error), done: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(o.done)
		err := w.Update(w.Context(), func(tx store.Tx) (err error) {
			if o.seqs, err = fn(tx); err != nil {
				return err
			}
			close(ready)
			return <-o.end
		})
		if err != nil && !errors.Is(err, errRollback) {
			w.Error(err)
		}
	}()
	<-ready
	w.open = append(w.open, o)
	return o
}

// endOne ends one of the open transactions.
func (w *watermarkWorld) endOne() {
	if len(w.open) == 0 {
		return
	}
	i := w.rand.IntN(len(w.open))
	w.open[i].end <- []error{nil, errRollback}[w.rand.IntN(2)]
	<-w.open[i].done
	w.open = slices.Delete(w.open, i, i+1)
}

// newReady returns a job with an age and one of a few priorities.
func (w *watermarkWorld) newReady(now time.Time, age time.Duration) *job.Job {
	w.jobs++
	j := newJob(fmt.Sprint(w.jobs))
	j.OrderTime, j.Priority = now.Add(-age), w.rand.IntN(3)-1
	return j
}

func (w *watermarkWorld) insert(tx store.Tx) error {
	age := time.Duration(w.rand.IntN(2)*w.rand.IntN(20)) * time.Second
	return tx.Apply(store.Changes{Insert: []*job.Job{w.newReady(tx.Now(), age)}})
}

// claim leases the first jobs.
func (w *watermarkWorld) claim(tx store.Tx) ([]int64, error) {
	jobs, err := tx.LockReady("relay", "q", 1+w.rand.IntN(4))
	var seqs []int64
	var updates []store.JobUpdate
	for _, j := range jobs {
		j.Phase, j.State, j.LeaseUntil = job.Leased, "running", tx.Now().Add(time.Second)
		j.UpdatedAt = tx.Now()
		seqs = append(seqs, j.Seq)
		updates = append(updates, store.JobUpdate{Job: j, Fields: store.StateFields})
	}
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return seqs, tx.Apply(store.Changes{Update: updates})
}

// change makes a leased job ready again where it was, or gives a ready one another place.
func (w *watermarkWorld) change(tx store.Tx) error {
	table := []string{"leases", "ready"}[w.rand.IntN(2)]
	seqs := w.unlocked(w.ints("SELECT seq FROM " + table + " ORDER BY seq"))
	if len(seqs) == 0 {
		return nil
	}
	jobs, err := tx.Load(store.Selector{Seqs: seqs[w.rand.IntN(len(seqs)):][:1], Lock: true,
		Bodies: store.AllBodies})
	if err != nil {
		return err
	}
	j, fields := jobs[0], store.StateFields
	if j.Phase == job.Ready {
		j.Priority, j.OrderTime = w.rand.IntN(3)-1, j.OrderTime.Add(-time.Minute)
		fields = store.AllFields
	}
	j.Phase, j.State, j.LeaseUntil = job.Ready, "queued", time.Time{}
	return tx.Apply(store.Changes{Update: []store.JobUpdate{{Job: j, Fields: fields}}})
}

// unlocked leaves out the jobs that an open transaction has locked.
func (w *watermarkWorld) unlocked(seqs []int64) []int64 {
	return slices.DeleteFunc(seqs, func(seq int64) bool {
		return slices.ContainsFunc(w.open, func(o *openTx) bool {
			return slices.Contains(o.seqs, seq)
		})
	})
}

// passes makes everything older, which needs all rows.
func (w *watermarkWorld) passes(by time.Duration) {
	for _, o := range w.open {
		if len(o.seqs) > 0 {
			return
		}
	}
	us := by.Microseconds()
	w.exec("UPDATE ready SET order_time=order_time-$1, arrived=arrived-$1", us)
	w.exec("UPDATE jobs SET order_time=order_time-$1 WHERE order_time>0", us)
	w.exec("UPDATE leases SET lease_until=lease_until-$1", us)
	w.AgeWatermarks(w.renewal, by)
}

func (w *watermarkWorld) renew(whole bool) {
	w.Helper()
	if err := w.RenewWatermarks(w.Context(), w.renewal, whole); err != nil {
		w.Fatal(err)
	}
}

// check compares what claims and sweeps find with all that is stored.
func (w *watermarkWorld) check(n int) {
	w.Helper()
	want := w.unlocked(w.ints(`SELECT seq FROM ready WHERE queue_hash=$1
		ORDER BY priority DESC, order_time, seq`, watermarkQueue))
	want = want[:min(n, len(want))]
	leases := w.ints("SELECT lease_until FROM leases ORDER BY lease_until LIMIT 1")
	w.update(func(tx store.Tx) error {
		jobs, err := tx.LockReady("relay", "q", n)
		if err != nil {
			return err
		}
		slices.SortFunc(jobs, job.CompareClaim)
		var got []int64
		for _, j := range jobs {
			got = append(got, j.Seq)
		}
		if !slices.Equal(got, want) {
			w.Errorf("claimed are %v, want %v; the latest watermark is %d", got, want,
				w.LatestWatermark(watermarkQueue))
		}
		next, err := tx.NextDue(tx.Now().Add(time.Hour))
		if len(leases) > 0 && sqlstore.Micros(next.Lease) != leases[0] {
			w.Errorf("the next lease ends at %v, want %v", sqlstore.Micros(next.Lease), leases[0])
		}
		return errors.Join(err, errRollback)
	})
}

// TestWatermarksHideNoJob claims from watermarks while jobs arrive late, with other priorities, in
// transactions that are open for long, and come back by a rollback, a release or an edit.
func TestWatermarksHideNoJob(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWatermarkWorld(t, seed)
			hidden := 0
			for range 400 {
				w.step()
				w.check(1 + w.rand.IntN(8))
				if w.LatestWatermark(watermarkQueue) > 0 {
					hidden++
				}
			}
			for len(w.open) > 0 {
				w.endOne()
			}
			w.check(1000)
			if hidden < 100 {
				t.Errorf("only %d claims of 400 began at a watermark", hidden)
			}
		})
	}
}

func (w *watermarkWorld) step() {
	switch w.rand.IntN(9) {
	case 0, 1:
		w.update(w.insert)
	case 2:
		w.begin(func(tx store.Tx) ([]int64, error) { return nil, w.insert(tx) })
	case 3:
		w.update(func(tx store.Tx) error { _, err := w.claim(tx); return err })
	case 4:
		w.begin(w.claim)
	case 5:
		w.update(w.change)
	case 6:
		w.passes(time.Duration(w.rand.IntN(8)) * time.Second)
	default:
		w.renew(w.rand.IntN(10) == 0)
	}
	if len(w.open) > 4 {
		w.endOne()
	}
}

// The horizon does not pass a transaction that has written and not ended.
func TestHorizonWaitsForWriters(t *testing.T) {
	t.Parallel()
	w := newWatermarkWorld(t, 0)
	for range 2 {
		w.renew(false)
	}
	if w.Horizon().IsZero() {
		t.Fatal("there is no horizon")
	}
	o := w.begin(func(tx store.Tx) ([]int64, error) { return nil, w.insert(tx) })
	written := w.now()
	for range 3 {
		w.renew(false)
	}
	if h := w.Horizon(); h.After(written) {
		t.Errorf("the horizon is %v after a write that may not be seen", h.Sub(written))
	}
	o.end <- nil
	<-o.done
	for range 3 {
		w.renew(false)
	}
	if h := w.Horizon(); !h.After(written) {
		t.Errorf("the horizon stays %v before a write that has ended", written.Sub(h))
	}
}

// A clock that is set back ends the watermarks.
func TestClockSetBackEndsWatermarks(t *testing.T) {
	t.Parallel()
	w := newWatermarkWorld(t, 0)
	for range 3 {
		w.renew(false)
	}
	w.AgeWatermarks(w.renewal, -time.Hour) // they are of an hour ahead
	w.update(func(tx store.Tx) error {
		_, err := tx.LockReady("relay", "q", 1)
		return err
	})
	if h := w.Horizon(); !h.IsZero() {
		t.Errorf("the horizon is %v", h)
	}
	if latest := w.LatestWatermark(watermarkQueue); latest > 0 {
		t.Errorf("a watermark is %d", latest)
	}
}

func TestSlotsAreAbandonedWhereCountingIsSlow(t *testing.T) {
	t.Parallel()
	var l postgres.AbandonedSlots
	now := time.Unix(1000, 0)
	slow := func(n int) {
		for range n {
			l.Note(7, 3, now, time.Second)
		}
	}
	slow(3)
	l.Note(7, 3, now, 0)
	slow(3)
	if got := l.Of(7, 3, now); got != 3 {
		t.Errorf("slot %d, want its own: counting was not slow four times in a row", got)
	}
	slow(1)
	want := sqlstore.NewSlot(3, now)
	if got := l.Of(7, 3, now); got != want {
		t.Errorf("slot %d, want %d", got, want)
	}
	if other, own := l.Of(8, 3, now), l.Of(7, 2, now); other != 3 || own != 2 {
		t.Errorf("slots %d and %d of another queue and of another transaction, want 3 and 2", other,
			own)
	}
	later := now.Add(time.Minute)
	for range 256 {
		l.Of(7, 3, later)
	}
	if got, want := l.Of(7, 3, later), sqlstore.NewSlot(3, later); got != want {
		t.Errorf("slot %d after many uses, want %d", got, want)
	}
}

// A queue with many counters, as there were many transactions at once, gets one instead, and its
// sum stays.
func TestManyCountersAreFolded(t *testing.T) {
	t.Parallel()
	w := newWatermarkWorld(t, 0)
	count := func(queue, slots int64) {
		w.exec(`INSERT INTO counts (queue_hash,slot,contract,queue,waiting,delayed,ready,leased)
			SELECT $1,s,'relay',$2,0,1,s,-1 FROM generate_series(1,$3::int) AS s`, queue,
			fmt.Sprint("q", queue), slots)
	}
	count(1, 8)
	count(2, 9)
	count(3, 24)
	w.update(func(tx store.Tx) error { _, err := tx.CompactCounts(10); return err })
	if got := w.ints("SELECT count(*) FROM counts GROUP BY queue_hash ORDER BY queue_hash"); !slices.
		Equal(got, []int64{8, 1, 1}) {
		t.Errorf("the queues have %v counters", got)
	}
	if got := w.ints("SELECT sum(ready) FROM counts GROUP BY queue_hash ORDER BY 1"); !slices.Equal(
		got, []int64{36, 45, 300}) {
		t.Errorf("the sums are %v", got)
	}
}

// Counters of slots that were left become one, and the sum stays.
func TestAbandonedCountersAreFolded(t *testing.T) {
	t.Parallel()
	w := newWatermarkWorld(t, 0)
	old := w.now().Add(-time.Hour)
	for i, slot := range []int64{1, sqlstore.NewSlot(1, old), sqlstore.NewSlot(2, old),
		sqlstore.NewSlot(3, old.Add(time.Second)), sqlstore.NewSlot(1, w.now())} {
		w.exec(`INSERT INTO counts (queue_hash,slot,contract,queue,waiting,delayed,ready,leased)
			VALUES ($1,$2,'relay','q',0,1,$3,-1)`, watermarkQueue, slot, 1<<i)
	}
	for range 2 {
		w.update(func(tx store.Tx) error { _, err := tx.CompactCounts(10); return err })
	}
	if got := w.ints("SELECT ready FROM counts ORDER BY slot"); !slices.Equal(got, []int64{1, 14,
		16}) {
		t.Errorf("counters are %v, want those of the left slots folded", got)
	}
	w.update(func(tx store.Tx) error {
		counts, err := tx.Counts(store.QueueSelector{JobType: "relay"})
		want := job.QueueCount{JobType: "relay", Queue: "q", Delayed: 5, Ready: 31, Leased: -5}
		if len(counts) != 1 || counts[0] != want {
			t.Errorf("counts are %+v, want %+v", counts, want)
		}
		return err
	})
}
