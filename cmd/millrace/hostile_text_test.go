package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// hostileStrings are JSON strings that nobody means and that are valid: SQL of both databases, NUL,
// control characters, marks that turn text round, characters that compose or are none, and texts
// that other programs would carry out.
var hostileStrings = []string{`"'; DROP TABLE jobs; --"`, `"\u0000"`, `"a\u0000b"`,
	`"' OR '1'='1"`, `"\" OR \"\"=\""`, `"$1 ?1 :a @a %s"`, `"\\' \\x00 \\N E'\\\\000'"`,
	`"\u202e\u2067\u200f\u2028\u2029"`, `"\u0001\u001f\u007f\u0085\r\n\t\b\f"`,
	`"\ufeff\ufffe\uffff"`,
	`"\ud83d\ude00\u200d\ud83d\udc69"`, `"e\u0301 \u00e9 \u212b"`, `"{{.}} ${x} $(id) %{x}"`,
	`"'||(SELECT pg_sleep(9))||'"`, `"1); SELECT load_extension('x');--"`, `"../../etc/passwd"`,
	`"%00%2e%2e%2f"`, `"<script>alert(1)</script>"`, `"{1,2}"`, `"null"`, `" "`, `""`, `"\ud800"`,
	`"\udc00\ud800"`,
	quoted(strings.Repeat("9", 400)), quoted(strings.Repeat("\u00e4", 1500)),
	quoted(strings.Repeat("x", 70_000))}

// brokenStrings are none of JSON: bytes that are not UTF-8, overlong and cut sequences, surrogates,
// characters that have to be escaped, and escapes that are none.
var brokenStrings = []string{"\"\xff\"", "\"\xc0\xaf\"", "\"\xe0\x80\xaf\"", "\"\xed\xa0\x80\"",
	"\"\xf4\x90\x80\x80\"", "\"\xc3\"", "\"a\x00b\"", "\"a\x01b\"", "\"a\nb\"", `"\x41"`, `"\u12"`}

// isUnshown reports whether what stands in a place is taken and shown to nobody: members that are
// unknown are ignored, keys are compared, an empty text in what operators set is none, and some
// requests are about what is in flight alone, and are accepted where nothing is. Of an error no NUL
// and no half of a surrogate pair is kept, and no more than 16 KiB, so that each run can end.
func isUnshown(r hostileRoute, p textPlace, text string) bool {
	return p.isIgnored || strings.HasSuffix(p.name, ".idempotency_key") ||
		strings.HasSuffix(p.name, ".worker") || (text == "" && r.api == "admin") ||
		slices.Contains([]string{"PUT /v1/queues/jobs", "POST /v2/queues/completions",
			"POST /v2/queues/heartbeats", "POST /worker/v1/claims",
			"POST /worker/v1/outcomes"}, r.String()) ||
		(p.name == ".error" && (len(text) > 16<<10 || strings.ContainsAny(text, "\x00\ufffd")))
}

// TestHostileTexts: whatever stands in a string of a body, in a member of a path, a query parameter
// or a header of each route of each document, no answer is one of a defect, and what is accepted
// comes back as it was sent.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	onHostile(t, func(t *testing.T, n *hostileNode) {
		n.plant(t)
		w := &textWorld{hostileNode: n, maker: n.newMaker(), lost: map[string]bool{},
			jobs: map[string]string{}}
		w.each(t, func(r hostileRoute) {
			w.sendBodies(t, r)
			w.sendAround(t, r)
		})
		if w.sent < 4000 || w.came < 150 {
			t.Errorf("%d requests were sent, and %d texts came back", w.sent, w.came)
		}
		t.Logf("%d requests, %d texts came back", w.sent, w.came)
		n.wantHealthy(t)
		n.wantNoSecrets(t)
	})
}

// textWorld sends texts to a node.
type textWorld struct {
	*hostileNode
	maker *maker

	mu         sync.Mutex
	sent, came int
	lost       map[string]bool   // places whose texts do not come back, each reported once
	jobs       map[string]string // of runs that were claimed to be ended
}

// each calls a function for each route of a document, some at a time.
func (n *hostileNode) each(t *testing.T, ask func(hostileRoute)) {
	t.Helper()
	var asking sync.WaitGroup
	slots := make(chan struct{}, 4)
	for _, r := range n.routes {
		if r.operation == nil || r.isEndless() {
			continue
		}
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			ask(r)
		})
	}
	asking.Wait()
}

// rightfulHeader authenticates who may do everything with a route.
func (n *hostileNode) rightfulHeader(r hostileRoute) []string {
	if r.api == "fetchbox" && strings.HasPrefix(r.pattern, "/operators/") {
		return n.bearer("operator")
	}
	return n.bearer(rightful[r.api][0])
}

