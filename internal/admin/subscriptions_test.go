package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// operatorHook is a webhook of operators as it is answered.
type operatorHook struct {
	ID, URL, State, Secret   string
	Client, Name, RatePeriod *string
	Events, Contracts        []string
	Queues, Kinds            []string
	MaxInFlight              *int  `json:"max_in_flight"`
	IncludePayload           *bool `json:"include_payload"`
	Rate                     *int
}

// subscribe makes a webhook of operators.
func (w *jobsWorld) subscribe(t *testing.T, body string) operatorHook {
	t.Helper()
	return testkit.DecodeReply[operatorHook](t,
		w.operator(t, "POST", "/admin/v1/webhooks", body).WantStatus(t, 201))
}

// operator sends a request as the operator.
func (w *jobsWorld) operator(t *testing.T, method, path, body string) testkit.Reply {
	t.Helper()
	return w.do(t, w.api.Token(), method, path, body, "Content-Type", "application/json")
}

// hooks are the webhooks of the node.
func (w *jobsWorld) hooks() *webhook.Webhooks {
	at := slices.IndexFunc(w.contracts, func(c *contract.Contract) bool {
		return c.Webhooks != nil
	})
	return w.contracts[at].Webhooks
}

// WH-001: an operator's webhook is made, shown once with its secret, changed, disabled, given
// another secret and removed; each change is in the audit, without the query of its URL.
func TestOperatorWebhooks(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		w.clock.Advance(time.Second)
		made := w.subscribe(t, `{"url":"https://a.example/in?key=hidden","events":["*.job.failed",
			"relay.*"],"contracts":["relay","taskflow"],"queues":["q"],"name":"alerts",
			"rate":10,"rate_period":"1s","include_payload":true}`)
		if !strings.HasPrefix(made.Secret, "whsec_") || made.Client != nil ||
			*made.Name != "alerts" || *made.MaxInFlight != 4 || *made.Rate != 10 ||
			!*made.IncludePayload || fmt.Sprint(made.Events) != "[*.job.failed relay.*]" ||
			made.URL != "https://a.example/in?…" || made.State != "enabled" {
			t.Errorf("WH-001 made %+v", made)
		}
		one := "/admin/v1/webhooks/" + made.ID
		listed := w.do(t, readToken, "GET", "/admin/v1/webhooks", "").WantStatus(t, 200)
		shown := w.do(t, readToken, "GET", one, "").WantStatus(t, 200)
		for _, reply := range []testkit.Reply{listed, shown} {
			if strings.Contains(reply.Body, "hidden") || strings.Contains(reply.Body, made.Secret) {
				t.Errorf("WH-001 a secret is shown: %s", reply.Body)
			}
		}
		all := testkit.DecodeReply[struct{ Items []operatorHook }](t, listed).Items
		if len(all) != 2 || all[0].ID != w.id || *all[0].Client != w.client ||
			all[0].MaxInFlight != nil || all[1].ID != made.ID {
			t.Errorf("WH-001 the list is %s", listed.Body)
		}
		changed := testkit.DecodeReply[operatorHook](t, w.operator(t, "PATCH", one,
			`{"events":["*"],"contracts":null,"rate":null,"max_in_flight":7,"name":null}`).
			WantStatus(t, 200))
		if len(changed.Contracts) != 0 || changed.Rate != nil || *changed.MaxInFlight != 7 ||
			changed.Name != nil || fmt.Sprint(changed.Queues) != "[q]" {
			t.Errorf("WH-001 changed %+v", changed)
		}
		rotated := testkit.DecodeReply[struct{ Secret string }](t,
			w.operator(t, "POST", one+"/rotate-secret", "").WantStatus(t, 200))
		if !strings.HasPrefix(rotated.Secret, "whsec_") || rotated.Secret == made.Secret {
			t.Errorf("WH-001 rotated to %s", rotated.Secret)
		}
		w.operator(t, "POST", one+"/disable", "").WantStatus(t, 200)
		w.operator(t, "POST", one+"/enable", "").WantStatus(t, 200)
		w.operator(t, "DELETE", one, "").WantStatus(t, 204)
		w.do(t, readToken, "GET", one, "").WantError(t, 404, "NOT_FOUND")
		audit := w.do(t, w.api.Token(), "GET", "/admin/v1/audit?target=webhook:"+made.ID, "").
			WantStatus(t, 200).Body
		for _, action := range []string{"create", "set", "rotate", "disable", "enable", "delete"} {
			if !strings.Contains(audit, `"webhook.`+action+`"`) {
				t.Errorf("WH-001 the audit lacks %s: %s", action, audit)
			}
		}
		if strings.Contains(audit, "hidden") || strings.Contains(audit, "whsec_") {
			t.Errorf("WH-001 the audit has a secret: %s", audit)
		}
	})
}

