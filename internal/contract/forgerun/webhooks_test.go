package forgerun_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/testkit"
)

// receivedEvent is what a receiver got.
type receivedEvent struct {
	id, signature, timestamp string
	trace                    string
	body                     []byte
	event                    struct {
		EventID    string    `json:"event_id"`
		JobID      string    `json:"job_id"`
		EventName  string    `json:"event_name"`
		PrevState  *string   `json:"prev_state"`
		NextState  string    `json:"next_state"`
		OccurredAt time.Time `json:"occurred_at"`
		Scenario   string    `json:"scenario"`
	}
}

// signed fails unless a request carries a signature of a secret (G-FR-48).
func (got receivedEvent) signed(t testing.TB, secret string) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", got.id, got.timestamp, got.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if !strings.Contains(" "+got.signature+" ", " "+want+" ") {
		t.Errorf("signature %q, want %q", got.signature, want)
	}
}

// receiver is a server that gets events.
type receiver struct {
	url      string
	mu       sync.Mutex
	changed  *sync.Cond
	received []receivedEvent
	status   int // 0 is 200
	stall    chan struct{}
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{}
	r.changed = sync.NewCond(&r.mu)
	s := httptest.NewServer(r)
	r.url = s.URL
	t.Cleanup(s.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	g := receivedEvent{id: req.Header.Get("Webhook-Id"),
		signature: req.Header.Get("Webhook-Signature"),
		timestamp: req.Header.Get("Webhook-Timestamp"), trace: req.Header.Get("Traceparent")}
	g.body, _ = io.ReadAll(req.Body)
	_ = json.Unmarshal(g.body, &g.event)
	r.mu.Lock()
	r.received = append(r.received, g)
	status, stall := r.status, r.stall
	r.mu.Unlock()
	r.changed.Broadcast()
	if stall != nil {
		select {
		case <-stall:
		case <-req.Context().Done():
		}
	}
	if status != 0 {
		w.WriteHeader(status)
	}
	fmt.Fprint(w, "thanks")
}

// wait waits for n requests and returns all.
func (r *receiver) wait(t testing.TB, n int) []receivedEvent {
	t.Helper()
	late := false
	limit := time.AfterFunc(testkit.WaitTimeout, func() {
		r.mu.Lock()
		late = true
		r.mu.Unlock()
		r.changed.Broadcast()
	})
	defer limit.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.received) < n {
		if late {
			t.Fatalf("the receiver got %d events, want %d", len(r.received), n)
		}
		r.changed.Wait()
	}
	return append([]receivedEvent(nil), r.received...)
}

func (r *receiver) set(status int, stall chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.stall = status, stall
}

func names(all []receivedEvent) string {
	var n []string
	for _, g := range all {
		n = append(n, strings.TrimPrefix(g.event.EventName, "job_"))
	}
	return strings.Join(n, " ")
}

