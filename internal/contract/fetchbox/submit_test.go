package fetchbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/contract/fetchbox/handler"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

var uuidText = regexp.MustCompile(
	`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestSubmit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		t.Run("FB-001 FB-002 FB-027 FB-028 FB-030 FB-100 accepted, many in a row, without a "+
			"token, a key or a limit", func(t *testing.T) {
			last := ""
			for n := 1; n <= 100; n++ {
				r := w.submit(t, manifest(n%3+1))
				if !uuidText.MatchString(r.JobID) || r.JobID <= last {
					t.Fatalf("job %s after %s", r.JobID, last)
				}
				assertEqual(t, "resources", r.ResourceCount, n%3+1)
				last = r.JobID
			}
		})
		t.Run("FB-029 FB-013 FB-038 G-FB-11 G-FB-12 the manifest is stored as it came",
			func(t *testing.T) {
				text := "\n{\"manifest_version\":\"v1\", \"unknown\":[1.0e5],\"metadata\":{ " +
					"\"b\":1.10,\"a\":\"\\u00e9\", \"a\":2 },\t\"resources\":[{\"id\":\"r\",\"url\":\"http://example.com\"}]} "
				r := w.submit(t, text)
				assertEqual(t, "key", r.ManifestKey,
					"s3://millrace/manifests/gallery/"+r.JobID+"/metadata.json")
				assertEqual(t, "manifest", string(w.object(t, r.ManifestKey)), text)
			})
		t.Run("FB-009 G-FB-17 the tenant is that of the header", func(t *testing.T) {
			body := strings.Replace(manifest(1), `"metadata"`,
				`"attributes":{"tenant":"other"},"metadata"`, 1)
			r := w.submit(t, body, "X-Fetchbox-Tenant", "crawler-a")
			assertEqual(t, "tenant", w.get(t, r.JobID).Tenant, "crawler-a")
			w.deliver(t)
			sent := w.messages(t)
			assertEqual(t, "of the task", sent[len(sent)-1].Tenant, "crawler-a")
		})
	})
}

func TestAccepted(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		r := w.submit(t, manifest(42))
		t.Run("FB-031 FB-032 FB-052 the ledger's entry", func(t *testing.T) {
			v := w.status(t, r.JobID, "queued")
			assertEqual(t, "type and manifest", v.JobType+" "+v.ManifestKey,
				"gallery "+r.ManifestKey)
			assertEqual(t, "counts", fmt.Sprint(v.Total, v.Completed, v.Failed), "42 0 0")
			if !v.CreatedAt.Equal(w.clock.Now()) || v.UpdatedAt.Before(v.CreatedAt) {
				t.Errorf("created %s, updated %s", v.CreatedAt, v.UpdatedAt)
			}
		})
		t.Run("FB-033 FB-078 FB-023 one message for each resource", func(t *testing.T) {
			w.deliver(t)
			sent := w.messages(t)
			assertEqual(t, "messages", len(sent), 42)
			seen := map[string]bool{}
			for _, m := range sent {
				seen[m.ResourceID] = true
				assertEqual(t, "job", m.JobID+" "+m.JobType+" "+m.ManifestKey,
					r.JobID+" gallery "+r.ManifestKey)
				assertEqual(t, "default headers", m.Headers["User-Agent"]+" "+m.Headers["X-From"],
					"FetchBox/1.0 type")
				assertEqual(t, "attempt", m.Attempt, 1)
				if m.Tags == nil {
					t.Error("tags are missing")
				}
			}
			assertEqual(t, "resources", len(seen), 42)
		})
		t.Run("FB-071 FB-082 the job type's bucket and prefix", func(t *testing.T) {
			m := w.messages(t)[0]
			assertEqual(t, "place", m.Storage.Bucket+" "+m.Storage.Key,
				"pictures gallery/"+r.JobID+"/"+m.ResourceID)
			plain := w.submit(t, manifest(1), "X-Fetchbox-Job-Type", "default")
			w.deliver(t)
			sent := w.messages(t)
			assertEqual(t, "usual place", sent[len(sent)-1].Storage.Key,
				"resources/default/"+plain.JobID+"/r0000")
		})
		t.Run("FB-033 G-FB-22 delivered again it is there once", func(t *testing.T) {
			before := len(w.messages(t))
			w.submit(t, manifest(20))
			var kept []job.Message
			_, err := w.engine.Publish(context.Background(),
				func(ctx context.Context, batch []job.Message) error {
					kept = append(kept, batch...)
					return errors.Join(w.fetchbox.Deliver(ctx, batch),
						w.fetchbox.Deliver(ctx, batch))
				})
			if err != nil || len(kept) == 0 {
				t.Fatal(err, len(kept))
			}
			assertEqual(t, "new messages", len(w.messages(t))-before, 20)
		})
	})
}

// TestAfterwards is FB-034: what was acknowledged is there for whoever opens the same store later.
func TestAfterwards(t *testing.T) {
	t.Parallel()
	t.Run("FB-034 another node has all of it", func(t *testing.T) {
		w := newWorldAt(t, testkit.OnPostgres(t), config())
		r := w.submit(t, manifest(5))
		other := w.node(t, config())
		assertEqual(t, "total", other.get(t, r.JobID).Total, 5)
		assertEqual(t, "tasks", len(other.claim(t, 10)), 5)
	})
}

// TestTrace: the trace of whoever submits goes with the job (FB-064).
func TestTrace(t *testing.T) {
	t.Parallel()
	c := config()
	c.Tracing = &telemetry.Tracing{}
	w := inMemory(t, c)
	t.Run("FB-064 FB-078 trace_id", func(t *testing.T) {
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		r := w.submit(t, manifest(1), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01",
			"tracestate", "vendor=a-b")
		w.deliver(t)
		for _, m := range read[struct {
			Trace string `json:"trace_id"`
		}](t, w, "JOBS_LOGS", "jobs.logs."+r.JobID) {
			assertEqual(t, "trace of a log entry", m.Trace, trace)
		}
		sent := read[map[string]any](t, w, "JOBS_TASKS", "jobs.tasks")
		assertEqual(t, "trace of the task", sent[0]["trace_id"], any(trace))
		assertEqual(t, "trace of the job", w.claim(t, 1)[0].Trace,
			"00-"+trace+"-00f067aa0ba902b7-01 vendor=a-b")
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	for name, c := range map[string]struct {
		header []string
		status int
		code   string
	}{
		"FB-003 another content type": {[]string{"Content-Type", "text/plain"}, 400,
			"INVALID_PAYLOAD"},
		"FB-003 G-FB-08 no content type": {[]string{"Content-Type", ""}, 400, "INVALID_PAYLOAD"},
		"FB-003 another kind of JSON": {[]string{"Content-Type", "application/ld+json"}, 400,
			"INVALID_PAYLOAD"},
		"FB-004 no job type": {[]string{"X-Fetchbox-Job-Type", ""}, 400,
			"INVALID_PAYLOAD"},
		"FB-004 an empty job type": {[]string{"X-Fetchbox-Job-Type", " "}, 400,
			"INVALID_PAYLOAD"},
		"FB-085 G-FB-15 a job type upward": {[]string{"X-Fetchbox-Job-Type", "../x"}, 400,
			"INVALID_PAYLOAD"},
		"G-FB-15 a first dot": {[]string{"X-Fetchbox-Job-Type", ".x"}, 400,
			"INVALID_PAYLOAD"},
		"G-FB-15 65 characters": {[]string{"X-Fetchbox-Job-Type",
			strings.Repeat("x", 65)}, 400, "INVALID_PAYLOAD"},
		"FB-005 FB-041 an unknown type": {[]string{"X-Fetchbox-Job-Type", "unknown"}, 403,
			"UNSUPPORTED_JOB_TYPE"},
		"FB-005 a type in another case": {[]string{"X-Fetchbox-Job-Type", "Gallery"}, 403,
			"UNSUPPORTED_JOB_TYPE"},
		"G-FB-16 default catches nothing": {[]string{"X-Fetchbox-Job-Type",
			strings.Repeat("x", 64)}, 403, "UNSUPPORTED_JOB_TYPE"},
		"a long key": {[]string{"X-Fetchbox-Idempotency-Key",
			strings.Repeat("k", 1025)}, 400, "INVALID_PAYLOAD"},
		"a tenant that is not UTF-8": {[]string{"X-Fetchbox-Tenant", "\xff"}, 400,
			"INVALID_PAYLOAD"},
	} {
		t.Run(name, func(t *testing.T) {
			w.post(t, manifest(1), c.header...).WantError(t, c.status, c.code)
		})
	}
	t.Run("FB-026 nothing is left of them", func(t *testing.T) { w.wantNothingStored(t) })
	t.Run("FB-003 parameters are allowed", func(t *testing.T) {
		w.post(t, manifest(1), "Content-Type", "application/json; charset=utf-8").WantStatus(t, 202)
	})
	t.Run("FB-045 G-FB-19 the form of an error", func(t *testing.T) {
		r := w.post(t, "{}")
		p := testkit.DecodeReply[map[string]map[string]string](t, r.WantStatus(t, 400))
		if len(p) != 1 || p["error"]["code"] != "INVALID_PAYLOAD" || p["error"]["message"] == "" {
			t.Errorf("got %s", r.Body)
		}
	})
	t.Run("G-FB-38 404 and 405", func(t *testing.T) {
		w.Do(t, "GET", "/operators/nothing", "").WantError(t, 404, "NOT_FOUND")
		w.Do(t, "GET", "/jobs/x", "").WantError(t, 404, "NOT_FOUND")
		r := w.Do(t, "GET", "/jobs", "").WantError(t, 405, "METHOD_NOT_ALLOWED")
		assertEqual(t, "Allow", r.Header.Get("Allow"), "POST")
	})
}

// TestErrors: every kind has a place in HTTP. Whatever is unavailable or breaks is 500, and nothing
// that a caller did is.
func TestErrors(t *testing.T) {
	t.Parallel()
	testkit.CheckErrorTable(t, fetchbox.ErrorTable)
	codes := map[int]string{400: "INVALID_PAYLOAD", 404: "NOT_FOUND", 409: "CONFLICT",
		413: "PAYLOAD_TOO_LARGE", 429: "RATE_LIMITED", 500: "INTERNAL_ERROR"}
	want := map[job.Kind]int{job.Malformed: 400, job.Invalid: 400, job.NotFound: 404,
		job.Conflict: 409, job.RunLost: 409, job.TooLarge: 413, job.Full: 429,
		job.Internal: 500, job.Cycle: 500, job.Unavailable: 500, job.ReadOnly: 500,
		job.Aborted: 500, job.Timeout: 500}
	for _, k := range job.Kinds() {
		t.Run("FB-039 FB-042 FB-043 FB-044 "+k.String(), func(t *testing.T) {
			status, code := fetchbox.MeaningOf(k)
			assertEqual(t, "meaning", fmt.Sprint(status, " ", code),
				fmt.Sprint(want[k], " ", codes[want[k]]))
		})
	}
}

// loudHandler is a handler that shows what it may do.
type loudHandler struct{ handler.Default }

func (loudHandler) Prepare(_ context.Context, _ handler.Job, m handler.Manifest) (handler.Manifest,
	error) {
	for i := range m.Resources {
		switch m.Resources[i].ID {
		case "bad":
			return m, errors.New("this one is bad")
		case "panic":
			panic("a defect")
		}
		m.Resources[i].URL += "?prepared"
	}
	return m, nil
}

func (loudHandler) Tasks(ctx context.Context, j handler.Job, m handler.Manifest) ([]handler.Task,
	error) {
	tasks, err := handler.Default{}.Tasks(ctx, j, m)
	for i := range tasks {
		tasks[i].Storage = &handler.Storage{Key: "mine/" + tasks[i].ResourceID,
			Metadata: map[string]string{"from": "loud"}}
	}
	switch m.Resources[0].ID {
	case "twice":
		tasks = append(tasks, tasks[0])
	case "none":
		tasks = nil
	}
	return tasks, err
}

func TestHandlers(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	w.fetchbox.UseType("loud", loudHandler{})
	post := func(id string) testkit.Reply {
		return w.post(t, strings.Replace(manifest(1), "r0000", id, 1), "X-Fetchbox-Job-Type",
			"loud")
	}
	t.Run("FB-076 an error refuses the job", func(t *testing.T) {
		post("bad").WantError(t, 400, "INVALID_PAYLOAD", "this one is bad")
	})
	t.Run("FB-076 a handler that makes nothing", func(t *testing.T) {
		post("none").WantError(t, 400, "INVALID_PAYLOAD")
	})
	t.Run("FB-044 a handler that breaks", func(t *testing.T) {
		post("panic").WantError(t, 500, "INTERNAL_ERROR")
	})
	t.Run("FB-044 a handler that makes a task twice", func(t *testing.T) {
		post("twice").WantError(t, 500, "INTERNAL_ERROR")
	})
	t.Run("FB-035 nothing is left of them", func(t *testing.T) { w.wantNothingStored(t) })
	t.Run("FB-076 FB-079 it prepares and builds", func(t *testing.T) {
		r := testkit.DecodeReply[receipt](t, post("r").WantStatus(t, 202))
		w.deliver(t)
		m := w.messages(t)[0]
		assertEqual(t, "url", m.URL, "https://example.com/0.jpg?prepared")
		assertEqual(t, "place", m.Storage.Key+" "+m.Storage.Metadata["from"], "mine/r loud")
		if strings.Contains(string(w.object(t, r.ManifestKey)), "prepared") {
			t.Error("the stored manifest was changed")
		}
	})
	t.Run("FB-069 an unknown handler is an error of the start", func(t *testing.T) {
		c := config()
		c.Types = map[string]*fetchbox.Type{"x": {Handler: "nobody"}}
		if err := w.wantRefused(c); err == nil || !strings.Contains(err.Error(), "nobody") {
			t.Errorf("got %v", err)
		}
	})
}

// BenchmarkIngest is a manifest of 1,000 resources, from the request to the answer.
func BenchmarkIngest(b *testing.B) {
	w := inMemory(b, config())
	body := manifest(1000)
	for b.Loop() {
		answer := httptest.NewRecorder()
		w.handler.ServeHTTP(answer, w.request(b, body))
		assertEqual(b, "status", answer.Code, 202)
	}
}
