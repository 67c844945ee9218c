package admin_test

import (
	"errors"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/testkit"
)

// bulkView is a bulk operation as it is answered.
type bulkView struct {
	Action, State         string
	ID                    string `json:"bulk_id"`
	Reason                *string
	Done, Failed, Skipped int64
	Total                 *int64
	Errors                []struct{ Number int64 }
}

// post sends a body as the operator.
func (w *jobsWorld) post(t *testing.T, path, body string) testkit.Reply {
	t.Helper()
	return w.do(t, w.api.Token(), "POST", path, body, "Content-Type", "application/json")
}

// startBulk starts an operation.
func (w *jobsWorld) startBulk(t *testing.T, path, body string) string {
	t.Helper()
	return testkit.DecodeReply[bulkView](t, w.post(t, path, body).WantStatus(t, 202)).ID
}

// await waits until an operation is in a state.
func (w *jobsWorld) await(t *testing.T, id, state string) (b bulkView) {
	t.Helper()
	testkit.WaitUntil(t, "the operation to be "+state, func() bool {
		b = get[bulkView](t, w.world, "/admin/v1/bulk/"+id)
		return b.State == state
	})
	return b
}

// AD-020, AD-021, G-AD-03, G-AD-04, G-AD-11: a dry run is a read and changes nothing; an operation
// changes what matches, with an entry at its start and one at its end; what is wrong is refused.
func TestBulk(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		const path = "/admin/v1/bulk"
		for range 3 {
			w.failTask(t, "mail", `{"error":"x"}`)
		}
		w.submitJob(t, "taskflow", `{"name":"a","queue":"other"}`, "")
		w.clock.Advance(time.Second)
		const filter = `"filter":{"contract":"taskflow","queue":"mail","state":["FAILED"]}`
		type preview struct {
			Matching, Refused int
			More              bool
			Sample            []jobState
		}
		for _, token := range []string{readToken, w.api.Token()} {
			p := testkit.DecodeReply[preview](t, w.do(t, token, "POST", path,
				`{"action":"rerun","dry_run":true,`+filter+`}`, "Content-Type",
				"application/json").WantStatus(t, 200))
			if p.Matching != 3 || p.Refused != 0 || p.More || len(p.Sample) != 3 ||
				p.Sample[0].State != "FAILED" {
				t.Errorf("AD-020 a dry run answered %+v", p)
			}
		}
		p := testkit.DecodeReply[preview](t, w.post(t, path,
			`{"action":"cancel","dry_run":true,"everything":true}`).WantStatus(t, 200))
		if p.Matching != 4 || p.Refused != 4 {
			t.Errorf("AD-020 a dry run of what fits nothing answered %+v", p)
		}
		w.do(t, readToken, "POST", path, `{"action":"rerun",`+filter+`}`, "Content-Type",
			"application/json").WantError(t, 403, "READ_ONLY")
		id := w.startBulk(t, path, `{"action":"rerun",`+filter+`}`)
		if b := w.await(t, id, "done"); b.Done != 3 || b.Skipped+b.Failed != 0 || *b.Total != 3 {
			t.Errorf("AD-021 the operation is %+v", b)
		}
		for _, action := range []string{"bulk.start", "bulk.end"} {
			if got := w.audit(t, "?target=bulk:"+id+"&action="+action).Items; len(got) != 1 {
				t.Errorf("G-AD-04 the audit has %+v", got)
			}
		}
		w.post(t, path+"/"+id+"/pause", "").WantError(t, 409, "CONFLICT")
		w.post(t, path+"/none/cancel", "").WantError(t, 404, "NOT_FOUND")
		for body, words := range map[string]string{
			`{"action":"rerun"}`:                                                    "everything",
			`{"action":"rerun","filter":{}}`:                                        "everything",
			`{"action":"explode","everything":true}`:                                "rerun",
			`{"action":"rerun","filter":{"queu":"a"}}`:                              "queu",
			`{"action":"rerun","filter":{"state":"NONE"}}`:                          "NONE",
			`{"action":"rerun","filter":{"phase":["dead","x"]}}`:                    "phase",
			`{"action":"rerun","filter":{"contract":"no"}}`:                         "relay",
			`{"action":"rerun","filter":{"min_age":"x"}}`:                           "min_age",
			`{"action":"rerun","filter":{"parent":0}}`:                              "parent",
			`{"action":"rerun","filter":{"number":[1,-2]}}`:                         "number",
			`{"action":"rerun","filter":{"number":[[1]]}}`:                          "number",
			`{"action":"rerun","filter":{"limit":5}}`:                               "limit",
			`{"action":"rerun","filter":{"queue":true}}`:                            "queue",
			`{"action":"rerun","filter":{"queue":["a","b"]}}`:                       "no list",
			`{"action":"replay","filter":{"contract":["relay"]}}`:                   "no list",
			`{"action":"rerun","filter":[]}`:                                        "object",
			`{"action":"replay","filter":{"state":"FAILED"}}`:                       "state",
			`{"action":"rerun","rate":-1,"everything":true}`:                        "rate",
			`{"action":"rerun","canary":1001,"everything":true}`:                    "canary",
			`{"action":"rerun","everything":1}`:                                     "everything",
			`{"action":"rerun","everything":true,"dryrun":true}`:                    "dryrun",
			`{"action":"rerun","filter":{"created_from":"2026"},"dry_run":true}`:    "created_from",
			`{"action":"rerun","filter":{"created_before":"0001-01-01T00:00:00Z"}}`: "year 1",
		} {
			w.post(t, path, body).WantError(t, 400, "VALIDATION_ERROR", words)
		}
		list := get[struct{ Items []bulkView }](t, w.world, path).Items
		if len(list) != 1 || list[0].ID != id {
			t.Errorf("G-AD-11 the list is %+v", list)
		}
	})
}