func TestRegister(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c, other := w.customer(t), w.customer(t)
		post := func(body string, header ...string) testkit.Reply {
			return c.Do(t, "POST", "/v1/webhooks", body, header...)
		}
		t.Run("FR-185 answer", func(t *testing.T) {
			r := post(`{"url":"http://localhost/a","events":["job_failed","job_created","job_failed"]}`).WantStatus(t, 201)
			v := testkit.DecodeReply[map[string]any](t, r)
			if v["webhook_id"] == "" || v["created_at"] == "" ||
				!strings.HasPrefix(v["secret"].(string), "whsec_") {
				t.Error(r.Body)
			}
		})
		for name, bad := range map[string]struct{ body, code string }{
			"no url":          {`{"events":["job_failed"]}`, "RFA_REQUEST_MALFORMED"},
			"null url":        {`{"url":null,"events":["job_failed"]}`, "RFA_REQUEST_MALFORMED"},
			"url as a number": {`{"url":1,"events":["job_failed"]}`, "RFA_REQUEST_MALFORMED"},
			"no events":       {`{"url":"http://localhost/b"}`, "RFA_REQUEST_MALFORMED"},
			"events as a text": {`{"url":"http://localhost/b","events":"job_failed"}`,
				"RFA_REQUEST_MALFORMED"},
			"event as a number": {`{"url":"http://localhost/b","events":[1]}`,
				"RFA_REQUEST_MALFORMED"},
			"ftp": {`{"url":"ftp://localhost/b","events":["job_failed"]}`,
				"RFA_JOB_VALIDATION_FAILED"},
			"no host": {`{"url":"http:///b","events":["job_failed"]}`,
				"RFA_JOB_VALIDATION_FAILED"},
			"empty url": {`{"url":"","events":["job_failed"]}`,
				"RFA_JOB_VALIDATION_FAILED"},
			"empty events": {`{"url":"http://localhost/b","events":[]}`,
				"RFA_JOB_VALIDATION_FAILED"},
			"unknown event": {`{"url":"http://localhost/b","events":["job_failed","job_lost"]}`,
				"RFA_JOB_VALIDATION_FAILED"},
			"event in capitals": {`{"url":"http://localhost/b","events":["JOB_FAILED"]}`,
				"RFA_JOB_VALIDATION_FAILED"},
			"both wrong": {`{"url":"","events":7}`, "RFA_REQUEST_MALFORMED"},
		} {
			t.Run("FR-186 "+name, func(t *testing.T) { post(bad.body).WantError(t, 400, bad.code) })
		}
		t.Run("FR-186 without events, or with others, the error lists them", func(t *testing.T) {
			for _, events := range []string{"", `,"events":null`, `,"events":[]`,
				`,"events":["job_lost"]`} {
				r := post(`{"url":"http://localhost/b"`+events+`}`).WantStatus(t, 400)
				r.WantErrorText(t, append([]string{"events"}, forgerun.EventNames...)...)
			}
		})
		t.Run("FR-186 nothing is stored", func(t *testing.T) {
			body := c.Do(t, "GET", "/v1/webhooks", "").WantStatus(t, 200).Body
			if strings.Contains(body, "localhost/b") || strings.Contains(body, "secret") {
				t.Error(body)
			}
		})
		t.Run("FR-187 the same twice", func(t *testing.T) {
			post(`{"url":"http://localhost/a","events":["job_created","job_failed"]}`).WantError(t,
				409, "RFA_JOB_CONFLICT")
			post(`{"url":"http://localhost/a","events":["job_created"]}`).WantStatus(t, 201)
			other.Do(t, "POST", "/v1/webhooks",
				`{"url":"http://localhost/a","events":["job_created","job_failed"]}`).WantStatus(t,
				201)
		})
		t.Run("FR-187 under one Idempotency-Key", func(t *testing.T) { // G-FR-58
			body := `{"url":"http://localhost/c","events":["job_created"]}`
			a := post(body, "Idempotency-Key", "hook").WantStatus(t, 201)
			b := post(body, "Idempotency-Key", "hook").WantStatus(t, 201)
			assertEqual(t, "webhook", testkit.DecodeReply[map[string]any](t, a)["webhook_id"],
				testkit.DecodeReply[map[string]any](t, b)["webhook_id"])
			if testkit.DecodeReply[map[string]any](t, b)["secret"] != nil {
				t.Error("the secret is shown again")
			}
			post(`{"url":"http://localhost/d","events":["job_created"]}`, "Idempotency-Key",
				"hook").WantError(t, 409, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
		})
		t.Run("FR-188 delete", func(t *testing.T) {
			id, _ := c.register(t, "http://localhost/e", "job_created")
			assertEqual(t, "answer", c.Do(t, "DELETE", "/v1/webhooks/"+id, "").WantStatus(t,
				200).Body, `{"deleted":true}`)
			c.Do(t, "DELETE", "/v1/webhooks/"+id, "").WantError(t, 404, "RFA_JOB_NOT_FOUND",
				"webhook")
			c.Do(t, "DELETE", "/v1/webhooks/"+nobody, "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
			c.Do(t, "DELETE", "/v1/webhooks/x", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
		})
		t.Run("FR-185 pages of webhooks", func(t *testing.T) {
			seen := 0
			cursor := ""
			for {
				l := testkit.DecodeReply[jobList](t,
					c.Do(t, "GET", "/v1/webhooks?limit=2"+cursor, "").WantStatus(t, 200))
				seen += len(l.Items)
				if !l.HasMore {
					break
				}
				cursor = "&cursor=" + *l.NextCursor
			}
			assertEqual(t, "webhooks", seen, 3)
		})
	})
}

// TestDeliveries runs a node whose events go to receivers.
func TestDeliveries(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		all, some, foreign := newReceiver(t), newReceiver(t), newReceiver(t)
		c, other := w.customer(t), w.customer(t)
		_, secret := c.register(t, some.url, "job_succeeded", "job_failed")
		other.register(t, foreign.url, "job_created", "job_succeeded", "job_failed")
		w.runServer(t)
		callback := fmt.Sprintf(`"callback":%q`, all.url)
		id := c.submit(t, submitBody("SUCCESS_FAST", callback))
		w.awaitTimers(t, 1)
		w.fakeTimers.advance(time.Second)
		w.await(t, id, "SUCCEEDED")
		t.Run("FR-189 FR-102 the callback gets every change", func(t *testing.T) {
			got := all.wait(t, 5)
			assertEqual(t, "events", names(got), "created queued assigned started succeeded")
			for i, e := range c.report(t, id).Events {
				g := got[i]
				assertEqual(t, "FR-196 body",
					fmt.Sprint(g.event.EventID, g.event.JobID, g.event.NextState,
						g.event.OccurredAt.Equal(e.Timestamp), g.event.Scenario),
					fmt.Sprint(e.EventID, id, e.NextState, true, "SUCCESS_FAST"))
				assertEqual(t, "prev_state", fmt.Sprint(e.PrevState == nil),
					fmt.Sprint(g.event.PrevState == nil))
				assertEqual(t, "webhook-id", g.id, e.EventID)
				g.signed(t, c.callback)
			}
		})
		t.Run("FR-190 a webhook gets what it lists", func(t *testing.T) {
			got := some.wait(t, 1)
			assertEqual(t, "events", names(got), "succeeded")
			got[0].signed(t, secret)
		})
		t.Run("FR-196 the members of a body", func(t *testing.T) {
			m := map[string]any{}
			if err := json.Unmarshal(all.wait(t, 1)[0].body, &m); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"job_id", "event_id", "event_name", "prev_state",
				"next_state", "occurred_at", "scenario"} {
				if _, there := m[name]; !there {
					t.Errorf("%s is missing in %v", name, m)
				}
			}
		})
		t.Run("FR-193 FR-105 FR-106 a slow and a failing receiver hold up nothing",
			func(t *testing.T) {
				stall := make(chan struct{})
				slow := newReceiver(t)
				slow.set(0, stall)
				id := c.submit(t, submitBody("WEBHOOK_SLOW_RECEIVER",
					fmt.Sprintf(`"callback":%q`, slow.url)))
				w.awaitTimers(t, 1)
				w.fakeTimers.advance(2 * time.Second)
				w.await(t, id, "SUCCEEDED")
				assertEqual(t, "duration_ms", c.report(t, id).DurationMS, 2000)
				assertEqual(t, "requests", len(slow.wait(t, 1)), 1)
				close(stall)
				assertEqual(t, "events", names(slow.wait(t, 5)),
					"created queued assigned started succeeded")
				dead := c.submit(t, submitBody("WEBHOOK_RETRIES_EXHAUSTED",
					`"callback":"http://127.0.0.1:1/nobody"`))
				w.awaitTimers(t, 1)
				w.fakeTimers.advance(2 * time.Second)
				w.await(t, dead, "SUCCEEDED")
				assertEqual(t, "duration_ms", c.report(t, dead).DurationMS, 2000)
			})
		t.Run("FR-034 no other client gets them", func(t *testing.T) {
			own := other.submit(t, submitBody("SUCCESS_FAST"))
			w.awaitTimers(t, 1)
			w.fakeTimers.advance(time.Second)
			for _, g := range foreign.wait(t, 2) {
				assertEqual(t, "job", g.event.JobID, own)
			}
		})
		t.Run("FR-188 a deleted webhook gets no more", func(t *testing.T) {
			gone, kept := newReceiver(t), newReceiver(t)
			hook, _ := c.register(t, gone.url, "job_created")
			c.register(t, kept.url, "job_created")
			c.Do(t, "DELETE", "/v1/webhooks/"+hook, "").WantStatus(t, 200)
			c.submit(t, submitBody("SUCCESS_FAST",
				executionAtMember(w.clock.Now().Add(1000*time.Hour))))
			kept.wait(t, 1)
			assertEqual(t, "requests", len(gone.wait(t, 0)), 0)
		})
	})
}

