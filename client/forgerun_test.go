package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// forgeScript answers requests with what it was given, in order, and keeps what it was asked. It
// speaks the document's shapes and knows nothing else.
type forgeScript struct {
	mu       sync.Mutex
	answers  []forgeAnswer
	requests []forgeRequest
}

type forgeAnswer struct {
	status int
	body   string
	header map[string]string
	drop   bool // close the connection instead
}

type forgeRequest struct {
	line, auth, key, mediaType, body string
	at                               time.Time
}

func (s *forgeScript) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, forgeRequest{r.Method + " " + r.RequestURI,
		strings.Join(r.Header.Values("Authorization"), "|"),
		r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type"), string(text), time.Now()})
	a := s.answers[min(len(s.requests), len(s.answers))-1]
	if a.drop {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if a.status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json; charset=utf-8")
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func okAnswer(status int, body string) forgeAnswer {
	return forgeAnswer{status: status, body: body}
}

func problemAnswer(status int, code, detail string) forgeAnswer {
	return okAnswer(status,
		fmt.Sprintf(`{"type":"about:blank","title":%q,"status":%d,"detail":%q,"instance":"req-1","code":%q}`,
			http.StatusText(status), status, detail, code))
}

// mustForge connects to a script over a real connection.
func mustForge(tb testing.TB, answers ...forgeAnswer) (*client.ForgeRun, *forgeScript) {
	tb.Helper()
	s := &forgeScript{answers: answers}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	c := mustClient(tb, client.Config{BaseURL: server.URL, Token: "configured"})
	tb.Cleanup(c.CloseIdleConnections)
	return c.ForgeRun(), s
}

// directForge connects to a script without a network, for synctest.
func directForge(tb testing.TB, cfg client.Config, answers ...forgeAnswer) (*client.ForgeRun,
	*forgeScript) {
	tb.Helper()
	s := &forgeScript{answers: answers}
	cfg.BaseURL, cfg.HTTPClient = "http://forge.test", &http.Client{Transport: direct{s}}
	return mustClient(tb, cfg).ForgeRun().WithAPIKey("mr_key"), s
}

const (
	forgeAt  = "2026-03-01T12:00:00.123456Z"
	forgeJob = `{"job_id":"j-1","type":"DEFERRED","work_kind":"FAIL_AFTER_RETRYABLE","state":"FAILED","outcome":"FAILED",` +
		`"created_at":"2026-03-01T12:00:00.123456Z","execution_at":"2026-03-01T12:00:01Z","updated_at":"2026-03-01T12:00:09Z","attempt":2,` +
		`"callback":"http://127.0.0.1/x","definition":{"work_kind":"FAIL_AFTER_RETRYABLE","duration_ms":5000,"should_fail":true,` +
		`"payload_size":8192,"execution_at":"2026-03-01T12:00:01Z","seed":1772366400123},"failure":{"code":"RFA_EXEC_TIMEOUT","message":"m","retryable":true}}`
	forgeJobOpen = `{"job_id":"j-1","type":"EXECUTE","state":"RUNNING","outcome":null,"created_at":"2026-03-01T12:00:00Z",` +
		`"execution_at":null,"updated_at":"2026-03-01T12:00:00Z","attempt":0,"callback":null}`
	forgeReport = `{"job_id":"j-1","outcome":"CANCELED","events":[{"event_id":"e-1","job_id":"j-1","event_name":"job_created",` +
		`"prev_state":null,"next_state":"CREATED","timestamp":"2026-03-01T12:00:00.123456Z","scenario":"SUCCESS_FAST"},` +
		`{"event_id":"e-2","job_id":"j-1","event_name":"job_failed","prev_state":"RUNNING","next_state":"FAILED",` +
		`"timestamp":"2026-03-01T12:00:00.123457Z","scenario":"SUCCESS_FAST","reason":"runner_lost","final":true}],` +
		`"started_at":null,"finished_at":"2026-03-01T12:00:09Z","duration_ms":0,"attempt":1,"work_kind":"SUCCESS_FAST","failure":null}`
	forgeIssued   = `{"api_key":"mr_new","key_id":"k-1","created_at":"2026-03-01T12:00:00.123456Z","expires_at":null,"callback_secret":"whsec_eA=="}`
	forgeExisting = `{"api_key":null,"key_id":"k-1","created_at":"2026-03-01T12:00:00.123456Z","expires_at":"2026-05-30T12:00:00Z"}`
	forgeDelivery = `{"delivery_id":"d-1","event_id":"e-1","event_name":"job_created","url":"http://x/","status":"pending",` +
		`"tries":[{"at":"2026-03-01T12:00:00Z","status_code":503,"error":"","duration_ms":12,"response":"busy"},` +
		`{"at":"2026-03-01T12:00:02Z","status_code":null,"error":"refused","duration_ms":1,"response":null}],"next_try_at":"2026-03-01T12:00:05Z"}`
)

func forgeTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return at
}

func ptr[T any](value T) *T { return &value }

// readForgeReport is forgeReport as the client returns it.
func readForgeReport() client.ForgeRunReport {
	at := forgeTime(forgeAt)
	return client.ForgeRunReport{JobID: "j-1", Outcome: client.ForgeRunOutcomeCanceled,
		FinishedAt: forgeTime("2026-03-01T12:00:09Z"),
		Attempt:    1, Kind: client.ForgeRunWorkSuccessFast, Events: []client.ForgeRunEvent{
			{ID: "e-1", JobID: "j-1", Name: client.ForgeRunEventJobCreated,
				Next: client.ForgeRunStateCreated, At: at,
				Scenario: client.ForgeRunWorkSuccessFast},
			{ID: "e-2", JobID: "j-1", Name: client.ForgeRunEventJobFailed,
				Prev: client.ForgeRunStateRunning, Next: client.ForgeRunStateFailed,
				At: at.Add(time.Microsecond), Scenario: client.ForgeRunWorkSuccessFast,
				Reason: "runner_lost", Final: true}}}
}

// Every route: what is asked, and what is made of the answer.
func TestForgeRun_routes(t *testing.T) {
	t.Parallel()
	at := forgeTime(forgeAt)
	job := client.ForgeRunJob{ID: "j-1", Type: client.ForgeRunTypeDeferred,
		Kind: client.ForgeRunWorkFailAfterRetryable, State: client.ForgeRunStateFailed,
		Outcome: client.ForgeRunOutcomeFailed, CreatedAt: at,
		UpdatedAt: forgeTime("2026-03-01T12:00:09Z"), Attempt: 2,
		ExecutionAt: ptr(forgeTime("2026-03-01T12:00:01Z")), Callback: "http://127.0.0.1/x",
		Definition: client.ForgeRunDefinition{Kind: client.ForgeRunWorkFailAfterRetryable,
			DurationMS: 5000, ShouldFail: true, PayloadSize: 8192,
			ExecutionAt: ptr(forgeTime("2026-03-01T12:00:01Z")), Seed: 1772366400123},
		Failure: &client.ForgeRunFailure{Code: client.ForgeRunCodeTimeout, Message: "m",
			Retryable: true}}
	jobOpen := client.ForgeRunJob{ID: "j-1", Type: client.ForgeRunTypeExecute,
		State:     client.ForgeRunStateRunning,
		CreatedAt: forgeTime("2026-03-01T12:00:00Z"), UpdatedAt: forgeTime("2026-03-01T12:00:00Z")}
	delivery := client.ForgeRunDelivery{ID: "d-1", EventID: "e-1",
		EventName: client.ForgeRunEventJobCreated, URL: "http://x/",
		Status: client.ForgeRunDeliveryPending,
		Attempts: []client.ForgeRunDeliveryAttempt{{At: forgeTime("2026-03-01T12:00:00Z"), StatusCode: 503,
			DurationMS: 12, Response: "busy"},
			{At: forgeTime("2026-03-01T12:00:02Z"), Error: "refused", DurationMS: 1}},
		NextAttemptAt: ptr(forgeTime("2026-03-01T12:00:05Z"))}
	issued := client.ForgeRunIssuedAPIKey{APIKey: "mr_new",
		ForgeRunAPIKey: client.ForgeRunAPIKey{ID: "k-1", CreatedAt: at},
		CallbackSecret: "whsec_eA=="}
	hook := client.ForgeRunWebhook{ID: "w-1", URL: "http://x/",
		Events: []client.ForgeRunEventName{client.ForgeRunEventJobFailed}, CreatedAt: at,
		Disabled: true, DisabledReason: "gone"}
	const hookText = `{"webhook_id":"w-1","url":"http://x/","events":["job_failed"],"created_at":"` + forgeAt + `","disabled":true,"disabled_reason":"gone"}`

	for name, tt := range map[string]struct {
		do     func(context.Context, *client.ForgeRun) (any, error)
		answer forgeAnswer
		want   any
		line   string
		key    string // idempotency key; "made" for any
		body   string
		auth   string // "Bearer mr_key" unless given
	}{
		"FR-037 create client": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.CreateClient(ctx, "")
		},
			okAnswer(201, `{"client_id":"c-1"}`), "c-1", "POST /v1/clients", "made", "", "none"},
		"FR-042 first key": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.CreateFirstAPIKey(ctx, "c-1")
		},
			okAnswer(201, forgeIssued), issued, "POST /v1/clients/c-1/keys", "made",
			`{"rotate":false}`, "none"},
		"FR-043 existing key": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.CreateAPIKey(ctx, "c-1", client.ForgeRunAPIKeyOptions{IdempotencyKey: "mine"})
		}, okAnswer(200, forgeExisting),
			client.ForgeRunIssuedAPIKey{ForgeRunAPIKey: client.ForgeRunAPIKey{ID: "k-1",
				CreatedAt: at,
				ExpiresAt: ptr(forgeTime("2026-05-30T12:00:00Z"))}}, "POST /v1/clients/c-1/keys",
			"mine", `{"rotate":false}`, ""},
		"FR-044 rotate": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.CreateAPIKey(ctx, "c-1", client.ForgeRunAPIKeyOptions{Rotate: true})
		}, okAnswer(201, forgeIssued), issued, "POST /v1/clients/c-1/keys", "made",
			`{"rotate":true}`, ""},
		"FR-047 renew": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.RenewAPIKey(ctx, "c/1")
		},
			okAnswer(200, forgeIssued), issued, "POST /v1/clients/c%2F1/keys/renew", "made", `{}`,
			""},
		"FR-050 revoke": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return nil, f.RevokeAPIKey(ctx, "c-1", "k-1")
		},
			okAnswer(200, `{"revoked":true}`), nil, "POST /v1/clients/c-1/keys/revoke", "",
			`{"key_id":"k-1"}`, ""},
		"keys": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return collect(f.APIKeys(ctx, "c-1"))
		},
			okAnswer(200, `{"items":[{"key_id":"k-1","created_at":"`+forgeAt+
				`","expires_at":null,"revoked_at":"`+forgeAt+
				`"}],"next_cursor":null,"has_more":false}`),
			[]client.ForgeRunAPIKey{{ID: "k-1", CreatedAt: at, RevokedAt: &at}},
			"GET /v1/clients/c-1/keys", "", "", ""},
		"FR-056 submit": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeDeferred,
				Kind: client.ForgeRunWorkScheduledOnTime, Callback: "http://x/",
				ExecutionAt: time.Date(2026, 3, 1, 13, 0, 0, 123456789,
					time.FixedZone("", 3600)),
				IdempotencyKey: "mine"})
		}, okAnswer(202, `{"job_id":"j-1","state":"CREATED","created_at":"`+forgeAt+`"}`),
			client.ForgeRunReceipt{JobID: "j-1", State: client.ForgeRunStateCreated, CreatedAt: at,
				IdempotencyKey: "mine"}, "POST /v1/jobs", "",
			`{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"` + forgeAt +
				`","callback":"http://x/","idempotency_key":"mine"}`, ""},
		"FR-120 get": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.Get(ctx, "j-1")
		},
			okAnswer(200, forgeJob), job, "GET /v1/jobs/j-1", "", "", ""},
		"FR-121 get, not ended": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.Get(ctx, "..")
		},
			okAnswer(200, forgeJobOpen), jobOpen, "GET /v1/jobs/%2E%2E", "", "", ""},
		"FR-125 report": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.Report(ctx, "j-1")
		},
			okAnswer(200, forgeReport), readForgeReport(), "GET /v1/jobs/j-1/report", "", "", ""},
		"FR-133 cancel": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.Cancel(ctx, "j-1")
		},
			okAnswer(200, `{"job_id":"j-1","state":"CANCELED","updated_at":"`+forgeAt+`"}`),
			client.ForgeRunActionResult{JobID: "j-1", State: client.ForgeRunStateCanceled,
				UpdatedAt: at},
			"POST /v1/jobs/j-1/cancel", "", "", ""},
		"FR-139 retry": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.Retry(ctx, "j-1")
		},
			okAnswer(200, `{"job_id":"j-1","state":"QUEUED","updated_at":"`+forgeAt+
				`","attempt":1}`),
			client.ForgeRunActionResult{JobID: "j-1", State: client.ForgeRunStateQueued,
				UpdatedAt: at,
				Attempt:   1}, "POST /v1/jobs/j-1/retry", "", "", ""},
		"FR-185 register": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.CreateWebhook(ctx, "http://x/",
				[]client.ForgeRunEventName{client.ForgeRunEventJobFailed}, "")
		}, okAnswer(201, `{"webhook_id":"w-1","created_at":"`+forgeAt+`","secret":"whsec_eA=="}`),
			client.ForgeRunCreatedWebhook{ID: "w-1", CreatedAt: at, Secret: "whsec_eA=="},
			"POST /v1/webhooks", "made", `{"url":"http://x/","events":["job_failed"]}`, ""},
		"webhooks": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return collect(f.Webhooks(ctx))
		},
			okAnswer(200, `{"items":[`+hookText+`],"next_cursor":null,"has_more":false}`),
			[]client.ForgeRunWebhook{hook}, "GET /v1/webhooks", "", "", ""},
		"FR-188 delete": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return nil, f.DeleteWebhook(ctx, "w-1")
		},
			okAnswer(200, `{"deleted":true}`), nil, "DELETE /v1/webhooks/w-1", "", "", ""},
		"rotate secret": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.RotateWebhookSecret(ctx, "w-1")
		},
			okAnswer(200, `{"webhook_id":"w-1","secret":"whsec_eQ=="}`), "whsec_eQ==",
			"POST /v1/webhooks/w-1/rotate-secret", "", "", ""},
		"enable": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.EnableWebhook(ctx, "w-1")
		},
			okAnswer(200, hookText), hook, "POST /v1/webhooks/w-1/enable", "", "", ""},
		"deliveries": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return collect(f.Deliveries(ctx, "w-1", 7))
		},
			okAnswer(200, `{"items":[`+forgeDelivery+`],"next_cursor":null,"has_more":false}`),
			[]client.ForgeRunDelivery{delivery},
			"GET /v1/webhooks/w-1/deliveries?limit=7", "", "", ""},
		"replay": {func(ctx context.Context, f *client.ForgeRun) (any, error) {
			return f.ReplayDelivery(ctx, "w-1", "d-1")
		},
			okAnswer(202, forgeDelivery), delivery, "POST /v1/webhooks/w-1/deliveries/d-1/replay",
			"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, script := mustForge(t, tt.answer)
			got, err := tt.do(t.Context(), f.WithAPIKey("mr_key"))
			must(t, err)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			asked := script.requests[0]
			auth := map[string]string{"": "Bearer mr_key", "none": ""}[tt.auth]
			mediaType := ""
			if tt.body != "" {
				mediaType = "application/json"
			}
			if tt.key == "made" && len(asked.key) >= 20 {
				asked.key = "made"
			}
			asked.at = time.Time{}
			if want := (forgeRequest{line: tt.line, auth: auth, key: tt.key, mediaType: mediaType,
				body: tt.body}); asked != want {
				t.Errorf("asked %+v\nwant  %+v", asked, want)
			}
		})
	}
}

