package taskflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/millrace/millrace/internal/child"
	"github.com/millrace/millrace/internal/contract/taskflow"
	"github.com/millrace/millrace/internal/egress"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/external"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	settings "github.com/millrace/millrace/internal/setting"
	"github.com/millrace/millrace/internal/telemetry"
	"github.com/millrace/millrace/internal/testkit"
)

const signingSecret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"

// runningWorld is a TaskFlow that runs jobs itself.
type runningWorld struct {
	clock       *testkit.Clock
	engine      *engine.Engine
	taskflow    *taskflow.TaskFlow
	url         string
	transitions chan engine.Transitioned
	waits       chan time.Duration // that simulated runs ask for
	timerEnds   chan time.Time     // ends one of those
	commands    string             // the directory of all commands
}

func newStaffed(t *testing.T, change func(*taskflow.Config)) *runningWorld {
	t.Helper()
	client, err := egress.New(egress.Config{AllowLocal: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	s := &runningWorld{clock: testkit.NewClock(), transitions: make(chan engine.Transitioned, 1000),
		waits: make(chan time.Duration, 100), timerEnds: make(chan time.Time), commands: t.TempDir()}
	c := config()
	c.Registry, c.Now, c.Random, c.Log = prometheus.NewRegistry(), s.clock.Now, testkit.RandomBytes,
		slog.New(slog.DiscardHandler)
	c.Lease = time.Hour // no heartbeat matters here
	c.Node, c.Grace = "node", time.Minute
	c.External = external.Factory{Client: client, Now: s.clock.Now, Dir: s.commands,
		Child: []string{os.Args[0], child.Subcommand}, Environ: child.Environ(os.Environ())}
	c.Timer = func(d time.Duration) (<-chan time.Time, func()) {
		s.waits <- d
		return s.timerEnds, func() {}
	}
	change(&c)
	s.engine = testkit.NewEngine(t, testkit.MemoryStore(t, s.clock.Now), s.clock)
	c.Engine = s.engine
	if s.taskflow, err = taskflow.New(c); err != nil {
		t.Fatal(err)
	}
	contract := s.taskflow.JobType()
	moved := contract.OnTransitions
	contract.ReportedCauses = append(contract.ReportedCauses, job.Released)
	contract.OnTransitions = func(all []engine.Transitioned) {
		moved(all)
		for _, m := range all {
			s.transitions <- m
		}
	}
	testkit.Register(t, s.engine, contract)
	server := httptest.NewServer(httpapi.NewMux(s.taskflow.Mount()))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// service are the settings of a queue whose handler is a service.
func service(url string, timeout time.Duration) *taskflow.Queue {
	q := &taskflow.Queue{Handler: "http", Settings: external.Defaults()}
	q.URL, q.Timeout = url, timeout
	return q
}

// runServer runs the contract until stop, which waits for its end.
func (s *runningWorld) runServer(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.taskflow.Run(ctx); close(ended) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// create makes a job and returns its id.
func (s *runningWorld) create(t *testing.T, queue, payload string) string {
	t.Helper()
	resp, err := http.Post(s.url+"/api/v1/jobs", "application/json",
		strings.NewReader(`{"name":"n","queue":"`+queue+`","payload":`+payload+`}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct{ ID string }
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != 201 {
		t.Fatalf("%d %v", resp.StatusCode, err)
	}
	return v.ID
}

// awaitEnd waits for a job to leave RUNNING and returns it.
func (s *runningWorld) awaitEnd(t *testing.T, id string) *job.Job {
	t.Helper()
	limit := time.NewTimer(testkit.WaitTimeout)
	defer limit.Stop()
	for {
		select {
		case m := <-s.transitions:
			if m.Job.ID.Key == id && m.From == taskflow.Running && m.To != taskflow.Running {
				j, err := s.engine.Get(context.Background(), m.Job.ID)
				if err != nil {
					t.Fatal(err)
				}
				return j
			}
		case <-limit.C:
			t.Fatalf("job %s did not end", id)
		}
	}
}

// lastErrorOf is what a failure says.
func lastErrorOf(t *testing.T, j *job.Job) (message, kind string) {
	t.Helper()
	var v struct {
		Error     string
		ErrorType string `json:"error_type"`
	}
	if err := json.Unmarshal(j.Failure, &v); err != nil {
		t.Fatalf("%s: %v", j.Failure, err)
	}
	return v.Error, v.ErrorType
}

func TestHandlerHTTP(t *testing.T) {
	t.Parallel()
	type exchange struct {
		header http.Header
		body   string
	}
	got := make(chan exchange, 100)
	answer := make(chan func(http.ResponseWriter), 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- exchange{r.Header, string(body)}
		(<-answer)(w)
	}))
	t.Cleanup(receiver.Close)
	s := newStaffed(t, func(c *taskflow.Config) {
		c.Tracing = &telemetry.Tracing{} // without a collector
		c.Queues = map[string]*taskflow.Queue{"web": service(receiver.URL+"/in",
			time.Minute)}
		c.Queues["web"].Secret = settings.NewSecret(signingSecret)
	})
	s.runServer(t)
	status := func(code int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(code); _, _ = io.WriteString(w, body) }
	}
	t.Run("the trace of the job goes along", func(t *testing.T) {
		const caller, state = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=a"
		req, err := http.NewRequest("POST", s.url+"/api/v1/jobs",
			strings.NewReader(`{"name":"n","queue":"web"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Traceparent": {caller},
			"Tracestate": {state}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		answer <- status(200, "")
		x := <-got
		s.awaitEnd(t, x.header.Get("Millrace-Job-Id"))
		if x.header.Get("Traceparent") != caller || x.header.Get("Tracestate") != state {
			t.Errorf("got %v", x.header)
		}
	})
	t.Run("G-TF-37 the request", func(t *testing.T) {
		id := s.create(t, "web", `{"b":  123456789012345678901}`)
		answer <- status(200, " {\"ok\":  true}\n")
		j := s.awaitEnd(t, id)
		x := <-got
		if x.body != `{"b":  123456789012345678901}` ||
			x.header.Get("Content-Type") != "application/json" ||
			x.header.Get("Millrace-Job-Id") != id ||
			x.header.Get("Millrace-Attempt") != "1" || len(x.header.Get("Millrace-Run-Id")) != 36 {
			t.Errorf("got %q %v", x.body, x.header)
		}
		verifier, err := standardwebhooks.NewWebhook(signingSecret)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.VerifyIgnoringTimestamp([]byte(x.body), x.header); err != nil ||
			x.header.Get("Webhook-Id") != id {
			t.Errorf("%v: %v", x.header, err)
		}
		if j.State != taskflow.Completed || string(j.Result) != `{"ok":  true}` {
			t.Errorf("got %s with %s", j.State, j.Result)
		}
	})
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		state  job.State
		kind   string
		result string
	}{
		"204":    {status(204, ""), taskflow.Completed, "", ""},
		"a text": {status(201, "done\n"), taskflow.Completed, "", `"done\n"`},
		"a long text": {status(200, strings.Repeat("x", 70_000)), taskflow.Completed,
			"", `"` + strings.Repeat("x", 64<<10) + `"`},
		"long JSON": {status(200, "["+strings.Repeat("1,", 40_000)+"1]"),
			taskflow.Completed, "", ""},
		"408": {status(408, ""), taskflow.Ready, "http_408", ""},
		"429": {status(429, ""), taskflow.Ready, "http_429", ""},
		"500": {status(500, "no"), taskflow.Ready, "http_500", ""},
		"503": {status(503, ""), taskflow.Ready, "http_503", ""},
		"400": {status(400, ""), taskflow.Failed, "http_400", ""},
		"404": {status(404, ""), taskflow.Failed, "http_404", ""},
		"302": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "/other")
			w.WriteHeader(302)
		}, taskflow.Failed, "http_302", ""},
		"a connection that is cut": {func(http.ResponseWriter) {
			panic(http.ErrAbortHandler)
		}, taskflow.Ready, "connection", ""},
		"half an answer": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "half")
		},
			taskflow.Ready, "connection", ""},
	} {
		t.Run("G-TF-37 "+name, func(t *testing.T) {
			id := s.create(t, "web", `{}`)
			answer <- tt.answer
			j := s.awaitEnd(t, id)
			<-got
			if j.State != tt.state {
				t.Fatalf("got %s with %s, want %s", j.State, j.Failure, tt.state)
			}
			if tt.state == taskflow.Completed {
				if (tt.result != "" && string(j.Result) != tt.result) || len(j.Result) > 64<<10+2 ||
					(len(j.Result) > 0 && !json.Valid(j.Result)) {
					t.Errorf("result of %d bytes: %.80s", len(j.Result), j.Result)
				}
				return
			}
			if message, kind := lastErrorOf(t, j); kind != tt.kind || message == "" ||
				strings.Contains(message, "127.0.0.1") {
				t.Errorf("got %q %q, want %q", message, kind, tt.kind)
			}
		})
	}
}

