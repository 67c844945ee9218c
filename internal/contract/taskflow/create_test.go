package taskflow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/job"
	settings "github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
)

var uuidText = regexp.MustCompile(
	`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// hastyStore is a store behind which something happens between a commit and its answer.
type hastyStore struct {
	store.Store
	before atomic.Pointer[func()] // once
}

func (h *hastyStore) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := h.Store.Update(ctx, fn)
	if then := h.before.Swap(nil); err == nil && then != nil {
		(*then)()
	}
	return err
}

// The answer shows a job as it was stored, whatever has become of it by the time of the answer.
func TestCreateOvertaken(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		h := &hastyStore{Store: p.Store}
		w := newWorld(t, p.Clock, h, config())
		for _, members := range []string{`"priority":7`, dependenciesMember(w.create(t).ID)} {
			removed := func() {
				newest, err := w.engine.Search(t.Context(),
					store.Search{JobType: taskflow.Name, Queue: "late", Limit: 1})
				if err == nil {
					err = w.engine.Remove(t.Context(), newest[0].ID)
				}
				if err != nil {
					t.Error(err)
				}
			}
			h.before.Store(&removed)
			v := testkit.DecodeReply[jobView](t,
				w.Do(t, "POST", jobsPath, jobSpec(`"queue":"late"`, members)).WantStatus(t, 201))
			assertEqual(t, "name queue", v.Name+v.Queue, "nlate")
			w.Do(t, "GET", pathOf(v.ID), "").WantError(t, 404, "NOT_FOUND")
		}
	})
}

func TestCreate(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("TF-069 the whole job", func(t *testing.T) {
			r := w.Do(t, "POST", jobsPath, jobSpec(`"priority":7`)).WantStatus(t, 201)
			v := testkit.DecodeReply[jobView](t, r)
			assertEqual(t, "name queue priority", fmt.Sprint(v.Name, v.Queue, v.Priority), "nq7")
			assertEqual(t, "read again", w.Do(t, "GET", pathOf(v.ID), "").WantStatus(t, 200).Body,
				r.Body)
		})
		t.Run("TF-069 TF-032 as it is read, in every state that it may begin in",
			func(t *testing.T) {
				failed, open := w.create(t), w.create(t)
				w.fail(t, failed.ID, false)
				large := `"payload":"` + strings.Repeat("x", 60_000) + `"`
				for status, members := range map[string]string{"READY": large,
					"PENDING": dependenciesMember(open.ID),
					"BLOCKED": dependenciesMember(open.ID, failed.ID)} {
					r := w.Do(t, "POST", jobsPath, jobSpec(members)).WantStatus(t, 201)
					v := testkit.DecodeReply[jobView](t, r)
					assertEqual(t, "status", v.Status, status)
					assertEqual(t, "read again",
						w.Do(t, "GET", pathOf(v.ID), "").WantStatus(t, 200).Body, r.Body)
				}
			})
		t.Run("TF-001 the id is a UUID of the server", func(t *testing.T) {
			seen := map[string]bool{}
			for range 50 {
				v := w.create(t, `"id":"00000000-0000-7000-8000-000000000000"`)
				if !uuidText.MatchString(v.ID) || seen[v.ID] ||
					strings.HasPrefix(v.ID, "00000000") {
					t.Fatalf("id %q", v.ID)
				}
				seen[v.ID] = true
			}
		})
		t.Run("TF-001 many at once", func(t *testing.T) {
			seen := map[string]bool{}
			for _, r := range testkit.RunConcurrently(40, func(int) testkit.Reply {
				return w.Do(t, "POST", jobsPath, jobSpec())
			}) {
				seen[testkit.DecodeReply[jobView](t, r.WantStatus(t, 201)).ID] = true
			}
			assertEqual(t, "ids", len(seen), 40)
		})
		t.Run("TF-013 TF-009 TF-014 TF-015 TF-016 TF-017 what is usual", func(t *testing.T) {
			v := w.create(t)
			assertEqual(t, "policy", v.RetryPolicy, policy{3, "EXPONENTIAL", 10, 300})
			assertEqual(t, "the rest", fmt.Sprint(v.Priority, string(v.Payload), v.Dependencies),
				"5{}[]")
			if v.NextRunAt != nil {
				t.Error("it waits for nothing")
			}
		})
		t.Run("TF-010 created_at", func(t *testing.T) {
			v := w.create(t, `"created_at":"2001-01-01T00:00:00Z","updated_at":5`)
			assertEqual(t, "created_at", v.CreatedAt, w.clock.Now())
			w.clock.Advance(time.Hour)
			w.put(t, v.ID, nameMember("other"))
			w.succeed(t, v.ID)
			assertEqual(t, "later", w.get(t, v.ID).CreatedAt, v.CreatedAt)
		})
		t.Run("TF-007 TF-012 TF-032 status and attempts are the server's", func(t *testing.T) {
			v := w.create(t, `"status":"COMPLETED","attempt_count":-4`)
			assertEqual(t, "status attempts", fmt.Sprint(v.Status, v.AttemptCount), "READY0")
		})
		t.Run("TF-005 payloads come back as the same value", func(t *testing.T) {
			for _, payload := range []string{`null`, `true`, `"a\u00e9\u0000\ud800"`,
				`123456789012345678901234567890.10`, `[]`, `{"a":{"b":[1,{"c":null}]},"a":2}`,
				`-0`} {
				v := w.create(t, `"payload": `+payload+" ")
				assertEqual(t, "payload", string(v.Payload), payload)
				if again := w.Do(t, "GET", pathOf(v.ID), "").WantStatus(t,
					200).Body; !strings.Contains(again, `"payload":`+payload+`,`) {
					t.Errorf("%s became %s", payload, again)
				}
			}
		})
		t.Run("TF-004 the largest payload", func(t *testing.T) {
			large := `"` + strings.Repeat("é", 32767) + `"`
			assertEqual(t, "bytes", len(large), 65536)
			assertEqual(t, "payload", string(w.create(t, `"payload":`+large).Payload), large)
			w.Do(t, "POST", jobsPath, jobSpec(`"payload":"`+strings.Repeat("x", 65535)+
				`"`)).WantError(t, 400, "VALIDATION_ERROR", "payload")
			w.create(t, `"payload":   `+large+strings.Repeat(" ", 100))
		})
		t.Run("TF-020 a part of a policy is completed", func(t *testing.T) {
			assertEqual(t, "base", w.create(t,
				`"retry_policy":{"base_delay_seconds":300}`).RetryPolicy,
				policy{3, "EXPONENTIAL", 300, 300})
			assertEqual(t, "none", w.create(t, `"retry_policy":{}`).RetryPolicy,
				policy{3, "EXPONENTIAL", 10, 300})
			assertEqual(t, "all", w.create(t,
				`"retry_policy":{"max_attempts":10,"backoff_strategy":"LINEAR","base_delay_seconds":1,"max_delay_seconds":3600,"x":1}`).RetryPolicy,
				policy{10, "LINEAR", 1, 3600})
			w.Do(t, "POST", jobsPath,
				jobSpec(`"retry_policy":{"max_delay_seconds":9}`)).WantError(t, 400,
				"VALIDATION_ERROR", "max_delay_seconds")
		})
		t.Run("TF-019 each strategy", func(t *testing.T) {
			for _, s := range []string{"FIXED", "LINEAR", "EXPONENTIAL"} {
				assertEqual(t, "strategy",
					w.create(t, `"retry_policy":{"backoff_strategy":"`+s+`"}`).RetryPolicy.Strategy,
					s)
			}
		})
		t.Run("TF-002 TF-003 TF-006 the ends of the ranges", func(t *testing.T) {
			long := strings.Repeat("é", 255)
			v := testkit.DecodeReply[jobView](t,
				w.Do(t, "POST", jobsPath,
					`{"name":"`+long+`","queue":"`+strings.Repeat("Z", 64)+
						`","priority":1e1}`).WantStatus(t, 201))
			assertEqual(t, "name priority", fmt.Sprint(v.Name, v.Priority), long+"10")
			v = testkit.DecodeReply[jobView](t,
				w.Do(t, "POST", jobsPath, `{"name":" ","queue":"_","priority":1.0}`).WantStatus(t,
					201))
			assertEqual(t, "name priority", fmt.Sprint(v.Name, v.Priority), " 1")
		})
		t.Run("TF-008 dependencies", func(t *testing.T) {
			first := w.create(t).ID
			var fifty []string
			for range 50 {
				fifty = append(fifty, w.create(t).ID)
			}
			assertEqual(t, "dependencies",
				fmt.Sprint(w.create(t, dependenciesMember(fifty...)).Dependencies),
				fmt.Sprint(fifty))
			w.Do(t, "POST", jobsPath,
				jobSpec(dependenciesMember(append(fifty, first)...))).WantError(t, 400,
				"VALIDATION_ERROR", "dependencies")
			n := w.jobs(t)
			stranger := "00000000-0000-4000-8000-000000000000"
			w.Do(t, "POST", jobsPath, jobSpec(dependenciesMember(first, stranger))).WantError(t,
				400, "VALIDATION_ERROR", "dependencies", stranger)
			assertEqual(t, "stored", w.jobs(t), n)
			v := w.create(t, dependenciesMember(strings.ToUpper(first), first)) // G-TF-18, G-TF-35
			assertEqual(t, "once", fmt.Sprint(v.Dependencies), fmt.Sprint([]string{first}))
		})
	})
}

