package admin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

// twinAction is an action that a contract has a route for: of two jobs alike one gets it by the
// contract's own route and one by the admin API.
type twinAction struct {
	name string
	// begin makes the n-th job, as the action needs it. Its number is 0 where the action makes it.
	begin func(t *testing.T, w *allWorld, n int) jobState
	// own and admin return the job that the action is about then.
	own, admin func(t *testing.T, w *allWorld, j jobState) int64
}

// byAdmin is an action of the admin API.
func byAdmin(action string) func(*testing.T, *allWorld, jobState) int64 {
	return func(t *testing.T, w *allWorld, j jobState) int64 {
		t.Helper()
		return w.acted(t, j.Number, action).Number
	}
}

// replayByAdmin replays the dead letter of a job by the admin API.
func replayByAdmin(t *testing.T, w *allWorld, j jobState) int64 {
	t.Helper()
	deadLetter := *w.detailOf(t, j.Number).DeadLetter
	return testkit.DecodeReply[jobState](t, w.replay(t, deadLetter, "").WantStatus(t, 200)).Number
}

// submitByAdmin submits a job by the admin API. Each %d of the request is the number of the twin.
func submitByAdmin(name, request, more string) func(*testing.T, *allWorld, jobState) int64 {
	return func(t *testing.T, w *allWorld, j jobState) int64 {
		t.Helper()
		if name == "forgerun" {
			more = fmt.Sprintf(`,"owner":%q`, w.client)
		}
		return w.submitJob(t, name, strings.ReplaceAll(request, "%d", j.ID), more).Number
	}
}

// route is a route of a contract, of which PATH has ID in the place of the job's id.
func route(method, path string) func(*testing.T, *allWorld, jobState) int64 {
	return func(t *testing.T, w *allWorld, j jobState) int64 {
		t.Helper()
		w.ask(t, method, strings.ReplaceAll(path, "ID", j.ID), "")
		return j.Number
	}
}

// submitByRoute submits by the route of a contract, whose answer names the job in a member; "": the
// request does, as its number.
func submitByRoute(name, path, body, member string,
	header ...string) func(*testing.T, *allWorld, jobState) int64 {
	return func(t *testing.T, w *allWorld, j jobState) int64 {
		t.Helper()
		r := w.ask(t, "POST", path, strings.ReplaceAll(body, "%d", j.ID), header...)
		if member == "" {
			return w.find(t, name, j.ID).Number
		}
		id := testkit.DecodeReply[map[string]any](t, r)[member]
		return w.find(t, name, fmt.Sprint(id)).Number
	}
}

// releaseByWorker is the release of a worker, over the worker API.
func releaseByWorker(t *testing.T, w *allWorld, j jobState) int64 {
	t.Helper()
	found, err := w.engine.GetBySeqs(t.Context(), []int64{j.Number}, store.DefinitionOnly)
	if err != nil || len(found) != 1 {
		t.Fatal(err)
	}
	w.report(t, engine.Run{Run: found[0].Run}, "release", "")
	return j.Number
}

// replayOfFetchBox replays the newest dead letter by the route of FetchBox.
func replayOfFetchBox(t *testing.T, w *allWorld, j jobState) int64 {
	t.Helper()
	offset := testkit.DecodeReply[struct {
		Items []struct{ Offset int64 }
	}](t, w.ask(t, "GET", "/operators/dlq", "")).Items[0].Offset
	w.ask(t, "POST", fmt.Sprintf("/operators/dlq/%d/replay", offset), "")
	return j.Number
}

// replayOfImages replays a dead letter by the route of Images.
func replayOfImages(t *testing.T, w *allWorld, j jobState) int64 {
	t.Helper()
	return w.find(t, "images", testkit.DecodeReply[struct {
		ID string `json:"job_id"`
	}](t, w.ask(t, "POST", "/images/v1/dead-letters/"+j.ID+"/replay", "")).ID).Number
}

const (
	relayJob = `{"queue":"q","id":"%d","timeout":60,"max_retries":0,"payload":1}`
	task     = `{"name":"a","queue":"q"}`
	work     = `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`
)

