package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/client"
)

// mustRelay connects to a double over a real connection.
func mustRelay(tb testing.TB, handler http.Handler, cfg client.Config) *client.Relay {
	tb.Helper()
	server := httptest.NewServer(handler)
	tb.Cleanup(server.Close)
	cfg.BaseURL = server.URL + cfg.BaseURL
	c := mustClient(tb, cfg)
	tb.Cleanup(c.CloseIdleConnections)
	return c.Relay()
}

// directRelay connects to a double without a network, for synctest.
func directRelay(tb testing.TB, d *fakeRelay) *client.Relay {
	tb.Helper()
	return mustClient(tb, client.Config{BaseURL: "http://relay.test",
		HTTPClient: &http.Client{Transport: direct{d}}}).Relay()
}

func mustClient(tb testing.TB, cfg client.Config) *client.Client {
	tb.Helper()
	c, err := client.New(cfg)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return c
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func relaySpec(queue, id string) client.RelaySpec {
	return client.RelaySpec{Queue: queue, ID: id, Timeout: 30 * time.Second,
		Payload: json.RawMessage(`{}`)}
}

func mustEnqueue(tb testing.TB, relay *client.Relay, jobs ...client.RelaySpec) {
	tb.Helper()
	must(tb, relay.Enqueue(tb.Context(), jobs, client.RelayUnique))
}

func mustNext(tb testing.TB, relay *client.Relay, queue string) client.RelayJob {
	tb.Helper()
	jobs, err := relay.Claim(tb.Context(), queue, 1, 0)
	must(tb, err)
	if len(jobs) != 1 {
		tb.Fatalf("Next gave %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func mustExist(tb testing.TB, relay *client.Relay, queue, id string, want bool) {
	tb.Helper()
	got, err := relay.Exists(tb.Context(), queue, id)
	must(tb, err)
	if got != want {
		tb.Fatalf("Exists(%q, %q) = %v, want %v", queue, id, got, want)
	}
}

// awkwardNames are names that paths, proxies and net/url like to change.
var awkwardNames = []string{
	"plain", "jobs", "run-id", "a/b", "/", "//", "a//b", "%", "%2F", "%2f", "100%", "?", "a?b=c",
	"#", "a#b",
	" ", "a b", "+", "a+b", ".", "..", "...", "../..", "./x", "a/../b", "%2E%2E", "é", "日本語", "🦀",
	"\\", "&=;:@", "\"<>'", "\t\r\n", "\u2028", strings.Repeat("ü/", 512),
}

// RL-095, RL-097, RL-098: whatever the name, every call reaches its job.
func TestRelay_anyNameWorks(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "/behind/a%2Fproxy/"} {
		relay := mustRelay(t, stripURIPrefix(prefix, newFakeRelay()),
			client.Config{BaseURL: prefix})
		for _, name := range awkwardNames {
			t.Run(fmt.Sprintf("%q at %q", name[:min(20, len(name))], prefix), func(t *testing.T) {
				enqueueAndGet(t, relay, name, "id")
				enqueueAndGet(t, relay, "queue", name)
				enqueueAndGet(t, relay, name, name)
			})
		}
	}
}

// stripURIPrefix takes the prefix off the raw request line, which is what the double matches, and
// fails requests that came without it.
func stripURIPrefix(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri, ok := strings.CutPrefix(r.RequestURI, strings.TrimRight(prefix, "/"))
		if !ok {
			http.NotFound(w, r)
			return
		}
		r.RequestURI = uri
		next.ServeHTTP(w, r)
	})
}

func enqueueAndGet(t *testing.T, relay *client.Relay, queue, id string) {
	t.Helper()
	ctx := t.Context()
	mustEnqueue(t, relay, relaySpec(queue, id))
	mustExist(t, relay, queue, id, true)
	job := mustNext(t, relay, queue)
	if job.Queue != queue || job.ID != id {
		t.Fatalf("got job %q in %q, want %q in %q", job.ID, job.Queue, id, queue)
	}
	must(t, relay.Heartbeat(ctx, job.Run(), json.RawMessage(`1`)))
	must(t, relay.Requeue(ctx, job.Run(), []client.RelaySpec{relaySpec(queue, id)},
		client.RelayUnique))
	if err := relay.Heartbeat(ctx, job.Run(), nil); !errors.Is(err, client.ErrRunLost) {
		t.Fatalf("heartbeat of the old run: %v, want ErrRunLost", err)
	}
	repeated := mustNext(t, relay, queue)
	must(t, relay.Complete(ctx, repeated.Run()))
	mustExist(t, relay, queue, id, false)

	mustEnqueue(t, relay, relaySpec(queue, id))
	got, err := relay.Get(ctx, queue, id)
	if err != nil || got.ID != id {
		t.Fatalf("Get = %q, %v", got.ID, err)
	}
	must(t, relay.Delete(ctx, queue, id))
	mustExist(t, relay, queue, id, false)
}