// WH-001: what is wrong is refused and changes nothing; the webhook of a client stays its owner's,
// and the read token makes none.
func TestOperatorWebhooksRefused(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		const url = `"url":"http://a.example"`
		for _, body := range []string{`{}`, `[]`, `{` + url + `}`, `{"events":["*"]}`,
			`{` + url + `,"events":[]}`, `{` + url + `,"events":"*"}`, `{` + url + `,"events":[1]}`,
			`{` + url + `,"events":["nothing.*"]}`, `{` + url + `,"events":["a[*]"]}`,
			`{"url":"ftp://a","events":["*"]}`, `{"url":"http://u:p@a/","events":["*"]}`,
			`{"url":1,"events":["*"]}`, `{` + url + `,"events":["*"],"contracts":["x"]}`,
			`{` + url + `,"events":["*"],"queues":[""]}`, `{` + url + `,"events":["*"],"kinds":{}}`,
			`{` + url + `,"events":["*"],"max_in_flight":-1}`,
			`{` + url + `,"events":["*"],"max_in_flight":1001}`,
			`{` + url + `,"events":["*"],"rate":1}`,
			`{` + url + `,"events":["*"],"rate":1,"rate_period":"1ms"}`,
			`{` + url + `,"events":["*"],"include_payload":1}`,
			`{` + url + `,"events":["*"],"secret":"short"}`,
			`{` + url + `,"events":["*"],"secret":""}`,
			`{` + url + `,"events":["*"],"more":1}`} {
			if got := w.operator(t, "POST", "/admin/v1/webhooks", body); got.Status != 400 {
				t.Errorf("WH-001 %s: %d %s", body, got.Status, got.Body)
			}
		}
		all := get[struct{ Items []hook }](t, w.world, "/admin/v1/webhooks").Items
		if len(all) != 1 {
			t.Errorf("WH-001 there are %d webhooks", len(all))
		}
		theirs := "/admin/v1/webhooks/" + w.id
		w.operator(t, "PATCH", theirs, `{"events":["*"]}`).WantError(t, 409, "CONFLICT")
		w.operator(t, "DELETE", theirs, "").WantError(t, 409, "CONFLICT")
		w.operator(t, "POST", theirs+"/rotate-secret", "").WantError(t, 409, "CONFLICT")
		for _, id := range []string{"x", "0b8f7a52-0000-4000-8000-000000000001"} {
			w.operator(t, "PATCH", "/admin/v1/webhooks/"+id, `{"events":["*"]}`).WantError(t, 404,
				"NOT_FOUND")
			w.operator(t, "DELETE", "/admin/v1/webhooks/"+id, "").WantError(t, 404, "NOT_FOUND")
		}
		made := w.subscribe(t, `{`+url+`,"events":["*"]}`)
		w.operator(t, "POST", "/admin/v1/webhooks", `{`+url+`,"events":["*"],"name":"b"}`).
			WantError(t, 409, "CONFLICT")
		one := "/admin/v1/webhooks/" + made.ID
		for _, body := range []string{`{}`, `{"secret":"x"}`, `{"events":null}`, `{"url":null}`,
			`{"rate_period":"1s"}`} {
			if got := w.operator(t, "PATCH", one, body); got.Status != 400 {
				t.Errorf("WH-001 %s: %d %s", body, got.Status, got.Body)
			}
		}
		w.do(t, readToken, "POST", "/admin/v1/webhooks", `{`+url+`,"events":["*"]}`,
			"Content-Type", "application/json").WantError(t, 403, "READ_ONLY")
		w.do(t, readToken, "DELETE", one, "").WantError(t, 403, "READ_ONLY")
	})
}

