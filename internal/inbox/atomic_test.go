package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
)

// The changes of one call are made all or not at all: where the last of them fails, those before it
// leave nothing behind.
func TestChangesAreAtomic(t *testing.T) {
	t.Parallel()
	ctx, w := context.Background(), newWorld(t)
	toRefuse := w.request(w.submit(w.db, "taskflow", `{"name":"to refuse"}`))
	toRetry := w.request(w.submit(w.db, "taskflow", `{"name":"to retry"}`))
	toDelete := w.request(w.submit(w.db, "taskflow", `{"name":"to delete"}`))
	toDelay := w.request(w.submit(w.db, "taskflow", `{"name":"to delay"}`))
	refuse := func(r *job.InboxRequest) job.InboxRequest {
		return job.InboxRequest{Number: r.Number, Transaction: r.Transaction,
			State: job.InboxRefused, Error: "it is wrong"}
	}
	w.must(w.engine.ChangeInbox(ctx, job.InboxChanges{Update: []job.InboxRequest{refuse(toRetry)}}))
	changes := job.InboxChanges{
		Update: []job.InboxRequest{refuse(toRefuse)},
		Delay: []job.InboxTransaction{{Number: toDelay.Transaction, FailedAttempts: 3,
			Delay: time.Hour}},
		Retry:  []int64{toRetry.Number},
		Delete: []int64{toDelete.Number},
	}

	before := w.inboxRows()
	w.exec(`CREATE FUNCTION keep_rows() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN RAISE EXCEPTION 'rows are kept'; END $$`)
	w.exec("CREATE TRIGGER keep_rows BEFORE DELETE ON inbox FOR EACH ROW EXECUTE FUNCTION keep_rows()")
	if err := w.engine.ChangeInbox(ctx, changes); err == nil {
		t.Fatal("a change that the database refuses is no error")
	}
	if after := w.inboxRows(); after != before {
		t.Errorf("a call that failed has changed the inbox from\n%s\nto\n%s", before, after)
	}

	w.exec("DROP TRIGGER keep_rows ON inbox")
	w.must(w.engine.ChangeInbox(ctx, changes))
	for _, want := range []struct {
		of    *job.InboxRequest
		state job.InboxState
	}{{toRefuse, job.InboxRefused}, {toRetry, job.InboxWaiting}, {toDelete, ""},
		{toDelay, job.InboxWaiting}} {
		if got := w.see(want.of.ID); got.state != string(want.state) {
			t.Errorf("%s is in the state %q, want %q", want.of.Body, got.state, want.state)
		}
	}
	if after := w.inboxRows(); after == before {
		t.Error("a call that succeeded has changed nothing")
	}
}

// exec executes a statement as the owner of the database.
func (w *world) exec(statement string) {
	w.Helper()
	_, err := w.db.Exec(statement)
	w.must(err)
}

// inboxRows returns all that is stored of the inbox.
func (w *world) inboxRows() (rows string) {
	w.Helper()
	w.must(w.db.QueryRow(`SELECT concat_ws(E'\n',
		(SELECT string_agg(i::text, E'\n' ORDER BY number) FROM inbox AS i),
		(SELECT string_agg(t::text, E'\n' ORDER BY number) FROM inbox_transactions AS t))`).
		Scan(&rows))
	return rows
}
