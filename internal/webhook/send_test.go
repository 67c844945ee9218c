package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// verified checks a request with the reference implementation.
func verified(t *testing.T, secret string, q request) {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.VerifyIgnoringTimestamp([]byte(q.body), q.header); err != nil {
		t.Errorf("G-FR-48 %v: %v", q.header, err)
	}
}

func TestDelivery(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node().run()
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			fmt.Fprint(w, "thanks\x00\xff")
		})
		h, secret := n.register(r.URL+"/hook", "a")
		n.deliver(setEarlier(n.event("j", 1, "a", r.URL+"/callback"),
			n.event("j", 2, "b", r.URL+"/callback"))...)
		n.awaitDone(3)
		var got []string
		for _, q := range r.requests() {
			got = append(got, q.path+" "+q.header.Get("webhook-id"))
			verified(t, map[string]string{"/hook": secret, "/callback": callbackSecret}[q.path], q)
			if q.header.Get("Content-Type") != "application/json" ||
				q.header.Get("webhook-timestamp") != fmt.Sprint(n.clock.Now().Unix()) ||
				q.body != `{"event_id":"`+q.header.Get("webhook-id")+`"}` ||
				q.header.Get("User-Agent") != "millrace" {
				t.Errorf("request %+v", q)
			}
		}
		slices.Sort(got)
		if want := "[/callback j.1.a /callback j.2.b /hook j.1.a]"; fmt.Sprint(got) != want {
			t.Errorf("FR-189 FR-190 got %v, want %s", got, want)
		}
		all := n.deliveries(h.ID)
		if len(all) != 1 {
			t.Fatal(all)
		}
		all[0].Attempts[0].DurationMS = 3
		text, _ := json.Marshal(all[0])
		want := fmt.Sprintf(`{"delivery_id":"%s","event_id":"j.1.a","event_name":"a","url":"%s/hook","status":"delivered","tries":[{"at":"2026-03-01T12:00:00Z",`+
			`"status_code":200,"error":null,"duration_ms":3,"response":"thanks\u0000?"}],"next_try_at":null}`, all[0].ID, r.URL)
		if string(text) != want {
			t.Errorf("G-FR-62 a delivery is\n%s, want\n%s", text, want)
		}
		if got := n.deliveries(""); len(got) != 2 || got[0].EventID != "j.2.b" {
			t.Errorf("deliveries of callbacks %+v", got)
		}
	})
}

// A delivery is attempted until its attempts are used up, each after its wait, with one id and a
// fresh timestamp; then the next of the chain is.
func TestAttemptsAreUsedUp(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false, func(c *webhook.Config) { c.MaxAttempts = 4 }).node().run()
		r := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			if strings.HasPrefix(r.Header.Get("webhook-id"), "j.1.") {
				w.WriteHeader(503)
			}
		})
		h, secret := n.register(r.URL, "a", "b")
		n.deliver(setEarlier(n.event("j", 1, "a", ""), n.event("j", 2, "b", ""))...)
		for attempt := 1; attempt <= 3; attempt++ {
			m := n.await("j.1.a", job.Failed)
			base := []time.Duration{0, time.Second, 5 * time.Second, 25 * time.Second}[attempt]
			if wait := m.Job.DueAt.Sub(n.clock.Now()); wait < base*8/10 || wait > base*12/10 {
				t.Errorf("FR-191 after attempt %d the wait is %v", attempt, wait)
			}
			d := n.deliveries(h.ID)
			if d[1].Status != webhook.Pending || len(d[1].Attempts) != attempt ||
				!d[1].NextAttemptAt.Equal(m.Job.DueAt) || d[0].NextAttemptAt != nil ||
				len(d[0].Attempts) != 0 {
				t.Errorf("deliveries %+v", d)
			}
			n.advanceAndPromote(base*12/10 + time.Millisecond)
		}
		n.await("j.1.a", job.FailedForGood)
		n.await("j.2.b", job.Succeeded)
		d := n.deliveries(h.ID)
		if d[1].Status != webhook.Exhausted || len(d[1].Attempts) != 4 ||
			d[1].NextAttemptAt != nil ||
			d[0].Status != webhook.Delivered {
			t.Errorf("FR-192 FR-211 deliveries %+v", d)
		}
		if attempt := d[1].Attempts[3]; *attempt.StatusCode != 503 || !strings.Contains(*attempt.Error, "503") {
			t.Errorf("the last attempt %+v", attempt)
		}
		last := ""
		for _, q := range r.requests() {
			verified(t, secret, q)
			if at := q.header.Get("webhook-timestamp"); q.header.Get("webhook-id") == "j.1.a" &&
				at <= last {
				t.Errorf("timestamp %s after %s", at, last)
			} else {
				last = at
			}
		}
		if n.attempts[true] != 1 || n.attempts[false] != 4 {
			t.Errorf("G-FR-59 attempts counted %v", n.attempts)
		}
		if logged := n.logs.text(); strings.Count(logged,
			"level=DEBUG msg=\"a delivery was tried\"") != 4 ||
			strings.Count(logged, "level=WARN msg=\"a delivery is given up\"") != 1 ||
			strings.Count(logged, "status=503") != 4 || strings.Contains(logged, "whsec_") ||
			!strings.Contains(logged, "client_id="+owner) || !strings.Contains(logged, "job_id=j") {
			t.Errorf("FR-197 logged %s", logged)
		}
	})
}

