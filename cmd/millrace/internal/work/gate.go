package work

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

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/cmd/millrace/internal/cli"
)

// The worker of the SDK polls until its context ends. The answers to its polls decide when a
// command-line worker stops, and only its transport sees them. The gate is that transport. If it
// stopped the worker during a poll that claims jobs, the answer would be lost and the jobs would
// wait for their timeout. So it stops the worker before the next poll.

// pollGate is the transport of the worker's HTTP client. It sees the worker's polls and stops the
// worker after a number of jobs (--max-jobs), when the queue is empty (--until-empty), or when the
// server refuses the polls.
type pollGate struct {
	polls pollKind
	next  http.RoundTripper
	// stop ends polling. It may be called more than once.
	stop func()
	// limited says that --max-jobs was given, and untilEmpty that --until-empty was.
	limited    bool
	untilEmpty bool

	// The worker sends one poll at a time, so only its goroutine uses the fields down to mayBeHTTP.

	// remaining is how many more jobs may be claimed, if limited.
	remaining int
	// failures is how many polls in a row got no answer.
	failures int
	// notHTTP is how many polls since the start failed as they do at a server without HTTP.
	notHTTP int
	// mayBeHTTP says that a poll got an answer, or failed for another reason.
	mayBeHTTP bool

	mu sync.Mutex
	// running is how many jobs are running.
	running int
	// jobs is how many jobs the worker was about to run the command of.
	jobs int
	// stopReason is the error for which the gate stopped the worker, with its exit code, or nil.
	stopReason error
}

// maxUnansweredPolls is after how many failed polls in a row the worker gives up with
// --until-empty, so that a script does not wait forever.
const maxUnansweredPolls = 8

// maxNotHTTP is how many polls may fail with isNotHTTP before the worker gives up, if every poll
// since its start has. After an answer such errors do not count: a proxy that restarts causes them.
const maxNotHTTP = 5

// isNotHTTP reports whether a request failed as it does at a server without HTTP, such as a
// database: the server closed the connection, or sent something else than an HTTP response.
func isNotHTTP(err error) bool {
	return errors.Is(err, io.EOF) || strings.Contains(err.Error(), "malformed HTTP")
}

// maxRefusalBytes is how much of the body of a refusal is read.
const maxRefusalBytes = 64 << 10

// errPollingStopped is the error of a poll after the last job that was wanted.
var errPollingStopped = errors.New("no more jobs are wanted")

// pollKind recognises and changes the polls of a contract.
type pollKind interface {
	// isPoll reports whether a request is a poll.
	isPoll(req *http.Request) bool
	// limitToOne returns the same poll for at most one job.
	limitToOne(req *http.Request) (*http.Request, error)
	// jobs returns the number of jobs in an answer with a 2xx status. The worker can still read
	// the answer.
	jobs(resp *http.Response) (int, error)
	// countsOnClaim reports whether jobs count as running from the answer on, and not only from the
	// start of their commands.
	countsOnClaim() bool
}

// RoundTrip sends a request. If it is a poll, RoundTrip counts the jobs of the answer and stops the
// worker when a condition for that is met.
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
		g.pollFailed(err)
		return nil, err
	}
	g.pollAnswered(resp, jobs, wasIdle)
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

// isPoll reports whether the request is a GET.
func (relayPolls) isPoll(req *http.Request) bool { return req.Method == http.MethodGet }

// limitToOne sets the parameter num_jobs.
func (relayPolls) limitToOne(req *http.Request) (*http.Request, error) {
	return limitToOne(req), nil
}

// countsOnClaim reports false: the number of jobs in an answer is not known without reading it, so
// a job counts from the start of its command.
func (relayPolls) countsOnClaim() bool { return false }

// jobs counts an answer 200 as one job. An answer without jobs has status 204.
func (relayPolls) jobs(resp *http.Response) (int, error) {
	if resp.StatusCode == http.StatusOK {
		return 1, nil // or more where polls are not limited to one, and then only 0 differs
	}
	return 0, nil
}

