package admin_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// hook is a webhook as it is answered.
type hook struct {
	ID, Client, URL, State        string
	DisabledReason                *string  `json:"disabled_reason"`
	SuccessRate                   *float64 `json:"success_rate"`
	LastStatus                    *int     `json:"last_status"`
	Pending, Delivered, Exhausted int
}

// hooksWorld has a receiver, the webhook of a client to it, and runs its deliveries.
type hooksWorld struct {
	*jobsWorld
	webhooks *webhook.Webhooks
	id       string
	secret   string
	status   atomic.Int32 // that the receiver answers
	received chan string  // the bodies
}

// withHooks runs a test with such a node on each database.
func withHooks(t *testing.T, test func(t *testing.T, w *hooksWorld)) {
	withJobs(t, func(t *testing.T, jobs *jobsWorld) {
		w := &hooksWorld{jobsWorld: jobs, received: make(chan string, 100)}
		w.status.Store(http.StatusOK)
		receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter,
			r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.received <- string(body)
			rw.WriteHeader(int(w.status.Load()))
			_, _ = io.WriteString(rw, "as you like")
		}))
		t.Cleanup(receiver.Close)
		for _, c := range jobs.contracts {
			if c.Webhooks != nil {
				w.webhooks = c.Webhooks
			}
		}
		h, secret, err := w.webhooks.Register(t.Context(), w.client, receiver.URL+"/in?key=hidden",
			[]string{"job_failed"}, "")
		if err != nil {
			t.Fatal(err)
		}
		w.id, w.secret = h.ID, secret
		test(t, w)
	})
}

// notify lets an event happen, makes its delivery, and waits until it has ended.
func (w *hooksWorld) notify(t *testing.T, event string, status int) {
	t.Helper()
	w.status.Store(int32(status))
	if err := w.webhooks.Deliver(t.Context(), []webhook.Event{{Owner: w.client,
		Chain: event, Ref: webhook.EventRef{ID: event, Name: "job_failed"},
		OccurredAt: w.clock.Now(), Body: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	w.deliver(t, 1)
}

// deliver makes deliveries until n requests were received, and stores their outcomes.
func (w *hooksWorld) deliver(t *testing.T, n int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.webhooks.Run(ctx) })
	for range n {
		select {
		case <-w.received:
		case <-t.Context().Done():
		}
	}
	stop()
	running.Wait()
}

// post sends a change of the webhook as the operator.
func (w *hooksWorld) post(t *testing.T, verb, body string) testkit.Reply {
	t.Helper()
	return w.do(t, w.api.Token(), "POST", "/admin/v1/webhooks/"+w.id+"/"+verb, body,
		"Content-Type", "application/json")
}

// AD-052: what operators see of webhooks and their deliveries, without secrets.
func TestWebhooks(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		w.notify(t, "1", 500)
		w.notify(t, "2", 200)
		reply := w.do(t, readToken, "GET", "/admin/v1/webhooks?state=enabled&client="+w.client, "")
		if strings.Contains(reply.Body, "hidden") || strings.Contains(reply.Body, w.secret) {
			t.Errorf("AD-052 a secret is shown: %s", reply.Body)
		}
		all := testkit.DecodeReply[struct{ Items []hook }](t, reply.WantStatus(t, 200)).Items
		if len(all) != 1 || all[0].ID != w.id || all[0].Client != w.client ||
			all[0].Delivered != 1 || all[0].Exhausted != 1 || all[0].Pending != 0 ||
			all[0].SuccessRate == nil || *all[0].SuccessRate != 0.5 || all[0].LastStatus == nil ||
			!strings.HasSuffix(all[0].URL, "/in?…") {
			t.Errorf("AD-052 got %s", reply.Body)
		}
		for query, want := range map[string]int{"": 1, "?state=disabled": 0,
			"?client=0b8f7a52-0000-4000-8000-000000000001": 0} {
			if got := get[struct{ Items []hook }](t, w.world, "/admin/v1/webhooks"+query); len(
				got.Items) != want {
				t.Errorf("AD-052 %s: got %d", query, len(got.Items))
			}
		}
		for _, query := range []string{"?state=off", "?client=x", "?state=", "?stat=enabled",
			"?cursor=x"} {
			w.do(t, readToken, "GET", "/admin/v1/webhooks"+query, "").WantError(t, 400,
				"VALIDATION_ERROR")
		}
		deliveries := "/admin/v1/webhooks/" + w.id + "/deliveries"
		for query, want := range map[string]string{"": "2 1 ", "?state=exhausted": "1 ",
			"?state=delivered": "2 ", "?state=pending": ""} {
			got := ""
			for _, d := range get[struct {
				Items []struct {
					EventID     string                  `json:"event_id"`
					JobContract string                  `json:"job_contract"`
					JobID       string                  `json:"job_id"`
					Attempts    []struct{ Status *int } `json:"tries"`
				}
			}](t, w.world, deliveries+query).Items {
				got += d.EventID + " "
				if d.JobContract != "forgerun" || d.JobID != d.EventID { // as notify has it
					t.Errorf("AD-052 the job of %s: %+v", d.EventID, d)
				}
				if len(d.Attempts) != 1 || d.Attempts[0].Status == nil {
					t.Errorf("AD-052 attempts of %s: %+v", d.EventID, d.Attempts)
				}
			}
			if got != want {
				t.Errorf("AD-052 deliveries%s: %q, want %q", query, got, want)
			}
		}
		w.do(t, readToken, "GET", deliveries+"?state=lost", "").WantError(t, 400,
			"VALIDATION_ERROR")
		w.do(t, readToken, "GET", "/admin/v1/webhooks/nothing/deliveries", "").WantError(t, 404,
			"NOT_FOUND")
	})
}

