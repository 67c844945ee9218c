package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// hostile is a text that would run, turn or fill a page that does not escape and bound it.
const hostile = "<script>document.title='run'</script>\"'><img src=x onerror=\"document.title='run'\">" +
	"\u202e\u200f\u2067{{.}} \u0007"

// hostileBody is a hostile text with a NUL and a word that is longer than what a page shows of one
// text. hostilePayload is one that is as long as TaskFlow takes it.
var (
	hostileBody    = hostile + "\x00" + strings.Repeat("w", 70_000)
	hostilePayload = hostile + "\x00" + strings.Repeat("w", 65_000)
)

// hostileHeader is what of it a header may have.
const hostileHeader = "<script>document.title='run'</script>\"'><img src=x onerror=alert(1)>"

// fill gives each page something to show: jobs that wait, run, are done and were given up, with a
// hostile text wherever somebody else may write one. It returns what it has made, by the names that
// consolePages have.
func (w *consoleWorld) fill(t *testing.T) map[string]string {
	t.Helper()
	made := map[string]string{"failed": "1", "done": "3", "running": "4", "ready": "9",
		"relay": "13", "graph": "14", "schedule": "nightly", "hostile": hostile}
	for i := range 12 {
		w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"taskflow",
			"request":{"name":%s,"queue":"mail","payload":{"to":%s,"n":%d}}}`,
			quote(t, hostile), quote(t, hostilePayload), i), 201)
	}
	w.send(t, "POST", "/admin/v1/jobs", fmt.Sprintf(`{"contract":"relay",
		"request":{"id":%s,"queue":%[1]s,"timeout":60,"payload":{%[1]s:%s}}}`, quote(t, hostile),
		quote(t, hostileBody)), 201)
	w.send(t, "POST", "/api/v1/graphs", fmt.Sprintf(`{"jobs":[
		{"ref":"a","name":%s,"queue":"etl"},{"ref":"b","name":%[1]s,"queue":"etl",
		"depends_on":["a"]}]}`, quote(t, "n"+hostile)), 201)
	runs := w.claim(t, "mail", 4, "w"+hostile)
	for _, run := range runs[:2] {
		w.send(t, "POST", "/worker/v1/runs/"+run+"/fail", fmt.Sprintf(
			`{"error":%s,"retryable":false}`, quote(t, "no such user "+hostileBody)), 200)
	}
	w.send(t, "POST", "/worker/v1/runs/"+runs[2]+"/complete", fmt.Sprintf(
		`{"result":{"said":%s}}`, quote(t, hostileBody)), 200)
	w.send(t, "POST", "/admin/v1/schedules", fmt.Sprintf(`{"name":"nightly","cron":"0 3 * * *",
		"contract":"taskflow","request":{"name":%s,"queue":"mail"}}`, quote(t, hostile)), 201)
	w.sendAs(t, hostileHeader, "PATCH", "/admin/v1/queues/taskflow/reports", `{"paused":true}`)
	w.sendAs(t, hostileHeader, "PATCH", "/admin/v1/queues/relay/"+url.PathEscape(hostile),
		`{"run_limit":3}`)
	made["bulk"] = w.startBulk(t, `{"action":"cancel","filter":{"queue":"none","text":`+
		quote(t, hostile)+`}}`)
	made["webhook"] = w.fillForgeRun(t)
	made["operatorhook"] = w.fillWebhook(t)
	w.fillFiles(t)
	w.claimRelay(t)
	w.refuse(t, hostile, "key"+hostileHeader)
	made["manifest"] = w.firstOf(t, "/admin/v1/jobs?kind=manifest", "number")
	made["file"] = w.firstOf(t, "/admin/v1/jobs?contract=images", "owner")
	made["client"] = w.firstOf(t, "/admin/v1/clients", "id")
	return made
}

// firstOf returns a member of the first item of a list.
func (w *consoleWorld) firstOf(t *testing.T, path, member string) string {
	t.Helper()
	var list struct{ Items []map[string]any }
	answer := w.send(t, "GET", path, "", 200)
	if err := json.Unmarshal([]byte(answer), &list); err != nil || len(list.Items) == 0 {
		t.Fatalf("%s is %s: %v", path, answer, err)
	}
	return fmt.Sprint(list.Items[0][member])
}

// claim claims up to n jobs of a queue of TaskFlow and returns their runs.
func (w *consoleWorld) claim(t *testing.T, queue string, n int, worker string) (runs []string) {
	t.Helper()
	var claimed struct {
		Jobs []struct {
			RunID string `json:"run_id"`
		}
	}
	answer := w.send(t, "POST", "/worker/v1/claims", fmt.Sprintf(
		`{"contract":"taskflow","queues":["%s"],"max":%d,"worker":%s}`, queue, n,
		quote(t, worker)), 200)
	if err := json.Unmarshal([]byte(answer), &claimed); err != nil || len(claimed.Jobs) != n {
		t.Fatalf("claimed %s: %v", answer, err)
	}
	for _, j := range claimed.Jobs {
		runs = append(runs, j.RunID)
	}
	return runs
}

// sendAs changes something as somebody with a name.
func (w *consoleWorld) sendAs(t *testing.T, actor, method, path, body string) {
	t.Helper()
	status, answer := sendTo(t, http.DefaultClient, method, w.url+path, body, "Authorization",
		"Bearer secret", "Content-Type", "application/json", "Millrace-Actor", actor)
	if status != 200 {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
}

// startBulk starts a bulk operation and returns its id.
func (w *consoleWorld) startBulk(t *testing.T, body string) string {
	t.Helper()
	var started struct {
		ID string `json:"bulk_id"`
	}
	answer := w.send(t, "POST", "/admin/v1/bulk", body, 202)
	if err := json.Unmarshal([]byte(answer), &started); err != nil || started.ID == "" {
		t.Fatalf("a bulk operation is started as %s: %v", answer, err)
	}
	return started.ID
}

// fillWebhook makes a webhook of operators that gets nothing, and returns its id.
func (w *consoleWorld) fillWebhook(t *testing.T) string {
	t.Helper()
	var hook struct{ ID string }
	answer := w.send(t, "POST", "/admin/v1/webhooks", `{"url":"http://127.0.0.1:9/",
		"events":["schedule.missed"],"name":"<b>&"}`, http.StatusCreated)
	if err := json.Unmarshal([]byte(answer), &hook); err != nil {
		t.Fatal(err)
	}
	return hook.ID
}

// fillForgeRun makes a client with a webhook whose receiver answers with hostile text, and a job
// whose events it refuses. It returns the id of the webhook.
func (w *consoleWorld) fillForgeRun(t *testing.T) string {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		a.Header().Set("Content-Type", "text/html")
		a.Header().Set("X-Hostile", hostileHeader)
		a.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(a, hostileBody)
	}))
	t.Cleanup(receiver.Close)
	forge := forgeClient(t, w.url)
	hook, err := forge.CreateWebhook(t.Context(), receiver.URL+"/"+url.PathEscape(hostile)+
		"?q=<script>document.title='run'</script>",
		[]client.ForgeRunEventName{"job_succeeded", "job_created"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := forge.Submit(t.Context(), client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkSuccessFast}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitUntil(t, "a delivery that was refused", func() bool {
		return strings.Contains(w.send(t, "GET", "/admin/v1/webhooks/"+hook.ID+
			"/deliveries", "", 200), `"status":500`)
	})
	return hook.ID
}

// fillFiles submits a manifest with a resource that is not there and an upload that is no picture,
// both with hostile text, and waits until the first was given up.
func (w *consoleWorld) fillFiles(t *testing.T) {
	t.Helper()
	missing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(missing.Close)
	for _, request := range [][]string{
		{"/jobs", fmt.Sprintf(`{"manifest_version":"v1","metadata":{"from":%s},"resources":[
			{"id":%[1]s,"url":%s,"headers":{"x":"<script>"},"tags":{"t":%[1]s}}]}`,
			quote(t, hostile), quote(t, missing.URL+"/"+url.PathEscape(hostile))),
			"X-Fetchbox-Job-Type", "default", "X-Fetchbox-Idempotency-Key", hostileHeader[:60],
			"Content-Type", "application/json"},
		{"/images/v1/files?sizes=100", hostileBody, "Content-Type", "image/jpeg",
			"Idempotency-Key", "a"},
	} {
		status, answer := sendTo(t, http.DefaultClient, "POST", w.url+request[0], request[1],
			request[2:]...)
		if status != 202 {
			t.Fatalf("POST %s: %d %s", request[0], status, answer)
		}
	}
	testkit.WaitUntil(t, "a dead letter of the manifest", func() bool {
		return strings.Contains(w.send(t, "GET", "/admin/v1/dead-letters", "", 200), `"fetchbox"`)
	})
}

// claimRelay claims the job of Relay as a worker with a hostile name.
func (w *consoleWorld) claimRelay(t *testing.T) {
	t.Helper()
	status, answer := sendTo(t, http.DefaultClient, "GET", w.url+"/v2/queues/"+
		url.PathEscape(hostile)+"/jobs", "", "Millrace-Worker", hostileHeader)
	if status != 200 || !strings.Contains(answer, "run_id") {
		t.Fatalf("a claim answers %d %s", status, answer)
	}
}

// refuse submits a request to a contract by SQL, which is refused, and returns its id; it does
// nothing on SQLite.
func (w *consoleWorld) refuse(t *testing.T, contract, key string) (id string) {
	t.Helper()
	if w.database == "" {
		return ""
	}
	if err := pgtest.DB(t, w.database).QueryRow("SELECT submit(left($1,100),'{}',NULLIF($2,''))",
		contract, key).Scan(&id); err != nil {
		t.Fatal(err)
	}
	testkit.WaitUntil(t, "a request that was refused", func() bool {
		return strings.Contains(w.send(t, "GET", "/admin/v1/inbox/"+id, "", 200), `"refused"`)
	})
	return id
}
