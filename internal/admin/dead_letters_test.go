package admin_test

import (
	"fmt"
	"html"
	"regexp"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// deadLetterView is a dead letter as it is answered.
type deadLetterView struct {
	ID                           int64
	Fingerprint, Contract, Queue string
	Number                       int64
	JobID                        string `json:"job_id"`
	Worker                       string
	ReplayedAt                   *time.Time `json:"replayed_at"`
	ReplayedAs                   *int64     `json:"replayed_as"`
}

type deadLetters struct {
	Items      []deadLetterView
	NextCursor *string `json:"next_cursor"`
}

// deadLetters returns a page of dead letters, of which there are n.
func (w *jobsWorld) deadLetters(t *testing.T, query string, n int) deadLetters {
	t.Helper()
	page := get[deadLetters](t, w.world, "/admin/v1/dead-letters"+query)
	if len(page.Items) != n {
		t.Fatalf("AD-050 %q lists %+v, want %d", query, page.Items, n)
	}
	return page
}

// replay replays a dead letter with a body.
func (w *jobsWorld) replay(t *testing.T, id int64, body string) testkit.Reply {
	t.Helper()
	return w.do(t, w.api.Token(), "POST", fmt.Sprintf("/admin/v1/dead-letters/%d/replay", id), body,
		"Content-Type", "application/json")
}

// giveUp lets the job that Relay gives next run out of retries, after heartbeats with progress.
func (w *jobsWorld) giveUp(t *testing.T, progress ...string) {
	t.Helper()
	run := w.claim(t, "relay")
	for _, body := range progress {
		if _, err := w.engine.Heartbeat(t.Context(), run, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Advance(2 * time.Minute)
	testkit.RunMaintenance(t, w.engine)
	// A claim of a bulk operation may be expiring the same run, and maintenance passes that over.
	testkit.WaitUntil(t, "the run to expire", func() bool {
		j, err := w.engine.Get(t.Context(), run.ID)
		return err != nil || j.Phase != job.Leased
	})
}

// lose submits a job of Relay that becomes a dead letter.
func (w *jobsWorld) lose(t *testing.T, queue, id string, progress ...string) {
	t.Helper()
	w.submitJob(t, "relay", fmt.Sprintf(`{"queue":%q,"id":%q,"timeout":60,"max_retries":0,
		"payload":1}`, queue, id), "")
	w.giveUp(t, progress...)
}

// AD-050: the filters combine, pages follow each other, and a name that is wrong is refused.
func TestDeadLetters(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.deadLetters(t, "", 0)
		w.lose(t, "a", "1")
		w.clock.Advance(2 * time.Second)
		between := w.clock.Now().UTC().Truncate(time.Second).Format(time.RFC3339)
		w.lose(t, "a", "2")
		w.lose(t, "b", "3")
		all := w.deadLetters(t, "", 3).Items
		if all[0].Fingerprint != all[1].Fingerprint || all[0].Fingerprint == all[2].Fingerprint {
			t.Errorf("AD-050 fingerprints of two queues: %+v", all)
		}
		if all[0].Worker != "w" || all[0].JobID != "1" || all[0].Contract != "relay" || all[0].ReplayedAt != nil {
			t.Errorf("AD-050 got %+v", all[0])
		}
		w.deadLetters(t, "?contract=relay&queue=a&fingerprint="+all[0].Fingerprint, 2)
		w.deadLetters(t, "?queue=b&fingerprint="+all[0].Fingerprint, 0)
		w.deadLetters(t, "?contract=taskflow", 0)
		before, after := w.deadLetters(t, "?to="+between, 1), w.deadLetters(t, "?from="+between, 2)
		if before.Items[0].JobID != "1" || after.Items[0].JobID != "2" {
			t.Errorf("AD-050 before %+v, after %+v", before, after)
		}
		page := w.deadLetters(t, "?limit=2", 2)
		if page.NextCursor == nil {
			t.Fatal("AD-050 there is no cursor")
		}
		last := w.deadLetters(t, "?limit=2&cursor="+*page.NextCursor, 1)
		if last.NextCursor != nil || last.Items[0].JobID != "3" {
			t.Errorf("AD-050 the last page is %+v", last)
		}
		for _, query := range []string{"?contract=no", "?queue=", "?from=x", "?que=a",
			"?cursor=x"} {
			w.do(t, w.api.Token(), "GET", "/admin/v1/dead-letters"+query, "").
				WantError(t, 400, "VALIDATION_ERROR")
		}
	})
}

// AD-051, G-AD-14, AD-006: a replay makes the job once, a second one is asked for, a job that fails
// again is a new dead letter, and each is an entry of the audit.
func TestReplayDeadLetter(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.lose(t, "a", "1")
		l := w.deadLetters(t, "", 1).Items[0]
		for _, body := range []string{`{"again":1}`, `{"once":true}`, `[]`} {
			w.replay(t, l.ID, body).WantError(t, 400, "VALIDATION_ERROR")
		}
		w.replay(t, l.ID+1, "").WantError(t, 404, "NOT_FOUND")
		type made struct {
			Number   int64
			State    string
			MadeFrom *int64 `json:"made_from"`
		}
		first := testkit.DecodeReply[made](t, w.replay(t, l.ID, "").WantStatus(t, 200))
		if first.State != "queued" || first.MadeFrom == nil || *first.MadeFrom != l.Number {
			t.Errorf("AD-051 a replay answered %+v", first)
		}
		l = w.deadLetters(t, "", 1).Items[0]
		if l.ReplayedAt == nil || l.ReplayedAs == nil || *l.ReplayedAs != first.Number {
			t.Errorf("AD-051 the replayed dead letter is %+v", l)
		}
		w.giveUp(t)
		w.deadLetters(t, "", 2)
		w.replay(t, l.ID, `{"again":false}`).WantError(t, 409, "CONFLICT", "again")
		second := testkit.DecodeReply[made](t,
			w.replay(t, l.ID, `{"again":true}`).WantStatus(t, 200))
		if l = w.deadLetters(t, "", 2).Items[0]; *l.ReplayedAs != second.Number {
			t.Errorf("AD-051 the dead letter was replayed as %d, want %d", *l.ReplayedAs, second.Number)
		}
		w.replay(t, l.ID, `{"again":true}`).WantError(t, 409, "CONFLICT") // the job is there
		if got := w.audit(t, "?action=dead_letter.replay").Items; len(got) != 2 ||
			got[0].Target != fmt.Sprintf("dead_letter:%d", l.ID) {
			t.Errorf("AD-006 the audit has %+v", got)
		}
	})
}