// TestFailures checks what a client reads of each failure in the list of deliveries.
func TestFailures(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	stalling := newReceiver(t, func(http.ResponseWriter, *http.Request, int) { <-release })
	t.Cleanup(func() { close(release) })
	closed := httptest.NewServer(nil)
	closed.Close()
	cut := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	redirecting := newReceiver(t, func(w http.ResponseWriter, r *http.Request, n int) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	large := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.WriteHeader(500)
		fmt.Fprint(w, strings.Repeat("é", 100_000))
	})
	for name, c := range map[string]struct {
		url, want string
		status    int
		strict    bool
	}{
		"FR-191 refused": {closed.URL + "/?token=s3cret", "connection refused", 0,
			false},
		"FR-191 no answer": {stalling.URL + "/?token=s3cret", "no answer within 100ms", 0,
			false},
		"FR-191 cut off":      {cut.URL + "/?token=s3cret", "EOF", 0, false},
		"FR-191 unknown host": {"http://nowhere.invalid/?token=s3cret", "", 0, false},
		"G-FR-48 a redirect": {redirecting.URL + "/?token=s3cret", "the answer was 307", 307,
			false},
		"FR-191 an error": {large.URL + "/?token=s3cret", "the answer was 500", 500,
			false},
		"G-FR-50 a refused address": {closed.URL + "/?token=s3cret",
			"the address is refused: loopback", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newWorld(t, "memory", false, func(cf *webhook.Config) {
				cf.Timeout = testkit.WaitTimeout
				if strings.HasPrefix(c.url, stalling.URL) {
					cf.Timeout = 100 * time.Millisecond
				}
				if c.strict {
					strict, err := egress.New(egress.Config{})
					if err != nil {
						t.Fatal(err)
					}
					cf.Client = strict
				}
			}).node().run()
			h, _ := n.register(c.url, "a")
			n.deliver(n.event("j", 1, "a", ""))
			n.await("j.1.a", job.Failed)
			attempt := n.deliveries(h.ID)[0].Attempts[0]
			if attempt.Error == nil || !strings.Contains(*attempt.Error, c.want) ||
				strings.Contains(*attempt.Error, "s3cret") ||
				strings.Contains(*attempt.Error, "127.0.0.1") {
				t.Errorf("got %+v", attempt)
			}
			if (attempt.StatusCode == nil) != (c.status == 0) ||
				(c.status != 0 && *attempt.StatusCode != c.status) ||
				(attempt.Response == nil) != (c.status == 0) {
				t.Errorf("attempt %+v", attempt)
			}
			if c.status == 500 && *attempt.Response != strings.Repeat("é", 2048) {
				t.Errorf("kept %d bytes", len(*attempt.Response))
			}
			if strings.Contains(n.logs.text(), "s3cret") {
				t.Errorf("logged %s", n.logs.text())
			}
		})
	}
	if got := len(redirecting.requests()); got > 1 {
		t.Errorf("%d requests where one redirects", got)
	}
}

// FR-194: the time-out that is configured now holds for all deliveries, also for those that were
// made under another one.
func TestTimeoutIsRaised(t *testing.T) {
	t.Parallel()
	stalling := newReceiver(t, func(_ http.ResponseWriter, r *http.Request,
		_ int) {
		<-r.Context().Done()
	})
	w := newWorld(t, "memory", false, func(c *webhook.Config) {
		c.Timeout = time.Millisecond
	})
	n := w.node()
	h, _ := n.register(stalling.URL, "a")
	n.deliver(n.event("j", 1, "a", ""))
	w.config.Timeout = 100 * time.Millisecond
	n = w.node().run()
	n.await("j.1.a", job.Failed)
	if attempt := n.deliveries(h.ID)[0].Attempts[0]; attempt.Error == nil ||
		*attempt.Error != "no answer within 100ms" {
		t.Errorf("got %+v", attempt)
	}
}

