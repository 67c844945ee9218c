package simulate

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/clock"
)

// Scenarios wait for their jobs in two ways. Webhooks bring each state as soon as it is reached;
// the server is only asked when none has come for pollInterval, because a simulation has thousands
// of jobs and each client has a rate limit.
//
// This file also records when the server was unavailable. Every request goes through an
// outageTransport, and a probe holds a connection open all the time, so that an outage is seen even
// if no request is under way. The audit accepts lost runs in an outage and nowhere else.

// jobWatches holds the latest known state of each job, from the webhooks that arrive. An event of a
// job may arrive before the answer to its submission.
type jobWatches struct {
	mu   sync.Mutex
	jobs map[string]*jobWatch // by id
}

// jobWatch is the latest known state of one job. The lock of jobWatches guards it.
type jobWatch struct {
	state client.ForgeRunState
	// at is when the job entered it, by the clock of the server.
	at time.Time
	// changed is closed when a later state is recorded.
	changed chan struct{}
}

// get returns the watch of a job, which it makes if there is none. The caller holds the lock.
func (w *jobWatches) get(jobID string) *jobWatch {
	watch := w.jobs[jobID]
	if watch == nil {
		watch = &jobWatch{changed: make(chan struct{})}
		w.jobs[jobID] = watch
	}
	return watch
}

// record records a state and when the job entered it, unless a later state is known. Webhooks of
// several receivers and answers bring the same state: only the first wakes those that wait.
func (w *jobWatches) record(jobID string, state client.ForgeRunState, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.get(jobID)
	if !at.After(watch.at) {
		return
	}
	watch.state, watch.at = state, at
	close(watch.changed)
	watch.changed = make(chan struct{})
}

// latest returns the latest known state, when the job entered it, and a channel that is closed when
// a later one is recorded. The state is empty while none is known.
func (w *jobWatches) latest(jobID string) (client.ForgeRunState, time.Time, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.get(jobID)
	return watch.state, watch.at, watch.changed
}

// pollInterval is how long a job may go without an event before the server is asked for its state.
const pollInterval = 10 * time.Second

// await waits until a job is in a state for which until returns true and that it entered after
// since. A zero since accepts a state of any time. It asks the server when no webhook has come for
// pollInterval.
func (s *simulator) await(ctx context.Context, c *forgeClient, jobID string, since time.Time,
	until func(client.ForgeRunState) bool) (client.ForgeRunState, time.Time, error) {
	for {
		state, at, changed := s.watches.latest(jobID)
		if at.After(since) && until(state) {
			return state, at, nil
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-changed:
			timer.Stop()
			continue
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return state, at, context.Cause(ctx)
		}
		var job client.ForgeRunJob
		err := c.call(ctx, func() (err error) {
			job, err = c.forge.Get(ctx, jobID)
			return err
		})
		if err != nil {
			return state, at, err
		}
		s.watches.record(jobID, job.State, job.UpdatedAt)
	}
}

// outageLog records when the server could not be reached.
type outageLog struct {
	now     func() time.Time
	mu      sync.Mutex
	outages []outage
	// limited counts answers 429.
	limited int
	// full counts answers 503.
	full int
}

// mergeWindow is the time between two failures up to which they belong to one outage. It is longer
// than the pauses between the tries of the probe and of requests, so that a server that stays
// unavailable is one outage.
const mergeWindow = 2 * time.Second

// record records a failure that began at a time and was noticed now. A failure soon after the last
// one extends its outage.
func (o *outageLog) record(started time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if last := len(o.outages) - 1; last >= 0 && started.Sub(o.outages[last].to) < mergeWindow {
		o.outages[last].to = now
		return
	}
	o.outages = append(o.outages, outage{started, now})
}

// counts returns the outages so far, and how many answers had status 429 and 503.
func (o *outageLog) counts() (outages []outage, limited, full int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]outage(nil), o.outages...), o.limited, o.full
}

// outageTransport records failed requests and refusals in an outageLog.
type outageTransport struct {
	http.RoundTripper
	outages *outageLog
}

// RoundTrip sends a request. A request that the caller gave up is no failure of the server.
func (w outageTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	started := w.outages.now()
	resp, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		if r.Context().Err() == nil {
			w.outages.record(started)
		}
		return resp, err
	}
	w.outages.countStatus(resp.StatusCode)
	return resp, nil
}

// countStatus counts an answer if it refuses for the time being.
func (o *outageLog) countStatus(status int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch status {
	case http.StatusTooManyRequests:
		o.limited++
	case http.StatusServiceUnavailable:
		o.full++
	}
}

// probe keeps a connection to the server open until ctx ends. It records an outage also while no
// request is under way, and also one so short that no request fails. A failed connection is tried
// again after a tenth of a second.
func (o *outageLog) probe(ctx context.Context, address string) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	for ctx.Err() == nil {
		failedAt, err := o.probeOnce(ctx, dialer, address)
		if err != nil && ctx.Err() == nil {
			o.record(failedAt)
			clock.Sleep(ctx, 100*time.Millisecond)
		}
	}
}

// probeOnce connects and holds the connection open. If it fails, failedAt is when the outage began.
func (o *outageLog) probeOnce(ctx context.Context, dialer net.Dialer, address string) (
	failedAt time.Time, err error) {
	started := o.now()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return started, err
	}
	err = holdOpen(ctx, conn)
	return o.now(), err
}

// holdOpen keeps a connection open for a second without sending anything. No server closes a new
// connection that soon: a connection that is closed has ended with its server, which is an error.
func holdOpen(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return cmp.Or(err, errors.New("the server sent data before a request"))
	}
	return nil
}

// hostPort returns the address of a URL's host, with the port of its scheme if it names none.
func hostPort(scheme, host string) string {
	_, _, err := net.SplitHostPort(host)
	if err != nil { // there is no port
		return net.JoinHostPort(strings.Trim(host, "[]"),
			map[string]string{"http": "80", "https": "443"}[scheme])
	}
	return host
}
