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
)

// jobWatches know how far each job is, by the webhooks that come in. A job may be heard of before
// its submit is answered.
type jobWatches struct {
	mu   sync.Mutex
	jobs map[string]*jobWatch
}

// jobWatch is how far one job is. It is changed under the lock of all.
type jobWatch struct {
	state   client.ForgeRunState
	at      time.Time     // of the event, by the server
	changed chan struct{} // closed by the next change
}

func (w *jobWatches) get(jobID string) *jobWatch {
	watch := w.jobs[jobID]
	if watch == nil {
		watch = &jobWatch{changed: make(chan struct{})}
		w.jobs[jobID] = watch
	}
	return watch
}

// tell notes a state. Older news than what is known changes nothing.
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

func (w *jobWatches) latest(jobID string) (client.ForgeRunState, time.Time, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.get(jobID)
	return watch.state, watch.at, watch.changed
}

// quiet is how long nothing may be heard of a job before the server is asked about it.
const pollAfter = 10 * time.Second

// await waits until a job is in a state that will do, and was moved there after since; a zero time
// is any.
func (s *simulator) await(ctx context.Context, c *forgeClient, jobID string, since time.Time,
	until func(client.ForgeRunState) bool) (client.ForgeRunState, time.Time, error) {
	for {
		state, at, changed := s.watches.latest(jobID)
		if at.After(since) && until(state) {
			return state, at, nil
		}
		timer := time.NewTimer(pollAfter)
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

// outageLog notes when the server could not be reached.
type outageLog struct {
	now     func() time.Time
	mu      sync.Mutex
	outages []outage
	limited int // answers 429
	full    int // answers 503
}

// mergeWindow is how far apart two failures may be and still be of one outage.
const mergeWindow = 2 * time.Second

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

func (o *outageLog) counts() (outages []outage, limited, full int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]outage(nil), o.outages...), o.limited, o.full
}

// watched is a transport that notes what the account needs to know.
type outageTransport struct {
	http.RoundTripper
	outages *outageLog
}

func (w outageTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	started := w.outages.now()
	resp, err := w.RoundTripper.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		w.outages.record(started)
	}
	if err == nil {
		w.outages.mu.Lock()
		defer w.outages.mu.Unlock()
		switch resp.StatusCode {
		case http.StatusTooManyRequests:
			w.outages.limited++
		case http.StatusServiceUnavailable:
			w.outages.full++
		}
	}
	return resp, err
}

// requestCheck is connected to the server all the time, so that an outage is noticed also while
// nothing is asked of it, and however soon the server is back.
func (o *outageLog) probe(ctx context.Context, address string) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	for ctx.Err() == nil {
		started := o.now()
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			if err = holdOpen(ctx, conn); err != nil {
				started = o.now()
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		o.record(started)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// holdOpen says nothing on a connection for a second. Every server has the patience for that: one
// that is closed ended with its process, and is an error.
func holdOpen(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return cmp.Or(err, errors.New("the server speaks first"))
	}
	return nil
}

// hostPort is the address behind a URL's scheme and host.
func hostPort(scheme, host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"),
		map[string]string{"http": "80", "https": "443"}[scheme])
}
