package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/testkit"
)

// eventView is a live event.
type eventView struct {
	Kind, ID string
	Data     struct {
		Queues []struct {
			Contract, Queue string
			Ready, Leased   int64
		}
		Number int64
		State  string
		BulkID string `json:"bulk_id"`
	}
}

// events is an open answer of live events.
type events struct {
	*testing.T
	lines *bufio.Reader
	leave func()
}

// openEvents opens the live events. header are pairs.
func openEvents(t *testing.T, w *world, query string, header ...string) *events {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, "GET", w.URL+"/admin/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+readToken)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if req.Header.Get("Cookie") != "" {
		req.Header.Del("Authorization")
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" ||
		resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("got %d, %v", resp.StatusCode, resp.Header)
	}
	strictHeaders(t, "events", resp.Header)
	return &events{t, bufio.NewReader(resp.Body), leave}
}

// next reads the next event, with the kind "" for a comment; false at the end of the answer.
func (e *events) next() (got eventView, ok bool) {
	e.Helper()
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return got, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "event":
			got.Kind = value
		case "id":
			got.ID = value
		case "data":
			if err := json.Unmarshal([]byte(value), &got.Data); err != nil {
				e.Errorf("%s: %v", line, err)
			}
		case "":
			return got, true
		case ":":
		default:
			e.Errorf("an unknown line %q", line)
		}
	}
}

