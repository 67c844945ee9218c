package admin_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// allMethods are those that a refusal is asked for.
var allMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}

// TestEveryMethodOfEveryPath: G-AD-01, AD-001: without credentials, and with wrong ones, each
// method of each path is 401, whether a route has it or not. With the token a method that no route
// has is 405, and HEAD goes where GET goes.
func TestEveryMethodOfEveryPath(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	methods, endless := map[string][]string{}, map[string]bool{}
	for _, row := range table() {
		path := pathMember.ReplaceAllString(row.Pattern, "1")
		if row.Public {
			continue
		}
		endless[path] = endless[path] || row.Endless
		methods[path] = append(methods[path], row.Method)
		if row.Method == http.MethodGet {
			methods[path] = append(methods[path], http.MethodHead)
		}
	}
	for path, known := range methods {
		for _, method := range allMethods {
			for _, header := range [][]string{nil, {"Authorization", "Bearer wrong"},
				{"Cookie", "millrace_session=wrong"}} {
				if r := w.Do(t, method, path, "", header...); r.Status != 401 {
					t.Errorf("G-AD-01 %s %s with %v: got %d", method, path, header, r.Status)
				}
			}
			if slices.Contains(known, method) {
				continue
			}
			r := w.do(t, w.api.Token(), method, path, "")
			member := r.Status == 404 && path == "/admin/v1/dead-letters/groups" // or an id
			if r.Status != 405 && !member {
				t.Errorf("G-AD-01 %s %s: got %d", method, path, r.Status)
			}
		}
		if !slices.Contains(known, http.MethodGet) || endless[path] {
			continue
		}
		got, head := w.do(t, readToken, "GET", path, ""), w.do(t, readToken, "HEAD", path, "")
		if got.Status != head.Status || head.Body != "" {
			t.Errorf("G-AD-01 %s: GET has %d, HEAD %d %q", path, got.Status, head.Status, head.Body)
		}
	}
}

// TestMisspeltQueries: a query parameter that a route does not have is refused by each route, by
// name, and so is one of its own without its last letter, one that comes twice, and an empty one.
func TestMisspeltQueries(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	session := with(w.login(t, "token="+w.api.Token()))
	for _, row := range table() {
		if row.Public {
			continue
		}
		path := pathMember.ReplaceAllString(row.Pattern, "1")
		wrong := []string{"filter=x", "Limit=1", "limits=1"}
		for _, name := range row.Query {
			if short := name[:len(name)-1]; !slices.Contains(row.Query, short) {
				wrong = append(wrong, short+"=1")
			}
			wrong = append(wrong, name+"=", name+"=1&"+name+"=1")
		}
		for _, query := range wrong {
			named, _, _ := strings.Cut(query, "=")
			if strings.HasPrefix(row.Pattern, "/admin/") {
				r := w.do(t, w.api.Token(), row.Method, path+"?"+query, "")
				r.WantError(t, 400, "VALIDATION_ERROR", named)
				continue
			}
			// Forms send fields that are left empty. Manifests are FetchBox's, which is not there.
			if strings.HasSuffix(query, "=") || (path == "/console/manifests") {
				continue
			}
			r := w.Do(t, row.Method, path+"?"+query, "", session...)
			isOfNothing := (r.Status == 404) && (path != row.Pattern)
			if isOfNothing {
				continue
			}
			if (r.Status != 400) || !strings.Contains(r.Body, named) {
				t.Errorf("%s %s?%s: got %d %s", row.Method, path, query, r.Status, r.Body)
			}
		}
	}
}

// refusedWorld has something for each route to change.
type refusedWorld struct {
	*hooksWorld
	bodies map[string]string // of the routes that need one, by action
	paths  map[string]string // members of paths, by the pattern before them
	jobs   map[string]int64  // that allow an action, by it; the others are done to any
	own    map[string]string // webhooks of operators, by the actions that only these allow
}

