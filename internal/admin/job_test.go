package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// detailView is a job with its bodies as it is answered.
type detailView struct {
	jobState
	Payload, Definition, Progress, Result, Failure json.RawMessage
	PayloadTruncated                               bool   `json:"payload_truncated"`
	ResultTruncated                                bool   `json:"result_truncated"`
	DeadLetter                                     *int64 `json:"dead_letter"`
	ReplayedAs                                     *int64 `json:"replayed_as"`
	Links                                          struct{ Contract, Parent, Why, Timeline *string }
}

// detailOf returns a job with its bodies.
func (w *jobsWorld) detailOf(t *testing.T, number int64) detailView {
	t.Helper()
	return get[detailView](t, w.world, fmt.Sprintf("/admin/v1/jobs/%d", number))
}

// bodyOf returns a body as its own route has it, with its content type.
func (w *jobsWorld) bodyOf(t *testing.T, number int64, name string) (body, contentType string) {
	t.Helper()
	path := fmt.Sprintf("/admin/v1/jobs/%d/%s", number, name)
	r := w.do(t, w.api.Token(), "GET", path, "").WantStatus(t, http.StatusOK)
	head := w.do(t, w.api.Token(), "HEAD", path, "").WantStatus(t, http.StatusOK)
	if head.Body != "" || head.Header.Get("Content-Type") != r.Header.Get("Content-Type") {
		t.Errorf("AD-013 HEAD of %s answers %q, %v", path, head.Body, head.Header)
	}
	return r.Body, r.Header.Get("Content-Type")
}

// AD-013, G-AD-07: a job with its bodies, JSON as it was sent, anything else in base64, and what is
// too long cut to a string that says so, while its own route has all of it.
func TestJobDetail(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		long := `"` + strings.Repeat("ä", 40<<10) + `"`
		big := w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":0,
			"payload":{"text": `+long+`}}`, "")
		j := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
		run := w.claim(t, "taskflow")
		if _, err := w.engine.Heartbeat(t.Context(), run, []byte("\xff\x00half")); err != nil {
			t.Fatal(err)
		}
		d := w.detailOf(t, big.Number)
		var cut string
		if err := json.Unmarshal(d.Payload, &cut); err != nil || !d.PayloadTruncated ||
			len(cut) < 64<<10-1 || len(cut) > 64<<10 || !strings.HasPrefix(cut, `{"text":`) ||
			strings.Contains(cut, "\uFFFD") {
			t.Errorf("AD-013 the payload is cut to %d bytes: %v", len(cut), err)
		}
		d = w.detailOf(t, j.Number)
		if string(d.Progress) != `{"encoding":"base64","data":"/wBoYWxm"}` {
			t.Errorf("AD-013 the progress is %s", d.Progress)
		}
		if string(d.Result) != "null" || string(d.Failure) != "null" || d.ResultTruncated ||
			d.State != "RUNNING" || strings.Join(d.Actions, " ") != "cancel release delete" ||
			d.DeadLetter != nil || d.Links.Contract == nil ||
			*d.Links.Contract != "/api/v1/jobs/"+j.ID || !strings.Contains(string(d.Definition),
			`"name":"a"`) {
			t.Errorf("AD-013 got %+v", d)
		}
		if body, kind := w.bodyOf(t, big.Number, "payload"); len(body) <= 80<<10 ||
			!json.Valid([]byte(body)) || kind != "application/json" {
			t.Errorf("AD-013 the payload has %d bytes of %s", len(body), kind)
		}
		if body, kind := w.bodyOf(t, j.Number, "progress"); body != "\xff\x00half" ||
			kind != "application/octet-stream" {
			t.Errorf("AD-013 the progress is %q, %s", body, kind)
		}
		w.end(t, run, engine.Outcome{On: job.Succeeded, Result: []byte(`{"n": 1.50}`)})
		if body, _ := w.bodyOf(t, j.Number, "result"); body != `{"n": 1.50}` {
			t.Errorf("AD-013 the result is %s", body)
		}
		for _, path := range []string{"/999", "/0", "/x", "/999/payload",
			fmt.Sprintf("/%d/failure", j.Number)} {
			w.do(t, w.api.Token(), "GET", "/admin/v1/jobs"+path, "").WantError(t, 404, "NOT_FOUND")
		}
	})
}

// AD-013: dead letters and what they were replayed as, also of a job that is gone.
func TestJobDetailOfDeadLetters(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		r := w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":0,
			"payload":[1]}`, "")
		w.giveUp(t)
		deadLetter := w.deadLetters(t, "", 1).Items[0]
		d := w.detailOf(t, r.Number)
		if d.State != "gone" || d.Phase != "dead" || d.DeadLetter == nil ||
			*d.DeadLetter != deadLetter.ID || d.ReplayedAs != nil || string(d.Payload) != "[1]" ||
			strings.Join(d.Actions, " ") != "rerun" || d.Links.Contract != nil {
			t.Errorf("AD-013 a job that was given up is %+v", d)
		}
		w.replay(t, deadLetter.ID, "").WantStatus(t, http.StatusOK)
		if d = w.detailOf(t, r.Number); d.ReplayedAs == nil || *d.ReplayedAs == r.Number ||
			d.Phase != "done" || len(d.Actions) != 0 {
			t.Errorf("AD-013 a job that was replayed is %+v", d)
		}
		if why := w.whyOf(t, r.Number); why.codes() != "done" ||
			string(why.Reasons[0].Facts["replayed_as"]) != fmt.Sprint(*d.ReplayedAs) {
			t.Errorf("AD-015 a job that was replayed: %+v", why)
		}
		if made := w.detailOf(t, *d.ReplayedAs); made.State != "queued" || made.DeadLetter != nil {
			t.Errorf("AD-013 the job that runs then is %+v", made)
		}

		f := w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
			fmt.Sprintf(`,"owner":%q`, w.client))
		run := w.claim(t, "forgerun")
		w.end(t, run, engine.Outcome{On: job.Started})
		w.end(t, run, engine.Outcome{On: job.FailedForGood, Failure: []byte(`{"code":"x"}`)})
		if d = w.detailOf(t, f.Number); d.State != "FAILED" || d.Phase != "dead" ||
			d.DeadLetter == nil || string(d.Failure) != `{"code":"x"}` {
			t.Errorf("AD-013 a job that failed is %+v", d)
		}
	})
}