func collect[T any](items func(func(T, error) bool)) (all []T, err error) {
	items(func(item T, e error) bool {
		if err = e; e == nil {
			all = append(all, item)
		}
		return e == nil
	})
	return all, err
}

// A list goes on until the server says that there is no more, or until its reader has enough.
func TestForgeRun_pages(t *testing.T) {
	t.Parallel()
	pages := []forgeAnswer{
		okAnswer(200,
			`{"items":[{"job_id":"1"},{"job_id":"2"}],"next_cursor":"a&b","has_more":true}`),
		okAnswer(200, `{"items":[],"next_cursor":"c","has_more":true}`),
		okAnswer(200, `{"items":[{"job_id":"3"}],"next_cursor":null,"has_more":false}`)}
	f, script := mustForge(t, pages...)
	jobs, err := collect(f.Jobs(t.Context(),
		client.ForgeRunFilter{State: client.ForgeRunStateFailed, PageSize: 2}))
	if err != nil || len(jobs) != 3 || jobs[2].ID != "3" {
		t.Errorf("got %+v, %v", jobs, err)
	}
	for i, want := range []string{"limit=2&state=FAILED", "cursor=a%26b&limit=2&state=FAILED",
		"cursor=c&limit=2&state=FAILED"} {
		if got := script.requests[i].line; got != "GET /v1/jobs?"+want {
			t.Errorf("page %d: %s", i, got)
		}
	}
	if got := script.requests[0].auth; got != "Bearer configured" {
		t.Errorf("without a key of its own it is asked as %q", got)
	}

	f, script = mustForge(t, pages...)
	for range f.Jobs(t.Context(), client.ForgeRunFilter{}) {
		break
	}
	if len(script.requests) != 1 {
		t.Errorf("%d pages for one job", len(script.requests))
	}

	f, _ = mustForge(t, pages[0], problemAnswer(403, client.ForgeRunCodeKeyDisabled, "revoked"))
	jobs, err = collect(f.Jobs(t.Context(), client.ForgeRunFilter{}))
	if len(jobs) != 2 || !errors.Is(err, client.ErrUnauthorized) {
		t.Errorf("a list that broke gave %d jobs and %v", len(jobs), err)
	}
}

