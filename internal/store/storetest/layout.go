package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// oldColumns are the columns of the table jobs in version 4 of the schema, where a job was one row.
// They are written out, because sqlstore has the columns of the newest version.
const oldColumns = `seq,ident,contract,scope,key,state,phase,order_time,due_at,run_id,lease_until,
	worker,runs,failures,lost_runs,open_deps,held,failed_deps,updated_at,started_at,settled_at,
	alias,kind,queue,lane,owner,priority,lease,run_limit,retry_strategy,retry_base,retry_max,
	retry_after,parent,trace,created_at,listed,children,size,apart,definition,payload,progress,
	result,failure`

// oldRow returns the values of oldColumns for a job.
func oldRow(j *job.Job) []any {
	flag := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	hash := func(h [16]byte) any {
		if h == ([16]byte{}) {
			return nil
		}
		return h[:]
	}
	body := func(p job.Body) any {
		if j.OutOfLine&(1<<p) != 0 || *j.Body(p) == nil {
			return nil
		}
		return *j.Body(p)
	}
	ident, at := j.ID.IdentityHash(), sqlstore.Micros
	return []any{j.Seq, ident[:], j.ID.JobType, j.ID.Scope, j.ID.Key, string(j.State),
		int64(j.Phase), at(j.OrderTime), at(j.DueAt), hash(j.Run), at(j.LeaseUntil), j.Worker,
		j.Attempts, j.FailedAttempts, j.LostAttempts, j.OpenDeps, flag(j.OpenDeps != 0),
		j.FailedDeps, at(j.UpdatedAt), at(j.StartedAt), at(j.FinishedAt), hash(j.Alias), j.Kind,
		j.Queue, int64(j.QueueHash()), j.Owner, j.Priority, j.Lease.Microseconds(), j.MaxAttempts,
		int64(j.Retry.Strategy), j.Retry.Base.Microseconds(), j.Retry.Max.Microseconds(),
		j.Retry.FailedBefore, j.Parent, j.Trace, at(j.CreatedAt),
		flag(j.Searchable) * -at(j.CreatedAt), j.Children, j.Size, int64(j.OutOfLine),
		body(job.Definition), body(job.Payload), body(job.Progress), body(job.Result),
		body(job.Failure)}
}

// RunLayout tests that the migration from one row for each job to a table for each phase keeps
// every field of jobs in every phase, with values and without, and that they are found afterwards
// by everything that selects by phase, identity, owner, parent or search, as are the terms of
// leaders.
func RunLayout(t *testing.T, o OldSchema) {
	o.Migrate(t, 4)
	var jobs []*job.Job
	for phase := range job.Done + 1 {
		filled, bare := FilledJob(0), &job.Job{}
		for i, j := range []*job.Job{filled, bare} {
			j.Seq, j.Phase, j.OutOfLine = int64(2*phase)+int64(i)+1, phase, 0
			j.ID = job.ID{JobType: "c", Key: string(rune('a' + j.Seq))}
			j.Parent, j.Callback = 0, "" // the older schema has no callbacks
			jobs = append(jobs, j)
		}
		filled.Alias = job.AliasOf("c", "", filled.ID.Key)
		filled.Priority = store.MinPriority
		filled.OutOfLine = 1<<job.Payload | 1<<job.Result // in the table bodies
		if phase == job.Waiting {
			filled.OpenDeps = 0
		}
	}
	jobs[3].Parent = jobs[0].Seq
	o.store(t, jobs)
	o.storeTerm(t)
	s := o.Open()
	keepsTerm(t, s)
	var all, owned, children, found []*job.Job
	var due store.Due
	view(t, s, func(r store.Reader) (err error) {
		for _, read := range []struct {
			to *[]*job.Job
			of func() ([]*job.Job, error)
		}{
			{&all, func() ([]*job.Job, error) { return Listed(r, store.Filter{}) }},
			{&owned, func() ([]*job.Job, error) {
				return Listed(r, store.Filter{JobType: "c", Owner: jobs[0].Owner, NewestFirst: true})
			}},
			{&children, func() ([]*job.Job, error) {
				return Listed(r, store.Filter{Parent: jobs[0].Seq})
			}},
			{&found, func() ([]*job.Job, error) {
				return r.Search(store.Search{JobType: "c", State: jobs[0].State, Limit: 10,
					PriorityMin: 1})
			}},
		} {
			if *read.to, err = read.of(); err != nil {
				return err
			}
		}
		due, err = r.NextDue(start.Add(24 * time.Hour))
		return err
	})
	for i, j := range all {
		if names := DifferentFields(j, jobs[i]); len(names) > 0 {
			t.Errorf("job %d has other %s", j.Seq, strings.Join(names, ", "))
		}
	}
	equal(t, "all", keys(all), keys(jobs))
	equal(t, "of an owner", keys(owned), keys([]*job.Job{jobs[6], jobs[4], jobs[2], jobs[0]}))
	equal(t, "children", keys(children), keys(jobs[3:4]))
	if len(found) != 4 {
		t.Errorf("a search finds %v", keys(found))
	}
	if due.Waiting.IsZero() || due.Waiting != due.Lease { // those without a time are next: now
		t.Errorf("next are %v and %v", due.Waiting, due.Lease)
	}
	var counts []job.QueueCount
	view(t, s, func(r store.Reader) (err error) {
		counts, err = r.Counts(store.QueueSelector{WithDone: true})
		return err
	})
	slices.SortFunc(counts, func(a, b job.QueueCount) int {
		return strings.Compare(a.Queue, b.Queue)
	})
	equal(t, "counts of those that are done", counts, []job.QueueCount{
		{JobType: "c", Done: 1}, {JobType: "c", Queue: jobs[6].Queue, Done: 1}})
	o.claim(t, s, jobs)
}