// doerFunc is a client that answers in place of the network.
type doerFunc func(*http.Request) (*http.Response, error)

func (a doerFunc) Do(r *http.Request) (*http.Response, error) { return a(r) }

func TestHandlerHTTPFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		timeout time.Duration
		client  doerFunc
		kind    string
	}{
		"time-out": {10 * time.Millisecond, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, "timeout"},
		"refused": {time.Hour, func(*http.Request) (*http.Response, error) {
			return nil, &egress.RefusedError{}
		}, "refused"},
		"anything": {time.Hour, func(*http.Request) (*http.Response, error) {
			return nil, errors.New("broken")
		}, "connection"},
		"panic": {time.Hour, func(*http.Request) (*http.Response, error) {
			panic("broken")
		}, "panic"},
	} {
		t.Run("G-TF-37 "+name, func(t *testing.T) {
			t.Parallel()
			s := newStaffed(t, func(c *taskflow.Config) {
				c.Queues = map[string]*taskflow.Queue{"web": service("http://h", tt.timeout)}
				c.External.Client = tt.client
			})
			s.runServer(t)
			j := s.awaitEnd(t, s.create(t, "web", `{}`))
			if _, kind := lastErrorOf(t, j); j.State != taskflow.Ready || kind != tt.kind ||
				j.FailedAttempts != 1 {
				t.Errorf("got %s with %s after %d failures", j.State, j.Failure, j.FailedAttempts)
			}
		})
	}
}