// A run that is lost while its request is under way ends it. It counts as no attempt, and the
// delivery is made again.
func TestLostRun(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node()
	cut := make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, r *http.Request, i int) {
		if i == 1 {
			<-r.Context().Done()
			close(cut)
		}
	})
	n.submitWithLease("j.1.a", r.URL, 2*time.Second)
	n.run()
	<-r.ids
	for expired := 0; expired == 0; { // in steps: a leap past the lease is a stall of the database
		n.clock.Advance(500 * time.Millisecond)
		var err error
		if expired, err = n.engine.Expire(n.ctx); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Receive(t, "the end of the request of a lost run", cut)
	n.await("j.1.a", job.Succeeded)
	d := n.deliveries("")
	if len(d) != 1 || len(d[0].Attempts) != 1 || *d[0].Attempts[0].StatusCode != 200 {
		t.Errorf("FR-195 deliveries %+v", d)
	}
	if n.attempts[false] != 0 {
		t.Errorf("G-FR-59 attempts counted %v", n.attempts)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node().run()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, i int) {
		w.Header().Set("Retry-After", []string{"", "90", "0",
			testkitDate(n.clock.Now().Add(time.Hour))}[min(i, 3)])
		w.WriteHeader(429)
	})
	n.register(r.URL, "a")
	n.deliver(n.event("j", 1, "a", ""))
	for i, want := range []time.Duration{90 * time.Second, 5 * time.Second, time.Hour} {
		m := n.await("j.1.a", job.Failed)
		wait := m.Job.DueAt.Sub(n.clock.Now())
		exact := i != 1 // but for the fraction of a second, which a date has not
		if off := (wait - want).Abs(); (exact && off >= time.Second) || off > want/5 {
			t.Errorf("G-FR-48 after attempt %d the wait is %v, want %v", i+1, wait, want)
		}
		n.advanceAndPromote(wait)
	}
}

func testkitDate(at time.Time) string { return at.UTC().Format(http.TimeFormat) }

// 410 ends the delivery at once and disables the webhook; what comes then is recorded and not sent;
// enabled again it is served, and what was missed can be replayed.
func TestGone(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node().run()
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, i int) {
			if i == 1 {
				w.WriteHeader(http.StatusGone)
			}
		})
		h, secret := n.register(r.URL, "a")
		n.deliver(setEarlier(n.event("j", 1, "a", ""), n.event("j", 2, "a", ""))...)
		n.await("j.1.a", job.FailedForGood)
		n.await("j.2.a", job.FailedForGood)
		if got, err := n.Subscription(n.ctx, owner, h.ID); err != nil || !got.Disabled ||
			!strings.Contains(got.DisabledReason, "410") {
			t.Errorf("G-FR-48 the webhook is %+v, %v", got, err)
		}
		d := n.deliveries(h.ID)
		if d[0].Status != webhook.Exhausted || len(d[0].Attempts) != 0 ||
			d[1].Status != webhook.Exhausted || len(d[1].Attempts) != 1 || len(r.requests()) != 1 {
			t.Errorf("deliveries %+v after %d requests", d, len(r.requests()))
		}
		_, err := n.Replay(n.ctx, owner, h.ID, d[0].ID, nil)
		n.wantKind(err, job.Conflict)
		if got, err := n.Enable(n.ctx, owner, h.ID); err != nil || got.Disabled ||
			got.DisabledReason != "" {
			t.Errorf("enabled %+v, %v", got, err)
		}
		again, err := n.Replay(n.ctx, owner, h.ID, d[0].ID, nil)
		if err != nil || again.ID == d[0].ID || again.EventID != "j.2.a" {
			t.Fatal(again, err)
		}
		same, err := n.Replay(n.ctx, owner, h.ID, d[0].ID, nil)
		if err != nil || same.ID != again.ID || len(n.deliveries(h.ID)) != 3 {
			t.Errorf("AD-052 the second of two clicks made %+v, %v", same, err)
		}
		n.await("j.2.a", job.Succeeded)
		n.deliver(n.event("j", 3, "a", ""))
		n.await("j.3.a", job.Succeeded)
		if got := n.deliveries(h.ID); len(got) != 4 || got[1].ID != again.ID ||
			got[1].Status != webhook.Delivered {
			t.Errorf("deliveries %+v", got)
		}
		for _, q := range r.requests() {
			verified(t, secret, q)
		}
		_, err = n.Replay(n.ctx, owner, h.ID, unknownID, nil)
		n.wantKind(err, job.NotFound)
		elsewhere, _ := n.register("http://elsewhere", "a")
		_, err = n.Replay(n.ctx, owner, elsewhere.ID, again.ID, nil)
		n.wantKind(err, job.NotFound)
	})
}

