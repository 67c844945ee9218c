package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// canary is in every body and text of the jobs of TestReadPayloads; answer is what the receiver of
// their webhook says.
const (
	canary = "canary-7f3a"
	answer = "as you like"
	// absent is a dependency of the request of a schedule, which is refused for it.
	absent = "7f3a7f3a-7f3a-4f3a-8f3a-7f3a7f3a7f3a"
)

// carriesCanary reports whether an answer discloses what jobs carry. A raw body may be encoded.
func carriesCanary(body string) bool {
	return strings.Contains(body, canary) || strings.Contains(body, answer) ||
		strings.Contains(body, absent)
}

// fillWithCanaries makes jobs of three contracts, a schedule, a delivery and a bulk operation that
// carry the canary wherever they can.
func (w *hooksWorld) fillWithCanaries(t *testing.T) {
	t.Helper()
	owner := fmt.Sprintf(`,"owner":%q`, w.client)
	body := []byte(`{"error":"` + canary + `","code":"` + canary + `"}`)
	w.submitJob(t, "taskflow", `{"name":"`+canary+`","queue":"q","payload":{"x":"`+canary+`"}}`, "")
	run := w.claim(t, "taskflow")
	if _, err := w.engine.Heartbeat(t.Context(), run, body); err != nil {
		t.Fatal(err)
	}
	w.end(t, run, engine.Outcome{On: job.FailedForGood, Failure: body, Reason: canary,
		Progress: body})
	j := w.submitJob(t, "taskflow", `{"name":"a","queue":"q","payload":{"x":"`+canary+`"}}`, "")
	w.submitJob(t, "taskflow", `{"name":"`+canary+`","queue":"q","dependencies":["`+j.ID+`"]}`, "")
	w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Succeeded, Result: body})
	w.submitJob(t, "relay", `{"queue":"q","id":"1","timeout":60,"max_retries":0,"payload":"`+
		canary+`"}`, "")
	w.giveUp(t, string(body))
	w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST","payload":{"x":"`+
		canary+`"}}`, owner)
	run = w.claim(t, "forgerun")
	w.end(t, run, engine.Outcome{On: job.Started})
	w.end(t, run, engine.Outcome{On: job.FailedForGood, Failure: body, Reason: canary})
	w.notify(t, "1", http.StatusInternalServerError)
	w.send(t, "POST", "", `{"name":"s","every":"1h","contract":"taskflow","request":{"name":"`+
		canary+`","queue":"q"}}`).WantStatus(t, 201)
	w.send(t, "POST", "", `{"name":"refused","every":"1s","contract":"taskflow","request":{"name":"n",
		"queue":"q","dependencies":["`+absent+`"]}}`).WantStatus(t, 201)
	w.clock.Advance(2 * time.Second)
	testkit.RunMaintenance(t, w.engine)
	w.tick(t)
	w.startBulk(t, "/admin/v1/bulk", `{"action":"delete","filter":{"text":"`+canary+`"}}`)
}

// paths returns the paths of a pattern for what fillWithCanaries has made.
func (w *hooksWorld) paths(t *testing.T, pattern string) (all []string) {
	t.Helper()
	var values []string
	switch {
	case strings.Contains(pattern, "/jobs/{number}"):
		for number := range 12 {
			values = append(values, fmt.Sprint(number+1))
		}
	case strings.Contains(pattern, "/dead-letters/{id}"):
		for _, l := range get[deadLetters](t, w.world, "/admin/v1/dead-letters").Items {
			values = append(values, fmt.Sprint(l.ID))
		}
	case strings.Contains(pattern, "/bulk/{id}"):
		for _, b := range get[struct{ Items []bulkView }](t, w.world, "/admin/v1/bulk").Items {
			values = append(values, b.ID)
		}
	case strings.Contains(pattern, "/webhooks/{id}"):
		values = []string{w.id}
	case strings.Contains(pattern, "/schedules/{name}"):
		values = []string{"s", "refused"}
	case strings.HasSuffix(pattern, "/bulk/new"):
		return []string{pattern + "?action=delete&queue=q", pattern + "?action=replay&queue=q"}
	default:
		return []string{pattern}
	}
	for _, value := range values {
		all = append(all, pathMember.ReplaceAllString(pattern, value))
	}
	return all
}

