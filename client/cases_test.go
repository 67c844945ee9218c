package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// sharedCase is a case of clients/cases.json, which the clients for Python and TypeScript run too.
type sharedCase struct {
	Name, Call string
	Answers    []sharedAnswer
	Tries      int
	Request    *sharedRequest
	Result     any
	Error      map[string]any
}

// sharedAnswer is what a server answers. With Cut it closes the connection.
type sharedAnswer struct {
	Status        int
	Headers       map[string]string
	Text          string
	JSON, Problem json.RawMessage
	Cut           bool
}

func (a sharedAnswer) send(w http.ResponseWriter) {
	if a.Cut {
		panic(http.ErrAbortHandler)
	}
	body := []byte(a.Text)
	for mediaType, text := range map[string]json.RawMessage{"application/json": a.JSON,
		"application/problem+json": a.Problem} {
		if text != nil {
			w.Header().Set("Content-Type", mediaType)
			body = text
		}
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	// The transport repeats some requests whose connection was used before and is cut, by itself.
	w.Header().Set("Connection", "close")
	w.WriteHeader(a.Status)
	_, _ = w.Write(body)
}

// sharedRequest is what each request of a case is.
type sharedRequest struct {
	Method, Path, Query string
	Headers             map[string]string
	JSON                any
}

// sentRequest is a request as the server of a case has got it.
type sentRequest struct {
	*http.Request
	body []byte
}

// check compares a request with what it should be.
func (want *sharedRequest) check(t *testing.T, r sentRequest) {
	t.Helper()
	if r.Method != want.Method || r.URL.EscapedPath() != "/base"+want.Path ||
		r.URL.RawQuery != want.Query {
		t.Errorf("sent %s %s, want %s %s?%s", r.Method, r.URL, want.Method, want.Path, want.Query)
	}
	for name, value := range want.Headers {
		if got := r.Header.Get(name); got != value {
			t.Errorf("the header %s is %q, want %q", name, got, value)
		}
	}
	if r.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf("sent %v", r.Header)
	}
	var body any
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &body); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(body, want.JSON) {
		t.Errorf("sent %s, want %v", r.body, want.JSON)
	}
}