// WH-001: a name that means nothing on this node is refused with the one that was meant, in a new
// webhook and in a change of one. What a webhook has already may stay: another node has made it.
func TestOperatorWebhooksNames(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		made := w.subscribe(t, `{"url":"http://a.example","events":["*"],
			"contracts":["taskflow","forgerun"],"kinds":["SUCCESS_FAST"]}`)
		one := "/admin/v1/webhooks/" + made.ID
		for _, c := range []struct{ member, name, meant string }{
			{"events", "taskflow.job.complete", "taskflow.job.completed"},
			{"events", "*.job.faild", "*.job.failed"},
			{"contracts", "taskfow", "taskflow"},
			{"contracts", "images", ""}, // it is not served
			{"kinds", "SUCCES_FAST", "SUCCESS_FAST"},
		} {
			named := fmt.Sprintf(`"%s":["%s"]`, c.member, c.name)
			created := `{"url":"http://b.example",` + named
			if c.member != "events" {
				created += `,"events":["*"]`
			}
			for _, got := range []testkit.Reply{
				w.operator(t, "POST", "/admin/v1/webhooks", created+"}"),
				w.operator(t, "PATCH", one, "{"+named+"}"),
			} {
				if got.Status != 400 || !strings.Contains(got.Body, c.member+": ") ||
					!strings.Contains(got.Body, `did you mean \"`+c.meant) {
					t.Errorf("WH-001 %s: %d %s", named, got.Status, got.Body)
				}
			}
		}
		h, _, err := w.webhooks.RegisterForOperators(t.Context(), webhook.Spec{URL: "http://c.example",
			Events: []string{"images.*"}, Options: webhook.Options{Contracts: []string{"images"},
				Kinds: []string{"process_file"}, MaxInFlight: 1}}, "",
			func(engine.RecordWriter, *webhook.Subscription, *webhook.Subscription) error {
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		w.operator(t, "PATCH", "/admin/v1/webhooks/"+h.ID, `{"contracts":["images","relay"],
			"name":"b"}`).WantStatus(t, 200)
	})
}

// WH-001: events that nothing can be of together with the contracts and kinds are refused; those of
// queues and schedules are of all contracts.
func TestOperatorWebhooksThatNeverSend(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		const members = `{"url":"http://a.example",`
		for body, words := range map[string]string{
			`"events":["taskflow.*"],"contracts":["relay"]`:              "of taskflow",
			`"events":["*.job.blocked"],"contracts":["relay"]`:           "of taskflow",
			`"events":["*","relay.*"],"contracts":["taskflow"]`:          "of relay",
			`"events":["relay.*"],"kinds":["SUCCESS_FAST"]`:              "kinds SUCCESS_FAST",
			`"events":["queue.paused"],"kinds":["SUCCESS_FAST"]`:         "kinds SUCCESS_FAST",
			`"events":["*"],"contracts":["relay"],"kinds":["CPU_BURST"]`: "kinds CPU_BURST",
		} {
			w.operator(t, "POST", "/admin/v1/webhooks", members+body+`}`).
				WantError(t, 400, "VALIDATION_ERROR", words, "nothing would ever be sent")
		}
		made := w.subscribe(t, members+`"events":["queue.*","schedule.missed","*.job.dead"],
			"contracts":["relay"]}`)
		w.subscribe(t, members+`"events":["forgerun.*"],"kinds":["SUCCESS_FAST"]}`)
		one := "/admin/v1/webhooks/" + made.ID
		w.operator(t, "PATCH", one, `{"contracts":["taskflow"]}`).
			WantError(t, 400, "VALIDATION_ERROR", "of relay")
		w.operator(t, "PATCH", one, `{"contracts":["taskflow"],"events":["queue.*"]}`).
			WantStatus(t, 200)
		w.operator(t, "POST", "/admin/v1/webhooks", `{}`).
			WantError(t, 400, "VALIDATION_ERROR", "url and events are required", "webhook-events")
	})
}

// WH-002: the list of types has those of the contracts, of queues and of schedules, by name and in
// pages.
func TestWebhookEvents(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		type page struct {
			Items []struct {
				Type, Meaning   string
				Schema, Example map[string]any
			}
			Next *string `json:"next_cursor"`
		}
		var names []string
		for cursor := ""; ; {
			got := get[page](t, w.world, "/admin/v1/webhook-events?limit=5"+cursor)
			for _, one := range got.Items {
				names = append(names, one.Type)
				if one.Meaning == "" || one.Schema["type"] != "object" ||
					one.Example["type"] != one.Type {
					t.Errorf("WH-002 %+v", one)
				}
			}
			if got.Next == nil {
				break
			}
			cursor = "&cursor=" + *got.Next
		}
		var want []string
		for contract, changes := range map[string]string{
			"relay":    "submitted started retrying completed dead deleted",
			"taskflow": "submitted started retrying completed failed blocked deleted",
			"forgerun": "submitted started retrying completed failed canceled"} {
			for _, change := range strings.Fields(changes) {
				want = append(want, contract+".job."+change)
			}
		}
		want = append(want, "queue.paused", "queue.resumed", "schedule.missed")
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("WH-002 the types are %v, want %v", names, want)
		}
	})
}

// received is an event as a receiver gets it.
type received struct {
	Type string
	Data struct {
		Number        int64
		ID, Contract  string
		State, Phase  string
		PreviousState *string `json:"previous_state"`
		Attempt       int
		RunID         *string `json:"run_id"`
		Error         *string
		Result        json.RawMessage
		Payload       json.RawMessage
		Queue         string
		Paused        bool
	}
}