// limitToOne returns the poll for at most one job: its answer 200 then holds exactly one.
func limitToOne(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	q := req.URL.Query()
	q.Set("num_jobs", "1")
	req.URL.RawQuery = q.Encode()
	return req
}

// pollFailed stops the worker where another poll would fail as well.
func (g *pollGate) pollFailed(err error) {
	g.failures++
	if cli.CertificateRejected(err) {
		g.stopWith(cli.ExitServer,
			fmt.Errorf("the server's certificate is not trusted (--cacert or %s): %w",
				cli.EnvCACert, err))
	}
	g.notHTTP++
	g.mayBeHTTP = g.mayBeHTTP || !isNotHTTP(err)
	if !g.mayBeHTTP && g.notHTTP >= maxNotHTTP {
		g.stopWith(cli.ExitServer,
			fmt.Errorf("the server does not speak HTTP (--server or %s): %w",
				cli.EnvServer, err))
	}
	if g.untilEmpty && g.failures >= maxUnansweredPolls {
		g.stopWith(cli.ExitServer, cli.UnreachableError(err))
	}
}

// pollAnswered counts the jobs of an answer. It stops the worker when the queue is empty, and when
// the answer is a refusal that every other poll would get as well.
func (g *pollGate) pollAnswered(resp *http.Response, jobs int, wasIdle bool) {
	g.failures, g.mayBeHTTP = 0, true
	switch status := resp.StatusCode; {
	case isForeign(resp):
		g.stopWith(cli.ExitServer, fmt.Errorf("%w (--server or %s): %d %s",
			client.ErrNotMillrace, cli.EnvServer, status, http.StatusText(status)))
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
		g.stopWith(cli.ExitUnauthorized,
			fmt.Errorf("the server refuses the token (--token or MILLRACE_TOKEN): %d %s%s", status,
				http.StatusText(status), answeredBy(resp)))
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests &&
		status != http.StatusRequestTimeout:
		g.stopWith(cli.ExitFailed, fmt.Errorf("the server refuses the poll: %d %s%s", status,
			http.StatusText(status), refusalText(resp)))
	}
}

// answeredBy names the server of an answer; empty for one of a test that names none.
func answeredBy(resp *http.Response) string {
	if resp.Request == nil {
		return ""
	}
	return fmt.Sprintf(" (the answer of %s://%s)", resp.Request.URL.Scheme, resp.Request.URL.Host)
}

// isForeign reports whether another server than Millrace has answered, with a page. A gateway
// answers with a page of its own while the server is unavailable.
func isForeign(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return false
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind == "text/html"
}

// refusalText returns the message of a refusal with a colon before it: the detail of a problem
// document, or plain text. It is empty for anything else, such as the page of a proxy. The worker
// can still read the answer.
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
	default:
		return ""
	}
	if message = strings.TrimSpace(message); message == "" {
		return ""
	}
	return ": " + cli.Printable(message)
}

// stopWith stops the worker with an error and the exit code of the command. The first error counts.
func (g *pollGate) stopWith(code int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopReason == nil {
		g.stopReason = cli.WithCode(code, err)
	}
	g.stop()
}

// stopError returns the error that stopped the worker, nil if it was not stopped by one.
func (g *pollGate) stopError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopReason
}

// countJob counts a job whose command is about to be run.
func (g *pollGate) countJob() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.jobs++
}

// jobCount returns how many jobs countJob has counted.
func (g *pollGate) jobCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.jobs
}

// runStarted counts a job as running.
func (g *pollGate) runStarted() { g.addRunning(1) }

// runFinished counts a job as not running any more.
func (g *pollGate) runFinished() { g.addRunning(-1) }

// addRunning changes the number of running jobs.
func (g *pollGate) addRunning(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running += n
}

// idle reports whether no job is running.
func (g *pollGate) idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.running == 0
}
