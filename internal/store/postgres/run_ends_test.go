package postgres_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/postgres"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
)

// leasedStore returns a store with n jobs that run, and a connection pool to its database.
func leasedStore(t *testing.T, n int) (s *postgres.Store, db *sql.DB, jobs []*job.Job) {
	t.Helper()
	return leasedStoreOn(t, pgtest.URL(t), n)
}

// leasedStoreOn is leasedStore on a database.
func leasedStoreOn(t *testing.T, url string, n int) (s *postgres.Store, db *sql.DB,
	jobs []*job.Job) {
	t.Helper()
	s = mustOpen(t, postgres.Config{URL: url, Conns: 4})
	for i := range n {
		jobs = append(jobs, &job.Job{ID: job.ID{JobType: "c", Key: fmt.Sprint(i)}, Queue: "q",
			State: "running", Phase: job.Leased, LeaseUntil: time.Now().Add(-time.Minute)})
	}
	update(t, s, func(tx store.Tx) error { return tx.Apply(store.Changes{Insert: jobs}) })
	for _, j := range jobs {
		var random [16]byte
		rand.Read(random[:])
		j.Run = job.NewRunID(j.Seq, random)
	}
	update(t, s, func(tx store.Tx) error {
		c := store.Changes{}
		for _, j := range jobs {
			c.Update = append(c.Update, store.JobUpdate{Job: j, Fields: store.StateFields})
		}
		return tx.Apply(c)
	})
	return s, pgtest.DB(t, url), jobs
}