// RL-007, RL-009, RL-052: JSON comes back byte for byte.
func TestRelay_jsonByteForByte(t *testing.T) {
	t.Parallel()
	relay := mustRelay(t, newFakeRelay(), client.Config{})
	for i, raw := range []string{
		`null`, `true`, `""`, `[]`, `{}`, `9223372036854775807`, `18446744073709551616`, `-0`,
		`1.0`, `1e400`,
		`0.1000000000000000055511151231257827`, `"<a href=\"x\">&amp;</a>"`,
		`"\u003c\/\ud83e\udd80"`, "\"\u2028\"",
		`{"b":1,"a":{"z":null,"b":2},"b":1}`, "{ \"spaced\" :\n\t[ 1 , 2 ] }", `"\ud800"`,
	} {
		job := relaySpec("json", fmt.Sprint(i))
		job.Payload, job.State = json.RawMessage(raw), json.RawMessage(raw)
		mustEnqueue(t, relay, job)
		got := mustNext(t, relay, "json")
		if string(got.Payload) != raw {
			t.Errorf("payload = %s, want %s", got.Payload, raw)
		}
		if raw == "null" {
			raw = ""
		}
		if string(got.State) != raw {
			t.Errorf("state = %s, want %s", got.State, raw)
		}
		if raw != "" {
			must(t, relay.Heartbeat(t.Context(), got.Run(), json.RawMessage("\n "+raw)))
			stored, err := relay.Get(t.Context(), "json", job.ID)
			must(t, err)
			if string(stored.State) != raw { // the white space around it is the document's
				t.Errorf("state after heartbeat = %q, want %q", stored.State, raw)
			}
		}
	}
}

// RL-001 to RL-014: every member survives the trip, in Go's units.
func TestRelay_members(t *testing.T) {
	t.Parallel()
	relay := mustRelay(t, newFakeRelay(), client.Config{})
	retries := 3
	at := time.Date(2020, 5, 1, 14, 0, 0, 123_000_000, time.FixedZone("", 2*3600))
	mustEnqueue(t, relay, client.RelaySpec{Queue: "q", ID: "full", Timeout: 1500 * time.Millisecond,
		MaxRetries: &retries, State: json.RawMessage(`[1]`), RunAt: at})
	mustEnqueue(t, relay, client.RelaySpec{Queue: "q", ID: "bare",
		Timeout: 2147483647 * time.Second})

	full, err := relay.Get(t.Context(), "q", "full")
	must(t, err)
	switch {
	case full.Timeout != 2*time.Second:
		t.Errorf("timeout = %s, want it rounded up to 2s", full.Timeout)
	case full.MaxRetries == nil || *full.MaxRetries != 3 || full.RetriesRemaining == nil ||
		*full.RetriesRemaining != 3:
		t.Errorf("retries = %v, %v, want 3, 3", full.MaxRetries, full.RetriesRemaining)
	case !full.RunAt.Equal(at) || full.RunAt.Location() != time.UTC:
		t.Errorf("run_at = %s, want %s in UTC", full.RunAt, at)
	case string(full.Payload) != "null":
		t.Errorf("payload = %s, want null", full.Payload)
	case full.RunID != "" || full.CreatedAt.IsZero() || full.UpdatedAt.IsZero():
		t.Errorf("run id %q, created %s, updated %s", full.RunID, full.CreatedAt, full.UpdatedAt)
	}
	if job := mustNext(t, relay, "q"); job.ID != "full" || job.RunID == "" ||
		job.Run().RunID != job.RunID {
		t.Errorf("first job = %q, run %q, want the one due first, with a run id", job.ID, job.RunID)
	}
	bare := mustNext(t, relay, "q")
	if bare.MaxRetries != nil || bare.RetriesRemaining != nil || bare.State != nil ||
		bare.Timeout != 2147483647*time.Second {
		t.Errorf("bare job = %+v", bare)
	}
	none, err := relay.Claim(t.Context(), "q", 5, 0) // RL-038
	if err != nil || len(none) != 0 {
		t.Errorf("Next on an empty queue = %v, %v, want nothing", none, err)
	}
}

