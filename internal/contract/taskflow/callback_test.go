package taskflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

const callbackURL = "https://example.com/done?key=1"

// callbackOf is the member of a job.
func callbackOf(url string, events ...string) string {
	member := fmt.Sprintf(`"callback":{"url":%q`, url)
	if len(events) > 0 {
		text, _ := json.Marshal(events)
		member += `,"events":` + string(text)
	}
	return member + "}"
}

// withCallbacks is a config that takes callbacks.
func withCallbacks() taskflow.Config {
	c := config()
	c.Callbacks = contract.Callbacks{Allowed: true}
	return c
}

// wantCallback checks the callback of a job as it is stored, "" for none, and that it is shown.
func (w *world) wantCallback(t testing.TB, id, want string) {
	t.Helper()
	v := testkit.DecodeReply[struct {
		Callback *struct {
			URL    string
			Events []string
		}
	}](t, w.Do(t, "GET", pathOf(id), "").WantStatus(t, 200))
	shown := ""
	if v.Callback != nil {
		shown = strings.Join(append([]string{v.Callback.URL}, v.Callback.Events...), " ")
	}
	j, err := w.engine.Get(t.Context(), engineJobID(id))
	if err != nil || shown != want || j.Callback != want {
		t.Errorf("WH-005 the callback is %q, stored %q, want %q: %v", shown, j.Callback, want, err)
	}
}

// WH-005: a callback is set with the job, stays through all of its attempts and updates, and goes
// to the copies of a rerun.
func TestCallback(t *testing.T) {
	onEveryStoreWith(t, withCallbacks(), func(t *testing.T, w *world) {
		id := w.create(t, callbackOf(callbackURL)).ID
		w.wantCallback(t, id, callbackURL)
		w.wantCallback(t, w.create(t).ID, "")
		events := []string{"taskflow.job.started", "*.completed"}
		w.wantCallback(t, w.create(t, callbackOf(callbackURL, events...)).ID,
			callbackURL+" taskflow.job.started *.completed")

		w.put(t, id, `"priority":9`, callbackOf(callbackURL)) // as it is
		for _, other := range []string{callbackOf("https://other.example/"),
			callbackOf(callbackURL, events...)} {
			w.Do(t, "PUT", pathOf(id), "{"+other+"}").WantError(t, 400, "VALIDATION_ERROR",
				"callback")
		}
		w.fail(t, id, true)
		w.clock.Advance(time.Hour)
		w.runMaintenance(t)
		w.wantCallback(t, id, callbackURL)
		w.fail(t, id, false)

		copies := w.rerun(t, pathOf(id)+"/rerun", "")
		w.wantCallback(t, copies[id], callbackURL)
		w.fail(t, copies[id], false)
		again := w.rerun(t, pathOf(copies[id])+"/graph/rerun", "")
		w.wantCallback(t, again[copies[id]], callbackURL)

		ids := w.graph(t, strings.TrimSuffix(leaf("a"), "}")+","+callbackOf(callbackURL)+"}",
			vertex("b", "a"))
		w.wantCallback(t, ids["a"], callbackURL)
		w.wantCallback(t, ids["b"], "")
	})
}

// WH-005: a callback that may not be called, or names events that a job cannot have, is refused
// when it is named, and nothing is stored.
func TestCallbackRefused(t *testing.T) {
	onEveryStoreWith(t, withCallbacks(), func(t *testing.T, w *world) {
		const code = "VALIDATION_ERROR"
		for url, why := range testkit.HostileURLs {
			w.Do(t, "POST", jobsPath, jobSpec(callbackOf(url))).WantError(t, 400, code, why)
			w.Do(t, "POST", "/api/v1/graphs", `{"jobs":[`+leaf("a")+`,{"ref":"b","name":"b",
				"queue":"g",`+callbackOf(url)+`}]}`).WantError(t, 400, code, why)
		}
		for _, member := range []string{`"callback":null`, `"callback":"` + callbackURL + `"`,
			`"callback":{}`, `"callback":{"url":1}`, `"callback":{"url":""}`,
			`"callback":{"url":"` + callbackURL + `","event":["*"]}`,
			`"callback":{"url":"` + callbackURL + `","events":"*"}`,
			`"callback":{"url":"` + callbackURL + `","events":[1]}`,
			callbackOf(callbackURL, "taskflow.job.dead"), callbackOf(callbackURL, "relay.*"),
			callbackOf(callbackURL, "*", ""), `"callback_url":"` + callbackURL + `"`} {
			w.Do(t, "POST", jobsPath, jobSpec(member)).WantError(t, 400, code, "callback")
		}
		assertEqual(t, "WH-005 jobs", w.jobs(t), 0)
	})
}

// WH-005: without callbacks on the node a request with one is 400, and others are as before.
func TestCallbacksOff(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for _, url := range []string{callbackURL, "http://10.0.0.1/"} {
		w.Do(t, "POST", jobsPath, jobSpec(callbackOf(url))).WantError(t, 400, "VALIDATION_ERROR",
			"webhook.callbacks")
	}
	w.create(t)
	assertEqual(t, "WH-005 jobs", w.jobs(t), 1)
}

// WH-005, AD-017: what operators and schedules submit has the callback of the request, by the same
// rules.
func TestCallbackOfOperators(t *testing.T) {
	t.Parallel()
	w := inMemory(t, withCallbacks())
	o := w.taskflow.Offer().Operators[0]
	made, err := o.Submit(t.Context(),
		contract.Request{Body: []byte(jobSpec(callbackOf(callbackURL)))})
	if err != nil {
		t.Fatal(err)
	}
	w.wantCallback(t, made.ID.Key, callbackURL)
	bad := contract.Request{Body: []byte(jobSpec(callbackOf("http://10.0.0.1/")))}
	if err := o.Check(t.Context(), bad); !job.IsKind(err, job.Invalid) {
		t.Errorf("WH-005 a check of a hostile callback: %v", err)
	}
}

// WH-005: the Go SDK sends and shows it.
func TestSDKCallback(t *testing.T) {
	t.Parallel()
	w := inMemory(t, withCallbacks())
	c, err := client.New(client.Config{BaseURL: w.URL, HTTPClient: w.Client})
	if err != nil {
		t.Fatal(err)
	}
	want := client.TaskFlowCallback{URL: callbackURL, Events: []string{"taskflow.*"}}
	made, err := c.TaskFlow().Submit(t.Context(), client.TaskFlowSpec{Name: "n", Queue: "q",
		Callback: &want})
	if err != nil || made.Callback == nil || fmt.Sprint(*made.Callback) != fmt.Sprint(want) {
		t.Errorf("WH-005 made %+v, %v", made.Callback, err)
	}
	got, err := c.TaskFlow().Get(t.Context(), made.ID)
	if err != nil || got.Callback == nil || fmt.Sprint(*got.Callback) != fmt.Sprint(want) {
		t.Errorf("WH-005 got %+v, %v", got.Callback, err)
	}
}
