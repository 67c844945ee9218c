package forgerun_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/internal/testkit"
)

func TestSubmit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		c, other := w.customer(t), w.customer(t)
		t.Run("FR-056 FR-057 answer", func(t *testing.T) {
			v := testkit.DecodeReply[jobView](t,
				c.Do(t, "POST", "/v1/jobs", submitBody("")).WantStatus(t, 202))
			if _, err := uuid.Parse(v.JobID); err != nil {
				t.Error(err)
			}
			assertEqual(t, "state", v.State, "CREATED")
			got := c.wantState(t, v.JobID, "QUEUED")
			if !got.CreatedAt.Equal(v.CreatedAt) || !v.CreatedAt.Equal(w.clock.Now()) {
				t.Errorf("created_at %v, later %v", v.CreatedAt, got.CreatedAt)
			}
		})
		for _, typ := range []string{"EXECUTE", "DEFERRED", "EMIT_EVENT"} {
			t.Run("FR-058 FR-060 type "+typ, func(t *testing.T) {
				id := c.submit(t, submitBody("SUCCESS_FAST", fmt.Sprintf(`"type":%q`, typ),
					executionAtMember(w.clock.Now())))
				assertEqual(t, "type", c.get(t, id).Type, typ)
				w.runMaintenance(t)
				c.wantState(t, id, "QUEUED")
				for c.get(t, id).State == "QUEUED" {
					w.claimAndRun(t)
				}
				assertEqual(t, "events", c.report(t, id).names(),
					"created queued assigned started succeeded")
			})
		}
		t.Run("FR-064 without a time it is instant", func(t *testing.T) {
			for _, more := range []string{`"type":"EXECUTE"`, `"type":"EMIT_EVENT"`,
				`"type":"EXECUTE","execution_at":null`} {
				c.wantState(t, c.submit(t, submitBody("", more)), "QUEUED")
			}
		})
		t.Run("FR-066 FR-067 keys of body and header", func(t *testing.T) { // G-FR-21
			a := c.submit(t, submitBody("", `"idempotency_key":"body"`), "Idempotency-Key",
				"header")
			assertEqual(t, "by body", c.submit(t, submitBody("", `"idempotency_key":"body"`)), a)
			assertEqual(t, "by the same name in the header",
				c.submit(t, submitBody(""), "Idempotency-Key", "body"), a)
			if b := c.submit(t, submitBody(""), "Idempotency-Key", "header"); b == a {
				t.Error("the header counted beside the body")
			}
		})
		t.Run("FR-067 FR-057 a replay answers the state there is", func(t *testing.T) {
			id := c.submit(t, submitBody("SUCCESS_FAST"), "Idempotency-Key", "replay")
			created := c.get(t, id).CreatedAt
			submitted, hits := w.metric(t, "jobs_submitted_total", nil),
				w.metric(t, "idempotency_hits_total", nil)
			w.clock.Advance(time.Second)
			c.cancel(t, id)
			v := testkit.DecodeReply[jobView](t,
				c.Do(t, "POST", "/v1/jobs", submitBody("SUCCESS_FAST"), "Idempotency-Key",
					"replay").WantStatus(t, 202))
			assertEqual(t, "id and state", v.JobID+v.State, id+"CANCELED")
			if !v.CreatedAt.Equal(created) {
				t.Errorf("created_at %v, was %v", v.CreatedAt, created)
			}
			assertEqual(t, "events", c.report(t, id).names(), "created queued canceled")
			assertEqual(t, "submitted", w.metric(t, "jobs_submitted_total", nil), submitted)
			assertEqual(t, "FR-238 hits", w.metric(t, "idempotency_hits_total", nil), hits+1)
		})
		t.Run("FR-067 the same payload in other words", func(t *testing.T) { // G-FR-22
			due := w.clock.Now().Add(time.Hour)
			id := c.submit(t, `{"type":"EXECUTE","work_kind":"IO_HEAVY","callback":"http://localhost/x","execution_at":"`+due.Format(time.RFC3339)+`"}`, "Idempotency-Key", "words")
			east := due.In(time.FixedZone("", 2*3600)).Format("2006-01-02T15:04:05.000Z07:00")
			same := `{"more":[1], "callback":"http:\/\/localhost\/x", "execution_at":"` + east +
				`", "work_kind":"IO_HEAVY", "idempotency_key":null, "type":"FIRST", "type":"EXECUTE"}`
			assertEqual(t, "id", c.submit(t, same, "Idempotency-Key", "words"), id)
		})
		t.Run("FR-018 FR-068 another payload", func(t *testing.T) {
			due := w.clock.Now().Add(time.Hour)
			first := submitBody("IO_HEAVY", executionAtMember(due),
				`"callback":"http://localhost/x"`)
			id := c.submit(t, first, "Idempotency-Key", "clash")
			before := c.Do(t, "GET", "/v1/jobs/"+id, "").Body
			for _, body := range []string{submitBody("CPU_BURST", executionAtMember(due),
				`"callback":"http://localhost/x"`),
				submitBody("", executionAtMember(due), `"callback":"http://localhost/x"`),
				submitBody("IO_HEAVY", executionAtMember(due.Add(time.Second)),
					`"callback":"http://localhost/x"`),
				submitBody("IO_HEAVY", `"callback":"http://localhost/x"`),
				submitBody("IO_HEAVY", executionAtMember(due), `"callback":"http://localhost/y"`),
				submitBody("IO_HEAVY", executionAtMember(due)),
				submitBody("IO_HEAVY", `"type":"DEFERRED"`, executionAtMember(due),
					`"callback":"http://localhost/x"`)} {
				c.Do(t, "POST", "/v1/jobs", body, "Idempotency-Key", "clash").WantError(t, 409,
					"RFA_EXEC_IDEMPOTENCY_CONFLICT")
			}
			assertEqual(t, "job", c.Do(t, "GET", "/v1/jobs/"+id, "").Body, before)
		})
		t.Run("FR-067 a replay after its time has passed", func(t *testing.T) {
			body := submitBody("IO_HEAVY", executionAtMember(w.clock.Now().Add(time.Minute)))
			id := c.submit(t, body, "Idempotency-Key", "late")
			w.clock.Advance(time.Hour)
			assertEqual(t, "id", c.submit(t, body, "Idempotency-Key", "late"), id)
			c.Do(t, "POST", "/v1/jobs", body, "Idempotency-Key", "too late").WantError(t, 400,
				"RFA_JOB_VALIDATION_FAILED", "execution_at")
		})
		t.Run("FR-069 keys are a client's own", func(t *testing.T) {
			a := c.submit(t, submitBody(""), "Idempotency-Key", "shared")
			if b := other.submit(t, submitBody(""), "Idempotency-Key", "shared"); a == b {
				t.Error("two clients share a job")
			}
		})
		t.Run("FR-073 no key, no deduplication", func(t *testing.T) { // G-FR-23
			if a, b := c.submit(t, submitBody("")), c.submit(t, submitBody("")); a == b {
				t.Error("they are one job")
			}
		})
		t.Run("FR-070 50 at once under one key", func(t *testing.T) {
			before := w.jobs(t)
			ids := testkit.RunConcurrently(50, func(int) string {
				return c.submit(t, submitBody("IO_HEAVY"), "Idempotency-Key", "crowd")
			})
			for _, id := range ids {
				assertEqual(t, "id", id, ids[0])
			}
			assertEqual(t, "jobs", w.jobs(t), before+1)
		})
		t.Run("FR-072 a refused submit does not use up its key", func(t *testing.T) {
			c.Do(t, "POST", "/v1/jobs", submitBody("NO_SUCH_KIND"), "Idempotency-Key",
				"refused").WantError(t, 400, "RFA_JOB_VALIDATION_FAILED")
			c.Do(t, "POST", "/v1/jobs", "{", "Idempotency-Key", "refused").WantError(t, 400,
				"RFA_REQUEST_MALFORMED")
			assertEqual(t, "kind", c.get(t,
				c.submit(t, submitBody("CPU_BURST"), "Idempotency-Key", "refused")).WorkKind,
				"CPU_BURST")
		})
		t.Run("FR-079 ids are not used again", func(t *testing.T) {
			seen := map[string]bool{}
			for range 50 {
				id := c.submit(t, submitBody(""))
				if seen[id] {
					t.Fatalf("%s was there before", id)
				}
				seen[id] = true
			}
		})
	})
}