func TestHandlerSimulate(t *testing.T) {
	t.Parallel()
	s := newStaffed(t, func(c *taskflow.Config) {
		c.Queues = map[string]*taskflow.Queue{"sim": {Handler: "simulate"}, "plain": {}}
	})
	s.runServer(t)
	run := func(t *testing.T, want time.Duration) {
		t.Helper()
		select {
		case d := <-s.waits:
			if d != want {
				t.Errorf("a run of %s, want %s", d, want)
			}
			s.timerEnds <- time.Time{}
		case <-time.After(testkit.WaitTimeout):
			t.Fatal("timed out waiting for a run to begin")
		}
	}
	t.Run("G-TF-37 a run as long as it says", func(t *testing.T) {
		id := s.create(t, "sim", `{"duration_ms":1500}`)
		run(t, 1500*time.Millisecond)
		if j := s.awaitEnd(t, id); j.State != taskflow.Completed ||
			string(j.Result) != `{"simulated":true}` {
			t.Errorf("got %s %s", j.State, j.Result)
		}
	})
	t.Run("TF-027 G-TF-37 fail_times, then well", func(t *testing.T) {
		id := s.create(t, "sim", `{"fail_times":1,"error":"not yet"}`)
		run(t, 0)
		j := s.awaitEnd(t, id)
		if message, kind := lastErrorOf(t, j); j.State != taskflow.Ready || message != "not yet" ||
			kind != "simulated" {
			t.Fatalf("got %s %s", j.State, j.Failure)
		}
		s.clock.Advance(10 * time.Second)
		run(t, 0)
		if j := s.awaitEnd(t, id); j.State != taskflow.Completed {
			t.Errorf("got %s", j.State)
		}
	})
	t.Run("TF-028 G-TF-37 fail", func(t *testing.T) {
		id := s.create(t, "sim", `{"fail":true}`)
		for n, want := range []job.State{taskflow.Ready, taskflow.Ready, taskflow.Failed} {
			run(t, 0)
			if j := s.awaitEnd(t, id); j.State != want || j.FailedAttempts != n+1 {
				t.Fatalf("run %d: got %s after %d failures, want %s", n+1, j.State,
					j.FailedAttempts, want)
			}
			s.clock.Advance(time.Minute)
		}
	})
	t.Run("G-TF-37 an error that no store keeps as it is", func(t *testing.T) {
		id := s.create(t, "sim", `{"fail":true,"error":"a\u0000\ud800b"}`)
		run(t, 0)
		if message, kind := lastErrorOf(t, s.awaitEnd(t, id)); message != "a\uFFFD\uFFFDb" ||
			kind != "simulated" {
			t.Errorf("got %q of kind %s", message, kind)
		}
	})
	for _, payload := range []string{`{"duration_ms":-1}`, `{"duration_ms":"1"}`,
		`{"duration_ms":1e12}`, `{"fail":1}`, `{"fail_times":1.5}`, `{"error":{}}`} {
		t.Run("G-TF-37 nonsense "+payload, func(t *testing.T) {
			j := s.awaitEnd(t, s.create(t, "sim", payload))
			if _, kind := lastErrorOf(t, j); j.State != taskflow.Failed || kind != "payload" {
				t.Errorf("got %s %s", j.State, j.Failure)
			}
		})
	}
	t.Run("G-TF-02 without a handler they wait", func(t *testing.T) {
		plain := s.create(t, "plain", `{}`)
		id := s.create(t, "sim", `[]`)
		run(t, 0)
		s.awaitEnd(t, id)
		if j, err := s.engine.Get(context.Background(),
			job.ID{JobType: taskflow.Name, Key: plain}); err != nil || j.State != taskflow.Ready {
			t.Errorf("got %+v, %v", j, err)
		}
	})
}