type deliveries struct {
	Items []struct {
		DeliveryID string `json:"delivery_id"`
		EventName  string `json:"event_name"`
		Status     string `json:"status"`
		Attempts   []struct {
			StatusCode *int    `json:"status_code"`
			Error      *string `json:"error"`
			Response   *string `json:"response"`
		} `json:"tries"`
		NextAttemptAt *time.Time `json:"next_try_at"`
	} `json:"items"`
	NextCursor *string `json:"next_cursor"`
	HasMore    bool    `json:"has_more"`
}

// TestAttempts follows deliveries that fail. The waits between attempts pass by the world's clock.
func TestAttempts(t *testing.T) {
	t.Parallel()
	config := config()
	config.Webhook.MaxAttempts = 3
	w := inMemory(t, config)
	c := w.customer(t)
	r := newReceiver(t)
	r.set(500, nil)
	hook, _ := c.register(t, r.url, "job_created", "job_canceled")
	path := "/v1/webhooks/" + hook + "/deliveries"
	id := c.submit(t, submitBody("WEBHOOK_5XX",
		executionAtMember(w.clock.Now().Add(10_000*time.Hour))))
	w.runServer(t)
	list := func() deliveries {
		return testkit.DecodeReply[deliveries](t, c.Do(t, "GET", path, "").WantStatus(t, 200))
	}
	attempts := func(n int) {
		t.Helper()
		r.wait(t, n)
		w.watcher.waitFor(t, fmt.Sprint(n, " attempts"), func() bool {
			return strings.Count(w.log.String(), `"status":500`) >= n
		})
	}
	t.Run("FR-191 FR-103 FR-104 it is recorded and tried again", func(t *testing.T) {
		attempts(1)
		w.awaitDelivery(t, list, func(d deliveries) bool {
			return len(d.Items) == 1 && len(d.Items[0].Attempts) == 1
		})
		d := list().Items[0]
		assertEqual(t, "delivery", fmt.Sprint(d.EventName, d.Status, *d.Attempts[0].StatusCode,
			*d.Attempts[0].Response, d.NextAttemptAt != nil), "job_createdpending500thankstrue")
		w.fakeTimers.advance(2 * time.Second)
		if _, err := w.engine.Promote(context.Background()); err != nil {
			t.Fatal(err)
		}
		attempts(2)
		assertEqual(t, "webhook-id", r.wait(t, 2)[0].id, r.wait(t, 2)[1].id)
	})
	t.Run("FR-192 FR-211 FR-194 until the attempts are used up", func(t *testing.T) {
		w.awaitDelivery(t, list, func(d deliveries) bool { return len(d.Items[0].Attempts) == 2 })
		w.fakeTimers.advance(10 * time.Second)
		attempts(3)
		w.awaitDelivery(t, list, func(d deliveries) bool {
			return d.Items[0].Status == "exhausted"
		})
		d := list().Items[0]
		assertEqual(t, "attempts", len(d.Attempts), 3)
		w.fakeTimers.advance(10 * time.Hour)
		assertEqual(t, "requests", len(r.wait(t, 3)), 3)
		assertEqual(t, "FR-230 attempts", w.metric(t, "webhook_deliveries_total", nil), 3)
		assertEqual(t, "FR-231 failures", w.metric(t, "webhook_failures_total", nil), 3)
		c.wantState(t, id, "CREATED")
	})
	t.Run("FR-195 FR-185 replay", func(t *testing.T) {
		r.set(204, nil)
		d := list().Items[0]
		again := testkit.DecodeReply[map[string]any](t,
			c.Do(t, "POST", path+"/"+d.DeliveryID+"/replay", "").WantStatus(t, 200))
		if again["delivery_id"] == d.DeliveryID || again["event_id"] == "" {
			t.Errorf("%v", again)
		}
		r.wait(t, 4)
		w.awaitDelivery(t, list, func(d deliveries) bool {
			return len(d.Items) == 2 && d.Items[0].Status == "delivered"
		})
		c.Do(t, "POST", path+"/"+nobody+"/replay", "").WantError(t, 404, "RFA_JOB_NOT_FOUND",
			"delivery")
		c.Do(t, "POST", path+"/x/replay", "").WantError(t, 404, "RFA_JOB_NOT_FOUND", "delivery")
		assertEqual(t, "FR-231 failures", w.metric(t, "webhook_failures_total", nil), 3)
	})
	t.Run("FR-185 pages of deliveries", func(t *testing.T) {
		first := testkit.DecodeReply[deliveries](t,
			c.Do(t, "GET", path+"?limit=1", "").WantStatus(t, 200))
		second := testkit.DecodeReply[deliveries](t,
			c.Do(t, "GET", path+"?limit=1&cursor="+*first.NextCursor, "").WantStatus(t, 200))
		assertEqual(t, "more", fmt.Sprint(first.HasMore, second.HasMore, first.Items[0].Status,
			second.Items[0].Status), "true falsedeliveredexhausted")
	})
	t.Run("FR-194 rotate and disable", func(t *testing.T) {
		secret := testkit.DecodeReply[map[string]string](t,
			c.Do(t, "POST", "/v1/webhooks/"+hook+"/rotate-secret", "").WantStatus(t, 200))["secret"]
		r.set(410, nil)
		c.cancel(t, id)
		got := r.wait(t, 5)
		got[4].signed(t, secret)
		w.awaitDelivery(t, list, func(d deliveries) bool {
			return d.Items[0].Status == "exhausted"
		})
		if body := c.Do(t, "GET", "/v1/webhooks", "").Body; !strings.Contains(body,
			`"disabled":true`) {
			t.Error(body)
		}
		c.Do(t, "POST", path+"/"+list().Items[0].DeliveryID+"/replay", "").WantError(t, 409,
			"RFA_JOB_CONFLICT", "disabled")
		v := testkit.DecodeReply[map[string]any](t,
			c.Do(t, "POST", "/v1/webhooks/"+hook+"/enable", "").WantStatus(t, 200))
		assertEqual(t, "disabled", v["disabled"].(bool), false)
	})
	t.Run("FR-197 every attempt is logged", func(t *testing.T) {
		assertEqual(t, "attempts", len(w.log.Lines(t,
			map[string]any{"status": float64(500), "job_id": id})), 3)
	})
}