// rejected are bodies of a submit that must not make a job.
var rejected = []struct {
	id, name, body, code, names string
}{
	{"FR-058", "no type", `{}`, "RFA_REQUEST_MALFORMED", "type"},
	{"FR-058", "null type", `{"type":null}`, "RFA_REQUEST_MALFORMED", "type"},
	{"FR-006", "number as type", `{"type":1}`, "RFA_REQUEST_MALFORMED", "type"},
	{"FR-058", "unknown type", `{"type":"DREAM"}`, "RFA_JOB_VALIDATION_FAILED", "type"},
	{"FR-058", "type in lower case", `{"type":"execute"}`, "RFA_JOB_VALIDATION_FAILED", "type"},
	{"FR-058", "empty type", `{"type":""}`, "RFA_JOB_VALIDATION_FAILED", "type"},
	{"FR-006", "nothing", ``, "RFA_REQUEST_MALFORMED", "body"},
	{"FR-006", "spaces", `   `, "RFA_REQUEST_MALFORMED", "body"},
	{"FR-006", "kind of another type", `{"type":"EXECUTE","work_kind":["IO_HEAVY"]}`,
		"RFA_REQUEST_MALFORMED", "work_kind"},
	{"FR-074", "unknown kind", `{"type":"EXECUTE","work_kind":"NOTHING"}`,
		"RFA_JOB_VALIDATION_FAILED", "work_kind"},
	{"FR-074", "unknown kind, and those there are", `{"type":"EXECUTE","work_kind":"NOTHING"}`,
		"RFA_JOB_VALIDATION_FAILED", "IO_HEAVY, MANY_SMALL_OUTPUTS"},
	{"FR-074", "empty kind", `{"type":"EXECUTE","work_kind":""}`, "RFA_JOB_VALIDATION_FAILED",
		"work_kind"},
	{"FR-074", "kind with a NUL", `{"type":"EXECUTE","work_kind":"IO_HEAVY\u0000"}`,
		"RFA_JOB_VALIDATION_FAILED", "work_kind"},
	{"FR-113", "PAYLOAD_INVALID", `{"type":"EXECUTE","work_kind":"PAYLOAD_INVALID"}`,
		"RFA_JOB_VALIDATION_FAILED", "work_kind"},
	{"FR-006", "time as a number", `{"type":"EXECUTE","execution_at":1770000000}`,
		"RFA_REQUEST_MALFORMED", "execution_at"},
	{"FR-061", "time without a zone", `{"type":"EXECUTE","execution_at":"2026-03-02T12:00:00"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-061", "only a date", `{"type":"EXECUTE","execution_at":"2026-03-02"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-061", "no such day", `{"type":"EXECUTE","execution_at":"2026-02-30T12:00:00Z"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-061", "a word", `{"type":"EXECUTE","execution_at":"tomorrow"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-061", "empty time", `{"type":"EXECUTE","execution_at":""}`, "RFA_JOB_VALIDATION_FAILED",
		"execution_at"},
	{"FR-062", "past", `{"type":"EXECUTE","execution_at":"2026-03-01T11:59:58Z"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-062", "past by its offset",
		`{"type":"DEFERRED","execution_at":"2026-03-01T12:30:00+02:00"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-062", "the year 0", `{"type":"EXECUTE","execution_at":"0000-01-01T00:00:00Z"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-062", "the zero time", `{"type":"DEFERRED","execution_at":"0001-01-01T00:00:00Z"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-062", "the zero time of an instant type",
		`{"type":"EXECUTE","execution_at":"0001-01-01T02:00:00+02:00"}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-063", "DEFERRED without a time", `{"type":"DEFERRED"}`, "RFA_JOB_VALIDATION_FAILED",
		"execution_at"},
	{"FR-063", "DEFERRED with null", `{"type":"DEFERRED","execution_at":null}`,
		"RFA_JOB_VALIDATION_FAILED", "execution_at"},
	{"FR-006", "callback as an object", `{"type":"EXECUTE","callback":{}}`, "RFA_REQUEST_MALFORMED",
		"callback"},
	{"FR-065", "callback by ftp", `{"type":"EXECUTE","callback":"ftp://host/x"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback of a script", `{"type":"EXECUTE","callback":"javascript:alert(1)"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback without a host", `{"type":"EXECUTE","callback":"http:///x"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback with only a port", `{"type":"EXECUTE","callback":"http://:80/x"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback without a scheme", `{"type":"EXECUTE","callback":"host/x"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback with a wrong port", `{"type":"EXECUTE","callback":"http://host:99999/"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback broken", `{"type":"EXECUTE","callback":"http://ho st/"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback empty", `{"type":"EXECUTE","callback":""}`, "RFA_JOB_VALIDATION_FAILED",
		"callback"},
	{"FR-065", "callback too long", `{"type":"EXECUTE","callback":"http://host/` +
		strings.Repeat("x", 3000) + `"}`, "RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback with a NUL", `{"type":"EXECUTE","callback":"http://host/\u0000"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-065", "callback with half a rune", `{"type":"EXECUTE","callback":"http://host/\ud800"}`,
		"RFA_JOB_VALIDATION_FAILED", "callback"},
	{"FR-066", "key of another type", `{"type":"EXECUTE","idempotency_key":7}`,
		"RFA_REQUEST_MALFORMED", "idempotency_key"},
	{"FR-066", "empty key", `{"type":"EXECUTE","idempotency_key":""}`, "RFA_JOB_VALIDATION_FAILED",
		"idempotency_key"},
	{"FR-066", "long key", `{"type":"EXECUTE","idempotency_key":"` + strings.Repeat("k", 300) +
		`"}`, "RFA_JOB_VALIDATION_FAILED", "idempotency_key"},
	{"FR-066", "key with a NUL", `{"type":"EXECUTE","idempotency_key":"a\u0000b"}`,
		"RFA_JOB_VALIDATION_FAILED", "idempotency_key"},
	{"FR-006", "malformed beside invalid", `{"type":"DREAM","callback":"x","execution_at":7}`,
		"RFA_REQUEST_MALFORMED", "execution_at"},
}

func TestRefused(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	for _, r := range rejected {
		t.Run(r.id+" FR-007 "+r.name, func(t *testing.T) {
			c.Do(t, "POST", "/v1/jobs", r.body, "Content-Type", "application/json").WantError(t,
				400, r.code, r.names)
		})
	}
	t.Run("FR-007 what was sent is not sent back at any length", func(t *testing.T) {
		long := strings.Repeat("ä", 100_000)
		for _, r := range []testkit.Reply{
			c.Do(t, "POST", "/v1/jobs", `{"type":"`+long+`"}`),
			c.Do(t, "POST", "/v1/jobs", `{"type":"EXECUTE","work_kind":"`+long+`"}`),
			c.Do(t, "POST", "/v1/webhooks", `{"url":"http://localhost/","events":["`+long+`"]}`),
		} {
			if r.WantError(t, 400, "RFA_JOB_VALIDATION_FAILED", `"ää`); len(r.Body) > 2000 {
				t.Errorf("an answer of %d bytes", len(r.Body))
			}
		}
	})
	t.Run("FR-030 FR-081 none of them made anything", func(t *testing.T) {
		assertEqual(t, "jobs", w.jobs(t), 0)
		assertEqual(t, "submitted", w.metric(t, "jobs_submitted_total", nil), 0)
	})
	t.Run("FR-066 header given twice", func(t *testing.T) {
		req, _ := http.NewRequest("POST", w.URL+"/v1/jobs", strings.NewReader(submitBody("")))
		req.Header = http.Header{"Authorization": {"Bearer " + c.key},
			"Content-Type": {"application/json"}, "Idempotency-Key": {"a", "b"}}
		resp, err := w.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		assertEqual(t, "status", resp.StatusCode, 400)
	})
	t.Run("FR-062 within the tolerance", func(t *testing.T) {
		id := c.submit(t, submitBody("", executionAtMember(w.clock.Now().Add(-time.Second))))
		w.runMaintenance(t)
		c.wantState(t, id, "QUEUED")
	})
	t.Run("FR-065 callbacks that are taken", func(t *testing.T) {
		for _, url := range []string{"http://localhost:1/x", "https://example.com/a?b=c#d",
			"http://[::1]:8080/", "HTTPS://EXAMPLE.COM"} {
			id := c.submit(t, submitBody("", fmt.Sprintf(`"callback":%q`, url)))
			assertEqual(t, "callback", *c.get(t, id).Callback, url)
		}
	})
	t.Run("FR-059 FR-247 a type taken out", func(t *testing.T) {
		config := config()
		config.Types = []string{"EXECUTE"}
		w := inMemory(t, config)
		c := w.customer(t)
		c.submit(t, submitBody(""))
		c.Do(t, "POST", "/v1/jobs", `{"type":"EMIT_EVENT"}`).WantError(t, 400,
			"RFA_JOB_VALIDATION_FAILED", "type")
		assertEqual(t, "jobs", w.jobs(t), 1)
	})
	t.Run("FR-082 FR-209 payload above the limit", func(t *testing.T) { // G-FR-17
		config := config()
		config.PayloadLimit = 16 << 10
		w := inMemory(t, config)
		c := w.customer(t)
		c.submit(t, submitBody("SUCCESS_NORMAL"))
		c.Do(t, "POST", "/v1/jobs", submitBody("SUCCESS_SLOW")).WantError(t, 400,
			"RFA_JOB_VALIDATION_FAILED", "payload_size")
		for range 50 {
			w.clock.Advance(time.Millisecond)
			c.submit(t, submitBody("")) // a choice of the server's fits
		}
	})
}