// TestRefusedChangesNothing: AD-001, AD-004, AD-005: a change with no token, a wrong one, the read
// token or a foreign origin is refused by each route, and changes nothing of what all routes show
// and the store has. The same request with the token changes something, which is one entry of the
// audit.
func TestRefusedChangesNothing(t *testing.T) {
	withHooks(t, func(t *testing.T, hooks *hooksWorld) {
		w := &refusedWorld{hooksWorld: hooks}
		w.fill(t)
		before := w.snapshot(t)
		session := with(w.login(t, "token="+w.api.Token()))
		reading := with(w.login(t, "token="+readToken))
		types := []string{"application/json", "application/x-www-form-urlencoded", "text/plain"}
		if strings.HasSuffix(t.Name(), "/postgres") {
			types = types[:1] // no type of a body that is refused reaches a store
		}
		for _, row := range w.changes() {
			path, body := w.request(row)
			for name, header := range map[string][]string{"no token": nil,
				"a wrong token":             {"Authorization", "Bearer wrong"},
				"the read token":            {"Authorization", "Bearer " + readToken},
				"a session that only reads": reading,
				"a wrong session":           {"Cookie", "millrace_session=wrong"},
				"a foreign origin":          append([]string{"Origin", "http://evil.example"}, session...),
				"another site":              append([]string{"Sec-Fetch-Site", "cross-site"}, session...),
				"a sibling site":            append([]string{"Sec-Fetch-Site", "same-site"}, session...),
				"a frame without an origin": append([]string{"Origin", "null"}, session...),
			} {
				for _, sent := range types {
					r := w.Do(t, row.Method, path, body, append(header, "Content-Type", sent)...)
					if r.Status != 401 && r.Status != 403 {
						t.Errorf("%s %s of %s with %s: got %d %s", row.Method, path, sent, name,
							r.Status, r.Body)
					}
				}
			}
		}
		if after := w.snapshot(t); after != before {
			t.Errorf("refused changes have changed something:\n%s\n%s", before, after)
		}
		// What changes the most comes last, so that each finds what it is about.
		rows := w.changes()
		slices.SortStableFunc(rows, func(a, b admin.TableRow) int {
			return order(a.Action) - order(b.Action)
		})
		for _, row := range rows {
			if !strings.HasPrefix(row.Pattern, "/admin/") {
				continue // a form, which takes no JSON
			}
			path, body := w.request(row)
			action := cmp.Or(startsBulk[row.Action], row.Action)
			noted := w.refusals(t, action)["null"]
			r := w.do(t, w.api.Token(), row.Method, path, body, "Content-Type", "application/json")
			if isOfInbox(row) {
				r.WantError(t, http.StatusNotFound, "NOT_FOUND")
				continue
			}
			if got := w.refusals(t, action)["null"] - noted; got != 1 {
				t.Errorf("AD-005 %s %s has %d entries in the audit", row.Method, path, got)
			}
			if r.Status >= 300 {
				t.Errorf("%s %s is no change with the token: %d %s", row.Method, path, r.Status,
					r.Body)
			}
		}
		if w.snapshot(t) == before {
			t.Error("the changes with the token are not seen")
		}
	})
}

// TestReadsChangeNothing: AD-005: whoever reads, no route and no page that only shows changes what
// the routes show, the audit has and the store keeps.
func TestReadsChangeNothing(t *testing.T) {
	withHooks(t, func(t *testing.T, hooks *hooksWorld) {
		w := &refusedWorld{hooksWorld: hooks}
		w.fill(t)
		callers := [][]string{with(w.login(t, "token="+w.api.Token())),
			{"Authorization", "Bearer " + readToken}}
		before, newest := w.snapshot(t), w.newestEntry(t)
		shown := 0
		for _, row := range table() {
			if row.Changes || row.Endless {
				continue
			}
			path, _ := w.request(row)
			for _, caller := range callers {
				r := w.Do(t, row.Method, path+neededQueries[row.Action], "", caller...)
				switch {
				case r.Status == http.StatusOK:
					shown++
				case r.Status >= 500:
					t.Errorf("%s answers %d %s", path, r.Status, r.Body)
				}
			}
		}
		if shown < 100 {
			t.Errorf("only %d reads have shown something", shown)
		}
		if after := w.snapshot(t); after != before {
			t.Errorf("reads have changed something:\n%s\n%s", before, after)
		}
		if after := w.newestEntry(t); after != newest {
			t.Errorf("reads have made the entry %s of the audit", after)
		}
	})
}

// startsBulk are the actions that start a bulk operation, which has its own entry.
var startsBulk = map[string]string{"queue.clear": "bulk.start", "webhook.replay": "bulk.start"}

// order puts what deletes behind what changes, and the rotation of the token last.
func order(action string) int {
	switch {
	case action == "token.rotate":
		return 2
	case strings.HasSuffix(action, ".delete") || strings.HasSuffix(action, ".discard"):
		return 1
	}
	return 0
}

// changes returns the rows that change something, without those of the caller's own session.
func (w *refusedWorld) changes() (rows []admin.TableRow) {
	for _, row := range table() {
		if row.Changes && !row.Public && !row.AnyToken {
			rows = append(rows, row)
		}
	}
	return rows
}