// want reads events up to one with an id and compares their kinds.
func (e *events) want(kinds ...string) (all []eventView) {
	e.Helper()
	var got []string
	for len(got) == 0 || all[len(all)-1].ID == "" {
		event, ok := e.next()
		if !ok {
			e.Fatalf("the events end behind %v, want %v", got, kinds)
		}
		all, got = append(all, event), append(got, event.Kind)
		if event.Kind == "" {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(kinds) {
		e.Fatalf("got the events %+v, want %v", all, kinds)
	}
	return all
}

// readLive reads the store for those who watch.
func (w *world) readLive(t *testing.T) {
	t.Helper()
	if err := w.api.Live.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// awaitWatches waits until so many watch.
func (w *world) awaitWatches(t *testing.T, n int) {
	t.Helper()
	testkit.WaitUntil(t, fmt.Sprint(n, " to watch"), func() bool { return w.api.Live.Watches() == n })
}

// AD-061, G-AD-15: what changes is sent and nothing else, an event is gone on behind, and from a
// node that has not sent it there is a reset first.
func TestEvents(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		first := w.submitJob(t, "taskflow", `{"name":"a","queue":"one"}`, "")
		query := fmt.Sprintf("?number=%d,999999", first.Number)
		all := openEvents(t, w.world, query)
		w.readLive(t)
		got := all.want("counts", "job", "job")
		if q := got[0].Data.Queues; len(q) != 1 || q[0].Queue != "one" || q[0].Ready != 1 {
			t.Errorf("got the queues %+v", q)
		}
		if got[1].Data.Number != first.Number || got[1].Data.State != "READY" ||
			got[2].Data.Number != 999999 || got[2].Data.State != "gone" {
			t.Errorf("got the jobs %+v", got[1:])
		}
		w.submitJob(t, "taskflow", `{"name":"b","queue":"two"}`, "")
		w.readLive(t)
		if q := all.want("counts")[0].Data.Queues; len(q) != 1 || q[0].Queue != "two" {
			t.Errorf("the queue that has not changed is told again: %+v", q)
		}
		w.readLive(t)
		w.claim(t, "taskflow")
		w.readLive(t)
		got = all.want("counts", "job")
		if got[0].Data.Queues[0].Leased != 1 || got[1].Data.State != "RUNNING" {
			t.Errorf("got %+v", got)
		}
		last := got[1].ID
		all.leave()
		w.awaitWatches(t, 0)
		id := w.startBulk(t, "/admin/v1/bulk", `{"action":"rerun","filter":{"queue":"two"}}`)
		again := openEvents(t, w.world, query, "Last-Event-ID", last)
		w.readLive(t)
		got = again.want("counts", "job", "job", "bulk")
		if q := got[0].Data.Queues; len(q) != 1 || q[0].Contract != "bulk" ||
			got[3].Data.BulkID != id {
			t.Errorf("it goes on with %+v", got)
		}
		again.leave()
		for _, foreign := range []string{"another/7", "x", w.engine.Node() + "/99999"} {
			e := openEvents(t, w.world, "", "Last-Event-ID", foreign)
			w.readLive(t)
			if got := e.want("reset", "counts", "bulk"); len(got[1].Data.Queues) != 3 {
				t.Errorf("behind a reset there is %+v", got)
			}
			e.leave()
		}
		w.awaitWatches(t, 0)
	})
}

// AD-061: events need credentials and end with them; what is wrong in the request is refused, and
// HEAD goes where GET goes.
func TestEventsAccess(t *testing.T) {
	t.Parallel()
	w := inMemory(t, nil)
	const path = "/admin/v1/events"
	for _, token := range []string{"", "wrong"} {
		w.do(t, token, "GET", path, "").WantError(t, 401, "UNAUTHORIZED")
	}
	for _, number := range []string{"0", "-1", "x", "1,", "1,,2", "99999999999999999999",
		strings.Repeat("1,", 100) + "1"} {
		w.do(t, readToken, "GET", path+"?number="+number, "").WantError(t, 400, "VALIDATION_ERROR",
			"number")
	}
	w.do(t, readToken, "HEAD", path, "").WantStatus(t, 200).WantEmpty(t)
	e := openEvents(t, w, "", "Authorization", "Bearer "+w.api.Token())
	w.do(t, w.api.Token(), "POST", "/admin/v1/token/rotate", "").WantStatus(t, 200)
	w.readLive(t)
	if got, ok := e.next(); ok {
		t.Errorf("after the rotation of its token there is %+v", got)
	}
	w.awaitWatches(t, 0)
}

// AD-004, AD-061: the events of a session end with it, by a logout and by its expiry, at the next
// reading also where nothing else has changed. Those of another caller go on.
func TestEventsOfSession(t *testing.T) {
	onEveryStore(t, func(t *testing.T, w *world) {
		for name, end := range map[string]func(session []string){
			"logout": func(session []string) {
				w.form(t, "/console/logout", "", session...).WantStatus(t, 303)
			},
			"expiry": func([]string) { w.clock.Advance(12*time.Hour + time.Minute) },
		} {
			session := with(w.login(t, "token="+w.api.Token()))
			kept, ends := openEvents(t, w, ""), openEvents(t, w, "", session...)
			w.awaitWatches(t, 2)
			w.readLive(t)
			kept.want("")
			ends.want("")
			end(session)
			w.readLive(t)
			if got, ok := ends.next(); ok {
				t.Errorf("after the %s there is %+v", name, got)
			}
			w.awaitWatches(t, 1)
			kept.leave()
			w.awaitWatches(t, 0)
		}
	})
}

// AD-061: 200 callers share one reading of the store, and the answers of all end when the node
// stops.
func TestEventsOfMany(t *testing.T) {
	withJobs(t, func(t *testing.T, w *jobsWorld) {
		w.submitJob(t, "taskflow", `{"name":"a","queue":"one"}`, "")
		var all []*events
		for range 200 {
			all = append(all, openEvents(t, w.world, "?number=1"))
		}
		w.awaitWatches(t, 200)
		w.readLive(t) // the one reading
		for _, e := range all {
			e.want("counts", "job")
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		w.api.Live.Run(ctx)
		for _, e := range all {
			if got, ok := e.next(); ok {
				t.Fatalf("after the stop there is %+v", got)
			}
		}
		w.awaitWatches(t, 0)
		w.do(t, readToken, "GET", "/admin/v1/events", "").WantError(t, 503, "UNAVAILABLE")
	})
}

// deafWriter is the connection of a caller that does not read: a write waits for its deadline.
type deafWriter struct {
	*httptest.ResponseRecorder
	bounded bool
}

func (d *deafWriter) SetReadDeadline(time.Time) error { return nil }

func (d *deafWriter) SetWriteDeadline(at time.Time) error {
	d.bounded = !at.IsZero()
	return nil
}

func (d *deafWriter) Write(text []byte) (int, error) {
	switch {
	case len(text) == 0:
		return 0, nil
	case d.bounded:
		return 0, os.ErrDeadlineExceeded
	}
	select {} // nothing would ever end it
}

// AD-061: a caller that does not read is cut off, and nothing waits for it.
func TestEventsOfTheDeaf(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	var api *admin.API
	w := newWorld(t, p.Store, p.Clock, nil)
	api = w.api
	handler := handlerOf(api)
	deaf := &deafWriter{ResponseRecorder: httptest.NewRecorder()}
	req := httptest.NewRequestWithContext(t.Context(), "GET", "/admin/v1/events?number=1", nil)
	req.Header.Set("Authorization", "Bearer "+readToken)
	ended := make(chan struct{})
	go func() { defer close(ended); handler.ServeHTTP(deaf, req) }()
	w.awaitWatches(t, 1)
	w.readLive(t)
	<-ended
	w.awaitWatches(t, 0)
}

// handlerOf mounts an API once more.
func handlerOf(api *admin.API) http.Handler {
	return httpapi.NewMux(api.Mount(console.New(api)))
}