func TestRelay_modes(t *testing.T) {
	t.Parallel()
	d := newFakeRelay()
	relay := mustRelay(t, d, client.Config{})
	ctx := t.Context()
	must(t, relay.Enqueue(ctx, nil, "")) // RL-025
	mustEnqueue(t, relay, relaySpec("q", "1"))

	err := relay.Enqueue(ctx, []client.RelaySpec{relaySpec("q", "0"), relaySpec("q", "1")},
		client.RelayUnique)
	var fail *client.Error
	if !errors.Is(err, client.ErrConflict) || !errors.As(err, &fail) ||
		!strings.Contains(fail.Message, "job 1") || fail.Uncertain {
		t.Errorf("unique: %#v, want a plain conflict that names the job", err)
	}
	mustExist(t, relay, "q", "0", false)
	must(t, relay.Enqueue(ctx, []client.RelaySpec{relaySpec("q", "1")}, client.RelayIgnore))
	job := mustNext(t, relay, "q")
	must(t, relay.Enqueue(ctx, []client.RelaySpec{relaySpec("q", "1")}, client.RelayReplace))
	if err := relay.Heartbeat(ctx, job.Run(), nil); !errors.Is(err, client.ErrRunLost) { // RL-020
		t.Errorf("heartbeat after replace: %v, want ErrRunLost", err)
	}
	// G-RL-02
	must(t, relay.Requeue(ctx, job.Run(), []client.RelaySpec{relaySpec("q", "spawned")},
		client.RelayUnique))
	mustExist(t, relay, "q", "spawned", false)
	must(t, relay.Complete(ctx, job.Run())) // RL-076
	mustExist(t, relay, "q", "1", true)
	if err := relay.Enqueue(ctx, nil, "typo"); !errors.Is(err, client.ErrInvalid) { // RL-021
		t.Errorf("unknown mode: %v, want ErrInvalid", err)
	}
	for i, want := range []string{"", "mode=unique", "mode=unique", "mode=ignore", "mode=replace",
		"mode=typo"} {
		if _, got, _ := strings.Cut(d.requestsOf("enqueue")[i].uri, "?"); got != want {
			t.Errorf("enqueue %d: query %q, want %q", i, got, want)
		}
	}
}