func update(t *testing.T, s store.Store, fn func(store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// load returns the selected jobs.
func load(t *testing.T, s store.Store, sel store.Selector) (jobs []*job.Job) {
	t.Helper()
	update(t, s, func(tx store.Tx) (err error) {
		jobs, err = tx.Load(sel)
		return err
	})
	return jobs
}

func seqsOf(jobs []*job.Job) (seqs []int64) {
	for _, j := range jobs {
		seqs = append(seqs, j.Seq)
	}
	return seqs
}

// TX-006: every load that locks returns the recorded end of a run with its bodies, and so do
// LockExpired and NextDue; only an end of the current run counts.
func TestLocksReturnRecordedEnds(t *testing.T) {
	t.Parallel()
	s, db, jobs := leasedStore(t, 3)
	large := `"` + strings.Repeat("x", 100_000) + `"`
	mustExec(t, db, fmt.Sprintf("SELECT complete('%s', '%s')", jobs[0].Run, large))
	mustExec(t, db, fmt.Sprintf("SELECT fail('%s', 'no', false, 'kind')", jobs[1].Run))
	other := job.NewRunID(jobs[2].Seq, [16]byte{1})
	mustExec(t, db, fmt.Sprintf("INSERT INTO run_ends (seq,run_id,recorded_at,succeeded) "+
		"VALUES (%d,uuid_send('%s'),0,true)", jobs[2].Seq, other))
	wants := []job.RunEnd{{Run: jobs[0].Run, Succeeded: true, Result: []byte(large)},
		{Run: jobs[1].Run, Error: "no", ErrorType: "kind"}}
	check := func(what string, loaded []*job.Job) {
		t.Helper()
		if len(loaded) != len(jobs) || loaded[2].End != nil {
			t.Fatalf("%s: %d jobs, the last one with the end %+v", what, len(loaded), loaded[2].End)
		}
		for i, want := range wants {
			got := loaded[i].End
			if got == nil || fmt.Sprint(*got) != fmt.Sprint(want) {
				t.Errorf("%s: job %d has the end %+v, want %+v", what, i, got, want)
			}
		}
	}
	seqs := seqsOf(jobs)
	check("by number", load(t, s, store.Selector{Seqs: seqs, Lock: true}))
	check("by number with bodies", load(t, s, store.Selector{Seqs: seqs, Lock: true,
		Bodies: store.AllBodies}))
	check("by identity", load(t, s, store.Selector{Lock: true,
		IDs: []job.ID{jobs[0].ID, jobs[1].ID, jobs[2].ID}}))
	check("for leases", load(t, s, store.Selector{Seqs: seqs, Lock: true, LeaseOnly: true}))
	check("free ones", load(t, s, store.Selector{Seqs: seqs, Lock: true, SkipLocked: true}))
	page := store.Selector{RecordedEnds: 1}
	for i, want := range [][]int64{seqs[:1], seqs[1:2], seqs[2:], nil} {
		got := load(t, s, page)
		if !slices.Equal(seqsOf(got), want) {
			t.Fatalf("got the jobs %v, want %v", seqsOf(got), want)
		}
		for _, j := range got {
			page.After = j.Seq
			if i == 2 {
				if j.End.Run == jobs[i].Run || !j.Run.IsZero() {
					t.Errorf("the end of another run is listed as %+v", *j)
				}
				continue
			}
			bytes := int64(len(wants[i].Result))
			if j.Size != bytes || j.Run != jobs[i].Run || j.End.Run != j.Run {
				t.Errorf("job %d is listed as %+v", i, *j)
			}
		}
	}
	update(t, s, func(tx store.Tx) error {
		expired, err := tx.LockExpired(time.Time{}, 9)
		if got := seqsOf(expired); !slices.Equal(got, seqs[2:]) {
			t.Errorf("expired are %v", got)
		}
		return err
	})
	due := func(want bool) {
		t.Helper()
		update(t, s, func(tx store.Tx) error {
			next, err := tx.NextDue(tx.Now())
			if next.RecordedEnds != want {
				t.Errorf("ended: %v, want %v", next.RecordedEnds, want)
			}
			return err
		})
	}
	due(true)
	update(t, s, func(tx store.Tx) error {
		return tx.Apply(store.Changes{DeleteEnds: []job.RunID{jobs[0].Run, jobs[1].Run, other}})
	})
	due(false)
}

// TX-006: an end that is committed after a statement of LockExpired has begun, and before it locks
// the job, is found: a job that is locked without an end has none then, and gets none meanwhile.
func TestExpiredWhileEndIsRecorded(t *testing.T) {
	t.Parallel()
	s, db, jobs := leasedStore(t, 1)
	within := 0
	for range 200 {
		recorded := make(chan error, 1)
		go func() {
			_, err := db.Exec("SELECT complete($1)", jobs[0].Run.String())
			recorded <- err
		}()
		for done := false; !done; {
			select {
			case err := <-recorded:
				if err != nil {
					t.Fatal(err)
				}
				done = true
			default:
			}
			update(t, s, func(tx store.Tx) error {
				expired, err := tx.LockExpired(time.Time{}, 9)
				if err != nil || len(expired) == 0 {
					return err
				}
				if expired[0].End != nil {
					within++
					return nil
				}
				n := 0
				err = db.QueryRow("SELECT count(*) FROM run_ends").Scan(&n)
				if n > 0 {
					t.Error("the lease has expired although the end of its run is recorded")
				}
				return err
			})
		}
		mustExec(t, db, "DELETE FROM run_ends")
	}
	t.Logf("%d of 200 ends were committed within the statement", within)
}

// TX-006: what is no run of a job, and what is too large, is refused, and nothing is recorded.
func TestRefusedEnds(t *testing.T) {
	t.Parallel()
	s, db, jobs := leasedStore(t, 2)
	run := jobs[0].Run.String()
	forged := job.NewRunID(jobs[0].Seq, [16]byte{1}).String()
	finished := jobs[1].Run.String()
	jobs[1].Phase, jobs[1].Run = job.Done, job.RunID{}
	update(t, s, func(tx store.Tx) error {
		return tx.Apply(store.Changes{Update: []store.JobUpdate{{Job: jobs[1],
			Fields: store.StateFields}}})
	})
	for _, tt := range []struct {
		state, prefix, statement string
		args                     []any
	}{
		{"MR001", "MILLRACE_RUN_LOST: ", "SELECT complete($1)", []any{forged}},
		{"MR001", "MILLRACE_RUN_LOST: ", "SELECT complete($1)", []any{finished}},
		{"MR001", "MILLRACE_RUN_LOST: ", "SELECT fail($1,'no',true)", []any{finished}},
		{"MR001", "MILLRACE_RUN_LOST: ", "SELECT complete($1)",
			[]any{"ffffffff-ffff-ffff-ffff-ffffffffffff"}},
		{"MR001", "MILLRACE_RUN_LOST: ", "SELECT complete($1)",
			[]any{"00000000-0000-0000-0000-000000000000"}},
		{"MR002", "MILLRACE_INVALID: ", "SELECT complete($1)", []any{nil}},
		{"MR002", "MILLRACE_INVALID: ", "SELECT fail($1,'no',true)", []any{nil}},
		{"MR002", "MILLRACE_INVALID: ", "SELECT fail($1,NULL,true)", []any{run}},
		{"MR002", "MILLRACE_INVALID: ", "SELECT fail($1,'no',NULL)", []any{run}},
		{"MR002", "MILLRACE_INVALID: ", "SELECT fail($1,'no',true,$2)",
			[]any{run, strings.Repeat("x", 256)}},
		{"MR002", "MILLRACE_INVALID: ", "SELECT complete($1,$2)",
			[]any{run, `"` + strings.Repeat("x", 4<<20) + `"`}},
		{"22P02", "", "SELECT complete($1,$2)", []any{run, "{"}},
		{"22P02", "", "SELECT complete($1::text::uuid)", []any{"'); DROP TABLE jobs; --"}},
		{"22P02", "", "SELECT complete($1,$2)", []any{run, "'); DROP TABLE jobs; --"}},
	} {
		_, err := db.Exec(tt.statement, tt.args...)
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || pg.Code != tt.state || !strings.HasPrefix(pg.Message, tt.prefix) {
			t.Errorf("%.100s %.100v: got %.300v, want SQLSTATE %s", tt.statement, tt.args, err,
				tt.state)
		}
	}
	var ends int
	if err := db.QueryRow("SELECT count(*) FROM run_ends").Scan(&ends); err != nil || ends > 0 {
		t.Errorf("%d ends are recorded: %v", ends, err)
	}
	// A failure is what its worker says, however it is written.
	hostile := "it's \"broken\"\\ %s %1$I $body$ $$ '); DROP TABLE jobs; --"
	mustExecArgs(t, db, "SELECT fail($1,$2,true,$3)", run, hostile+strings.Repeat("x", 20_000),
		hostile)
	end := load(t, s, store.Selector{Seqs: []int64{jobs[0].Seq}, Lock: true})[0].End
	if len(end.Error) != 16<<10 || !strings.HasPrefix(end.Error, hostile) ||
		end.ErrorType != hostile {
		t.Errorf("recorded is %.200q of the type %q", end.Error, end.ErrorType)
	}
}

// TX-006: the look of the sweep for recorded ends takes a small part of the time, however many rows
// it has to pass over.
func TestChecksForEnds(t *testing.T) {
	t.Parallel()
	var looks postgres.EndChecks
	now := time.Now()
	if !looks.IsDue(now) {
		t.Error("the first look is not due")
	}
	looks.Note(now, time.Millisecond)
	if looks.IsDue(now.Add(19*time.Millisecond)) || !looks.IsDue(now.Add(20*time.Millisecond)) {
		t.Error("a look of a millisecond is not followed by the next one after 20")
	}
}