// AD-013, AD-052: of the URL of a delivery the query is hidden, also in its definition.
func TestJobDetailOfDelivery(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		w.notify(t, "1", http.StatusInternalServerError)
		number := get[struct{ Items []struct{ Number int64 } }](t, w.world,
			"/admin/v1/webhooks/"+w.id+"/deliveries").Items[0].Number
		d := w.detailOf(t, number)
		raw, _ := w.bodyOf(t, number, "definition")
		if strings.Contains(string(d.Definition)+raw, "hidden") || d.State != "exhausted" ||
			!strings.Contains(string(d.Definition), "/in?…") {
			t.Errorf("AD-052 the definition is %s, %s", d.Definition, raw)
		}
	})
}

// readsOfJob returns all that the routes and pages about a job answer the operator of a node.
func readsOfJob(t *testing.T, w *world, number int64) string {
	t.Helper()
	var all strings.Builder
	for _, row := range table() {
		if row.Method != http.MethodGet || !strings.Contains(row.Pattern, "/jobs/{number}") {
			continue
		}
		path := strings.ReplaceAll(row.Pattern, "{number}", fmt.Sprint(number))
		r := w.do(t, w.api.Token(), "GET", path, "")
		if r.Status >= 500 {
			t.Errorf("AD-013 %s: got %d %s", path, r.Status, r.Body)
		}
		all.WriteString(r.Body)
	}
	return all.String()
}

// AD-013, AD-052: of the URL of a callback the query is hidden in all that shows a job, and no
// search finds it. A node that does not serve the contract shows none of what jobs carry.
func TestHiddenCallback(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := &jobsWorld{}
		w.world = newWorld(t, p.Store, p.Clock, func(c *admin.Config) { w.addContracts(t, c) })
		j := w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST",
			"callback":"http://example.com/shown?key=s3cret-9"}`, fmt.Sprintf(`,"owner":%q`, w.client))
		shown := readsOfJob(t, w.world, j.Number)
		if strings.Contains(shown, "s3cret-9") || !strings.Contains(shown, "/shown?…") {
			t.Errorf("AD-052 the callback is not hidden: %s", shown)
		}
		for text, want := range map[string]int{"s3cret-9": 0, "/shown": 1} {
			if got := get[struct{ Items []jobState }](t, w.world,
				"/admin/v1/jobs?text="+text).Items; len(got) != want {
				t.Errorf("AD-052 a search for %s finds %+v", text, got)
			}
		}
		other := newWorld(t, p.Store, p.Clock, nil)
		shown = readsOfJob(t, other, j.Number)
		if strings.Contains(shown, "/shown") || !strings.Contains(shown, j.ID) {
			t.Errorf("AD-052 a node without ForgeRun shows %s", shown)
		}
	})
}