// AD-051: one that is discarded is gone, once, for the operator alone.
func TestDiscardDeadLetter(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.lose(t, "a", "1")
		path := fmt.Sprintf("/admin/v1/dead-letters/%d", w.deadLetters(t, "", 1).Items[0].ID)
		w.do(t, readToken, "DELETE", path, "").WantError(t, 403, "READ_ONLY")
		w.deadLetters(t, "", 1)
		w.do(t, w.api.Token(), "DELETE", path, "").WantStatus(t, 204)
		w.deadLetters(t, "", 0)
		w.do(t, w.api.Token(), "DELETE", path, "").WantError(t, 404, "NOT_FOUND")
		w.do(t, w.api.Token(), "POST", path+"/replay", "").WantError(t, 404, "NOT_FOUND")
		if got := w.audit(t, "?action=dead_letter.discard").Items; len(got) != 2 {
			t.Errorf("AD-006 the audit has %+v", got) // the refused one and the one that is done
		}
	})
}

var replayLink = regexp.MustCompile(`href="(/console/bulk/new[^"]*)"`)

// The page of dead letters leads to a replay of all that match, also where that is all there are.
func TestReplayOfAllThatMatch(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.lose(t, "a", "1")
		for _, query := range []string{"", "?queue=a", "?limit=1",
			"?contract=relay&limit=1"} {
			page := w.do(t, w.api.Token(), "GET", "/console/dead-letters/list"+query, "").
				WantStatus(t, 200)
			link := replayLink.FindStringSubmatch(page.Body)
			if link == nil {
				t.Fatalf("%q has no link to a replay: %s", query, page.Body)
			}
			w.do(t, w.api.Token(), "GET", html.UnescapeString(link[1]), "").
				WantStatus(t, 200)
		}
	})
}
