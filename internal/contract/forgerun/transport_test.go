package forgerun_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

const nobody = "7b1f6c52-3b0f-4f3a-9a52-0d7c9a1f4a11" // an id that nothing has

// sample is one request of each route; %c stands for the client's id, %j for a job's, %w for a
// webhook's, %d for a delivery's.
var sample = []struct{ name, method, path, body string }{
	{"create_client", "POST", "/v1/clients", ""},
	{"create_key", "POST", "/v1/clients/%c/keys", `{}`},
	{"renew_key", "POST", "/v1/clients/%c/keys/renew", `{}`},
	{"revoke_key", "POST", "/v1/clients/%c/keys/revoke", `{"key_id":"` + nobody + `"}`},
	{"list_keys", "GET", "/v1/clients/%c/keys", ""},
	{"submit", "POST", "/v1/jobs", `{"type":"EXECUTE"}`},
	{"list_jobs", "GET", "/v1/jobs", ""},
	{"get", "GET", "/v1/jobs/%j", ""},
	{"report", "GET", "/v1/jobs/%j/report", ""},
	{"cancel", "POST", "/v1/jobs/%j/cancel", ""},
	{"retry", "POST", "/v1/jobs/%j/retry", ""},
	{"register_webhook", "POST", "/v1/webhooks",
		`{"url":"http://localhost:9/hook","events":["job_created"]}`},
	{"list_webhooks", "GET", "/v1/webhooks", ""},
	{"delete_webhook", "DELETE", "/v1/webhooks/%w", ""},
	{"list_deliveries", "GET", "/v1/webhooks/%w/deliveries", ""},
	{"replay_delivery", "POST", "/v1/webhooks/%w/deliveries/%d/replay", ""},
	{"rotate_webhook_secret", "POST", "/v1/webhooks/%w/rotate-secret", ""},
	{"test_webhook", "POST", "/v1/webhooks/%w/test", ""},
	{"replay_deliveries", "POST", "/v1/webhooks/%w/replay", ""},
	{"enable_webhook", "POST", "/v1/webhooks/%w/enable", ""},
}

// fillPath puts ids into the path of a sample.
func fillPath(path, client, job, hook string) string {
	return strings.NewReplacer("%c", client, "%j", job, "%w", hook, "%d", nobody).Replace(path)
}

// register makes a webhook that must be taken.
func (c *customer) register(t testing.TB, url string, events ...string) (id, secret string) {
	t.Helper()
	body := fmt.Sprintf(`{"url":%q,"events":["%s"]}`, url, strings.Join(events, `","`))
	made := testkit.DecodeReply[struct {
		WebhookID string `json:"webhook_id"`
		Secret    string `json:"secret"`
	}](t, c.Do(t, "POST", "/v1/webhooks", body).WantStatus(t, 201))
	return made.WebhookID, made.Secret
}