func TestRelay_headers(t *testing.T) {
	t.Parallel()
	d := newFakeRelay()
	relay := mustRelay(t, d, client.Config{Token: "secret", UserAgent: "tester/1"})
	mustEnqueue(t, relay, relaySpec("q", "1"))
	job := mustNext(t, relay, "q")
	must(t, relay.Heartbeat(t.Context(), job.Run(), nil))
	if _, err := relay.Claim(t.Context(), "q", 7, 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, e := range d.requestsOf("") {
		if e.header.Get("Authorization") != "Bearer secret" ||
			e.header.Get("User-Agent") != "tester/1" {
			t.Errorf("%s: headers %v", e.op, e.header)
		}
	}
	if heartbeat := d.requestsOf("heartbeat")[0]; heartbeat.contentTypePresent ||
		heartbeat.body != "" {
		t.Errorf("plain heartbeat has Content-Type or body %q", heartbeat.body) // RL-053
	}
	polls := d.requestsOf("next")
	if polls[0].header.Get("Prefer") != "" || polls[1].header.Get("Prefer") != "wait=1" {
		t.Errorf("Prefer = %q and %q, want none and wait=1", polls[0].header.Get("Prefer"),
			polls[1].header.Get("Prefer"))
	}
	if polls[1].query.Get("num_jobs") != "7" {
		t.Errorf("num_jobs = %s, want 7", polls[1].query.Get("num_jobs"))
	}
}

// What cannot be right is not sent.
func TestRelay_refusedUnsent(t *testing.T) {
	t.Parallel()
	d := newFakeRelay()
	relay := mustRelay(t, d, client.Config{})
	ctx := t.Context()
	broken := relaySpec("q", "1")
	broken.Payload = json.RawMessage(`{"a":1}},{"queue":"x"`)
	brokenState := relaySpec("q", "1")
	brokenState.State = json.RawMessage(``)
	year := relaySpec("q", "1")
	year.RunAt = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	run := client.RelayRun{Queue: "q", ID: "1", RunID: "r"}
	_, nextErr := relay.Claim(ctx, "", 1, 0)
	_, getErr := relay.Get(ctx, "q", "")
	_, existsErr := relay.Exists(ctx, "\xff", "1")
	for name, err := range map[string]error{
		"payload":         relay.Enqueue(ctx, []client.RelaySpec{broken}, ""),
		"state":           relay.Enqueue(ctx, []client.RelaySpec{brokenState}, ""),
		"year":            relay.Enqueue(ctx, []client.RelaySpec{year}, ""),
		"not UTF-8":       relay.Enqueue(ctx, []client.RelaySpec{relaySpec("q", "a\xff")}, ""),
		"heartbeat state": relay.Heartbeat(ctx, run, json.RawMessage(`nope`)),
		"no run id":       relay.Heartbeat(ctx, client.RelayRun{Queue: "q", ID: "1"}, nil),
		"requeue":         relay.Requeue(ctx, run, []client.RelaySpec{broken}, ""),
		"complete":        relay.Complete(ctx, client.RelayRun{}),
		"delete":          relay.Delete(ctx, "", "1"),
		"next":            nextErr,
		"get":             getErr,
		"exists":          existsErr,
		"base URL":        newError("relay.test"),
		"base query":      newError("http://relay.test?x"),
		"base nonsense":   newError("http://%zz"),
	} {
		var fail *client.Error
		if !errors.Is(err, client.ErrInvalid) || !errors.As(err, &fail) || fail.Retryable() ||
			fail.Status != 0 {
			t.Errorf("%s: %v, want an unsent ErrInvalid", name, err)
		}
	}
	if sent := d.requestsOf(""); len(sent) != 0 {
		t.Errorf("%d requests were sent, want none", len(sent))
	}
}

func newError(base string) error {
	_, err := client.New(client.Config{BaseURL: base})
	return err
}

// Which answers are tried again, and what kind the last one is.
func TestRelay_statuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status    int
		tries     int
		kind      error
		uncertain bool
	}{
		{http.StatusBadRequest, 1, client.ErrInvalid, false},
		{http.StatusUnauthorized, 1, client.ErrUnauthorized, false},
		{http.StatusForbidden, 1, client.ErrUnauthorized, false},
		{http.StatusNotFound, 1, client.ErrNotFound, false},
		{http.StatusConflict, 1, client.ErrConflict, false},
		{http.StatusRequestEntityTooLarge, 1, client.ErrInvalid, false},
		{http.StatusUnsupportedMediaType, 1, client.ErrInvalid, false},
		{http.StatusUnprocessableEntity, 1, client.ErrInvalid, false},
		{http.StatusTooManyRequests, 6, client.ErrRetryable, false},
		{http.StatusInternalServerError, 1, nil, true},
		{http.StatusBadGateway, 6, client.ErrRetryable, true},
		{http.StatusServiceUnavailable, 6, client.ErrRetryable, true},
		{http.StatusGatewayTimeout, 6, client.ErrRetryable, true},
		{http.StatusOK, 1, nil, false}, // not what the contract says
		{http.StatusTemporaryRedirect, 1, nil, false},
	} {
		t.Run(http.StatusText(tc.status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFakeRelay()
				d.inject(injectedFault{on: "enqueue", times: -1, status: tc.status,
					body:   " explained \n",
					header: http.Header{"Location": {"http://elsewhere.test/"}}})
				err := directRelay(t, d).Enqueue(t.Context(),
					[]client.RelaySpec{relaySpec("q", "1")}, "")
				var fail *client.Error
				if !errors.As(err, &fail) || fail.Status != tc.status ||
					fail.Message != "explained" || fail.Uncertain != tc.uncertain {
					t.Fatalf("got %#v", err)
				}
				for _, kind := range []error{client.ErrInvalid, client.ErrUnauthorized,
					client.ErrNotFound, client.ErrConflict, client.ErrRetryable,
					client.ErrRunLost} {
					if errors.Is(err, kind) != (kind == tc.kind) {
						t.Errorf("errors.Is(%v) = %v", kind, errors.Is(err, kind))
					}
				}
				if tries := len(d.requestsOf("enqueue")); tries != tc.tries {
					t.Errorf("%d tries, want %d", tries, tc.tries)
				}
			})
		})
	}
}

