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
)

// gate stands between a worker and its server and knows from the polls that pass when to stop: after a number of jobs,
// when the queue has nothing left, or when asking again cannot help.
type gate struct {
	polls      polls
	next       http.RoundTripper
	stop       func()
	limited    bool
	untilEmpty bool

	// Polls come one after another, and these are theirs alone.
	left     int // jobs that may still be asked for, when limited
	failures int // polls in a row that got no answer

	mu      sync.Mutex
	running int
	jobs    int   // taken so far
	refused error // why it was stopped, when that was not wanted
}

// patience is how many polls without an answer --until-empty endures: a script should not wait for a server for ever.
const patience = 8

// longestRefusal is how much of a refusal is read.
const longestRefusal = 64 << 10

var errGateClosed = errors.New("no more jobs are wanted")

// polls knows the polls of a contract.
type polls interface {
	// among reports whether a request is one.
	among(req *http.Request) bool
	// singly makes it ask for one job, so that an answer with jobs is exactly one.
	singly(req *http.Request) (*http.Request, error)
	// jobs says how many jobs a 2xx brought.
	jobs(resp *http.Response) (int, error)
	// counted reports whether jobs count as running from the answer on, not only from the start of their commands.
	counted() bool
}

// RoundTrip passes a request on, and watches those that are polls.
func (g *gate) RoundTrip(req *http.Request) (*http.Response, error) {
	if !g.polls.among(req) {
		return g.next.RoundTrip(req)
	}
	if g.limited {
		// Not earlier: ending the poll that brings the last job would lose its answer.
		if g.left == 0 {
			g.stop()
			return nil, errGateClosed
		}
		one, err := g.polls.singly(req)
		if err != nil {
			return nil, err
		}
		req = one
	}
	wasIdle := g.idle() // what ends while the poll is under way may have made jobs that it missed
	resp, err := g.next.RoundTrip(req)
	jobs := 0
	if err == nil && resp.StatusCode < http.StatusMultipleChoices {
		if jobs, err = g.polls.jobs(resp); err != nil {
			resp.Body.Close()
			resp = nil
		}
	}
	if err != nil {
		g.unanswered(err)
	} else {
		g.answered(resp, jobs, wasIdle)
	}
	return resp, err
}

// relayPolls: nothing but a poll is a GET.
type relayPolls struct{}

func (relayPolls) among(req *http.Request) bool { return req.Method == http.MethodGet }

func (relayPolls) singly(req *http.Request) (*http.Request, error) { return singly(req), nil }

func (relayPolls) counted() bool { return false }

func (relayPolls) jobs(resp *http.Response) (int, error) {
	if resp.StatusCode == http.StatusOK {
		return 1, nil // or more, where no number was asked for
	}
	return 0, nil
}

// singly asks for one job, so that a 200 is exactly one.
func singly(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	q := req.URL.Query()
	q.Set("num_jobs", "1")
	req.URL.RawQuery = q.Encode()
	return req
}

func (g *gate) unanswered(err error) {
	g.failures++
	if certificateRefused(err) {
		g.refuse(exitServer, fmt.Errorf("the server's certificate is not trusted (--cacert or %s): %w", envCACert, err))
	}
	if g.untilEmpty && g.failures >= patience {
		g.refuse(exitServer, unreachable(err))
	}
}

func (g *gate) answered(resp *http.Response, jobs int, wasIdle bool) {
	g.failures = 0
	switch status := resp.StatusCode; {
	case jobs > 0:
		g.left--
		if g.polls.counted() {
			g.count(jobs)
		}
	case status < http.StatusMultipleChoices:
		if g.untilEmpty && wasIdle && g.idle() {
			g.stop()
		}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		g.refuse(exitServer, errors.New("the server refuses the token (--token or MILLRACE_TOKEN)"))
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout:
		g.refuse(exitFailed, fmt.Errorf("the server refuses the poll: %d %s%s", status, http.StatusText(status), explained(resp)))
	}
}

// explained is what a refusal says: the detail of a problem document, or plain text. The worker can still read it.
func explained(resp *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(resp.Body, longestRefusal))
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if err != nil {
		return ""
	}
	told := string(text)
	switch kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind {
	case "application/problem+json":
		var problem struct{ Title, Detail string }
		if json.Unmarshal(text, &problem) != nil {
			return ""
		}
		told = cmp.Or(problem.Detail, problem.Title)
	case "text/plain":
	default: // what stands in between, perhaps a page
		return ""
	}
	if told = strings.TrimSpace(told); told == "" {
		return ""
	}
	return ": " + printable(told)
}

func (g *gate) refuse(code int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refused == nil {
		g.refused = withCode(code, err)
	}
	g.stop()
}

// ended tells why the worker was stopped against its will; nil when it was not.
func (g *gate) ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

// take counts a job whose command is to be run.
func (g *gate) take() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
}

// taken is how many there were.
func (g *gate) taken() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.jobs
}

func (g *gate) enter() { g.count(1) }
func (g *gate) leave() { g.count(-1) }

func (g *gate) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running += n
}

func (g *gate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running == 0
}