// Numbers of a form are digits alone: what somebody has typed otherwise is not read as another
// number of jobs.
func TestBulkForm(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		for _, text := range []string{"1,000", "1x2", "1\u202f000", "+5", "-1", "1e3", "null", "1001"} {
			_, err := w.api.ReadBulk(nil, url.Values{"action": {"rerun"}, "canary": {text}})
			var refused *httpapi.CodedError
			if !errors.As(err, &refused) || refused.Code != "VALIDATION_ERROR" {
				t.Errorf("a canary of %q: %v", text, err)
			}
		}
	})
}

// AD-020: the page of a dry run refuses a filter that is given twice or escaped wrongly: it would
// look at other jobs than the form on it names.
func TestBulkPageRefuses(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		const page = "/console/bulk/new?action=delete&queue=mail"
		ask := func(query string) testkit.Reply {
			return w.do(t, w.api.Token(), "GET", page+query, "")
		}
		for query, words := range map[string]string{"&state=CANCELED&state=READY": "state is given twice",
			"&phase=done&phase=ready": "phase is given twice", "&number=1&number=2": "number is given",
			"&action=cancel": "action is given", "&limit=1&limit=9": "limit is given",
			"&of=all&of=marked&mark=1": "of is given", "&state=%zz": "escaped wrongly"} {
			if r := ask(query).WantStatus(t, 400); !strings.Contains(r.Body, words) {
				t.Errorf("AD-020 %s is refused with %s", query, r.Body)
			}
		}
		ask("&of=marked&mark=1&mark=2").WantStatus(t, 200)
	})
}