// ask sends a request of a caller who may and counts it. A route that waits gets none of its time.
func (w *textWorld) ask(t *testing.T, r hostileRoute, path, body string,
	header ...string) hostileReply {
	t.Helper()
	w.mu.Lock()
	w.sent++
	w.mu.Unlock()
	return w.do(t, r.method, path, body, append(w.rightfulHeader(r), header...)...)
}

// sendBodies puts each text into each place of the body of a route.
func (w *textWorld) sendBodies(t *testing.T, r hostileRoute) {
	t.Helper()
	schema := r.schemaOf()
	if schema == nil || r.pattern == "/admin/v1/token/rotate" {
		return
	}
	for i, p := range w.maker.places("", schema, 0) {
		for j, value := range hostileStrings {
			if !isFullHostile() && (i+j)%3 != 0 { // another third at each place
				continue
			}
			body := p.body(value)
			path := w.freshPath(t, r)
			got := w.ask(t, r, path, body)
			if got.status < 300 {
				w.wantBack(t, r, p, path, body, value, got)
			}
		}
		for j, value := range brokenStrings {
			if !isFullHostile() && (i+j)%3 != 0 {
				continue
			}
			if got := w.ask(t, r, w.path(t, r), p.body(value)); got.status < 400 {
				t.Errorf("%s takes %q as %s: %d %.300s", r, value, p.name, got.status, got.body)
			}
		}
	}
}

// freshPath is the path of a route with a run or a job that was not ended yet, where it ends one.
func (w *textWorld) freshPath(t *testing.T, r hostileRoute) string {
	t.Helper()
	values := maps.Clone(w.values)
	queue := fmt.Sprintf("fresh%d", w.maker.count.Add(1))
	switch {
	case strings.HasPrefix(r.pattern, "/worker/v1/runs/"):
		values["worker {job_id}"] = w.newTask(t, `{"name":"n","queue":"`+queue+`"}`)
		values["worker {run_id}"] = w.claimTask(t, queue)
		w.mu.Lock()
		w.jobs[values["worker {run_id}"]] = values["worker {job_id}"]
		w.mu.Unlock()
	case strings.HasPrefix(r.pattern, "/v2/") && strings.HasSuffix(r.pattern, "{run_id}"),
		r.String() == "PATCH /v1/queues/{queue}/jobs/{id}":
		w.as(t, "relay", "POST", "/v2/queues/jobs", `[{"queue":"`+queue+
			`","id":"1","timeout":600,"payload":1}]`, http.StatusAccepted, nil)
		var claimed []struct {
			RunID string `json:"run_id"`
		}
		w.as(t, "relay", "GET", "/v2/queues/"+queue+"/jobs", "", http.StatusOK, &claimed)
		values["relay {queue}"], values["relay {id}"] = queue, "1"
		values["relay {run_id}"] = claimed[0].RunID
	case r.method == http.MethodPut && r.api == "taskflow":
		values["taskflow {job_id}"] = w.newTask(t, `{"name":"n","queue":"`+queue+`"}`)
	}
	return r.path(t, values)
}