func TestForgeRun_errors(t *testing.T) {
	t.Parallel()
	f, _ := mustForge(t, problemAnswer(409, client.ForgeRunCodeIdempotencyConflict,
		"the key has submitted another job"))
	receipt, err := f.Submit(t.Context(),
		client.ForgeRunSpec{Type: client.ForgeRunTypeExecute, IdempotencyKey: "k"})
	var fail *client.Error
	if !errors.As(err, &fail) || !errors.Is(err, client.ErrConflict) || fail.Retryable() {
		t.Fatalf("%v", err)
	}
	if fail.Code != client.ForgeRunCodeIdempotencyConflict || fail.Status != 409 ||
		fail.Message != "the key has submitted another job" ||
		fail.Instance != "req-1" || fail.RetryAfter != 0 || fail.Uncertain ||
		receipt.IdempotencyKey != "k" {
		t.Errorf("%+v, receipt %+v", fail, receipt)
	}
	for _, part := range []string{"forgerun submit", "409", client.ForgeRunCodeIdempotencyConflict,
		"another job", "req-1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %s", err, part)
		}
	}

	for name, answer := range map[string]forgeAnswer{
		"no problem document": {status: 409, body: "<html>",
			header: map[string]string{"Content-Type": "text/html"}},
		"a broken one":        okAnswer(409, `{"code":`),
		"one without members": okAnswer(409, `{}`),
		"one of another kind": okAnswer(409, `["code"]`),
	} {
		f, _ := mustForge(t, answer)
		_, err := f.Cancel(t.Context(), "j")
		if !errors.As(err, &fail) || fail.Status != 409 || fail.Code != "" {
			t.Errorf("%s: %v", name, err)
		}
	}

	f, _ = mustForge(t, okAnswer(202, `{"job_id":7}`))
	if _, err := f.Submit(t.Context(),
		client.ForgeRunSpec{Type: client.ForgeRunTypeExecute}); !errors.As(err, &fail) ||
		!fail.Uncertain {
		t.Errorf("an answer that cannot be read: %v", err)
	}
	f, script := mustForge(t)
	_, getErr := f.Get(t.Context(), "")
	_, yearErr := f.Submit(t.Context(), client.ForgeRunSpec{ExecutionAt: time.Date(20000, 1, 1, 0,
		0, 0, 0, time.UTC)})
	_, replayErr := f.ReplayDelivery(t.Context(), "w", "")
	_, keyErr := f.CreateAPIKey(t.Context(), "", client.ForgeRunAPIKeyOptions{})
	_, renewErr := f.RenewAPIKey(t.Context(), "\xff")
	for name, err := range map[string]error{"id": getErr, "year": yearErr, "delivery": replayErr,
		"client": keyErr, "renew": renewErr,
		"revoke": f.RevokeAPIKey(t.Context(), "", "k"), "webhook": f.DeleteWebhook(t.Context(),
			"")} {
		if !errors.Is(err, client.ErrInvalid) || len(script.requests) != 0 {
			t.Errorf("%s: %v, %d requests", name, err, len(script.requests))
		}
	}
}