// G-X-13: what does not end within the grace is given back, and counts for nothing.
func TestHandlersStop(t *testing.T) {
	t.Parallel()
	hangs := doerFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	s := newStaffed(t, func(c *taskflow.Config) {
		c.Queues = map[string]*taskflow.Queue{"sim": {Handler: "simulate"},
			"web": service("http://h", time.Hour)}
		c.Grace, c.External.Client = 0, hangs
	})
	stop := s.runServer(t)
	ids := []string{s.create(t, "sim", `{"duration_ms":60000}`), s.create(t, "web", `{}`)}
	for claimed := 0; claimed < len(ids); {
		if m := <-s.transitions; m.On == job.Claimed {
			claimed++
		}
	}
	stop()
	for _, id := range ids {
		j, err := s.engine.Get(context.Background(), job.ID{JobType: taskflow.Name, Key: id})
		if err != nil || j.State != taskflow.Ready || j.FailedAttempts != 0 {
			t.Errorf("got %+v, %v", j, err)
		}
	}
}

func TestQueueLimits(t *testing.T) {
	t.Parallel()
	s := newStaffed(t, func(c *taskflow.Config) {
		c.Queues = map[string]*taskflow.Queue{"sim": {Handler: "simulate", MaxConcurrent: 2},
			"plain": {MaxConcurrent: 1}}
	})
	ctx := context.Background()
	for _, q := range []job.QueueSettings{{JobType: taskflow.Name, Queue: "old", MaxRunning: 7},
		{JobType: taskflow.Name, Queue: "sim", MaxRunning: 9},
		{JobType: taskflow.Name, Queue: "held", MaxRunning: 3, Paused: true}} {
		if err := s.engine.SetQueue(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	s.runServer(t)
	for range 5 {
		s.create(t, "sim", `{}`)
		s.create(t, "plain", `{}`)
		s.create(t, "old", `{}`)
		s.create(t, "held", `{}`)
	}
	<-s.waits
	<-s.waits
	t.Run("G-TF-25 a queue's own limit", func(t *testing.T) {
		claim := func(queue string) int {
			jobs, err := s.engine.Claim(ctx,
				engine.ClaimRequest{JobType: taskflow.Name, Queues: []string{queue}, Max: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(jobs)
		}
		for queue, want := range map[string]int{"sim": 0, "plain": 1, "old": 5, "held": 0} {
			if n := claim(queue); n != want {
				t.Errorf("%s: claimed %d, want %d", queue, n, want)
			}
		}
		if len(s.waits) != 0 {
			t.Error("more run than may")
		}
	})
	close(s.timerEnds)
}

func TestQueueConfig(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*taskflow.Config){
		"no URL": func(c *taskflow.Config) {
			c.Queues = map[string]*taskflow.Queue{"q": service("", 1)}
		},
		"no time-out": func(c *taskflow.Config) {
			c.Queues = map[string]*taskflow.Queue{"q": service("http://h", 0)}
		},
		"no node": func(c *taskflow.Config) {
			c.Queues = map[string]*taskflow.Queue{"q": {Handler: "simulate"}}
			c.Node = ""
		},
		"below 0": func(c *taskflow.Config) {
			c.Queues = map[string]*taskflow.Queue{"q": {MaxConcurrent: -1}}
		},
	} {
		c := config()
		c.Engine = testkit.MemoryEngine(t)
		c.Registry, c.Now, c.Random, c.Log = prometheus.NewRegistry(), time.Now,
			testkit.RandomBytes, slog.New(slog.DiscardHandler)
		c.Node, c.External.Client = "n", http.DefaultClient
		if _, err := taskflow.New(c); err != nil {
			t.Fatal(err)
		}
		c.Registry = prometheus.NewRegistry()
		change(&c)
		if _, err := taskflow.New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
