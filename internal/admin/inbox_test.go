package admin_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

const noRequest = "/admin/v1/inbox/00000000-0000-4000-8000-000000000000"

// TX-003: on SQLite the inbox is empty, and there are no requests in it.
func TestInboxOfSQLite(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	for _, query := range []string{"", "?state=refused&contract=relay&limit=1"} {
		r := w.do(t, w.api.Token(), "GET", "/admin/v1/inbox"+query, "").WantStatus(t, 200)
		if r.Body != `{"items":[],"next_cursor":null}` {
			t.Errorf("TX-003 got %s", r.Body)
		}
	}
	w.do(t, w.api.Token(), "GET", noRequest, "").WantError(t, 404, "NOT_FOUND")
	w.do(t, w.api.Token(), "POST", noRequest+"/retry", "").WantError(t, 404, "NOT_FOUND")
	w.do(t, w.api.Token(), "DELETE", noRequest, "").WantError(t, 404, "NOT_FOUND")
}

// inboxWorld is a node on PostgreSQL with a connection of producers.
type inboxWorld struct {
	*world
	db *sql.DB
}

func newInboxWorld(t *testing.T, change func(*admin.Config)) *inboxWorld {
	t.Helper()
	p := testkit.OnPostgres(t)
	return &inboxWorld{newWorld(t, p.Store, p.Clock, change), pgtest.DB(t, p.URL)}
}