// refused are creates that break one rule each: what they say, and what the message speaks of.
var refused = []struct{ id, body, word string }{
	{"TF-002", `{"queue":"q"}`, "name"}, {"TF-002", `{"name":"","queue":"q"}`, "name"},
	{"TF-002", `{"name":"` + strings.Repeat("é", 256) + `","queue":"q"}`, "name"},
	{"TF-002", `{"name":7,"queue":"q"}`, "name"}, {"TF-002", `{"name":null,"queue":"q"}`, "name"},
	{"TF-002", `{"name":"\u0000","queue":"q"}`, "name"},
	{"TF-013", `{"name":"n"}`, "queue"}, {"TF-003", `{"name":"n","queue":""}`, "queue"},
	{"TF-003", `{"name":"n","queue":"a-b"}`, "queue"},
	{"TF-003", `{"name":"n","queue":"a b"}`, "queue"},
	{"TF-003", `{"name":"n","queue":"é"}`, "queue"},
	{"TF-003", `{"name":"n","queue":"` + strings.Repeat("q", 65) + `"}`, "queue"},
	{"TF-006", jobSpec(`"priority":0`), "priority"},
	{"TF-006", jobSpec(`"priority":11`), "priority"},
	{"TF-006", jobSpec(`"priority":1.5`), "priority"},
	{"TF-006", jobSpec(`"priority":"5"`), "priority"},
	{"TF-006", jobSpec(`"priority":1e400`), "priority"},
	{"TF-006", jobSpec(`"priority":null`), "priority"},
	{"TF-004", jobSpec(`"payload":"` + strings.Repeat("x", 65535) + `"`), "payload"},
	{"TF-008", jobSpec(`"dependencies":"x"`), "dependencies"},
	{"TF-008", jobSpec(`"dependencies":[7]`), "dependencies[0]"},
	{"TF-008", jobSpec(`"dependencies":["x"]`), "dependencies[0]"},
	{"TF-008", jobSpec(`"dependencies":null`), "dependencies"},
	{"TF-021", jobSpec(`"retry_policy":{"max_attempts":0}`), "max_attempts"},
	{"TF-021", jobSpec(`"retry_policy":{"max_attempts":11}`), "max_attempts"},
	{"TF-014", jobSpec(`"retry_policy":{"max_attempts":2.5}`), "max_attempts"},
	{"TF-021", jobSpec(`"retry_policy":{"base_delay_seconds":0}`), "base_delay_seconds"},
	{"TF-021", jobSpec(`"retry_policy":{"base_delay_seconds":301,"max_delay_seconds":900}`),
		"base_delay_seconds"},
	{"TF-021", jobSpec(`"retry_policy":{"max_delay_seconds":3601}`), "max_delay_seconds"},
	{"TF-017", jobSpec(`"retry_policy":{"max_delay_seconds":0}`), "max_delay_seconds"},
	{"TF-018", jobSpec(`"retry_policy":{"base_delay_seconds":20,"max_delay_seconds":19}`),
		"max_delay_seconds"},
	{"TF-019", jobSpec(`"retry_policy":{"backoff_strategy":"fixed"}`), "backoff_strategy"},
	{"TF-019", jobSpec(`"retry_policy":{"backoff_strategy":"RANDOM"}`), "backoff_strategy"},
	{"TF-015", jobSpec(`"retry_policy":{"backoff_strategy":null}`), "backoff_strategy"},
	{"TF-020", jobSpec(`"retry_policy":[]`), "retry_policy"},
	{"TF-020", jobSpec(`"retry_policy":null`), "retry_policy"},
	{"TF-086", `{`, "JSON"}, {"TF-086", `[]`, "object"}, {"TF-086", `7`, "object"},
	{"TF-086", ` `, "body"}, {"TF-086", jobSpec() + "x", "JSON"},
	{"TF-086", "{\"name\":\"\xff\",\"queue\":\"q\"}", "JSON"},
	{"TF-086", strings.Repeat("[", 600) + strings.Repeat("]", 600), "JSON"},
}

