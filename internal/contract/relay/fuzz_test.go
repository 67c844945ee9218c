package relay_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// FuzzEnqueueBody: whatever the body, it is accepted or refused with a kind that is the caller's
// fault, and what is accepted keeps the limits and can be shown as JSON with the bytes that were
// sent.
func FuzzEnqueueBody(f *testing.F) {
	for _, seed := range []string{`[]`, `[{}]`, `{}`,
		"[" + jobBody("q", "1", `"state":null,"max_retries":3`) + "]", `[{"queue":"\u0000"}]`,
		`[{"queue":"q","id":"\ud83d\ude00","timeout":1e0,"payload":[1,{"a":-0}],"run_at":"2030-01-01T00:00:60Z","max_retries":null}]`,
		`[{"queue":"q","queue":1}]`, `[[[[`, `[null,7]`, "[\"\xff\"]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		batch, err := relay.DecodeJobs(body)
		if err != nil {
			if k := job.KindOf(err); k != job.Malformed && k != job.Invalid {
				t.Fatalf("%q is refused as %s: %v", body, k, err)
			}
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is accepted", body)
		}
		for _, s := range batch {
			checkAccepted(t, s)
		}
	})
}

func checkAccepted(t *testing.T, s engine.Submission) {
	j := s.Job
	for _, name := range []string{j.ID.Scope, j.ID.Key} {
		if n := utf8.RuneCountInString(name); n < 1 || n > 1024 || !utf8.ValidString(name) ||
			strings.Contains(name, "\x00") {
			t.Fatalf("name %q is accepted", name)
		}
	}
	if j.Queue != j.ID.Scope || j.MaxAttempts < 0 || j.MaxAttempts > 32768 || j.Lease < 0 ||
		len(j.Payload) == 0 {
		t.Fatalf("job %+v is accepted", j)
	}
	var shown map[string]json.RawMessage
	if err := json.Unmarshal(relay.AppendJob(nil, &j), &shown); err != nil {
		t.Fatal(err)
	}
	if string(shown["payload"]) != string(j.Payload) {
		t.Fatalf("payload %q became %q", j.Payload, shown["payload"])
	}
	var queue string
	if err := json.Unmarshal(shown["queue"], &queue); err != nil || queue != j.Queue {
		t.Fatalf("queue %q became %q", j.Queue, queue)
	}
}

// FuzzPathNames: a name that was stored is found under its escaped form, and found as itself.
func FuzzPathNames(f *testing.F) {
	for _, seed := range []string{"a", "a/b", "%2F", "..", "+", " ", "ü", "\x00", "\xff", "a?b#c",
		"jobs"} {
		f.Add(seed, seed+"x")
	}
	w := inMemory(f, config())
	f.Fuzz(func(t *testing.T, queue, id string) {
		if len(queue) > 1024 || len(id) > 1024 {
			return
		}
		escape := func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				fmt.Fprintf(&b, "%%%02X", s[i])
			}
			return b.String()
		}
		path := "/v2/queues/" + escape(queue) + "/jobs/" + escape(id)
		valid := func(s string) bool {
			return s != "" && utf8.ValidString(s) && !strings.Contains(s, "\x00")
		}
		r := w.Do(t, "DELETE", path, "")
		if !valid(queue) || !valid(id) {
			if r.Status != 404 {
				t.Fatalf("%s: got %d", path, r.Status)
			}
			return
		}
		body := `[{"queue":` + quote(queue) + `,"id":` + quote(id) + `,"timeout":1,"payload":1}]`
		w.Do(t, "POST", "/v2/queues/jobs", body).WantStatus(t, 202)
		var v jobView
		if err := json.Unmarshal([]byte(w.Do(t, "GET", path, "").WantStatus(t, 200).Body),
			&v); err != nil || v.Queue != queue || v.ID != id {
			t.Fatalf("%q %q became %q %q: %v", queue, id, v.Queue, v.ID, err)
		}
		w.Do(t, "DELETE", path, "").WantStatus(t, 200)
		if m, ok := relay.UnescapeMemberV1(strings.ReplaceAll(escape(queue), "%20", "+")); !ok ||
			m != queue {
			t.Fatalf("version 1 reads %q as %q", queue, m)
		}
	})
}

// FuzzNumJobs: any text is 204 on an empty queue or 400, and never more.
func FuzzNumJobs(f *testing.F) {
	for _, seed := range []string{"1", "0", "-1", "", "99999999999999999999", "1&num_jobs=2", "%31",
		"%", "１", "1;2"} {
		f.Add(seed)
	}
	w := inMemory(f, config())
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range text {
			if c <= ' ' || c > '~' || c == '#' {
				return // no client can send it
			}
		}
		digits := text != "" && strings.Trim(text, "0123456789") == "" &&
			strings.Trim(text, "0") != ""
		r := w.Do(t, "GET", "/v2/queues/empty/jobs?num_jobs="+text, "", beyondDocument, "1")
		if (r.Status != 204 && r.Status != 400) || (digits && r.Status != 204) {
			t.Fatalf("num_jobs=%s: got %d %s", text, r.Status, r.Body)
		}
	})
}