// disclosing are the routes whose answers tell the operator of what jobs carry.
var disclosing = []string{"/admin/v1/audit", "/admin/v1/dead-letters",
	"/admin/v1/dead-letters/groups", "/admin/v1/dead-letters/{id}", "/admin/v1/jobs",
	"/admin/v1/jobs/{number}", "/admin/v1/jobs/{number}/definition",
	"/admin/v1/jobs/{number}/failure", "/admin/v1/jobs/{number}/payload",
	"/admin/v1/jobs/{number}/progress", "/admin/v1/jobs/{number}/result",
	"/admin/v1/jobs/{number}/timeline", "/admin/v1/jobs/{number}/why", "/admin/v1/schedules",
	"/admin/v1/schedules/{name}", "/admin/v1/webhooks/{id}/deliveries",
	"/console", "/console/", "/console/audit", "/console/bulk", "/console/bulk/new",
	"/console/bulk/{id}", "/console/dead-letters", "/console/dead-letters/list", "/console/jobs",
	"/console/jobs/{number}", "/console/jobs/{number}/graph",
	"/console/schedules/{name}", "/console/schedules/{name}/edit"}

// TestReadPayloads (AD-005, G-AD-03): with operator.read_payloads = false no read or page shows the
// read token anything of what jobs carry, and no filter searches it; with true it sees what the
// operator does.
func TestReadPayloads(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		w.fillWithCanaries(t)
		var found []string
		for _, row := range table() {
			isOurs := strings.HasPrefix(row.Pattern, "/admin/") ||
				strings.HasPrefix(row.Pattern, "/console")
			if row.Method != http.MethodGet || row.Endless || !isOurs {
				continue
			}
			for _, path := range w.paths(t, row.Pattern) {
				w.api.ReadPayloads = true
				full := w.do(t, w.api.Token(), "GET", path, "")
				if open := w.do(t, readToken, "GET", path, ""); open.Status != full.Status ||
					carriesCanary(open.Body) != carriesCanary(full.Body) {
					t.Errorf("AD-005 %s: the read token got %d %s", path, open.Status, open.Body)
				}
				w.api.ReadPayloads = false
				hidden := w.do(t, readToken, "GET", path, "")
				if carriesCanary(hidden.Body) || hidden.Status >= 500 {
					t.Errorf("G-AD-03 %s: the read token got %d %s", path, hidden.Status,
						hidden.Body)
				}
				if carriesCanary(full.Body) && !slices.Contains(found, row.Pattern) {
					found = append(found, row.Pattern)
				}
			}
		}
		slices.Sort(found)
		if !slices.Equal(found, disclosing) {
			t.Errorf("AD-005 the operator sees what jobs carry in %q, want %q", found, disclosing)
		}
		w.wantNoSearch(t)
	})
}

// wantNoSearch fails unless the filters that search what jobs carry are refused to the read token.
func (w *hooksWorld) wantNoSearch(t *testing.T) {
	t.Helper()
	w.clock.Advance(time.Second)
	w.do(t, readToken, "GET", "/admin/v1/dead-letters?error="+canary, "").WantError(t, 403,
		"FORBIDDEN", "operator.read_payloads")
	if r := w.do(t, readToken, "GET", "/console/dead-letters/list?error="+canary, ""); r.Status != 403 {
		t.Errorf("G-AD-03 a page that searches errors is %d", r.Status)
	}
	for _, name := range []string{"text", "error"} {
		w.do(t, readToken, "GET", "/admin/v1/jobs?"+name+"="+canary, "").WantError(t, 403,
			"FORBIDDEN", "operator.read_payloads")
		body := fmt.Sprintf(`{"action":"delete","dry_run":true,"filter":{%q:%q}}`, name, canary)
		w.do(t, readToken, "POST", "/admin/v1/bulk", body, "Content-Type",
			"application/json").WantError(t, 403, "FORBIDDEN", "operator.read_payloads")
		seen := testkit.DecodeReply[struct{ Matching int }](t,
			w.jobsWorld.post(t, "/admin/v1/bulk", body).WantStatus(t, 200))
		if seen.Matching == 0 {
			t.Errorf("AD-020 %s finds nothing for the operator", name)
		}
	}
	for _, sample := range []string{`{"action":"delete","dry_run":true,"everything":true}`,
		`{"action":"replay","dry_run":true,"everything":true}`} {
		r := w.do(t, readToken, "POST", "/admin/v1/bulk", sample, "Content-Type",
			"application/json").WantStatus(t, 200)
		if carriesCanary(r.Body) {
			t.Errorf("G-AD-03 a dry run showed the read token %s", r.Body)
		}
	}
}