// submitted makes a job by the admin API; then lets something happen to it.
func submitted(name, request string,
	then ...func(*testing.T, *allWorld, jobState)) func(*testing.T, *allWorld, int) jobState {
	return func(t *testing.T, w *allWorld, n int) jobState {
		t.Helper()
		more := ""
		if name == "forgerun" {
			more = fmt.Sprintf(`,"owner":%q`, w.client)
		}
		j := w.submitJob(t, name, strings.ReplaceAll(request, "%d", fmt.Sprint(n)), more)
		for _, do := range then {
			do(t, w, j)
		}
		return j
	}
}

func leased(t *testing.T, w *allWorld, j jobState) { t.Helper(); w.lease(t, j.Number) }
func broken(t *testing.T, w *allWorld, j jobState) { t.Helper(); w.breakJob(t, j.Number) }

func started(t *testing.T, w *allWorld, j jobState) {
	t.Helper()
	w.end(t, w.lease(t, j.Number), engine.Outcome{On: job.Started})
}

// failedRun lets a run of ForgeRun fail that may be tried again.
func failedRun(t *testing.T, w *allWorld, j jobState) {
	t.Helper()
	run := w.lease(t, j.Number)
	w.end(t, run, engine.Outcome{On: job.Started})
	w.end(t, run, engine.Outcome{On: job.Failed, Failure: []byte(`{"code":"x"}`)})
}

// uploaded uploads a picture.
func uploaded(then func(*testing.T, *allWorld, jobState)) func(*testing.T, *allWorld,
	int) jobState {
	return func(t *testing.T, w *allWorld, _ int) jobState {
		t.Helper()
		j := w.upload(t)
		then(t, w, j)
		return j
	}
}

// resource submits a manifest and returns its resource.
func resource(then func(*testing.T, *allWorld, jobState)) func(*testing.T, *allWorld,
	int) jobState {
	return func(t *testing.T, w *allWorld, _ int) jobState {
		t.Helper()
		_, j := w.fetch(t)
		then(t, w, j)
		return j
	}
}

// fetched submits a manifest and returns its job; then lets something happen to its resource.
func fetched(then ...func(*testing.T, *allWorld, jobState)) func(*testing.T, *allWorld,
	int) jobState {
	return func(t *testing.T, w *allWorld, _ int) jobState {
		t.Helper()
		of, j := w.fetch(t)
		for _, do := range then {
			do(t, w, j)
		}
		return of
	}
}

// nothing is the twin of a submission: its id alone.
func nothing(_ *testing.T, _ *allWorld, n int) jobState { return jobState{ID: fmt.Sprint(n)} }

var twinActions = []twinAction{
	{"relay: submit", nothing, submitByRoute("relay", "/v2/queues/jobs", "["+relayJob+"]", ""),
		submitByAdmin("relay", relayJob, "")},
	{"relay: delete", submitted("relay", relayJob), route("DELETE", "/v2/queues/q/jobs/ID"),
		byAdmin("delete")},
	{"relay: delete what runs", submitted("relay", relayJob, leased),
		route("DELETE", "/v2/queues/q/jobs/ID"), byAdmin("delete")},

	{"taskflow: submit", nothing, submitByRoute("taskflow", "/api/v1/jobs", task, "id"),
		submitByAdmin("taskflow", task, "")},
	{"taskflow: delete", submitted("taskflow", task), route("DELETE", "/api/v1/jobs/ID"),
		byAdmin("delete")},
	{"taskflow: delete what is dead", submitted("taskflow", task, broken),
		route("DELETE", "/api/v1/jobs/ID"), byAdmin("delete")},
	{"taskflow: release", submitted("taskflow", task, leased), releaseByWorker,
		byAdmin("release")},
	{"taskflow: cancel what runs", submitted("taskflow", task, leased),
		route("POST", "/api/v1/jobs/ID/cancel"), byAdmin("cancel")},

	{"forgerun: submit", nothing, submitByRoute("forgerun", "/v1/jobs", work, "job_id"),
		submitByAdmin("forgerun", work, "")},
	{"forgerun: cancel", submitted("forgerun", work), route("POST", "/v1/jobs/ID/cancel"),
		byAdmin("cancel")},
	{"forgerun: cancel what runs", submitted("forgerun", work, started),
		route("POST", "/v1/jobs/ID/cancel"), byAdmin("cancel")},
	{"forgerun: retry", submitted("forgerun", work, failedRun),
		route("POST", "/v1/jobs/ID/retry"), byAdmin("retry")},
	{"forgerun: release", submitted("forgerun", work, leased), releaseByWorker,
		byAdmin("release")},

	{"fetchbox: submit", nothing, submitByRoute("fetchbox", "/jobs", manifest, "job_id",
		"X-Fetchbox-Job-Type", "default", "X-Fetchbox-Tenant", "tenant"),
		submitByAdmin("fetchbox", manifest, `,"job_type":"default","owner":"tenant"`)},
	{"fetchbox: cancel", fetched(), route("POST", "/operators/jobs/ID/cancel"),
		byAdmin("cancel")},
	{"fetchbox: retry a job", fetched(broken), route("POST", "/operators/jobs/ID/retry"),
		byAdmin("retry")},
	{"fetchbox: retry", resource(broken), replayOfFetchBox, byAdmin("retry")},
	{"fetchbox: replay", resource(broken), replayOfFetchBox, replayByAdmin},
	{"fetchbox: release", resource(leased), releaseByWorker, byAdmin("release")},

	{"images: rerun", uploaded(broken), replayOfImages, byAdmin("rerun")},
	{"images: replay", uploaded(broken), replayOfImages, replayByAdmin},
	{"images: release", uploaded(leased), releaseByWorker, byAdmin("release")},
}