// wantBack fails unless a text that was accepted comes back, in the answer or in what the routes
// show afterwards.
func (w *textWorld) wantBack(t *testing.T, r hostileRoute, p textPlace, path, body, value string,
	got hostileReply) {
	t.Helper()
	var text string
	if err := json.Unmarshal([]byte(value), &text); err != nil {
		t.Fatal(err)
	}
	if isUnshown(r, p, text) {
		return
	}
	if isShown(got.body, value, text) {
		w.mu.Lock()
		w.came++
		w.mu.Unlock()
		return
	}
	for _, read := range w.readBack(t, r, path, body, got) {
		if isShown(read.body, value, text) {
			w.mu.Lock()
			w.came++
			w.mu.Unlock()
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := r.String() + p.name
	if w.lost[key] {
		return
	}
	w.lost[key] = true
	t.Errorf("%s took %.100s as %s and nothing shows it: %d %.300s", r, value, p.name, got.status,
		got.body)
}

// readBack reads what a request has made.
func (w *textWorld) readBack(t *testing.T, r hostileRoute, path, body string,
	got hostileReply) (all []hostileReply) {
	t.Helper()
	var answer struct {
		Number json.Number
		ID     string
		JobID  string `json:"job_id"`
		Name   string
		Jobs   map[string]string
	}
	_ = json.Unmarshal([]byte(got.body), &answer)
	read := func(caller, path string) {
		all = append(all, w.do(t, "GET", path, "", w.bearer(caller)...))
	}
	switch {
	case r.api == "relay":
		if r.method == "PATCH" {
			read("relay", strings.Split(path, "/run-id/")[0])
		}
		return append(all, w.readRelay(t, r, body)...)
	case r.api == "taskflow" && r.method == "PUT":
		read("taskflow", path)
	case r.api == "worker":
		_, run, _ := strings.Cut(path, "/runs/")
		run, _, _ = strings.Cut(run, "/")
		w.mu.Lock()
		id := w.jobs[run]
		w.mu.Unlock()
		answer.ID = id
	case r.api == "admin" && r.method == "PATCH":
		read("operator", path)
	case strings.HasSuffix(r.pattern, "/schedules"):
		read("operator", "/admin/v1/schedules/"+url.PathEscape(answer.Name))
	case answer.Number != "":
		all = append(all, w.readJob(t, "number="+answer.Number.String())...)
	}
	for _, id := range append(slices.Collect(maps.Values(answer.Jobs)), answer.ID, answer.JobID) {
		if id != "" {
			all = append(all, w.readJob(t, "id="+id)...)
		}
	}
	return all
}

// readJob reads all that operators see of a job.
func (w *textWorld) readJob(t *testing.T, query string) (all []hostileReply) {
	t.Helper()
	var list struct {
		Items []struct{ Number json.Number }
	}
	w.as(t, "operator", "GET", "/admin/v1/jobs?"+query, "", http.StatusOK, &list)
	for _, item := range list.Items {
		for _, part := range []string{"", "/payload", "/definition", "/progress", "/result",
			"/failure"} {
			all = append(all, w.do(t, "GET", "/admin/v1/jobs/"+item.Number.String()+part, "",
				w.bearer("operator")...))
		}
	}
	return all
}

// readRelay reads the jobs of a body of Relay.
func (w *textWorld) readRelay(t *testing.T, r hostileRoute, body string) (all []hostileReply) {
	t.Helper()
	type named struct{ Queue, ID string }
	var jobs []named
	var one named
	if json.Unmarshal([]byte(body), &jobs) != nil && json.Unmarshal([]byte(body), &one) == nil {
		jobs = []named{one}
	}
	for _, j := range jobs {
		all = append(all, w.do(t, "GET", r.pattern[:3]+"/queues/"+escape(j.Queue)+"/jobs/"+
			escape(j.ID), "", w.bearer("relay")...))
	}
	return all
}

// escape escapes a member of a path, dots included, which clients would resolve.
func escape(member string) string {
	return strings.ReplaceAll(url.PathEscape(member), ".", "%2E")
}

// isShown reports whether an answer has a text: as it was sent, or as a string or a name in it. A
// surrogate alone is no text, so it has to be there as it was sent.
func isShown(body, sent, text string) bool {
	if strings.Contains(body, sent) {
		return true
	}
	var value any
	if strings.Contains(sent, `\ud800"`) || json.Unmarshal([]byte(body), &value) != nil {
		return false
	}
	return holds(value, text)
}

func holds(value any, text string) bool {
	switch value := value.(type) {
	case string:
		return value == text
	case []any:
		return slices.ContainsFunc(value, func(one any) bool { return holds(one, text) })
	case map[string]any:
		for name, one := range value {
			if name == text || holds(one, text) {
				return true
			}
		}
	}
	return false
}

// hostileBytes are what members of paths and query parameters may be that no string can.
var hostileBytes = []string{"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x00",
	"a\x00b", "..", "../..", ".", "/", "a/b", "\\", "%", "%2F", "+", ";", "#?&=", "'", "' OR 1=1--", "\r\n",
	"\t", "99999999999999999999999", "-1", "0x1", "1e3", "\u202e", "*", ">", "{}"}

// sendAround puts texts into the members of the path, the query parameters and the headers of a
// route.
func (w *textWorld) sendAround(t *testing.T, r hostileRoute) {
	t.Helper()
	if r.pattern == "/admin/v1/token/rotate" {
		return
	}
	body := ""
	if schema := r.schemaOf(); schema != nil {
		body = w.maker.sample("", schema)
	}
	parts := strings.Split(w.path(t, r), "/")
	for i, part := range strings.Split(r.pattern, "/") {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		for j, text := range append(hostileBytes, strings.Repeat("x", 3000)) {
			if !isFullHostile() && (i+j)%3 != 0 {
				continue
			}
			changed := slices.Clone(parts)
			changed[i] = escape(text)
			w.ask(t, r, strings.Join(changed, "/"), body)
		}
	}
	for i, parameter := range r.parameters {
		name := parameter.Value.Name
		for j, text := range append(hostileBytes, strings.Repeat("x", 3000)) {
			if !isFullHostile() && (i+j)%3 != 0 {
				continue
			}
			switch parameter.Value.In {
			case "query":
				undocumented := ""
				if len(text) > 20 && strings.Trim(text, "9") == "" { // as good as the largest
					undocumented = "1"
				}
				w.ask(t, r, w.path(t, r)+"?"+url.Values{name: {text}}.Encode(), body,
					testkit.HeaderUndocumented, undocumented)
			case "header":
				if !strings.ContainsAny(text, "\x00\r\n") { // Go sends no other
					w.ask(t, r, w.path(t, r), body, name, text, testkit.HeaderUndocumented,
						map[string]string{"Last-Event-ID": "1"}[name]) // of a browser
				}
			}
		}
	}
}