// sharedTime is a time as the results of the cases have it; nil for none.
func sharedTime(at *time.Time) any {
	if at == nil || at.IsZero() {
		return nil
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// results returns a value as it is after a way through JSON.
func results(t *testing.T, value any) (plain any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	must(t, json.Unmarshal(text, &plain))
	return plain
}

type members = map[string]any

// taskFlowResult is a job of TaskFlow as the results of the cases have it.
func taskFlowResult(j client.TaskFlowJob) members {
	m := members{"id": j.ID, "status": j.Status, "next_run_at": sharedTime(&j.NextRunAt),
		"result": j.Result, "last_error": nil}
	if j.LastError != nil {
		m["last_error"] = j.LastError.Message
	}
	return m
}

// sharedCalls are the calls of the cases.
var sharedCalls = map[string]func(ctx context.Context, c *client.Client) (any, error){
	"relay.enqueue": func(ctx context.Context, c *client.Client) (any, error) {
		retries := 2
		return nil, c.Relay().Enqueue(ctx, []client.RelaySpec{{Queue: "q/ü", ID: "a b",
			Timeout: 1500 * time.Millisecond, MaxRetries: &retries, RunAt: sharedNoon,
			Payload: json.RawMessage(`{"n":1.5}`)}}, client.RelayIgnore)
	},
	"relay.get": func(ctx context.Context, c *client.Client) (any, error) {
		j, err := c.Relay().Get(ctx, "q/ü", "a b")
		return members{"payload": j.Payload, "retries_remaining": j.RetriesRemaining,
			"run_id": j.RunID, "run_at": sharedTime(&j.RunAt),
			"created_at": sharedTime(&j.CreatedAt)}, err
	},
	"relay.heartbeat": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.Relay().Heartbeat(ctx, client.RelayRun{Queue: "q", ID: "a", RunID: "r"},
			json.RawMessage(`{"page":1}`))
	},
	"relay.complete": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.Relay().Complete(ctx, client.RelayRun{Queue: "q", ID: "a", RunID: "r"})
	},
	"relay.claim": func(ctx context.Context, c *client.Client) (any, error) {
		jobs, err := c.Relay().Claim(ctx, "q", 5, 1500*time.Millisecond)
		all := []members{}
		for _, j := range jobs {
			all = append(all, members{"id": j.ID, "run_id": j.RunID, "payload": j.Payload,
				"timeout": j.Timeout.Seconds()})
		}
		return all, err
	},
	"relay.complete_all": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Relay().CompleteAll(ctx, []client.RelayRun{{Queue: "q", ID: "a", RunID: "r"},
			{Queue: "q", ID: "b", RunID: "s"}})
	},
	"relay.replay_again": func(ctx context.Context, c *client.Client) (any, error) {
		return c.Relay().Replay(ctx, "q", 7, true)
	},
	"taskflow.submit": func(ctx context.Context, c *client.Client) (any, error) {
		j, err := c.TaskFlow().Submit(ctx, sharedTask)
		return taskFlowResult(j), err
	},
	"taskflow.submit_once": func(ctx context.Context, c *client.Client) (any, error) {
		j, err := c.TaskFlow().SubmitOnce(ctx, "k", sharedTask)
		return taskFlowResult(j), err
	},
	"taskflow.get": func(ctx context.Context, c *client.Client) (any, error) {
		j, err := c.TaskFlow().Get(ctx, "1")
		return taskFlowResult(j), err
	},
	"taskflow.delete": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.TaskFlow().Delete(ctx, "1")
	},
	"forgerun.submit": func(ctx context.Context, c *client.Client) (any, error) {
		r, err := c.ForgeRun().Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeDeferred,
			Kind: client.ForgeRunWorkSuccessFast, ExecutionAt: sharedNoon, IdempotencyKey: "k"})
		return members{"id": r.JobID, "state": r.State, "idempotency_key": r.IdempotencyKey}, err
	},
	"forgerun.get": func(ctx context.Context, c *client.Client) (any, error) {
		j, err := c.ForgeRun().Get(ctx, "1")
		m := members{"id": j.ID, "state": j.State, "attempt": j.Attempt, "failure": nil,
			"execution_at": sharedTime(j.ExecutionAt)}
		if j.Failure != nil {
			m["failure"] = j.Failure.Code
		}
		return m, err
	},
	"fetchbox.submit": func(ctx context.Context, c *client.Client) (any, error) {
		manifest, err := client.FetchBoxManifest{Metadata: json.RawMessage(`{"m":1}`),
			Resources: []client.FetchBoxResource{{ID: "a", URL: "http://h/a",
				Headers: map[string]string{"X-A": "b"}}}}.Encode()
		if err != nil {
			return nil, err
		}
		r, err := c.FetchBox().Submit(ctx, client.FetchBoxSpec{Type: "default", Tenant: "t",
			IdempotencyKey: "k", Manifest: manifest})
		return members{"id": r.JobID, "resources": r.Resources,
			"idempotency_key": r.IdempotencyKey}, err
	},
	"worker.claim": func(ctx context.Context, c *client.Client) (any, error) {
		jobs, err := c.WorkerAPI().Claim(ctx, client.ClaimQuery{Contract: client.ContractTaskFlow,
			Queues: []string{"q"}, Max: 3, Worker: "w"}, 1500*time.Millisecond)
		all := []members{}
		for _, j := range jobs {
			all = append(all, members{"id": j.ID, "run_id": j.RunID, "attempt": j.Attempt,
				"payload": j.Payload, "lease": j.Lease.Seconds()})
		}
		return all, err
	},
	"worker.complete": func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.WorkerAPI().Complete(ctx, "r", json.RawMessage(`{"x":1}`))
	},
}