// AD-016, AD-017, AD-051: what an operator does leaves what the contract's own route leaves: the
// same job, events and timeline, messages, webhook deliveries, counts (AD-018), dead letters and
// metrics.
func TestSameAsOwnRoute(t *testing.T) {
	withAll(t, func(t *testing.T, w *allWorld) {
		for _, c := range w.contracts {
			if c.Webhooks == nil {
				continue
			}
			if _, _, err := c.Webhooks.Register(t.Context(), w.client, "https://example.com/in",
				[]string{"job_created", "job_queued", "job_canceled", "job_failed", "job_requeued"},
				""); err != nil {
				t.Fatal(err)
			}
		}
		for i, a := range twinActions {
			own := w.observe(t, a.begin(t, w, 2*i), a.own)
			admin := w.observe(t, a.begin(t, w, 2*i+1), a.admin)
			for _, what := range slices.Sorted(maps.Keys(own)) {
				if own[what] != admin[what] {
					t.Errorf("AD-016 %s: %s\nby the own route %s\nby an operator  %s", a.name, what,
						own[what], admin[what])
				}
			}
			expected := []string{"job", "counts"} // so that two unknowns are not taken for the same
			if !strings.Contains(a.name, "delete") {
				expected = append(expected, "timeline")
			}
			if strings.HasPrefix(a.name, "forgerun") {
				expected = append(expected, "deliveries", "messages")
			}
			for _, what := range expected {
				if own[what] == "" || own[what] == "[]" {
					t.Errorf("%s: nothing is known of %s", a.name, what)
				}
			}
		}
	})
}

// observe returns what an action on a job has left, each part as a text.
func (w *allWorld) observe(t *testing.T, j jobState,
	act func(*testing.T, *allWorld, jobState) int64) map[string]string {
	t.Helper()
	w.publish(t)
	counts, deadLetters, metrics := w.countsNow(t), w.deadLettersNow(t), w.metricsNow(t)
	deliveries := w.deliveriesNow(t)
	number := act(t, w, j)
	sent := w.publish(t)
	slices.Sort(sent)
	seen := map[string]string{
		"messages":     fmt.Sprint(sent),
		"counts":       changes(counts, w.countsNow(t)),
		"dead letters": changes(deadLetters, w.deadLettersNow(t)),
		"metrics":      changes(metrics, w.metricsNow(t)),
		"deliveries":   changes(deliveries, w.deliveriesNow(t)),
	}
	seen["job"], seen["timeline"] = w.jobNow(t, number)
	if number != j.Number && j.Number > 0 {
		seen["the job before"], seen["its timeline"] = w.jobNow(t, j.Number)
	}
	return seen
}