var (
	confirmPath   = regexp.MustCompile(`<form method="post" action="([^"]*)" class="bar panel">`)
	confirmFields = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// confirm sends the form on the page of a dry run after it was shown and something has happened.
func (w *jobsWorld) confirm(t *testing.T, page string, meanwhile func()) bulkView {
	t.Helper()
	session := with(w.login(t, "token="+w.api.Token()))
	w.clock.Advance(time.Second)
	text := w.Do(t, "GET", page, "", session...).WantStatus(t, 200).Body
	path := confirmPath.FindStringSubmatch(text)
	if path == nil {
		t.Fatalf("%s has no form: %s", page, text)
	}
	form := url.Values{}
	for _, f := range confirmFields.FindAllStringSubmatch(text, -1) {
		form.Set(f[1], html.UnescapeString(f[2]))
	}
	w.clock.Advance(2 * time.Minute)
	meanwhile()
	started := w.form(t, path[1], form.Encode(), session...).WantStatus(t, 303)
	return w.await(t, strings.TrimPrefix(started.Header.Get("Location"), "/console/bulk/"), "done")
}

// AD-020, AD-033: what the page of a dry run confirms is what it has shown: nothing that was
// created since, and nothing that has come of age since.
func TestBulkBoundToPreview(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		made := 0
		submit := func() {
			made++
			w.submitJob(t, "relay", fmt.Sprintf(`{"queue":"a","id":"%d","timeout":60,
				"max_retries":0,"payload":1}`, made), "")
		}
		want := func(b bulkView, done int64, what string) {
			t.Helper()
			if b.Done != done || b.Skipped+b.Failed != 0 {
				t.Errorf("AD-020 %s: the operation is %+v", what, b)
			}
		}
		nothing := func() {}
		submit()
		submit()
		w.clock.Advance(time.Minute)
		submit()
		want(w.confirm(t, "/console/bulk/new?action=delete&queue=a&min_age=1m", nothing), 2,
			"with an age")
		want(w.confirm(t, "/console/bulk/new?action=delete&queue=a", submit), 1, "of a queue")
		want(w.confirm(t, "/console/bulk/new?action=delete&everything=true", submit), 1, "of all")
		want(w.confirm(t, "/console/queues/relay/a/clear", submit), 1, "that clears a queue")
		w.failTask(t, "mail", `{"error":"x"}`)
		want(w.confirm(t, "/console/bulk/new?action=replay&contract=taskflow", func() {
			w.failTask(t, "mail", `{"error":"x"}`)
		}), 1, "of dead letters")
	})
}

// AD-051: a group of dead letters is replayed by its fingerprint, and only what is open.
func TestBulkReplay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		for i := range 4 {
			w.failTask(t, "mail", fmt.Sprintf(`{"error":"no answer after %d s"}`, i))
		}
		w.failTask(t, "mail", `{"error":"refused"}`)
		all := w.deadLetters(t, "", 5).Items
		w.replay(t, all[0].ID, "").WantStatus(t, 200)
		w.clock.Advance(time.Second)
		id := w.startBulk(t, "/admin/v1/bulk", fmt.Sprintf(
			`{"action":"replay","filter":{"fingerprint":%q}}`, all[0].Fingerprint))
		if b := w.await(t, id, "done"); b.Done != 3 || b.Skipped+b.Failed != 0 {
			t.Errorf("AD-051 the operation is %+v", b)
		}
		for i, l := range w.deadLetters(t, "", 5).Items {
			if (l.ReplayedAs != nil) != (i < 4) {
				t.Errorf("AD-051 dead letter %d is %+v", i, l)
			}
		}
		w.wantDead(t, "taskflow", "mail", 1)
	})
}

// AD-033: a clear deletes what does not run, of one queue.
func TestClearQueue(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		for i := range 4 {
			w.submitJob(t, "relay", fmt.Sprintf(`{"queue":"a","id":"%d","timeout":60,
				"max_retries":0,"payload":1}`, i), "")
		}
		w.submitJob(t, "relay", `{"queue":"b","id":"1","timeout":60,"max_retries":0,"payload":1}`,
			"")
		w.claim(t, "relay")
		w.clock.Advance(time.Second)
		id := w.startBulk(t, "/admin/v1/queues/relay/a/clear", "")
		if b := w.await(t, id, "done"); b.Done != 3 || b.Skipped != 0 {
			t.Errorf("AD-033 the operation is %+v", b)
		}
		counts, err := w.engine.Queues(t.Context(), "relay")
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range counts {
			if want := map[string]int64{"a": 1, "b": 1}[q.Queue]; q.Jobs() != want {
				t.Errorf("AD-033 queue %s has %+v", q.Queue, q)
			}
		}
		if got := w.audit(t, "?target=bulk:"+id).Items; len(got) != 2 {
			t.Errorf("AD-006 the audit has %+v", got)
		}
		w.post(t, "/admin/v1/queues/forgerun/default/clear", "").WantError(t, 409, "NOT_ALLOWED")
		w.post(t, "/admin/v1/queues/nobody/q/clear", "").WantError(t, 404, "NOT_FOUND")
	})
}