// subscribed makes a webhook of operators to a receiver of its own, and returns what gathers the
// next n events.
func (w *jobsWorld) subscribed(t *testing.T, members string) (gather func(n int) []received) {
	t.Helper()
	bodies := make(chan received, 1000)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got received
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		bodies <- got
	}))
	t.Cleanup(receiver.Close)
	w.subscribe(t, `{"url":"`+receiver.URL+`",`+members+`}`)
	return func(n int) (all []received) {
		t.Helper()
		w.publishEvents(t)
		stop := w.runHooks(t)
		defer stop()
		for range n {
			all = append(all, testkit.Receive(t, "an event", bodies))
		}
		return all
	}
}

// WH-002, WH-003, WH-004: the jobs of all contracts are shown in one form, as the admin API shows
// them, in the order of their changes.
func TestEventsOfContracts(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		gather := w.subscribed(t, `"events":["*.job.*"],"include_payload":true`)
		r := w.submitJob(t, "relay", `{"id":"r","queue":"q","timeout":60,"max_retries":0,
			"payload":1}`, "")
		run := w.claim(t, "relay")
		w.end(t, run, engine.Outcome{On: job.Succeeded})
		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"q","payload":{"b":2},
			"retry_policy":{"max_attempts":1,"backoff_strategy":"FIXED","base_delay_seconds":1,
			"max_delay_seconds":1}}`, "")
		second := w.submitJob(t, "taskflow",
			fmt.Sprintf(`{"name":"b","queue":"q","dependencies":[%q]}`, first.ID), "")
		w.end(t, w.claim(t, "taskflow"), engine.Outcome{On: job.Failed,
			Failure: []byte(`{"error":"it broke\nat once"}`)})
		f := w.submitJob(t, "forgerun", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
			`,"owner":"`+w.client+`"`)
		w.acted(t, f.Number, "cancel")

		byJob := map[int64][]received{}
		for _, one := range gather(10) {
			byJob[one.Data.Number] = append(byJob[one.Data.Number], one)
		}
		for number, want := range map[int64]string{
			r.Number:      "relay.job.submitted relay.job.started relay.job.completed",
			first.Number:  "taskflow.job.submitted taskflow.job.started taskflow.job.failed",
			second.Number: "taskflow.job.submitted taskflow.job.blocked",
			f.Number:      "forgerun.job.submitted forgerun.job.canceled",
		} {
			var types []string
			for _, one := range byJob[number] {
				types = append(types, one.Type)
			}
			if got := strings.Join(types, " "); got != want {
				t.Errorf("WH-002 job %d has the events %s, want %s", number, got, want)
			}
		}
		if t.Failed() {
			return
		}
		done := byJob[r.Number][2].Data
		if done.State != "gone" || *done.PreviousState != "running" || done.Attempt != 1 ||
			done.RunID == nil || *done.RunID != run.Run.String() || done.ID != "r" {
			t.Errorf("WH-003 %+v", done)
		}
		failed := byJob[first.Number][2].Data
		if failed.State != "FAILED" || failed.Phase != "dead" || *failed.Error != "it broke" ||
			*failed.PreviousState != "RUNNING" || string(failed.Payload) != `{"b":2}` {
			t.Errorf("WH-003 %+v", failed)
		}
		if start := byJob[first.Number][0].Data; start.PreviousState != nil || start.RunID != nil {
			t.Errorf("WH-003 %+v", start)
		}
	})
}

// WH-002: the pause of a queue and its end are events, by the route of operators.
func TestEventsOfQueues(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		gather := w.subscribed(t, `"events":["queue.*"],"contracts":["relay"]`)
		for _, change := range [][2]string{{"relay/q", `{"paused":true}`},
			{"relay/q", `{"paused":true,"run_limit":2}`}, {"taskflow/q", `{"paused":true}`},
			{"relay/q", `{"paused":false}`}} {
			w.operator(t, "PATCH", "/admin/v1/queues/"+change[0], change[1]).WantStatus(t, 200)
		}
		got := gather(2)
		if got[0].Type != "queue.paused" || !got[0].Data.Paused || got[0].Data.Queue != "q" ||
			got[1].Type != "queue.resumed" || got[1].Data.Contract != "relay" {
			t.Errorf("WH-002 got %+v", got)
		}
	})
}

// publishEvents makes deliveries of what was recorded.
func (w *jobsWorld) publishEvents(t *testing.T) {
	t.Helper()
	if _, err := w.engine.Publish(t.Context(), w.hooks().DeliverEvents, webhook.Name); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Millisecond)
}

// runHooks makes deliveries until stop.
func (w *jobsWorld) runHooks(t *testing.T) (stop func()) {
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.hooks().Run(ctx) })
	return func() { end(); running.Wait() }
}
