package storetest

import (
	"database/sql"
	"encoding/json"
	"io/fs"
	"math"
	"testing"
	"testing/fstest"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/store/sqlstore"
)

// OldSchema is an empty database that a test fills as an older version has left it. The suite asks
// each database for one, since only the package of a database can open it beneath the store.
type OldSchema struct {
	Schema sqlstore.Schema
	DB     *sql.DB
	// Open opens the store on the database, which brings the schema to the newest version.
	Open func() store.Store
}

// Migrate brings the schema to an older version, by the first files alone.
func (o *OldSchema) Migrate(tb testing.TB, version int) {
	tb.Helper()
	first := fstest.MapFS{}
	names, err := fs.Glob(o.Schema.Files, "*.sql")
	if err != nil || len(names) <= version {
		tb.Fatalf("%d migrations, %v", len(names), err)
	}
	for _, name := range names[:version] {
		text, err := fs.ReadFile(o.Schema.Files, name)
		if err != nil {
			tb.Fatal(err)
		}
		first[name] = &fstest.MapFile{Data: text}
	}
	old := o.Schema
	old.Files = first
	if err := old.Migrate(tb.Context(), o.DB); err != nil {
		tb.Fatal(err)
	}
}

// oldJob is a searchable job of priority 5 as version 2 of the schema has it, and what it becomes.
type oldJob struct {
	jobType, kind string
	maxAttempts   int

	wantKind  string
	wantRetry job.RetryPolicy
}

// insertOldJob names each column of version 2 that must have a value. It is written out, because
// sqlstore has the columns of the newest version.
const insertOldJob = `INSERT INTO jobs (seq,ident,contract,kind,run_limit,scope,key,state,phase,
	order_time,due_at,lease_until,worker,runs,failures,open_deps,held,failed_deps,updated_at,
	started_at,settled_at,queue,lane,owner,priority,lease,parent,trace,created_at,listed,children,
	size,apart) VALUES ($1,$2,$3,$4,$5,'','','',0,0,0,0,'',0,0,0,0,0,0,0,0,'',0,'',5,0,0,'',0,
	-1,0,0,0)`

// insert stores j under a number of its own, which also makes its identity.
func (o *OldSchema) insert(tb testing.TB, seq int, j oldJob) {
	tb.Helper()
	if _, err := o.DB.ExecContext(tb.Context(), insertOldJob, seq, []byte{byte(seq)}, j.jobType,
		j.kind, j.maxAttempts); err != nil {
		tb.Fatal(err)
	}
}