// store stores jobs with version 4 of the schema.
func (o *OldSchema) store(t *testing.T, jobs []*job.Job) {
	t.Helper()
	insert := "INSERT INTO jobs (" + oldColumns + ") VALUES (" + marks(len(oldRow(jobs[0]))) + ")"
	for _, j := range jobs {
		if _, err := o.DB.ExecContext(t.Context(), insert, oldRow(j)...); err != nil {
			t.Fatal(err)
		}
		for p := range job.Bodies {
			if j.OutOfLine&(1<<p) == 0 {
				continue
			}
			if _, err := o.DB.ExecContext(t.Context(),
				"INSERT INTO bodies (seq,part,data) VALUES ($1,$2,$3)", j.Seq, int64(p),
				*j.Body(p)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// storeTerm stores the term of a leader with version 4 of the schema.
func (o *OldSchema) storeTerm(t *testing.T) {
	t.Helper()
	if _, err := o.DB.ExecContext(t.Context(),
		"INSERT INTO duties (name,until,holder) VALUES ('role',$1,'a')",
		sqlstore.Micros(start.AddDate(1000, 0, 0))); err != nil {
		t.Fatal(err)
	}
}

// keepsTerm proves that the term of storeTerm is kept.
func keepsTerm(t *testing.T, s store.Store) {
	t.Helper()
	for node, want := range map[string]bool{"a": true, "b": false} {
		if err := s.Update(t.Context(), func(tx store.Tx) error {
			is, err := tx.Elect("role", node, start.AddDate(2000, 0, 0))
			equal(t, "the leader is "+node, is, want)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// claim proves that jobs are found by their phases, and that they move and go.
func (o *OldSchema) claim(t *testing.T, s store.Store, jobs []*job.Job) {
	t.Helper()
	update := func(what string, want []*job.Job, fn func(store.Tx) ([]*job.Job, error)) {
		t.Helper()
		if err := s.Update(t.Context(), func(tx store.Tx) error {
			got, err := fn(tx)
			slices.SortFunc(got, func(a, b *job.Job) int { return int(a.Seq - b.Seq) })
			equal(t, what, keys(got), keys(want))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	update("due", jobs[0:2], func(tx store.Tx) ([]*job.Job, error) { return tx.LockDue(9, nil) })
	update("expired", jobs[4:6], func(tx store.Tx) ([]*job.Job, error) {
		return tx.LockExpired(time.Time{}, 9)
	})
	for _, ready := range jobs[2:4] {
		update("ready", []*job.Job{ready}, func(tx store.Tx) ([]*job.Job, error) {
			got, err := tx.LockReady("c", ready.Queue, 9)
			if err != nil || len(got) != 1 {
				return got, err
			}
			got[0].Phase, got[0].FinishedAt = job.Done, start
			return got, tx.Apply(updates(store.StateFields, got...))
		})
	}
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		pruned, err := tx.PruneFinished("c", tx.Now().AddDate(9000, 0, 0), 0, 9)
		equal(t, "pruned", pruned, store.Pruned{Jobs: 4, Removed: pruned.Removed})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	view(t, s, func(r store.Reader) error {
		left, err := Listed(r, store.Filter{})
		equal(t, "left", keys(left), keys(slices.Concat(jobs[:2], jobs[4:6])))
		return err
	})
}

// marks returns n parameters: $1,$2 ….
func marks(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("$", i+1)
	}
	return strings.Join(all, ",")
}

// view runs fn in a view, which must succeed.
func view(t *testing.T, s store.Store, fn func(store.Reader) error) {
	t.Helper()
	if err := s.View(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}