// TestRefused: nothing of what breaks a rule is stored, in a create and in an update.
func TestRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		kept := w.create(t)
		for i, c := range refused {
			t.Run(fmt.Sprint(c.id, " TF-070 refused ", i), func(t *testing.T) {
				w.Do(t, "POST", jobsPath, c.body).WantError(t, 400, "VALIDATION_ERROR", c.word)
				if (strings.HasSuffix(c.body, `"queue":"q"}`) &&
					!strings.Contains(c.body, "name")) || c.body == `{"name":"n"}` {
					return // an update may leave it out
				}
				w.Do(t, "PUT", pathOf(kept.ID), c.body).WantError(t, 400, "VALIDATION_ERROR",
					c.word)
			})
		}
		assertEqual(t, "TF-070 stored", w.jobs(t), 1)
		assertEqual(t, "TF-077 unchanged", w.get(t, kept.ID).UpdatedAt, kept.UpdatedAt)
	})
}

func TestTransport(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	t.Run("TF-086 the body says it is something else", func(t *testing.T) {
		w.Do(t, "POST", jobsPath, jobSpec(), "Content-Type", "text/plain").WantError(t, 400,
			"VALIDATION_ERROR", "Content-Type")
		w.Do(t, "POST", jobsPath, jobSpec(), "Content-Type", "", beyondDocument, "1").WantStatus(t,
			201)
		w.Do(t, "POST", jobsPath, jobSpec(), "Content-Type",
			"application/json; charset=utf-8").WantStatus(t, 201)
	})
	t.Run("TF-085 larger than any body", func(t *testing.T) {
		w.Do(t, "POST", jobsPath, strings.Repeat(" ", bodyLimit+1)).WantError(t, 413,
			"PAYLOAD_TOO_LARGE")
		w.Do(t, "POST", jobsPath, strings.Repeat(" ", graphBodyLimit+1)).WantError(t, 413,
			"PAYLOAD_TOO_LARGE", fmt.Sprint(bodyLimit))
	})
	t.Run("TF-085 larger, and its size is not announced", func(t *testing.T) {
		for path, limit := range map[string]int64{jobsPath: bodyLimit,
			"/api/v1/graphs": graphBodyLimit} {
			req, err := http.NewRequest("POST", w.URL+path, io.LimitReader(spaceReader{}, limit+1))
			if err != nil {
				t.Fatal(err)
			}
			w.Send(t, req).WantError(t, 413, "PAYLOAD_TOO_LARGE", fmt.Sprint(limit))
		}
	})
	t.Run("TF-085 the store is unavailable", func(t *testing.T) { // G-TF-29
		w := inMemory(t, config())
		id := w.create(t).ID
		w.store.Close()
		for _, r := range []testkit.Reply{w.Do(t, "GET", pathOf(id), ""),
			w.Do(t, "POST", jobsPath, jobSpec()), w.Do(t, "PUT", pathOf(id), "{}"),
			w.Do(t, "DELETE", pathOf(id), ""), w.Do(t, "GET", jobsPath, ""),
			w.Do(t, "GET", pathOf(id)+"/graph", "")} {
			r.WantError(t, 503, "INTERNAL_ERROR")
		}
	})
	t.Run("TF-085 other paths and methods", func(t *testing.T) {
		w.Do(t, "GET", "/api/v1/nothing", "").WantError(t, 404, "NOT_FOUND")
		w.Do(t, "PATCH", jobsPath, "{}").WantError(t, 405, "METHOD_NOT_ALLOWED")
	})
	t.Run("TF-085 a token", func(t *testing.T) {
		c := config()
		c.Token = settings.NewSecret("secret")
		w := inMemory(t, c)
		w.Do(t, "POST", jobsPath, jobSpec()).WantError(t, 401, "UNAUTHORIZED")
		w.Do(t, "POST", jobsPath, jobSpec(), "Authorization", "Bearer secret").WantStatus(t, 201)
	})
	t.Run("TF-085 each kind of error has its code", func(t *testing.T) {
		testkit.CheckErrorTable(t, taskflow.ErrorTable)
		codes := map[string]int{"VALIDATION_ERROR": 400, "NOT_FOUND": 404, "CONFLICT": 409,
			"PAYLOAD_TOO_LARGE": 413}
		for _, k := range job.Kinds() {
			status, code := taskflow.Meaning(&job.Error{Kind: k})
			if code == "INTERNAL_ERROR" && (status == 500 || status == 503) {
				continue
			}
			assertEqual(t, k.String(), status, codes[code])
		}
		status, code := taskflow.Meaning(errors.New("unknown"))
		assertEqual(t, "unclassified", fmt.Sprint(status, code), "500INTERNAL_ERROR")
	})
}