func TestTransport(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	id := c.submit(t, submitBody("SUCCESS_FAST"))
	hook, _ := c.register(t, "http://localhost:9/some", "job_failed")
	for _, s := range sample {
		path := fillPath(s.path, c.id, id, hook)
		t.Run("FR-009 wrong method "+s.name, func(t *testing.T) {
			for _, method := range []string{"PUT", "PATCH", "OPTIONS", "TRACE", "BREW"} {
				r := c.Do(t, method, path, "")
				r.WantError(t, 405, "RFA_REQUEST_METHOD_NOT_ALLOWED")
				if !strings.Contains(r.Header.Get("Allow"), s.method) {
					t.Errorf("Allow is %q", r.Header.Get("Allow"))
				}
			}
		})
		t.Run("FR-010 not acceptable "+s.name, func(t *testing.T) {
			for _, accept := range []string{"text/html", "application/problem+json",
				"text/*, image/png;q=0.5", "application/json;q=0", "*/*;q=0",
				"application/json;q=0, */*"} {
				c.Do(t, s.method, path, s.body, "Accept", accept).WantError(t, 406,
					"RFA_REQUEST_NOT_ACCEPTABLE")
			}
		})
		if s.method != "POST" {
			continue
		}
		t.Run("FR-008 media type "+s.name, func(t *testing.T) {
			for _, kind := range []string{"", "text/plain", "application/xml", "application/jsonp",
				"application/problem+json", "multipart/form-data; boundary=x", "json"} {
				c.Do(t, "POST", path, `{"x":1}`, "Content-Type", kind).WantError(t, 415,
					"RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE", "application/json")
			}
		})
		t.Run("FR-011 body too large "+s.name, func(t *testing.T) {
			large := `{"x":"` + strings.Repeat("x", bodyLimit) + `"}`
			c.Do(t, "POST", path, large).WantError(t, 413, "RFA_REQUEST_PAYLOAD_TOO_LARGE")
			if path != "/v1/clients" { // FR-029: who asks is found out first
				c.Do(t, "POST", path, large, "Authorization", "Bearer nonsense").WantError(t, 401,
					"RFA_AUTH_INVALID_CREDENTIALS")
			}
		})
		t.Run("FR-006 broken JSON "+s.name, func(t *testing.T) {
			for _, body := range []string{"{", "nonsense", `{"a":1}}`, `{"a":"` + "\xff" + `"}`,
				"[]", "1", `"x"`, strings.Repeat(`{"a":`, 600) + "1" + strings.Repeat("}", 600)} {
				c.Do(t, "POST", path, body).WantError(t, 400, "RFA_REQUEST_MALFORMED")
			}
		})
	}
	t.Run("FR-008 a charset is fine", func(t *testing.T) {
		c.Do(t, "POST", "/v1/jobs", submitBody(""), "Content-Type",
			"Application/JSON; charset=utf-8").WantStatus(t, 202)
	})
	t.Run("FR-010 what admits JSON", func(t *testing.T) {
		for _, accept := range []string{"", "application/json", "*/*", "application/*",
			"text/html, */*;q=0.1", "text/html;q=0.9, Application/Json;q=0.2"} {
			c.Do(t, "GET", "/v1/jobs/"+id, "", "Accept", accept).WantStatus(t, 200)
		}
	})
	t.Run("FR-008 a body of unknown length", func(t *testing.T) {
		for body, want := range map[string]int{"": 200, "{}": 415} {
			req, _ := http.NewRequest("POST", w.URL+"/v1/jobs/"+id+"/cancel",
				io.MultiReader(strings.NewReader(body)))
			req.Header.Set("Authorization", "Bearer "+c.key)
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			assertEqual(t, "status", resp.StatusCode, want)
		}
	})
	t.Run("FR-011 the rest is not read", func(t *testing.T) {
		body := &endlessReader{}
		req, err := http.NewRequest("POST", w.URL+"/v1/jobs", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		assertEqual(t, "status", resp.StatusCode, 413)
		if n := body.read.Load(); n > 64<<20 {
			t.Errorf("%d bytes were read", n)
		}
	})
	t.Run("FR-001 FR-002 JSON both ways and its statuses", func(t *testing.T) {
		for _, s := range sample[5:8] {
			r := c.Do(t, s.method, fillPath(s.path, c.id, id, hook), s.body)
			assertEqual(t, "status of "+s.name, r.Status,
				map[string]int{"submit": 202, "list_jobs": 200, "get": 200}[s.name])
			assertEqual(t, "type of "+s.name, r.Header.Get("Content-Type"), "application/json")
		}
		for _, route := range forgerun.Routes() {
			if _, path, _ := strings.Cut(route, " "); !strings.HasPrefix(path, "/v1/") {
				t.Errorf("%s is outside of /v1", route)
			}
		}
		doc := testkit.ReadDocument(t, forgerun.OpenAPI, bodyLimit).Doc
		for path, item := range doc.Paths.Map() {
			for method, op := range item.Operations() {
				for status := range op.Responses.Map() {
					if status[0] != '2' {
						continue
					}
					want := "200"
					switch method + path {
					case "POST/v1/clients", "POST/v1/webhooks":
						want = "201"
					case "POST/v1/clients/{client_id}/keys":
						want = status // 201, or 200 for the key that there is (G-FR-04)
					case "POST/v1/jobs":
						want = "202"
					}
					assertEqual(t, method+" "+path, status, want)
				}
			}
		}
	})
}

// endlessReader is a body that never ends, sent without a length.
type endlessReader struct{ read atomic.Int64 }

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read.Add(int64(len(p)))
	if e.read.Load() > 256<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

// raw sends a request line that net/http's client would not.
func (w *world) raw(t *testing.T, line string, header ...string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", line,
		strings.Join(header, ""))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestPaths(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c := w.customer(t)
	key := "Authorization: Bearer " + c.key + "\r\n"
	for line, want := range map[string]int{
		"GET /v1/jobs/":                             404,
		"GET //v1/jobs":                             404,
		"GET /v1//jobs":                             404,
		"GET /v1/jobs/../jobs":                      404,
		"GET /v1/./jobs":                            404,
		"GET /v1/jobs//":                            404,
		"GET /v1":                                   404,
		"GET /v1/":                                  404,
		"GET /v1/job":                               404,
		"GET /V1/jobs":                              404,
		"POST /v1/jobs/" + nobody + "/cancel/":      404,
		"GET /v1/jobs/" + nobody + "/cancel":        405,
		"DELETE /v1/jobs":                           405,
		"PUT /v1/jobs/../jobs":                      404,
		"GET /v1/jobs/%2e%2e":                       404,
		"GET /v1/jobs/" + nobody + "%2Freport":      404,
		"GET /v1/clients/" + nobody + "/keys/renew": 405,
	} {
		t.Run("FR-003 no redirect "+line, func(t *testing.T) {
			resp := w.raw(t, line, key)
			assertEqual(t, "status", resp.StatusCode, want)
			if resp.Header.Get("Location") != "" {
				t.Error("it redirects")
			}
		})
	}
	t.Run("FR-003 no 100 Continue for a body that is refused", func(t *testing.T) {
		resp := w.raw(t, "POST /v1/jobs", key,
			"Expect: 100-continue\r\nContent-Length: 999999999\r\nContent-Type: application/json\r\n")
		assertEqual(t, "status", resp.StatusCode, 413)
	})
	t.Run("FR-016 unknown path inside", func(t *testing.T) {
		w.Do(t, "GET", "/v1/nothing", "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
	})
	t.Run("FR-016 outside of the mount is plain text", func(t *testing.T) { // G-FR-56
		r := w.Do(t, "GET", "//v1/jobs", "").WantStatus(t, 404)
		assertEqual(t, "type", r.Header.Get("Content-Type"), "text/plain; charset=utf-8")
	})
	for what, path := range map[string]string{"job": "/v1/jobs/%s", "report": "/v1/jobs/%s/report",
		"deliveries": "/v1/webhooks/%s/deliveries", "keys": "/v1/clients/%s/keys"} {
		t.Run("FR-016 FR-124 unknown "+what, func(t *testing.T) {
			for _, id := range []string{nobody, "1", "not-a-uuid", strings.Repeat("x", 5000), "%00",
				"7b1f6c523b0f4f3a9a520d7c9a1f4a11", "{" + nobody + "}"} {
				c.Do(t, "GET", fmt.Sprintf(path, id), "").WantError(t, 404, "RFA_JOB_NOT_FOUND")
			}
		})
	}
}

// TestProblems: every error has the form of the document.
func TestProblems(t *testing.T) {
	t.Parallel()
	t.Run("FR-004 FR-005 every kind has a code", func(t *testing.T) {
		testkit.CheckErrorTable(t, forgerun.ErrorTable)
	})
	want := map[string]int{"RFA_REQUEST_MALFORMED": 400, "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE": 415,
		"RFA_REQUEST_METHOD_NOT_ALLOWED": 405,
		"RFA_REQUEST_NOT_ACCEPTABLE":     406, "RFA_REQUEST_PAYLOAD_TOO_LARGE": 413,
		"RFA_REQUEST_RATE_LIMITED":     429,
		"RFA_AUTH_INVALID_CREDENTIALS": 401, "RFA_AUTH_TOKEN_EXPIRED": 401,
		"RFA_AUTH_FORBIDDEN": 403, "RFA_AUTH_API_KEY_DISABLED": 403,
		"RFA_JOB_VALIDATION_FAILED": 400, "RFA_JOB_NOT_FOUND": 404, "RFA_JOB_CONFLICT": 409,
		"RFA_EXEC_QUEUE_FULL": 503, "RFA_EXEC_TIMEOUT": 504,
		"RFA_EXEC_IDEMPOTENCY_CONFLICT": 409, "RFA_EXEC_WORKER_UNAVAILABLE": 503,
		"RFA_STORAGE_DB_ERROR": 503, "RFA_STORAGE_UNAVAILABLE": 503,
		"RFA_DEPENDENCY_TIMEOUT": 504, "RFA_CONFIG_INVALID": 503, "RFA_INTERNAL": 500}
	t.Run("FR-005 FR-024 the 22 codes and their statuses", func(t *testing.T) {
		got := map[string]int{}
		for _, row := range forgerun.ErrorTable {
			got[row.Code] = row.Status
		}
		assertEqual(t, "codes", len(got), 22)
		for code, status := range want {
			assertEqual(t, code, got[code], status)
		}
	})
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"FR-020 unexpected":         {errors.New("boom"), "RFA_INTERNAL"},
		"FR-021 database":           {&job.Error{Kind: job.Unavailable}, "RFA_STORAGE_DB_ERROR"},
		"FR-021 read-only database": {&job.Error{Kind: job.ReadOnly}, "RFA_STORAGE_DB_ERROR"},
		"FR-022 dependency down": {fmt.Errorf("collector: %w",
			&net.OpError{Op: "dial", Err: errors.New("refused")}), "RFA_STORAGE_UNAVAILABLE"},
		"FR-023 queue full":          {&job.Error{Kind: job.Full}, "RFA_EXEC_QUEUE_FULL"},
		"FR-025 operation timed out": {&job.Error{Kind: job.Timeout}, "RFA_EXEC_TIMEOUT"},
		"FR-026 dependency timed out": {fmt.Errorf("receiver: %w", context.DeadlineExceeded),
			"RFA_DEPENDENCY_TIMEOUT"},
		"FR-026 dependency timed out2": {&net.OpError{Op: "read", Err: timeout{}},
			"RFA_DEPENDENCY_TIMEOUT"},
		"FR-017 conflict": {&job.Error{Kind: job.Conflict}, "RFA_JOB_CONFLICT"},
	} {
		t.Run(name, func(t *testing.T) {
			code, status := forgerun.CodeOf(c.err)
			assertEqual(t, "code", code, c.code)
			assertEqual(t, "status", status, want[c.code])
		})
	}
	w := inMemory(t, config())
	t.Run("FR-004 FR-005 members and the log", func(t *testing.T) {
		c := w.customer(t)
		r := c.Do(t, "GET", "/v1/jobs/"+nobody, "", "X-Request-Id", "my-own-id").WantError(t, 404,
			"RFA_JOB_NOT_FOUND")
		assertEqual(t, "instance", testkit.DecodeReply[testkit.Problem](t, r).Instance, "my-own-id")
		lines := w.log.Lines(t, map[string]any{"request_id": "my-own-id",
			"error_code": "RFA_JOB_NOT_FOUND", "client_id": c.id, "action": "get"})
		assertEqual(t, "lines of the log", len(lines), 1)
		other := testkit.DecodeReply[testkit.Problem](t,
			c.Do(t, "GET", "/v1/jobs/"+nobody, "").WantError(t, 404, "RFA_JOB_NOT_FOUND"))
		assertEqual(t, "lines of the log",
			len(w.log.Lines(t, map[string]any{"request_id": other.Instance})), 1)
	})
	t.Run("FR-027 the pepper of other keys", func(t *testing.T) {
		c := config()
		c.Pepper = []byte("another pepper, which is long enough as well")
		other := newWorld(t, w.clock, w.store, c)
		r := other.Do(t, "GET", "/v1/jobs", "", "Authorization", "Bearer "+w.customer(t).key)
		r.WantError(t, 503, "RFA_CONFIG_INVALID")
		other.Do(t, "POST", "/v1/clients", "").WantError(t, 503, "RFA_CONFIG_INVALID")
		if strings.Contains(r.Body, "pepper") {
			t.Errorf("the answer discloses what is inside: %s", r.Body)
		}
	})
}

type timeout struct{}

func (timeout) Error() string { return "too late" }
func (timeout) Timeout() bool { return true }

// TestConfig: a wrong config stops the start (FR-027).
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, invalidate := range map[string]func(*forgerun.Config){
		"no engine":              func(c *forgerun.Config) { c.Engine = nil },
		"no log":                 func(c *forgerun.Config) { c.Log = nil },
		"no registry":            func(c *forgerun.Config) { c.Registry = nil },
		"short pepper":           func(c *forgerun.Config) { c.Pepper = []byte("short") },
		"no types":               func(c *forgerun.Config) { c.Types = nil },
		"unknown type":           func(c *forgerun.Config) { c.Types = []string{"EXECUTE", "DREAM"} },
		"heartbeat beyond lease": func(c *forgerun.Config) { c.Heartbeat = c.Lease },
		"no workers":             func(c *forgerun.Config) { c.Workers = 0 },
		"run time":               func(c *forgerun.Config) { c.MaxRunTime = 0 },
		"retries":                func(c *forgerun.Config) { c.MaxRetries = -1 },
		"backoff":                func(c *forgerun.Config) { c.BackoffBase = 2 * c.BackoffMax },
		"rate":                   func(c *forgerun.Config) { c.RatePerMinute = 0 },
		"active jobs":            func(c *forgerun.Config) { c.MaxActiveJobs = 0 },
		"queue size":             func(c *forgerun.Config) { c.QueueSize = 0 },
		"payload":                func(c *forgerun.Config) { c.PayloadLimit = 0 },
		"body":                   func(c *forgerun.Config) { c.BodyLimit = 0 },
		"probability":            func(c *forgerun.Config) { c.FailureProbability = 1.1 },
		"scale":                  func(c *forgerun.Config) { c.DurationScale = 0 },
		"webhook attempts":       func(c *forgerun.Config) { c.Webhook.MaxAttempts = 0 },
		"client of deliveries":   func(c *forgerun.Config) { c.Client = nil },
	} {
		t.Run("FR-027 "+name, func(t *testing.T) {
			w := inMemory(t, config())
			c := w.forge.Config
			c.Log, c.Registry = slog.New(slog.DiscardHandler), newRegistry()
			if _, err := forgerun.New(c); err != nil {
				t.Fatal(err)
			}
			c.Registry = newRegistry()
			invalidate(&c)
			if _, err := forgerun.New(c); err == nil {
				t.Error("no error")
			}
		})
	}
}