// changes tells how counts have changed.
func changes(before, after map[string]int64) string {
	var all []string
	for name := range after {
		if n := after[name] - before[name]; n != 0 {
			all = append(all, fmt.Sprintf("%s %+d", name, n))
		}
	}
	for name, n := range before {
		if _, is := after[name]; !is && n != 0 {
			all = append(all, fmt.Sprintf("%s %+d", name, -n))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// countsNow are the counts of jobs (AD-018), which are the dead ones of queues too.
func (w *allWorld) countsNow(t *testing.T) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, by := range []string{"contract", "queue", "phase", "state", "kind"} {
		for _, n := range get[struct{ Items []map[string]any }](t, w.world,
			"/admin/v1/counts?limit=500&by="+by).Items {
			counts[fmt.Sprint(by, " ", n["contract"], " ", n[by])] = int64(n["count"].(float64))
		}
	}
	for _, q := range get[struct{ Items []map[string]any }](t, w.world,
		"/admin/v1/queues?limit=500").Items {
		counts[fmt.Sprint("dead ", q["contract"], " ", q["queue"])] = int64(q["dead"].(float64))
	}
	return counts
}

// deadLettersNow counts dead letters: the open ones, those that were replayed as the same job, and
// those that were replayed as another.
func (w *allWorld) deadLettersNow(t *testing.T) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, l := range get[deadLetters](t, w.world, "/admin/v1/dead-letters?limit=500").Items {
		how := "open"
		switch {
		case l.ReplayedAs != nil && *l.ReplayedAs == l.Number:
			how = "replayed as itself"
		case l.ReplayedAs != nil:
			how = "replayed as another"
		}
		counts[l.Contract+" "+how]++
	}
	return counts
}

// deliveriesNow counts the deliveries of webhooks by event and state.
func (w *allWorld) deliveriesNow(t *testing.T) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, h := range get[struct{ Items []hook }](t, w.world, "/admin/v1/webhooks").Items {
		for _, d := range get[struct{ Items []map[string]any }](t, w.world,
			"/admin/v1/webhooks/"+h.ID+"/deliveries?limit=500").Items {
			counts[fmt.Sprint(d["event_name"], " ", d["state"])]++
		}
	}
	return counts
}

// metricsNow are the counters and gauges of all contracts, but for those of requests and queries:
// an operator makes others.
func (w *allWorld) metricsNow(t *testing.T) map[string]int64 {
	t.Helper()
	values := map[string]int64{}
	for name, registry := range w.metrics {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if ofRequests.MatchString(f.GetName()) {
				continue
			}
			for _, m := range f.GetMetric() {
				key := name + " " + f.GetName()
				for _, l := range m.GetLabel() {
					key += " " + l.GetName() + "=" + l.GetValue()
				}
				values[key] = int64(m.GetCounter().GetValue() + m.GetGauge().GetValue())
				if h := m.GetHistogram(); h != nil {
					values[key] = int64(h.GetSampleCount())
				}
			}
		}
	}
	return values
}

// ofRequests are the metrics of requests and queries.
var ofRequests = regexp.MustCompile(`request|http|db_query`)

// differing is what differs between jobs that are alike: ids, and where the log of one begins.
var differing = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|"cursor":\d+`)

// jobNow returns a job and its timeline, without what differs between jobs that are alike: their
// names, and when a delay ends that is random.
func (w *allWorld) jobNow(t *testing.T, number int64) (item, timeline string) {
	t.Helper()
	path := fmt.Sprintf("/admin/v1/jobs/%d", number)
	r := w.do(t, w.api.Token(), "GET", path, "")
	if r.Status == 404 {
		return "gone", ""
	}
	shown := testkit.DecodeReply[map[string]any](t, r.WantStatus(t, 200))
	for _, name := range []string{"number", "id", "links", "parent", "dead_letter", "replayed_as"} {
		shown[name] = shown[name] != nil
	}
	if shown["phase"] == "waiting" {
		shown["due_at"] = nil
	}
	text, err := json.Marshal(shown)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range w.timelineOf(t, number).Entries {
		if e.Kind == "operator" {
			continue
		}
		state := ""
		if e.State != nil {
			state = *e.State
		}
		timeline += fmt.Sprint(e.Kind, " ", state, "; ")
	}
	return differing.ReplaceAllString(string(text), "…"), timeline
}