// RunMigrations tests what the migrations make of jobs that are stored: it fills version 2 of the
// schema, opens the store, which migrates it, and reads the jobs back by a search. Retry policies
// were words in the kind of a job, or settings, and became columns; the table below has each form
// of them, also those that no version has written. Of some job types the priority that had no
// meaning became none.
func RunMigrations(t *testing.T, o OldSchema) {
	const second = time.Second
	standard := job.RetryPolicy{Strategy: job.Exponential, Base: 10 * second, Max: 300 * second}
	jobs := []oldJob{
		// Policies as version 2 wrote them, in seconds.
		{"taskflow", "EXPONENTIAL 10 300", 3, "", standard},
		{"taskflow", "LINEAR 7 3600", 10, "", job.RetryPolicy{Strategy: job.Linear,
			Base: 7 * second, Max: 3600 * second}},
		{"taskflow", "FIXED 60 60", 1, "", job.RetryPolicy{Strategy: job.Fixed, Base: 60 * second,
			Max: 60 * second}},
		// Any other kind of TaskFlow stood for the standard policy.
		{"taskflow", "", 3, "", standard},
		{"taskflow", "EXPONENTIAL 10", 3, "", standard},
		{"taskflow", "FIXED a b", 3, "", standard},
		{"taskflow", "exponential 5 6", 3, "", standard},
		// Delays that came from settings: jobs that are stored get the defaults of these.
		{"fetchbox.task", "", 3, "", job.RetryPolicy{Strategy: job.Exponential, Base: second,
			Max: 300 * second}},
		{"fetchbox.task", "", 8, "", job.RetryPolicy{Strategy: job.Exponential, Base: second,
			Max: 300 * second, FailedBefore: 5}}, // replayed after five failed attempts
		{"fetchbox", "", 0, "", job.RetryPolicy{}},
		{"images", "process_file", 3, "process_file", job.RetryPolicy{Strategy: job.Exponential,
			Base: 5 * second, Max: 300 * second}},
		{"images.purge", "", 12, "", job.RetryPolicy{Strategy: job.Exponential, Base: second,
			Max: 600 * second}},
		// Contracts without a policy keep the kind, whatever it looks like.
		{"forgerun", "FIXED 1 2", 3, "FIXED 1 2", job.RetryPolicy{}},
		{"relay", "", 3, "", job.RetryPolicy{}},
	}
	o.Migrate(t, 2)
	for i, j := range jobs {
		o.insert(t, i+1, j)
	}
	old := deadLetterOf("old", 7, `{"error":"x"}`, start)
	doc, err := json.Marshal(old.Job)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.DB.Exec("INSERT INTO dead_letters (contract,cause,buried_at,job) "+
		"VALUES ($1,$2,$3,$4)", "relay", string(old.Cause), start.UnixMicro(), doc); err != nil {
		t.Fatal(err)
	}
	s := o.Open()
	markOldDeadLetter(t, s, old)
	for i, want := range jobs {
		got := findBySearch(t, s, want.jobType, int64(i+1))
		if got.Retry != want.wantRetry || got.Kind != want.wantKind {
			t.Errorf("%s %q became %q with %+v, want %q with %+v", want.jobType, want.kind,
				got.Kind, got.Retry, want.wantKind, want.wantRetry)
		}
		// A later migration took the priority of job types that have none.
		priority := 5
		if want.jobType == "fetchbox" || want.jobType == "images" {
			priority = job.NoPriority
		}
		if got.Priority != priority {
			t.Errorf("%s has priority %d, want %d", want.jobType, got.Priority, priority)
		}
	}
}

// markOldDeadLetter tests that a dead letter of an older schema is read like others, is found as
// one to be marked, and is found by its fingerprint, by its job and in a group, once it is.
func markOldDeadLetter(t *testing.T, s store.Store, want job.DeadLetter) {
	t.Helper()
	read := func(selector store.DeadLetterSelector) (all []job.DeadLetter) {
		t.Helper()
		if err := s.View(t.Context(), func(r store.Reader) (err error) {
			all, err = r.DeadLetters(selector)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	unmarked := store.DeadLetterSelector{JobType: "relay", WithoutFingerprint: true, Limit: 9}
	found := read(unmarked)
	if len(found) != 1 || found[0].Job.ID != want.Job.ID || !found[0].IsOpen() {
		t.Fatalf("the dead letters to be marked are %+v", found)
	}
	if err := s.Update(t.Context(), func(tx store.Tx) error {
		return tx.Apply(store.Changes{UpdateDeadLetters: found})
	}); err != nil {
		t.Fatal(err)
	}
	alike := store.DeadLetterSelector{Fingerprint: want.Fingerprint(), Limit: 9}
	ofJob := store.DeadLetterSelector{Jobs: []int64{want.Job.Seq}}
	if len(read(unmarked)) != 0 || len(read(alike)) != 1 || len(read(ofJob)) != 1 {
		t.Errorf("a marked dead letter is found as %+v, %+v and %+v", read(unmarked), read(alike),
			read(ofJob))
	}
	if err := s.View(t.Context(), func(r store.Reader) error {
		groups, err := r.DeadLetterGroups("relay", 0, math.MaxInt64, 9)
		if len(groups) != 1 || groups[0].Count != 1 {
			t.Errorf("a marked dead letter is in the groups %+v", groups)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// findBySearch returns a job that a search of its job type finds, and ends the test if it finds
// none: the indexes of searches must hold the job under its new priority.
func findBySearch(t *testing.T, s store.Store, jobType string, seq int64) *job.Job {
	t.Helper()
	var found []*job.Job
	err := s.View(t.Context(), func(r store.Reader) (err error) {
		found, err = r.Search(store.Search{JobType: jobType, Limit: 100})
		return err
	})
	for _, j := range found {
		if j.Seq == seq {
			return j
		}
	}
	t.Fatalf("a search of %s does not find job %d: %v", jobType, seq, err)
	return nil
}