// Lost answers, limits and a server that is unavailable are met with the same request again, no
// sooner than the server says.
func TestForgeRun_repeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limited := problemAnswer(429, client.ForgeRunCodeRateLimited, "per minute")
		limited.header = map[string]string{"Retry-After": "20"}
		full := problemAnswer(503, client.ForgeRunCodeQueueFull, "")
		f, script := directForge(t, client.Config{}, forgeAnswer{drop: true}, limited, full,
			okAnswer(202, `{"job_id":"j-1","state":"CREATED","created_at":"`+forgeAt+`"}`))
		got, err := f.Submit(t.Context(), client.ForgeRunSpec{Type: client.ForgeRunTypeExecute})
		if err != nil || got.JobID != "j-1" || len(script.requests) != 4 {
			t.Fatalf("%+v, %v after %d requests", got, err, len(script.requests))
		}
		if wait := script.requests[2].at.Sub(script.requests[1].at); wait < 20*time.Second ||
			wait > 21*time.Second {
			t.Errorf("waited %s, asked for 20 s", wait)
		}
		var sent struct {
			Key string `json:"idempotency_key"`
		}
		for _, a := range script.requests {
			if a.body != script.requests[0].body {
				t.Errorf("repeated as %s, first %s", a.body, script.requests[0].body)
			}
		}
		if err := json.Unmarshal([]byte(script.requests[0].body), &sent); err != nil ||
			sent.Key == "" || sent.Key != got.IdempotencyKey {
			t.Errorf("key %q, receipt %q, %v", sent.Key, got.IdempotencyKey, err)
		}
		repeated,
			err := f.Submit(t.Context(), client.ForgeRunSpec{Type: client.ForgeRunTypeExecute})
		if err != nil || repeated.IdempotencyKey == got.IdempotencyKey {
			t.Errorf("another submit went under the same key %q, %v", repeated.IdempotencyKey, err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // limited by the context
		f, _ := directForge(t, client.Config{Retry: client.Retry{MaxTries: -1}},
			forgeAnswer{drop: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		started := time.Now()
		receipt, err := f.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute})
		var fail *client.Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &fail) || !fail.Uncertain ||
			time.Since(started) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(started))
		}
		if receipt.IdempotencyKey == "" {
			t.Error("nobody knows under which key to ask again")
		}
	})
}