// The text of an error says that a try may have taken effect after a try whose answer was lost, and
// where the effect of a try would explain the error; not where every try was refused.
func TestError_mayHaveTakenEffect(t *testing.T) {
	t.Parallel()
	const lost, notConnected = 0, -1 // in place of the status of an answer
	for name, tt := range map[string]struct {
		tries []int
		want  bool
	}{
		"the store is unavailable":   {[]int{503, 429, 503}, false},
		"the server restarts":        {[]int{503, notConnected, notConnected}, false},
		"the first answer is lost":   {[]int{lost, 503, notConnected}, true},
		"the last answer is lost":    {[]int{503, notConnected, lost}, true},
		"a gateway has lost one":     {[]int{503, 502, 503}, true},
		"a defect":                   {[]int{500}, true},
		"a conflict after an outage": {[]int{503, 409}, true},
		"a conflict":                 {[]int{429, 409}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := tt.tries
			answer := transportFunc(func(*http.Request) (*http.Response, error) {
				status := tries[0]
				tries = tries[1:]
				switch status {
				case lost:
					return nil, io.ErrUnexpectedEOF
				case notConnected:
					return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
				}
				return &http.Response{StatusCode: status, Body: http.NoBody}, nil
			})
			relay := mustClient(t, client.Config{BaseURL: "http://relay.test",
				HTTPClient: &http.Client{Transport: answer},
				Retry:      client.Retry{MaxTries: 3, BaseDelay: 1}}).Relay()
			err := relay.Enqueue(t.Context(), []client.RelaySpec{relaySpec("q", "1")}, "")
			says := err != nil && strings.Contains(err.Error(), "may have taken effect")
			if says != tt.want || len(tries) > 0 {
				t.Errorf("got %v with %d tries left", err, len(tries))
			}
		})
	}
}

// RL-029, RL-048, RL-056: every call survives retryable answers and broken connections, and waits
// as long as the server asks.
func TestRelay_retries(t *testing.T) {
	t.Parallel()
	run := client.RelayRun{Queue: "q", ID: "1", RunID: "00000000-0000-4000-8000-000000000001"}
	calls := map[string]func(context.Context, *client.Relay) error{
		"enqueue": func(ctx context.Context, r *client.Relay) error {
			return r.Enqueue(ctx, []client.RelaySpec{relaySpec("other", "1")}, "")
		},
		"next": func(ctx context.Context, r *client.Relay) error {
			_, err := r.Claim(ctx, "none", 1, 0)
			return err
		},
		"heartbeat": func(ctx context.Context, r *client.Relay) error {
			return r.Heartbeat(ctx, run, json.RawMessage(`{"a":1}`))
		},
		"requeue": func(ctx context.Context, r *client.Relay) error {
			return r.Requeue(ctx, run, []client.RelaySpec{relaySpec("other", "1")},
				client.RelayUnique)
		},
		"complete": func(ctx context.Context, r *client.Relay) error {
			return r.Complete(ctx, run)
		},
		"delete": func(ctx context.Context, r *client.Relay) error {
			return r.Delete(ctx, "q", "1")
		},
		"exists": func(ctx context.Context, r *client.Relay) error {
			_, err := r.Exists(ctx, "q", "1")
			return err
		},
		"get": func(ctx context.Context, r *client.Relay) error {
			_, err := r.Get(ctx, "q", "1")
			return err
		},
	}
	for op, do := range calls {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFakeRelay()
				relay := directRelay(t, d)
				mustEnqueue(t, relay, relaySpec("q", "1"))
				mustNext(t, relay, "q")
				before := len(d.requestsOf(op))
				d.inject(injectedFault{on: op, status: 429,
					header: http.Header{"Retry-After": {"3"}}})
				d.inject(injectedFault{on: op, drop: true})
				d.inject(injectedFault{on: op, status: 503,
					header: http.Header{"Retry-After": {"5"}}})
				start := time.Now()
				must(t, do(t.Context(), relay))
				tries := d.requestsOf(op)[before:]
				if len(tries) != 4 {
					t.Fatalf("%d tries, want 4", len(tries))
				}
				for _, try := range tries[1:] {
					if try.body != tries[0].body || try.uri != tries[0].uri {
						t.Errorf("repeated as %s %q, first %s %q", try.uri, try.body, tries[0].uri,
							tries[0].body)
					}
				}
				took := time.Since(start)
				if took < 8*time.Second || took > 8*time.Second+700*time.Millisecond {
					t.Errorf("took %s, want 8s and at most 700ms of jitter", took)
				}
			})
		})
	}
}

