package images_test

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/images"
	"github.com/millrace/millrace/internal/store/storetest"
	"github.com/millrace/millrace/internal/testkit"
)

const callbackURL = "https://example.com/done?key=1"

// callbackQuery is the query of an upload.
func callbackQuery(to string) string { return "?callback_url=" + url.QueryEscape(to) }

// withCallbacks is a config that takes callbacks.
func withCallbacks() images.Config {
	c := config()
	c.Callbacks = contract.Callbacks{Allowed: true}
	return c
}

// wantCallback checks the callback of a job as it is shown and as it is stored.
func (w *world) wantCallback(t testing.TB, id, want string) {
	t.Helper()
	v := testkit.DecodeReply[struct {
		CallbackURL string `json:"callback_url"`
	}](t, w.Do(t, "GET", jobsPath+"/"+id, "").WantStatus(t, 200))
	if kept := w.state(t, id).Callback; v.CallbackURL != want || kept != want {
		t.Errorf("WH-005 the callback is %q, stored %q, want %q", v.CallbackURL, kept, want)
	}
}

// WH-005: an upload and a job may name a callback, which the replay of a dead letter has too.
func TestCallback(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorldAt(t, p, withCallbacks())
		body := pngOf(t, 9, 9)
		r := testkit.DecodeReply[receipt](t,
			w.send(t, "image/png", body, callbackQuery(callbackURL)).WantStatus(t, 202))
		w.wantCallback(t, r.JobID, callbackURL)
		form := testkit.DecodeReply[receipt](t, w.form(t,
			formPart{"callback_url", "", "", callbackURL},
			formPart{"file", "a.png", "image/png", string(body)}).WantStatus(t, 202))
		w.wantCallback(t, form.JobID, callbackURL)
		w.wantCallback(t, w.put(t, body).JobID, "")

		w.attempt(t, r.JobID)
		more := w.create(t, "process_file", r.FileID, `"sizes":[8]`,
			fmt.Sprintf(`"callback_url":%q`, callbackURL)).JobID
		w.wantCallback(t, more, callbackURL)
		original := w.state(t, more)
		w.wantCallback(t, w.create(t, "process_file", r.FileID, `"callback_url":null`).JobID, "")
		w.fail(t, more)
		w.Do(t, "POST", jobsPath+"/"+more+"/cancel", "").WantStatus(t, 200)
		replayed := testkit.DecodeReply[jobView](t,
			w.Do(t, "POST", deadLettersPath+"/"+more+"/replay", "").WantStatus(t, 202))
		w.wantCallback(t, replayed.JobID, callbackURL)
		different := storetest.DifferentFields(w.state(t, replayed.JobID), original)
		slices.Sort(different) // a field that is added to job.Job is carried, or stands here
		assertEqual(t, "fields in which a replay differs from the job as it was made",
			strings.Join(different, " "), "ID Seq")
	})
}

// WH-005: a callback that may not be called is refused when it is named, and nothing is stored.
func TestCallbackRefused(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		w := newWorldAt(t, p, withCallbacks())
		const code = "VALIDATION_FAILED"
		body := pngOf(t, 9, 9)
		file := w.put(t, body).FileID
		jobs, objects := w.jobs(t), len(w.stored(t))
		for to, why := range testkit.HostileURLs {
			w.send(t, "image/png", body, callbackQuery(to)).WantError(t, 400, code, why)
			w.form(t, formPart{"file", "a.png", "image/png", string(body)},
				formPart{"callback_url", "", "", to}).WantError(t, 400, code, why)
			w.Do(t, "POST", jobsPath, fmt.Sprintf(`{"type":"process_file","file_id":%q,
				"callback_url":%q}`, file, to)).WantError(t, 400, code, why)
		}
		w.send(t, "image/png", body, "?callback_url=").WantError(t, 400, code)
		for _, request := range []string{`"type":"process_file","callback_url":1`,
			`"type":"process_file","callback_url":""`,
			`"type":"delete_file","callback_url":"` + callbackURL + `"`} {
			w.Do(t, "POST", jobsPath, fmt.Sprintf(`{"file_id":%q,%s}`, file,
				request)).WantError(t, 400, code, "callback_url")
		}
		if got := w.jobs(t); got != jobs || len(w.stored(t)) != objects {
			t.Errorf("WH-005 there are %d jobs and %d objects", got, len(w.stored(t)))
		}
	})
}

// WH-005: without callbacks on the node a request with one is 400, and others are as before.
func TestCallbacksOff(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	body := pngOf(t, 9, 9)
	for _, to := range []string{callbackURL, "http://10.0.0.1/"} {
		w.send(t, "image/png", body, callbackQuery(to)).WantError(t, 400, "VALIDATION_FAILED",
			"webhook.callbacks")
	}
	w.put(t, body)
}

// WH-005: the Go SDK sends and shows it.
func TestSDKCallback(t *testing.T) {
	t.Parallel()
	w := inMemory(t, withCallbacks())
	c, err := client.New(client.Config{BaseURL: w.URL, HTTPClient: w.Client})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Images().Upload(t.Context(), client.ImageUpload{Type: "image/png",
		Body: bytes.NewReader(pngOf(t, 9, 9)), CallbackURL: callbackURL})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Images().Job(t.Context(), made.JobID)
	if err != nil || got.CallbackURL != callbackURL {
		t.Errorf("WH-005 got %+v, %v", got, err)
	}
	more, err := c.Images().SubmitJob(t.Context(), client.ImageJobSpec{FileID: made.FileID,
		Type: client.ImageJobTypeProcess, Sizes: []int{8}, CallbackURL: callbackURL})
	if err != nil || more.CallbackURL != callbackURL {
		t.Errorf("WH-005 made %+v, %v", more, err)
	}
}
