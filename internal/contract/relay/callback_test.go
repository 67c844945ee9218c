package relay_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

const callback = "https://example.com/done?key=1"

// callbackMember is the member of a job.
func callbackMember(url string) string { return fmt.Sprintf(`"callback_url":%q`, url) }

// withCallbacks is a config that takes callbacks.
func withCallbacks() relay.Config {
	c := config()
	c.Callbacks = contract.Callbacks{Allowed: true}
	return c
}

// onEveryStoreWithCallbacks is onEveryStore with callbacks.
func onEveryStoreWithCallbacks(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		test(t, newWorldAt(t, p, withCallbacks()))
	})
}

// wantCallback checks the callback of a job as its clients see it and as it is stored.
func (w *world) wantCallback(t testing.TB, queue, id, want string) {
	t.Helper()
	var v struct {
		CallbackURL *string `json:"callback_url"`
	}
	r := w.Do(t, "GET", jobPath(queue, id), "").WantStatus(t, 200)
	if err := json.Unmarshal([]byte(r.Body), &v); err != nil {
		t.Fatal(err)
	}
	shown := ""
	if v.CallbackURL != nil {
		shown = *v.CallbackURL
	}
	j, err := w.engine.Get(t.Context(), job.ID{JobType: relay.Name, Scope: queue, Key: id})
	if err != nil || shown != want || j.Callback != want || (want == "") != (v.CallbackURL == nil) {
		t.Errorf("WH-005 the callback is %q, stored %q, want %q: %v", shown, j.Callback, want, err)
	}
}

// WH-005: a callback is part of the definition of a job: it outlasts runs and replays, and goes
// with a new definition.
func TestCallback(t *testing.T) {
	onEveryStoreWithCallbacks(t, func(t *testing.T, w *world) {
		w.put(t, jobBody("q", "with", callbackMember(callback), `"timeout":60,"max_retries":1`),
			jobBody("q", "without"), jobBody("q", "null", `"callback_url":null`))
		w.wantCallback(t, "q", "with", callback)
		w.wantCallback(t, "q", "without", "")
		w.wantCallback(t, "q", "null", "")
		for range 2 {
			w.wantCallback(t, "q", "with", callback)
			w.claim(t, "q")
			w.clock.Advance(time.Minute)
			w.runMaintenance(t)
		}
		w.wantGone(t, "q", "with")
		w.Do(t, "POST", replayPath("q", w.deadLetters(t, "q", "").Items[0].ID), "").WantStatus(t, 202)
		w.wantCallback(t, "q", "with", callback)

		w.enqueue(t, "ignore", jobBody("q", "with")).WantStatus(t, 202)
		w.wantCallback(t, "q", "with", callback)
		w.enqueue(t, "replace", jobBody("q", "with", callbackMember("https://other.example/")),
			jobBody("q", "without", callbackMember(callback))).WantStatus(t, 202)
		w.wantCallback(t, "q", "with", "https://other.example/")
		w.wantCallback(t, "q", "without", callback)
		w.enqueue(t, "replace", jobBody("q", "with")).WantStatus(t, 202)
		w.wantCallback(t, "q", "with", "")

		w.put(t, jobBody("requeued", "1", callbackMember(callback)))
		v := w.claim(t, "requeued")
		w.Do(t, "PUT", v.runPath(), "["+jobBody("requeued", "1")+","+
			jobBody("requeued", "2", callbackMember(callback))+"]").WantStatus(t, 202)
		w.wantCallback(t, "requeued", "1", "")
		w.wantCallback(t, "requeued", "2", callback)
	})
}

// WH-005, G-RL-07: a callback that may not be called is refused when it is named, and nothing of
// the batch is stored.
func TestCallbackRefused(t *testing.T) {
	onEveryStoreWithCallbacks(t, func(t *testing.T, w *world) {
		for url, why := range testkit.HostileURLs {
			w.enqueue(t, "", jobBody("q", "good"), jobBody("q", "bad",
				callbackMember(url))).WantStatus(t, 422).WantErrorText(t, "job 1", "callback_url", why)
		}
		long := callbackMember("https://example.com/" + strings.Repeat("a", egress.MaxURL))
		w.enqueue(t, "", jobBody("q", "1", long)).WantStatus(t, 422)
		w.enqueue(t, "", jobBody("q", "1", `"callback_url":""`)).WantStatus(t, 422)
		for _, value := range []string{"1", "{}", `["` + callback + `"]`, "true"} {
			w.enqueue(t, "", jobBody("q", "1", `"callback_url":`+value)).WantStatus(t,
				400).WantErrorText(t, "callback_url")
		}
		w.put(t, jobBody("run", "1"))
		v := w.claim(t, "run")
		w.Do(t, "PUT", v.runPath(), "["+jobBody("run", "2",
			callbackMember("http://10.0.0.1/"))+"]").WantStatus(t, 422)
		w.heartbeat(t, v, "").WantStatus(t, 202)
		assertEqual(t, "WH-005 jobs", len(w.next(t, "q", 9)), 0)
	})
}

// WH-005: without callbacks on the node, a request with one is 400, and others are as before;
// version 1 has none and ignores the member as any other that it does not know.
func TestCallbacksOff(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for _, url := range []string{callback, "http://10.0.0.1/", "nonsense"} {
		w.enqueue(t, "", jobBody("q", "1", callbackMember(url))).WantStatus(t, 400).WantErrorText(t,
			"webhook.callbacks")
	}
	w.put(t, jobBody("q", "2", `"callback_url":null`))
	w.Do(t, "POST", "/v1/queues/jobs", "["+jobBody("q", "3", callbackMember(callback))+"]").
		WantStatus(t, 202)
	w.wantCallback(t, "q", "3", "")
	assertEqual(t, "WH-005 jobs", len(w.next(t, "q", 9)), 2)
}

// WH-005: local addresses may be called where the node may call them.
func TestLocalCallback(t *testing.T) {
	t.Parallel()
	c := withCallbacks()
	c.Callbacks.Egress = egress.Config{AllowLocal: true}
	w := inMemory(t, c)
	w.put(t, jobBody("q", "1", callbackMember("http://127.0.0.1:9/")))
	w.enqueue(t, "", jobBody("q", "2", callbackMember("http://169.254.169.254/"))).WantStatus(t, 422)
}

// WH-005, AD-017: what operators and schedules submit has the callback of the request, by the same
// rules.
func TestCallbackOfOperators(t *testing.T) {
	t.Parallel()
	w := inMemory(t, withCallbacks())
	o := w.relay.Offer().Operators[0]
	made, err := o.Submit(t.Context(), contract.Request{
		Body: []byte(jobBody("q", "1", callbackMember(callback)))})
	if err != nil {
		t.Fatal(err)
	}
	w.wantCallback(t, made.ID.Scope, made.ID.Key, callback)
	bad := contract.Request{Body: []byte(jobBody("q", "2", callbackMember("http://10.0.0.1/")))}
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
	s := client.RelaySpec{Queue: "q", ID: "1", Timeout: time.Minute, CallbackURL: callback}
	if err := c.Relay().Enqueue(t.Context(), []client.RelaySpec{s}, ""); err != nil {
		t.Fatal(err)
	}
	got, err := c.Relay().Get(t.Context(), "q", "1")
	if err != nil || got.CallbackURL != callback {
		t.Errorf("WH-005 got %+v, %v", got, err)
	}
}