// A repeat after a lost answer: harmless, or said to be uncertain.
func TestRelay_lostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFakeRelay()
		relay := directRelay(t, d)
		ctx := t.Context()
		lose := func(op string) { d.inject(injectedFault{on: op, after: true, drop: true}) }

		lose("enqueue")
		err := relay.Enqueue(ctx, []client.RelaySpec{relaySpec("q", "1")}, client.RelayUnique)
		var fail *client.Error
		if !errors.Is(err, client.ErrConflict) || !errors.As(err, &fail) || !fail.Uncertain {
			t.Errorf("unique: %v, want an uncertain conflict", err)
		}
		if !strings.Contains(err.Error(), "may have taken effect") {
			t.Errorf("message %q does not say so", err)
		}
		lose("enqueue")
		must(t, relay.Enqueue(ctx, []client.RelaySpec{relaySpec("q", "2")}, client.RelayReplace))

		job := mustNext(t, relay, "q")
		lose("heartbeat")
		must(t, relay.Heartbeat(ctx, job.Run(), json.RawMessage(`5`)))
		lose("requeue")
		must(t, relay.Requeue(ctx, job.Run(), []client.RelaySpec{relaySpec("q2", "1")},
			client.RelayUnique))
		mustExist(t, relay, "q", "1", false)
		mustExist(t, relay, "q2", "1", true)
		job = mustNext(t, relay, "q2")
		lose("complete")
		must(t, relay.Complete(ctx, job.Run()))
		mustExist(t, relay, "q2", "1", false)
	})
}

func TestRelay_retryBounds(t *testing.T) {
	t.Parallel()
	endless := func(t *testing.T, d *fakeRelay, tries int) *client.Relay {
		return mustClient(t, client.Config{BaseURL: "http://relay.test",
			Retry:      client.Retry{MaxTries: tries},
			HTTPClient: &http.Client{Transport: direct{d}}}).Relay()
	}
	for name, tc := range map[string]struct {
		maxTries   int
		retryAfter string
		tries      func(n int) bool
		within     time.Duration
	}{
		"the context ends endless tries": {-1, "", func(n int) bool { return n > 10 }, time.Minute},
		"MaxTries one":                   {1, "", func(n int) bool { return n == 1 }, 0},
		"too long a Retry-After":         {0, "61", func(n int) bool { return n == 1 }, 0},
		"a Retry-After beyond the end": {0, "59", func(n int) bool {
			return n == 2
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newFakeRelay()
				d.inject(injectedFault{on: "delete", times: -1, status: 429,
					header: http.Header{"Retry-After": {tc.retryAfter}}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := endless(t, d, tc.maxTries).Delete(ctx, "q", "1")
				if !errors.Is(err, client.ErrRetryable) {
					t.Errorf("got %v, want the last answer", err)
				}
				if took := time.Since(start); took != tc.within {
					t.Errorf("took %s, want %s", took, tc.within)
				}
				if ended := errors.Is(err, context.DeadlineExceeded); ended != (tc.within > 0) {
					t.Errorf("DeadlineExceeded = %v in %v", ended, err)
				}
				if n := len(d.requestsOf("delete")); !tc.tries(n) {
					t.Errorf("%d tries", n)
				}
			})
		})
	}
}

