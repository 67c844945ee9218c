package forgerun_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit"
)

// AD-052 The owner of a webhook tests it and replays what failed; TestOtherClients proves that
// any other client is refused.
func TestWebhookTestAndReplay(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c := w.customer(t)
		r := newReceiver(t)
		hook, secret := c.register(t, r.url, "job_created", "job_canceled")
		path := "/v1/webhooks/" + hook
		tested := c.Do(t, "POST", path+"/test", "").WantStatus(t, 200)
		if !strings.Contains(tested.Body, `"status_code":200,"error":null`) ||
			!strings.Contains(tested.Body, `"response":"thanks"`) {
			t.Errorf("AD-052 got %s", tested.Body)
		}
		got := r.wait(t, 1)
		got[0].signed(t, secret)
		assertEqual(t, "event", got[0].event.EventName, "millrace.test")
		for body, code := range map[string]string{`{"state":"pending"}`: "RFA_JOB_VALIDATION_FAILED",
			`{"from":"today"}`: "RFA_JOB_VALIDATION_FAILED",
			`{"cursor":"x"}`:   "RFA_JOB_VALIDATION_FAILED",
			`{"to":1}`:         "RFA_REQUEST_MALFORMED", `{"state":[]}`: "RFA_REQUEST_MALFORMED"} {
			c.Do(t, "POST", path+"/replay", body).WantError(t, 400, code)
		}
		r.set(http.StatusGone, nil)
		w.runServer(t)
		c.submit(t, submitBody("SUCCESS_FAST"))
		list := func() deliveries {
			return testkit.DecodeReply[deliveries](t,
				c.Do(t, "GET", path+"/deliveries", "").WantStatus(t, 200))
		}
		newestIs := func(status string) func(deliveries) bool {
			return func(d deliveries) bool {
				return len(d.Items) > 0 && d.Items[0].Status == status
			}
		}
		w.awaitDelivery(t, list, newestIs("exhausted"))
		c.Do(t, "POST", path+"/replay", "").WantError(t, 409, "RFA_JOB_CONFLICT", "disabled")
		c.Do(t, "POST", path+"/test", "").WantStatus(t, 200) // also while it is disabled
		c.Do(t, "POST", path+"/enable", "").WantStatus(t, 200)
		r.set(http.StatusOK, nil)
		for _, want := range []string{`{"replayed":1,"skipped":0,"next_cursor":null}`,
			`{"replayed":0,"skipped":1,"next_cursor":null}`} {
			body := `{"state":"exhausted","from":null}`
			assertEqual(t, "AD-052 replay", c.Do(t, "POST", path+"/replay", body).WantStatus(t,
				200).Body, want)
		}
		all := r.wait(t, 4) // the test, the event, the second test, and the replay
		assertEqual(t, "event", all[3].id, all[1].id)
		all[3].signed(t, secret)
		w.awaitDelivery(t, list, newestIs("delivered"))
	})
}