// A webhook none of whose attempts has succeeded for a day is disabled; one good answer begins the
// day again.
func TestLongFailureDisables(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false, func(c *webhook.Config) { c.MaxAttempts = 1 }).node().run()
	r := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if !strings.HasSuffix(r.Header.Get("webhook-id"), "ok") {
			w.WriteHeader(500)
		}
	})
	h, _ := n.register(r.URL, "bad", "ok")
	step := 0
	send := func(name string, on job.Cause) bool {
		step++
		n.deliver(n.event("j", step, name, ""))
		n.await(fmt.Sprintf("j.%d.%s", step, name), on)
		got, err := n.Subscription(n.ctx, owner, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.Disabled
	}
	disabled := send("bad", job.FailedForGood)
	n.clock.Advance(23 * time.Hour)
	disabled = disabled || send("ok", job.Succeeded) || send("bad", job.FailedForGood)
	n.clock.Advance(23*time.Hour + 59*time.Minute)
	if disabled = disabled || send("bad", job.FailedForGood); disabled {
		t.Error("disabled too early")
	}
	n.clock.Advance(time.Minute)
	if !send("bad", job.FailedForGood) {
		t.Error("G-FR-48 not disabled after a day of failures")
	}
	before := len(r.requests())
	if !send("ok", job.FailedForGood) || len(r.requests()) != before {
		t.Error("a disabled webhook was called")
	}
}

// Both secrets sign for a day after a rotation, then only the new one.
func TestRotation(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node().run()
	r := newReceiver(t, nil)
	h, first := n.register(r.URL, "a")
	second, err := n.Rotate(n.ctx, owner, h.ID)
	if err != nil {
		t.Fatal(err)
	}
	send := func(i int) request {
		n.deliver(n.event("j", i, "a", ""))
		n.await(fmt.Sprintf("j.%d.a", i), job.Succeeded)
		all := r.requests()
		return all[len(all)-1]
	}
	n.clock.Advance(24*time.Hour - time.Second)
	q := send(1)
	verified(t, first, q)
	verified(t, second, q)
	n.clock.Advance(time.Second)
	q = send(2)
	verified(t, second, q)
	if got := strings.Fields(q.header.Get("webhook-signature")); len(got) != 1 {
		t.Errorf("signatures after a day: %v", got)
	}
	for range 10 {
		if second, err = n.Rotate(n.ctx, owner, h.ID); err != nil {
			t.Fatal(err)
		}
	}
	q = send(3)
	verified(t, second, q)
	if got := strings.Fields(q.header.Get("webhook-signature")); len(got) != 5 {
		t.Errorf("%d signatures", len(got))
	}
}

// One URL that is callback and webhook gets one request, which both can verify; without the webhook
// it is the callback's.
func TestSharedURL(t *testing.T) {
	t.Parallel()
	n := newWorld(t, "memory", false).node().run()
	r := newReceiver(t, nil)
	h, secret := n.register(r.URL, "a")
	n.deliver(n.event("j", 1, "a", r.URL))
	n.await("j.1.a", job.Succeeded)
	if all := r.requests(); len(all) != 1 {
		t.Errorf("G-FR-47 %d requests", len(all))
	} else {
		verified(t, secret, all[0])
		verified(t, callbackSecret, all[0])
	}
	n.stop()
	n.deliver(n.event("j", 2, "a", r.URL))
	if err := n.Delete(n.ctx, owner, h.ID); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.await("j.2.a", job.Succeeded)
	verified(t, callbackSecret, r.requests()[1])
}

// Deliveries of a deleted webhook, made before, end without a request.
func TestDeletedWebhookIsNotCalled(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		r := newReceiver(t, nil)
		h, _ := n.register(r.URL, "a")
		n.deliver(setEarlier(n.event("j", 1, "a", ""), n.event("j", 2, "a", ""))...)
		if err := n.Delete(n.ctx, owner, h.ID); err != nil {
			t.Fatal(err)
		}
		n.deliver(n.event("j", 3, "a", ""))
		n.run()
		n.awaitDone(2)
		if len(r.requests()) != 0 || len(n.jobs()) != 2 {
			t.Errorf("FR-188 %d requests, %d deliveries", len(r.requests()), len(n.jobs()))
		}
	})
}

// A secret that cannot be had uses up no attempt.
func TestSecretsUnavailable(t *testing.T) {
	t.Parallel()
	unavailable := true
	n := newWorld(t, "memory", false, func(c *webhook.Config) {
		inner := c.CallbackSecret
		c.CallbackSecret = func(ctx context.Context, owner string) (string, error) {
			if unavailable {
				return "", &job.Error{Kind: job.Unavailable}
			}
			return inner(ctx, owner)
		}
	}).node().run()
	r := newReceiver(t, nil)
	n.deliver(n.event("j", 1, "a", r.URL))
	m := n.await("j.1.a", job.Released)
	n.stop()
	unavailable = false
	n.advanceAndPromote(m.Job.DueAt.Sub(n.clock.Now()))
	n.run()
	if m := n.await("j.1.a", job.Succeeded); m.Job.FailedAttempts != 0 || len(r.requests()) != 1 {
		t.Errorf("%d failures, %d requests", m.Job.FailedAttempts, len(r.requests()))
	}
}