// A server that accepts and never answers: each try ends, a long poll gets the time it asked for,
// and the caller's own end is not retryable.
func TestRelay_silence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			tries.Add(1)
			<-r.Context().Done()
		})
		relay := mustClient(t, client.Config{BaseURL: "http://relay.test",
			RequestTimeout: 5 * time.Second,
			Retry:          client.Retry{MaxTries: 1},
			HTTPClient:     &http.Client{Transport: direct{silent}}}).Relay()
		start := time.Now()
		_, err := relay.Claim(t.Context(), "q", 1, 20*time.Second)
		if took := time.Since(start); !errors.Is(err, client.ErrRetryable) ||
			took != 25*time.Second {
			t.Errorf("poll ended after %s with %v, want 25s and retryable", took, err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		err = relay.Delete(ctx, "q", "1")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cause) ||
			errors.Is(err, client.ErrRetryable) {
			t.Errorf("got %v, want the context's end and its cause", err)
		}
		var fail *client.Error
		if !errors.As(err, &fail) || !fail.Uncertain {
			t.Errorf("%v is not uncertain", err)
		}
		if tries.Load() != 2 {
			t.Errorf("%d tries, want 2", tries.Load())
		}
	})
}

func TestRelay_badAnswers(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"not JSON":       `jobs`,
		"no array":       `{}`,
		"no run id":      `[{"queue":"q","id":"1","timeout":1,"payload":1}]`,
		"no id":          `[{"queue":"q","timeout":1,"run_id":"r"}]`,
		"huge timeout":   `[{"queue":"q","id":"1","timeout":99999999999,"run_id":"r"}]`,
		"negative":       `[{"queue":"q","id":"1","timeout":-1,"run_id":"r"}]`,
		"wrong type":     `[{"queue":1}]`,
		"too large":      `[` + strings.Repeat(" ", 2000) + `]`,
		"trailing bytes": `[] []`,
	} {
		t.Run(name, func(t *testing.T) {
			d := newFakeRelay()
			d.inject(injectedFault{on: "next", status: 200, body: body})
			relay := mustRelay(t, d, client.Config{MaxResponseBytes: 1000})
			jobs, err := relay.Claim(t.Context(), "q", 1, 0)
			var fail *client.Error
			if !errors.As(err, &fail) || !fail.Uncertain || fail.Retryable() || jobs != nil {
				t.Errorf("got %v, %v, want an uncertain failure", jobs, err)
			}
		})
	}
	t.Run("members left out", func(t *testing.T) { // RL-083
		d := newFakeRelay()
		d.inject(injectedFault{on: "get", status: 200,
			body: `{"queue":"q","id":"1","timeout":1,"payload":{},"extra":1}`})
		job, err := mustRelay(t, d, client.Config{}).Get(t.Context(), "q", "1")
		if err != nil || job.RunID != "" || job.State != nil || job.MaxRetries != nil {
			t.Errorf("got %+v, %v", job, err)
		}
	})
}

// Real connections: refused ones are certain, dropped ones are retried, and one connection serves
// many calls, also failed ones.
func TestRelay_connections(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	d := newFakeRelay()
	server := httptest.NewUnstartedServer(d)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	c := mustClient(t, client.Config{BaseURL: server.URL,
		Retry: client.Retry{MaxTries: 2, BaseDelay: 1}})
	relay := c.Relay()
	for i := range 20 {
		mustEnqueue(t, relay, relaySpec("q", fmt.Sprint(i)))
		_, err := relay.Get(t.Context(), "q", "missing")
		if !errors.Is(err, client.ErrNotFound) {
			t.Fatal(err)
		}
		mustNext(t, relay, "q")
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections for calls in turn, want 1", opened.Load())
	}
	d.inject(injectedFault{on: "delete", drop: true})
	must(t, relay.Delete(t.Context(), "q", "1"))

	c.CloseIdleConnections()
	server.Close()
	err := relay.Delete(t.Context(), "q", "1")
	var fail *client.Error
	if !errors.As(err, &fail) || !fail.Retryable() || fail.Uncertain || fail.Status != 0 {
		t.Errorf("refused connection: %v, want retryable and certain", err)
	}
}

// TLS that cannot be trusted is not tried again.
func TestRelay_certificate(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(newFakeRelay())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the refused handshake
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	good := mustClient(t, client.Config{BaseURL: server.URL, HTTPClient: server.Client()}).Relay()
	enqueueAndGet(t, good, "a/b", "..") // over HTTP/2, with its own :path
	untrusting := mustClient(t, client.Config{BaseURL: server.URL}).Relay()
	_, err := untrusting.Exists(t.Context(), "q", "1")
	var target *url.Error
	if errors.Is(err, client.ErrRetryable) || !errors.As(err, &target) {
		t.Errorf("got %v, want a lasting failure", err)
	}
}
