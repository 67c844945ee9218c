package fetchbox_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

const (
	callbackHeader = "X-Fetchbox-Callback-Url"
	callbackURL    = "https://example.com/done?key=1"
)

// withCallbacks is a config that takes callbacks.
func withCallbacks() fetchbox.Config {
	c := config()
	c.Callbacks = contract.Callbacks{Allowed: true}
	return c
}

// wantCallback checks the callback of a job as operators see it and as it is stored. Its tasks have
// none.
func (w *world) wantCallback(t testing.TB, id, want string) {
	t.Helper()
	v := testkit.DecodeReply[struct {
		CallbackURL string `json:"callback_url"`
	}](t, w.Do(t, "GET", "/operators/jobs/"+id, "").WantStatus(t, 200))
	j, err := w.engine.Get(t.Context(), job.ID{JobType: fetchbox.Name, Key: id})
	if err != nil || v.CallbackURL != want || j.Callback != want {
		t.Errorf("WH-005 the callback is %q, stored %q, want %q: %v", v.CallbackURL, j.Callback,
			want, err)
	}
	for _, task := range w.all(t, fetchbox.Tasks) {
		assertEqual(t, "WH-005 callback of a task", task.Callback, "")
	}
}

// WH-005: the header of a submit names the callback of its job, which it keeps when it is canceled
// and retried. A repeated submit changes nothing.
func TestCallback(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorldAt(t, p, withCallbacks())
		r := w.submit(t, manifest(2), callbackHeader, callbackURL, keyHeader, "k")
		w.wantCallback(t, r.JobID, callbackURL)
		w.submit(t, manifest(2), callbackHeader, "https://other.example/", keyHeader, "k")
		w.wantCallback(t, r.JobID, callbackURL)
		w.wantCallback(t, w.submit(t, manifest(1)).JobID, "")
		w.operate(t, r.JobID, "cancel").WantStatus(t, 202)
		w.finalize(t, 1)
		w.operate(t, r.JobID, "retry").WantStatus(t, 202)
		w.wantCallback(t, r.JobID, callbackURL)
	})
}

// WH-005: a callback that may not be called is refused when it is named, and nothing is stored.
func TestCallbackRefused(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorldAt(t, p, withCallbacks())
		for url, why := range testkit.HostileURLs {
			if strings.Contains(url, "\n") { // it cannot be sent in a header
				continue
			}
			w.post(t, manifest(1), callbackHeader, url).WantError(t, 400, "INVALID_PAYLOAD",
				callbackHeader, why)
		}
		long := "https://example.com/" + strings.Repeat("a", egress.MaxURL)
		w.post(t, manifest(1), callbackHeader, long).WantError(t, 400, "INVALID_PAYLOAD")
		w.wantNothingStored(t)
	})
}

// WH-005: without callbacks on the node a request with one is 400, and others are as before.
func TestCallbacksOff(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for _, url := range []string{callbackURL, "http://10.0.0.1/"} {
		w.post(t, manifest(1), callbackHeader, url).WantError(t, 400, "INVALID_PAYLOAD",
			"webhook.callbacks")
	}
	w.wantNothingStored(t)
	w.submit(t, manifest(1))
}

// WH-005, AD-017: operators and schedules name the callback beside the manifest, by the same rules.
func TestCallbackOfOperators(t *testing.T) {
	t.Parallel()
	w := inMemory(t, withCallbacks())
	o := w.fetchbox.Offer().Operators[0]
	r := contract.Request{Body: []byte(manifest(1)), Type: gallery, Callback: callbackURL}
	made, err := o.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	w.wantCallback(t, made.ID.Key, callbackURL)
	r.Callback = "http://10.0.0.1/"
	if err := o.Check(t.Context(), r); !job.IsKind(err, job.Invalid) {
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
	made, err := c.FetchBox().Submit(t.Context(), client.FetchBoxSpec{Type: gallery,
		Manifest: []byte(manifest(1)), CallbackURL: callbackURL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.FetchBox().Job(t.Context(), made.JobID)
	if err != nil || got.CallbackURL != callbackURL {
		t.Errorf("WH-005 got %+v, %v", got, err)
	}
}