func TestForgeRun_Wait(t *testing.T) {
	t.Parallel()
	ended := okAnswer(200, forgeJob)
	for name, tt := range map[string]struct {
		answers []forgeAnswer
		asked   int
		kind    error
		min     time.Duration
		max     time.Duration
	}{
		"ended already": {[]forgeAnswer{ended}, 1, nil, 0, 0},
		"ends": {[]forgeAnswer{okAnswer(200, forgeJobOpen), okAnswer(200, forgeJobOpen),
			ended}, 3, nil, 50 * time.Millisecond, 150 * time.Millisecond},
		"server away": {[]forgeAnswer{{drop: true}, {drop: true}, {drop: true}, {drop: true},
			{drop: true}, {drop: true}, {drop: true}, ended}, 8, nil, 0, 5 * time.Second},
		"asked to wait": {[]forgeAnswer{{status: 503,
			header: map[string]string{"Retry-After": "120"}}, ended}, 2, nil, 2 * time.Minute,
			2*time.Minute + time.Second},
		"unknown": {[]forgeAnswer{problemAnswer(404, client.ForgeRunCodeNotFound, "no such job")},
			1, client.ErrNotFound, 0, 0},
		"context": {[]forgeAnswer{okAnswer(200, forgeJobOpen)}, 0,
			context.DeadlineExceeded, 10 * time.Minute, 10 * time.Minute},
		"context, no luck": {[]forgeAnswer{{status: 503,
			header: map[string]string{"Retry-After": "3600"}}}, 1, context.DeadlineExceeded,
			10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				f, script := directForge(t, client.Config{}, tt.answers...)
				started := time.Now()
				job, err := f.Wait(ctx, "j-1")
				took := time.Since(started)
				if !errors.Is(err, tt.kind) || (err == nil) != job.State.Final() {
					t.Errorf("%v, %+v", err, job)
				}
				if took < tt.min || took > tt.max {
					t.Errorf("took %s", took)
				}
				if asked := len(script.requests); asked != cmp.Or(tt.asked, asked) || asked > 1000 {
					t.Errorf("looked %d times", asked)
				}
			})
		})
	}
}