// AD-052: a test, a replay and a change of the state, each with its entry of the audit.
func TestWebhookChanges(t *testing.T) {
	withHooks(t, func(t *testing.T, w *hooksWorld) {
		w.notify(t, "1", 500)
		w.status.Store(http.StatusTeapot)
		tested := w.post(t, "test", "").WantStatus(t, 200)
		if !strings.Contains(<-w.received, "millrace.test") ||
			!strings.Contains(tested.Body, `"succeeded":false,`) ||
			!strings.Contains(tested.Body, `"status":418,`) ||
			!strings.Contains(tested.Body, `"response":"as you like"`) {
			t.Errorf("AD-052 got %s", tested.Body)
		}
		for _, body := range []string{`{"to":"0001-01-01T00:00:00Z"}`,
			`{"state":"pending"}`, `{"from":"today"}`, `{"to":1}`,
			`{"cursor":"x"}`, `{"since":"2026-01-01T00:00:00Z"}`, `[]`,
			`{"from":"2026-01-02T00:00:00Z","to":"2026-01-01T00:00:00Z"}`} {
			w.post(t, "replay", body).WantError(t, 400, "VALIDATION_ERROR")
		}
		disabled := testkit.DecodeReply[hook](t, w.post(t, "disable", "").WantStatus(t, 200))
		if disabled.State != "disabled" || disabled.DisabledReason == nil {
			t.Errorf("AD-052 got %+v", disabled)
		}
		w.post(t, "replay", "").WantError(t, 409, "CONFLICT", "disabled")
		enabled := testkit.DecodeReply[hook](t, w.post(t, "enable", "").WantStatus(t, 200))
		if enabled.State != "enabled" || enabled.DisabledReason != nil {
			t.Errorf("AD-052 got %+v", enabled)
		}
		w.clock.Advance(time.Second)
		from := w.clock.Now().Format(time.RFC3339)
		w.run(t)
		for _, tt := range []struct {
			body          string
			done, skipped int64
		}{{`{"to":"2020-01-01T00:00:00Z"}`, 0, 0}, {`{"from":"` + from + `"}`, 0, 0},
			{`{"state":"exhausted"}`, 1, 0}, {``, 0, 1}} {
			started := testkit.DecodeReply[bulkView](t, w.post(t, "replay", tt.body).WantStatus(t, 202))
			b := w.await(t, started.ID, "done")
			if b.Done != tt.done || b.Skipped != tt.skipped || b.Failed != 0 || b.Action != "replay" {
				t.Errorf("AD-052 replay %s: %+v", tt.body, b)
			}
		}
		w.status.Store(http.StatusOK)
		w.deliver(t, 1)
		if got := get[struct{ Items []hook }](t, w.world, "/admin/v1/webhooks"); got.Items[0].
			Delivered != 1 || got.Items[0].Exhausted != 1 {
			t.Errorf("AD-052 got %+v", got)
		}
		got := ""
		for _, e := range w.audit(t, "?target=webhook:"+w.id).Items {
			got = e.Action + string(e.After) + " " + got
		}
		want := `webhook.testnull ` +
			`webhook.disable{"disabled":true,"reason":"an operator has disabled it"} ` +
			`webhook.enable{"disabled":false} `
		if got != want {
			t.Errorf("AD-006 the audit has %s, want %s", got, want)
		}
		if all := w.audit(t, "?action=bulk.start").Items; len(all) != 4 ||
			!strings.Contains(string(all[0].After), `"owner":"`+w.id+`"`) {
			t.Errorf("G-AD-04 the audit has %+v", all)
		}
		for _, verb := range []string{"test", "replay", "enable", "disable"} {
			w.do(t, w.api.Token(), "POST", "/admin/v1/webhooks/nothing/"+verb, "").WantError(t,
				404, "NOT_FOUND")
		}
	})
}
