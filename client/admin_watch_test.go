package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/console"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/httpapi"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/testkit"
)

// eventContract has jobs that are ready.
var eventContract = engine.JobType{Name: "a", Machine: job.MustMachine(
	map[job.State]job.Phase{"queued": job.Ready, "running": job.Leased}, []job.Transition{
		{From: job.StateNone, On: job.Submitted, To: "queued"},
		{From: "queued", On: job.Claimed, To: "running"},
		{From: "running", On: job.Expired, To: "queued"},
		{From: "running", On: job.Succeeded, To: job.StateNone}})}

// TestAdminEvents follows events over a restart of the server, which begins with a reset, and ends
// with the caller (AD-061, G-AD-15).
func TestAdminEvents(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	file := filepath.Join(t.TempDir(), "operator.token")
	node := func(t *testing.T) (*admin.API, *engine.Engine) {
		e := testkit.NewEngine(t, p.Store, p.Clock, eventContract)
		api, err := admin.New(admin.Config{Engine: e, Log: slog.New(slog.DiscardHandler),
			Now: p.Clock.Now, Elapsed: p.Clock.Monotonic, Pepper: []byte(strings.Repeat("p", 32)),
			TokenFile: file, AuditRetention: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := api.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		return api, e
	}
	api, e := node(t)
	submit := func(key string) {
		t.Helper()
		if _, err := e.Submit(t.Context(), engine.Unique, []engine.Submission{{Job: job.Job{
			ID: job.ID{JobType: "a", Key: key}, Queue: key}}}); err != nil {
			t.Fatal(err)
		}
	}
	submit("one")
	server := httptest.NewServer(httpapi.NewMux(api.Mount(console.New(api))))
	defer server.Close()
	c, err := client.New(client.Config{BaseURL: server.URL, Token: api.Token()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	running, stop := context.WithCancel(ctx)
	defer stop()
	go api.Live.Run(running)
	var kinds []string
	for event, err := range c.Admin().Watch(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(event.Kind))
		switch strings.Join(kinds, " ") {
		case "counts":
			if len(event.Queues) != 1 || event.Queues[0].Ready != 1 {
				t.Errorf("got %+v", event)
			}
		case "counts job":
			if event.Job.Number != 1 || event.Job.State != "queued" {
				t.Errorf("got %+v", event.Job)
			}
			submit("two")
		case "counts job counts":
			if len(event.Queues) != 1 || event.Queues[0].Queue != "two" {
				t.Errorf("got %+v", event)
			}
			stop() // the node stops, and another one takes its place
			api, e = node(t)
			server.Config.Handler = httpapi.NewMux(api.Mount(console.New(api)))
			go api.Live.Run(ctx)
		case "counts job counts reset counts":
			if len(event.Queues) != 2 {
				t.Errorf("got %+v", event)
			}
			cancel()
		}
		if ctx.Err() != nil {
			break
		}
	}
	if got := strings.Join(kinds, " "); got != "counts job counts reset counts" {
		t.Errorf("got the events %s", got)
	}
	wrong, err := client.New(client.Config{BaseURL: server.URL, Token: "wrong"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range wrong.Admin().Watch(t.Context()) {
		if !errors.Is(err, client.ErrUnauthorized) {
			t.Errorf("got %v", err)
		}
	}
}

// Comments may be anywhere and end no event, and the space behind a colon may be missing (AD-061).
func TestAdminEventsWithComments(t *testing.T) {
	t.Parallel()
	const stream = ": welcome\n\nevent: job\n: here it comes\nid:n/7\n:\n" +
		"data: {\"number\":7,\"state\":\"queued\"}\n\n" +
		"event:counts\n:between\ndata:{\"queues\":[{\"queue\":\"mail\",\"ready\":2}]}\n\n"
	last := make(chan string, 9)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		last <- r.Header.Get("Last-Event-ID")
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, stream)
	}))
	defer server.Close()
	c, err := client.New(client.Config{BaseURL: server.URL, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var got []client.AdminUpdate
	for event, err := range c.Admin().Watch(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, event); len(got) == 4 {
			break
		}
	}
	for i, event := range got {
		isJob := event.Kind == client.AdminUpdateJob && event.Job.Number == 7 &&
			event.Job.State == "queued"
		isCounts := event.Kind == client.AdminUpdateCounts && len(event.Queues) == 1 &&
			event.Queues[0].Ready == 2
		if (i%2 == 0 && !isJob) || (i%2 == 1 && !isCounts) {
			t.Errorf("event %d is %+v", i, event)
		}
	}
	if first, second := <-last, <-last; first != "" || second != "n/7" {
		t.Errorf("the streams went on behind %q and %q", first, second)
	}
}