// submit submits a request by SQL.
func (w *inboxWorld) submit(t *testing.T, contract, request string) (id string) {
	t.Helper()
	if err := w.db.QueryRow("SELECT submit($1,$2)", contract, request).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// mark sets what has become of a request, as the node does that takes it over.
func (w *inboxWorld) mark(t *testing.T, id string, mark job.InboxRequest) {
	t.Helper()
	r, err := w.engine.InboxRequest(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	mark.Number, mark.Transaction = r.Number, r.Transaction
	if err := w.engine.ChangeInbox(t.Context(), job.InboxChanges{
		Update: []job.InboxRequest{mark}}); err != nil {
		t.Fatal(err)
	}
}

// shownRequest is a request of an answer.
type shownRequest struct {
	ID, State, Contract, Producer string
	Error                         *string
	Request                       json.RawMessage
	Truncated                     bool
	Job                           *int64
	JobID                         *string    `json:"job_id"`
	FinishedAt                    *time.Time `json:"finished_at"`
}

// TX-003: requests are listed by state and contract, the newest first and page by page, and one is
// shown with what was submitted.
func TestInbox(t *testing.T) {
	t.Parallel()
	w := newInboxWorld(t, nil)
	var ids []string
	for i := range 6 {
		ids = append(ids, w.submit(t, []string{"relay", "taskflow"}[i%2],
			fmt.Sprintf(`{"n":%d}`, i)))
	}
	w.mark(t, ids[0], job.InboxRequest{State: job.InboxRefused, Error: "queue is missing"})
	w.mark(t, ids[1], job.InboxRequest{State: job.InboxSubmitted, Job: 7, JobID: "seven"})
	list := func(query string) (states string) {
		t.Helper()
		for cursor := ""; ; {
			page := get[struct {
				Items      []shownRequest
				NextCursor string `json:"next_cursor"`
			}](t, w.world, "/admin/v1/inbox?limit=2"+query+cursor)
			for _, r := range page.Items {
				for i, id := range ids {
					if id == r.ID {
						states += fmt.Sprint(i, r.State[:1], " ")
					}
				}
			}
			if page.NextCursor == "" {
				return strings.TrimSpace(states)
			}
			cursor = "&cursor=" + page.NextCursor
		}
	}
	for query, want := range map[string]string{
		"":                                   "5w 4w 3w 2w 1s 0r",
		"&state=waiting":                     "5w 4w 3w 2w",
		"&state=refused":                     "0r",
		"&state=submitted":                   "1s",
		"&contract=relay":                    "4w 2w 0r",
		"&contract=taskflow&state=waiting":   "5w 3w",
		"&contract=nobody":                   "",
		"&contract=taskflow&state=refused":   "",
		"&state=submitted&contract=taskflow": "1s",
	} {
		if got := list(query); got != want {
			t.Errorf("TX-003 %s: got %s, want %s", query, got, want)
		}
	}
	show := func(i int) shownRequest {
		t.Helper()
		return get[shownRequest](t, w.world, "/admin/v1/inbox/"+ids[i])
	}
	var role string
	if err := w.db.QueryRow("SELECT session_user").Scan(&role); err != nil {
		t.Fatal(err)
	}
	if r := show(0); r.State != "refused" || *r.Error != "queue is missing" ||
		r.FinishedAt == nil || r.Producer != role {
		t.Errorf("TX-003 one that was refused is %+v", r)
	}
	if r := show(1); r.State != "submitted" || *r.Job != 7 || *r.JobID != "seven" ||
		string(r.Request) != "null" {
		t.Errorf("TX-003 one that was submitted is %+v", r)
	}
	for _, wrong := range []string{"?state=gone", "?limit=0", "?cursor=x", "?contract=", "?x=1"} {
		w.do(t, w.api.Token(), "GET", "/admin/v1/inbox"+wrong, "").WantStatus(t, 400)
	}
	w.do(t, w.api.Token(), "GET", noRequest, "").WantError(t, 404, "NOT_FOUND")
	w.do(t, w.api.Token(), "GET", "/admin/v1/inbox/1", "").WantError(t, 404, "NOT_FOUND")
}

// TX-003, AD-006: a request that was refused is retried or discarded, one that waits discarded, and
// one that was submitted neither; each change is one entry of the audit.
func TestChangeInbox(t *testing.T) {
	t.Parallel()
	w := newInboxWorld(t, nil)
	refused, waiting, submitted := w.submit(t, "relay", "{}"), w.submit(t, "relay", "{}"),
		w.submit(t, "relay", "{}")
	w.mark(t, refused, job.InboxRequest{State: job.InboxRefused, Error: "no"})
	w.mark(t, submitted, job.InboxRequest{State: job.InboxSubmitted, Job: 1})
	do := func(method, id, rest string) testkit.Reply {
		t.Helper()
		return w.do(t, w.api.Token(), method, "/admin/v1/inbox/"+id+rest, "")
	}
	do("POST", waiting, "/retry").WantError(t, 409, "CONFLICT", "the request is waiting")
	do("POST", submitted, "/retry").WantError(t, 409, "CONFLICT", "the request is submitted")
	do("DELETE", submitted, "").WantError(t, 409, "CONFLICT", "it has a job")
	r := testkit.DecodeReply[shownRequest](t, do("POST", refused, "/retry").WantStatus(t, 200))
	if r.State != "waiting" || r.Error != nil || r.FinishedAt != nil {
		t.Errorf("TX-003 one that is retried is %+v", r)
	}
	taken, err := w.engine.ClaimInbox(t.Context(), 10, time.Second, nil, 0)
	if err != nil || len(taken) == 0 {
		t.Fatalf("TX-003 %d transactions may be taken: %v", len(taken), err)
	}
	again, err := w.engine.ReadInbox(t.Context(), []int64{taken[len(taken)-1].Number}, 10, 1<<20)
	if err != nil || len(again) != 1 || again[0].ID != refused {
		t.Errorf("TX-003 what is retried is not to be taken: %+v, %v", again, err)
	}
	do("DELETE", refused, "").WantStatus(t, 204).WantEmpty(t)
	do("DELETE", waiting, "").WantStatus(t, 204)
	do("DELETE", waiting, "").WantError(t, 404, "NOT_FOUND")
	var changes []string
	for _, e := range w.audit(t, "?limit=500").Items {
		if strings.HasPrefix(e.Action, "inbox.") {
			changes = append(changes, fmt.Sprintf("%s %s %s %s", e.Action, e.Target, e.Before,
				e.After))
		}
	}
	want := []string{
		"inbox.discard inbox:" + waiting + ` {"state":"waiting","contract":"relay"} null`,
		"inbox.discard inbox:" + refused + ` {"state":"waiting","contract":"relay"} null`,
		"inbox.retry inbox:" + refused + ` {"state":"refused","contract":"relay"}` +
			` {"state":"waiting","contract":"relay"}`,
	}
	if fmt.Sprint(changes) != fmt.Sprint(want) {
		t.Errorf("AD-006 the audit has %q, want %q", changes, want)
	}
}

// AD-005: what a request carries, and why it was refused, is hidden from the read token where
// payloads are.
func TestInboxHidesPayloads(t *testing.T) {
	t.Parallel()
	w := newInboxWorld(t, func(c *admin.Config) { c.ReadPayloads = false })
	id := w.submit(t, "relay", `{"canary":1}`)
	w.mark(t, id, job.InboxRequest{State: job.InboxRefused, Error: "canary is unknown"})
	for _, path := range []string{"/admin/v1/inbox", "/admin/v1/inbox/" + id} {
		r := w.do(t, readToken, "GET", path, "").WantStatus(t, 200)
		if strings.Contains(r.Body, "canary") || !strings.Contains(r.Body, id) {
			t.Errorf("AD-005 %s: %s", path, r.Body)
		}
	}
}

// TX-003: what the contract of a request hides of its jobs is hidden of the request, and of a
// contract that the node does not serve everything is. A large request is cut.
func TestShownRequests(t *testing.T) {
	t.Parallel()
	w := newInboxWorld(t, nil)
	id := w.submit(t, "forgerun", `{"callback":"http://h/?secret=1"}`)
	r := get[shownRequest](t, w.world, "/admin/v1/inbox/"+id)
	if string(r.Request) != "null" {
		t.Errorf("TX-003 of a contract that is not served: %s", r.Request)
	}
	c := newInboxWorld(t, func(c *admin.Config) { (&jobsWorld{}).addContracts(t, c) })
	id = c.submit(t, "forgerun", `{"type":"EXECUTE","callback":"http://h/?secret=1"}`)
	r = get[shownRequest](t, c.world, "/admin/v1/inbox/"+id)
	if strings.Contains(string(r.Request), "secret") || !strings.Contains(string(r.Request),
		"http://h/") {
		t.Errorf("TX-003 a callback is shown as %s", r.Request)
	}
	id = c.submit(t, "relay", `{"text":"`+strings.Repeat("ä", 60_000)+`"}`)
	r = get[shownRequest](t, c.world, "/admin/v1/inbox/"+id)
	if !r.Truncated || len(r.Request) > 70_000 || r.Request[0] != '"' {
		t.Errorf("TX-003 a large request is shown with %d bytes, truncated %v", len(r.Request),
			r.Truncated)
	}
}