// awaitDelivery asks for the deliveries again whenever something was logged.
func (w *world) awaitDelivery(t testing.TB, list func() deliveries,
	condition func(deliveries) bool) {
	t.Helper()
	for range 1000 {
		if condition(list()) { // itself a line of the log
			return
		}
		w.runMaintenance(t)
	}
	t.Fatalf("the deliveries are %+v", list())
}

// TestPendingDeliveries: what was not delivered when a node died is delivered by the next (FR-195).
func TestPendingDeliveries(t *testing.T) {
	t.Parallel()
	w := onPostgres(t, config())
	c := w.customer(t)
	r := newReceiver(t)
	c.register(t, r.url, "job_created", "job_canceled")
	first := c.submit(t, submitBody("SUCCESS_FAST",
		executionAtMember(w.clock.Now().Add(time.Hour))))
	w.deliver(t) // made, not sent
	c.cancel(t, first)
	w.clock.Advance(time.Minute) // in which the node that is gone would still be the one that tells
	next := newWorld(t, w.clock, w.reopenStore(t), config())
	next.runServer(t)
	t.Run("FR-195 made and not yet made", func(t *testing.T) {
		assertEqual(t, "events", names(r.wait(t, 2)), "created canceled")
	})
	t.Run("FR-195 FR-200 notified twice, delivered once", func(t *testing.T) {
		all := w.deliver(t)
		if err := next.forge.Deliver(context.Background(), all); err != nil {
			t.Fatal(err)
		}
		assertEqual(t, "deliveries", len(r.wait(t, 2)), 2)
	})
}