var (
	sharedNoon = time.Date(2026, 5, 1, 14, 0, 0, 123456000, time.FixedZone("", 2*60*60))
	sharedTask = client.TaskFlowSpec{Name: "n", Queue: "q", Priority: 7,
		Dependencies: []string{"d"}, Payload: json.RawMessage(`{"a":[1]}`),
		Retry: client.TaskFlowRetryPolicy{MaxAttempts: 2, BaseDelay: 1500 * time.Millisecond}}
)

// sharedKinds are the kinds of errors, in the order in which they are looked for.
var sharedKinds = []struct {
	name string
	err  error
}{
	{"not_millrace", client.ErrNotMillrace}, {"run_lost", client.ErrRunLost},
	{"cycle", client.ErrCycle}, {"not_found", client.ErrNotFound},
	{"conflict", client.ErrConflict}, {"invalid", client.ErrInvalid},
	{"unauthorized", client.ErrUnauthorized}, {"retryable", client.ErrRetryable},
	{"other", nil},
}

// errorMembers are the members of an error as the cases have them.
func errorMembers(t *testing.T, err error) members {
	t.Helper()
	var fail *client.Error
	if !errors.As(err, &fail) {
		t.Fatalf("got %v, want an error of a call", err)
	}
	m := members{"status": fail.Status, "code": fail.Code, "message": fail.Message,
		"instance": fail.Instance, "uncertain": fail.Uncertain, "cycle": fail.Cycle,
		"retry_after": fail.RetryAfter.Seconds()}
	for _, kind := range sharedKinds {
		if kind.err == nil || errors.Is(err, kind.err) {
			m["kind"] = kind.name
			break
		}
	}
	return results(t, m).(members)
}

// run runs a case.
func (c sharedCase) run(t *testing.T) {
	var mu sync.Mutex
	var sent []sentRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		sent = append(sent, sentRequest{r, body})
		answer := c.Answers[min(len(sent), len(c.Answers))-1]
		mu.Unlock()
		answer.send(w)
	}))
	t.Cleanup(server.Close)
	call := sharedCalls[c.Call]
	if call == nil {
		t.Fatalf("there is no call %s", c.Call)
	}
	base, err := url.JoinPath(server.URL, "base/")
	must(t, err)
	got, err := call(t.Context(), mustClient(t, client.Config{BaseURL: base, Token: "secret",
		Retry: client.Retry{BaseDelay: time.Millisecond}}))
	if c.Error == nil {
		must(t, err)
		if got = results(t, got); !reflect.DeepEqual(got, c.Result) {
			t.Errorf("got %v, want %v", got, c.Result)
		}
	} else {
		all := errorMembers(t, err)
		for name, want := range c.Error {
			if !reflect.DeepEqual(all[name], want) {
				t.Errorf("%s of the error is %v, want %v: %v", name, all[name], want, err)
			}
		}
	}
	mu.Lock() // nothing else orders the requests of a cut connection before this
	defer mu.Unlock()
	if len(sent) != c.Tries {
		t.Errorf("%d tries, want %d", len(sent), c.Tries)
	}
	if c.Request != nil {
		for _, r := range sent {
			c.Request.check(t, r)
		}
	}
}

// TestSharedCases runs what all clients have in common: what they send, and what they make of
// answers.
func TestSharedCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../clients/cases.json")
	must(t, err)
	var file struct {
		About []string
		Cases []sharedCase
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	must(t, decoder.Decode(&file))
	called := map[string]bool{}
	for _, c := range file.Cases {
		called[c.Call] = true
		if c.Tries == 0 {
			c.Tries = len(c.Answers)
		}
		t.Run(strings.ReplaceAll(c.Name, "/", " "), func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
	if len(file.Cases) < 50 || len(called) != len(sharedCalls) {
		t.Errorf("%d cases have %d of %d calls", len(file.Cases), len(called), len(sharedCalls))
	}
}
