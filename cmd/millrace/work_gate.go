package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// gate stands between a worker and its server and knows from the polls that pass when to stop:
// after a number of jobs, when the queue has nothing left, or when asking again cannot help.
type pollGate struct {
	polls      pollKind
	next       http.RoundTripper
	stop       func()
	limited    bool
	untilEmpty bool

	// Polls come one after another, and these are theirs alone.
	remaining int // jobs that may still be asked for, when limited
	failures  int // polls in a row that got no answer

	mu         sync.Mutex
	running    int
	jobs       int   // taken so far
	stopReason error // why it was stopped, when that was not wanted
}

// patience is how many polls without an answer --until-empty endures: a script should not wait for
// a server for ever.
const maxUnansweredPolls = 8

// maxRefusalBytes is how much of a refusal is read.
const maxRefusalBytes = 64 << 10

var errPollingStopped = errors.New("no more jobs are wanted")

// pollKind knows the polls of a contract.
type pollKind interface {
	// isPoll reports whether a request is one.
	isPoll(req *http.Request) bool
	// limitToOne makes it ask for one job, so that an answer with jobs is exactly one.
	limitToOne(req *http.Request) (*http.Request, error)
	// jobs says how many jobs a 2xx brought.
	jobs(resp *http.Response) (int, error)
	// counted reports whether jobs count as running from the answer on, not only from the start of
	// their commands.
	countsOnClaim() bool
}

// RoundTrip passes a request on, and watches those that are polls.
func (g *pollGate) RoundTrip(req *http.Request) (*http.Response, error) {
	if !g.polls.isPoll(req) {
		return g.next.RoundTrip(req)
	}
	if g.limited {
		// The gate stops here and not earlier: stopped during the poll that claims the last job,
		// it would lose the answer.
		if g.remaining == 0 {
			g.stop()
			return nil, errPollingStopped
		}
		one, err := g.polls.limitToOne(req)
		if err != nil {
			return nil, err
		}
		req = one
	}
	// An attempt that ends during the poll may submit jobs that the poll misses: only a worker that
	// was idle before it can conclude that the queue is empty.
	wasIdle := g.idle()
	resp, jobs, err := g.poll(req)
	if err != nil {
		g.unanswered(err)
		return nil, err
	}
	g.answered(resp, jobs, wasIdle)
	return resp, nil
}

// poll sends a poll and counts the jobs of its answer.
func (g *pollGate) poll(req *http.Request) (resp *http.Response, jobs int, err error) {
	if resp, err = g.next.RoundTrip(req); err != nil {
		return nil, 0, err
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return resp, 0, nil
	}
	if jobs, err = g.polls.jobs(resp); err != nil {
		resp.Body.Close()
		return nil, 0, err
	}
	return resp, jobs, nil
}

// relayPolls recognises the polls of Relay: its only GET requests.
type relayPolls struct{}

func (relayPolls) isPoll(req *http.Request) bool { return req.Method == http.MethodGet }

func (relayPolls) limitToOne(req *http.Request) (*http.Request, error) {
	return limitToOne(req), nil
}

func (relayPolls) countsOnClaim() bool { return false }

func (relayPolls) jobs(resp *http.Response) (int, error) {
	if resp.StatusCode == http.StatusOK {
		return 1, nil // or more, where no number was asked for
	}
	return 0, nil
}

// limitToOne asks for one job, so that a 200 is exactly one.
func limitToOne(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	q := req.URL.Query()
	q.Set("num_jobs", "1")
	req.URL.RawQuery = q.Encode()
	return req
}

func (g *pollGate) unanswered(err error) {
	g.failures++
	if cli.CertificateRejected(err) {
		g.stopWith(cli.ExitServer,
			fmt.Errorf("the server's certificate is not trusted (--cacert or %s): %w",
				cli.EnvCACert, err))
	}
	if g.untilEmpty && g.failures >= maxUnansweredPolls {
		g.stopWith(cli.ExitServer, cli.UnreachableError(err))
	}
}

func (g *pollGate) answered(resp *http.Response, jobs int, wasIdle bool) {
	g.failures = 0
	switch status := resp.StatusCode; {
	case jobs > 0:
		g.remaining--
		if g.polls.countsOnClaim() {
			g.addRunning(jobs)
		}
	case status < http.StatusMultipleChoices:
		if g.untilEmpty && wasIdle && g.idle() {
			g.stop()
		}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		g.stopWith(cli.ExitServer,
			errors.New("the server refuses the token (--token or MILLRACE_TOKEN)"))
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests &&
		status != http.StatusRequestTimeout:
		g.stopWith(cli.ExitFailed, fmt.Errorf("the server refuses the poll: %d %s%s", status,
			http.StatusText(status), refusalText(resp)))
	}
}

// refusalText is what a refusal says: the detail of a problem document, or plain text. The worker
// can still read it.
func refusalText(resp *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBytes))
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if err != nil {
		return ""
	}
	message := string(text)
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "application/problem+json":
		var problem struct{ Title, Detail string }
		if json.Unmarshal(text, &problem) != nil {
			return ""
		}
		message = cmp.Or(problem.Detail, problem.Title)
	case "text/plain":
	default: // what stands in between, perhaps a page
		return ""
	}
	if message = strings.TrimSpace(message); message == "" {
		return ""
	}
	return ": " + cli.Printable(message)
}

func (g *pollGate) stopWith(code int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopReason == nil {
		g.stopReason = cli.WithCode(code, err)
	}
	g.stop()
}

// ended tells why the worker was stopped against its will; nil when it was not.
func (g *pollGate) stopError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopReason
}

// take counts a job whose command is to be run.
func (g *pollGate) countJob() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
}

// jobCount is how many there were.
func (g *pollGate) jobCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.jobs
}

func (g *pollGate) runStarted() { g.addRunning(1) }
func (g *pollGate) runEnded()   { g.addRunning(-1) }

func (g *pollGate) addRunning(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running += n
}

func (g *pollGate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running == 0
}
