package taskflow_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// endedWorld is a TaskFlow on PostgreSQL whose workers record the ends of their runs by SQL. Nobody
// carries these out but requests, and the test.
type endedWorld struct {
	*world
	db *sql.DB
}

// The ends that a worker may record.
const (
	completes = `complete($1,'{"n": 1.0}')`
	fails     = `fail($1,'it broke',false,'broken')`
	failsOnce = `fail($1,'not now',true,'busy')`
)

// record claims a job and records the end of its run.
func (w *endedWorld) record(t testing.TB, id, end string) {
	t.Helper()
	j := w.claimAndStart(t, id)
	if _, err := w.db.Exec("SELECT "+end, j.Run.String()); err != nil {
		t.Fatal(err)
	}
}

// pair makes a job that may be tried three times and one that depends on it, and records the end of
// its run.
func (w *endedWorld) pair(t testing.TB, end string) (id, dependent string) {
	t.Helper()
	id = w.create(t, attempts(3, "FIXED", 7, 8)).ID
	dependent = w.create(t, dependenciesMember(id)).ID
	w.record(t, id, end)
	return id, dependent
}

// bodies returns a pair as clients see it, without its ids.
func (w *endedWorld) bodies(t testing.TB, id, dependent string) string {
	t.Helper()
	text := w.Do(t, "GET", pathOf(id), "").WantStatus(t, 200).Body + "\n" +
		w.Do(t, "GET", pathOf(dependent), "").WantStatus(t, 200).Body
	return strings.NewReplacer(id, "ID", dependent, "DEPENDENT").Replace(text)
}

// TestAfterRecordedEnd (TX-006): what clients do about a job whose worker has committed the end of
// its run comes after that end, although no node has carried it out yet. What the job does not
// allow then is a conflict, and the job and its dependent are as if nothing had been asked.
func TestAfterRecordedEnd(t *testing.T) {
	t.Parallel()
	p := testkit.OnPostgres(t)
	w := &endedWorld{newWorldAt(t, p, config()), pgtest.DB(t, p.URL)}
	other := w.create(t).ID
	w.succeed(t, other)
	for _, tt := range []struct {
		name, method, path, body string
		allowed                  string // the end after which it is allowed
	}{
		{"update", "PUT", "", `{"name":"changed","queue":"other"}`, failsOnce},
		{"dependencies", "PUT", "", "{" + dependenciesMember(other) + "}", failsOnce},
		{"cancel", "POST", "/cancel", "", ""},
		{"rerun", "POST", "/rerun", "", ""},
		{"rerun of the graph", "POST", "/graph/rerun", "", ""},
		{"delete", "DELETE", "", "", ""},
	} {
		for _, end := range []string{completes, fails, failsOnce} {
			t.Run("TX-006 "+tt.name+" after "+end, func(t *testing.T) {
				id, dependent := w.pair(t, end)
				twin, itsDependent := w.pair(t, end)
				answer := w.Do(t, tt.method, pathOf(id)+tt.path, tt.body)
				if _, err := w.engine.CarryOutEnds(t.Context()); err != nil {
					t.Fatal(err)
				}
				got, want := w.bodies(t, id, dependent), w.bodies(t, twin, itsDependent)
				if end == tt.allowed {
					answer.WantStatus(t, 200)
					assertEqual(t, "the end that was recorded is there", w.get(t, id).AttemptCount, 1)
					return
				}
				answer.WantError(t, 409, "CONFLICT")
				assertEqual(t, "the jobs", got, want)
			})
		}
	}
	t.Run("TX-006 a cascade finds that nothing of it runs", func(t *testing.T) {
		id, dependent := w.pair(t, completes)
		n := w.jobs(t)
		if _, err := w.engine.CarryOutEnds(t.Context()); err != nil {
			t.Fatal(err)
		}
		last := w.create(t, dependenciesMember(dependent)).ID
		w.record(t, dependent, fails)
		w.Do(t, "DELETE", pathOf(id)+"?cascade=true", "").WantStatus(t, 204)
		assertEqual(t, "jobs", w.jobs(t), n-2)
		w.Do(t, "GET", pathOf(last), "").WantError(t, 404, "NOT_FOUND")
	})
	var left int
	if err := w.db.QueryRow("SELECT count(*) FROM run_ends").Scan(&left); err != nil || left != 0 {
		t.Errorf("TX-006 %d recorded ends are left: %v", left, err)
	}
}
