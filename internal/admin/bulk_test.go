package admin_test

import (
	"errors"
	"fmt"
	"net/url"
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

// AD-051: a group of dead letters is replayed by its fingerprint, and only what is open.
func TestBulkReplay(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.run(t)
		for i := range 4 {
			w.failTask(t, "mail", fmt.Sprintf(`{"error":"no answer after %d s"}`, i))
		}
		w.failTask(t, "mail", `{"error":"refused"}`)
		all := w.letters(t, "", 5).Items
		w.replay(t, all[0].ID, "").WantStatus(t, 200)
		w.clock.Advance(time.Second)
		id := w.startBulk(t, "/admin/v1/bulk", fmt.Sprintf(
			`{"action":"replay","filter":{"fingerprint":%q}}`, all[0].Fingerprint))
		if b := w.await(t, id, "done"); b.Done != 3 || b.Skipped+b.Failed != 0 {
			t.Errorf("AD-051 the operation is %+v", b)
		}
		for i, l := range w.letters(t, "", 5).Items {
			if (l.ReplayedAs != nil) != (i < 4) {
				t.Errorf("AD-051 letter %d is %+v", i, l)
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