// fill makes a job, a dead letter, a key, a schedule, a bulk operation, a worker and a node.
func (w *refusedWorld) fill(t *testing.T) {
	t.Helper()
	w.status.Store(http.StatusOK)
	w.fillJobs(t)
	j := w.submitJob(t, "taskflow", `{"name":"a","queue":"q"}`, "")
	w.send(t, "POST", "", `{"name":"nightly","every":"1h",`+nightly+`}`).WantStatus(t, 201)
	id := w.startBulk(t, "/admin/v1/bulk", `{"action":"rerun","rate":1,"filter":{"queue":"none"}}`)
	if _, _, err := w.engine.ClaimRemote(t.Context(), engine.ClaimRequest{JobType: "taskflow",
		Queues: []string{"none"}, Max: 1, Worker: "host:1"}, "sdk"); err != nil {
		t.Fatal(err)
	}
	describe(t, w.engine, w.clock)
	deadLetter := w.deadLetters(t, "?queue=discarded", 1).Items[0].ID
	own := w.subscribe(t, `{"url":"http://a.example","events":["queue.*"]}`).ID
	w.own = map[string]string{"webhook.set": own, "webhook.rotate": own, "webhook.delete": own}
	w.paths = map[string]string{"jobs": fmt.Sprint(j.Number), "dead-letters": fmt.Sprint(deadLetter),
		"schedules": "nightly", "bulk": id, "workers": "host:1", "nodes": w.engine.Node(),
		"webhooks": w.id, "deliveries": w.id, "queues": "taskflow", "taskflow": "q", "clients": w.client,
		"keys": w.key(t).Key.ID, "inbox": strings.TrimPrefix(noRequest, "/admin/v1/inbox/")}
	w.bodies = map[string]string{"job.submit": `{"contract":"taskflow",` +
		`"request":{"name":"b","queue":"q"}}`, "queue.set": `{"paused":true}`,
		"schedule.create": `{"name":"other","every":"1h",` + nightly + `}`,
		"schedule.set":    `{"every":"2h"}`,
		"client.set":      `{"quota_per_day":5}`,
		"webhook.create":  `{"url":"http://b.example","events":["queue.*"]}`,
		"webhook.set":     `{"name":"other"}`,
		"bulk.start":      `{"action":"delete","filter":{"queue":"q"}}`}
}

// fillJobs makes a job for each action that not every state allows.
func (w *refusedWorld) fillJobs(t *testing.T) {
	t.Helper()
	task := func() int64 { return w.submitJob(t, "taskflow", `{"name":"a","queue":"t"}`, "").Number }
	w.jobs = map[string]int64{"job.rerun": w.failTask(t, "dead", `{"error":"x"}`).Number,
		"job.run-now": task()}
	w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Failed, Delay: time.Hour})
	w.jobs["job.release"] = task()
	w.claim(t, "taskflow")
	w.jobs["job.retry"] = w.failRun(t).Number
	w.failTask(t, "discarded", `{"error":"x"}`)
	w.jobs["job.cancel"] = w.submitJob(t, "forgerun",
		`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`, fmt.Sprintf(`,"owner":%q`, w.client)).Number
}

// request returns the path and the body of a change.
func (w *refusedWorld) request(row admin.TableRow) (path, body string) {
	parts := strings.Split(row.Pattern, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i] = w.paths[parts[i-1]]
		}
		if number, ok := w.jobs[row.Action]; ok && part == "{number}" {
			parts[i] = fmt.Sprint(number)
		}
		if id, ok := w.own[row.Action]; ok && part == "{id}" {
			parts[i] = id
		}
	}
	return strings.Join(parts, "/"), w.bodies[row.Action]
}

// snapshot returns all that the routes without members of paths show, and all jobs. The audit and
// what a process shows of itself are left out.
func (w *refusedWorld) snapshot(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, row := range table() {
		if row.Changes || row.Endless || strings.Contains(row.Pattern, "{") || slices.Contains([]string{
			"audit.list", "health.show", "node.list"}, row.Action) ||
			!strings.HasPrefix(row.Pattern, "/admin/") {
			continue
		}
		r := w.do(t, w.api.Token(), "GET", row.Pattern+neededQueries[row.Action], "")
		fmt.Fprintln(&all, row.Pattern, r.WantStatus(t, http.StatusOK).Body)
	}
	jobs, err := w.engine.List(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		fmt.Fprintln(&all, *j)
	}
	drained := w.engine.IsDraining(engine.DrainWorker, "host:1")
	fmt.Fprintln(&all, drained, w.engine.IsDraining(engine.DrainNode, w.engine.Node()))
	return all.String()
}