// spaceReader is white space without end.
type spaceReader struct{}

func (spaceReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestDelete(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		stranger := "00000000-0000-4000-8000-000000000000"
		t.Run("TF-072 TF-074 TF-082 unknown", func(t *testing.T) {
			for _, id := range []string{stranger, "x", strings.Repeat("0", 40), "%00"} { // G-TF-22
				w.Do(t, "GET", pathOf(id), "").WantError(t, 404, "NOT_FOUND")
				w.Do(t, "PUT", pathOf(id), `{"name":""}`).WantError(t, 404, "NOT_FOUND")
				w.Do(t, "DELETE", pathOf(id), "").WantError(t, 404, "NOT_FOUND")
			}
		})
		t.Run("TF-071 in any case", func(t *testing.T) {
			v := w.create(t)
			assertEqual(t, "id", w.get(t, strings.ToUpper(v.ID)).ID, v.ID)
		})
		t.Run("TF-081 TF-082 gone", func(t *testing.T) {
			v := w.create(t)
			assertEqual(t, "body", w.Do(t, "DELETE", pathOf(v.ID), "").WantStatus(t, 204).Body, "")
			w.Do(t, "GET", pathOf(v.ID), "").WantError(t, 404, "NOT_FOUND")
			w.Do(t, "DELETE", pathOf(v.ID), "").WantError(t, 404, "NOT_FOUND")
		})
		t.Run("TF-083 not while another lists it", func(t *testing.T) {
			first := w.create(t).ID
			second := w.create(t, dependenciesMember(first)).ID
			w.Do(t, "DELETE", pathOf(first), "").WantError(t, 409, "CONFLICT", "depends")
			w.fail(t, first, false)
			w.status(t, second, "BLOCKED")
			w.Do(t, "DELETE", pathOf(first), "").WantError(t, 409, "CONFLICT")
			w.Do(t, "DELETE", pathOf(second), "").WantStatus(t, 204)
			w.Do(t, "DELETE", pathOf(first), "").WantStatus(t, 204)
		})
		t.Run("TF-084 while it runs", func(t *testing.T) {
			v := w.create(t)
			j := w.claimAndStart(t, v.ID)
			w.Do(t, "DELETE", pathOf(v.ID), "").WantStatus(t, 204)
			_, err := w.engine.Finish(t.Context(), runOf(j), taskflow.SuccessOutcome(j, nil))
			assertEqual(t, "the result", job.KindOf(err), job.RunLost)
			w.Do(t, "GET", pathOf(v.ID), "").WantError(t, 404, "NOT_FOUND")
		})
		t.Run("TF-083 while dependents are made", func(t *testing.T) {
			for range 20 {
				id := w.create(t).ID
				answers := testkit.RunConcurrently(4, func(i int) testkit.Reply {
					if i == 0 {
						return w.Do(t, "DELETE", pathOf(id), "")
					}
					return w.Do(t, "POST", jobsPath, jobSpec(dependenciesMember(id)))
				})
				made := 0
				for _, r := range answers[1:] {
					if r.Status == 201 {
						made++
					} else {
						r.WantError(t, 400, "VALIDATION_ERROR", "dependencies")
					}
				}
				if (answers[0].Status == 204) == (made > 0) {
					t.Fatalf("the delete is answered %d, and %d dependents were made",
						answers[0].Status, made)
				}
			}
		})
	})
}
