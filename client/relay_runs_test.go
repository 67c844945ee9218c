package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// Several runs are completed and renewed in one request, each as if it were alone, and answered in
// order.
func TestRelay_CompleteAll(t *testing.T) {
	t.Parallel()
	baseURL, end := exampleServer()
	t.Cleanup(end)
	ctx, relay := t.Context(), mustClient(t, client.Config{BaseURL: baseURL}).Relay()
	var runs []client.RelayRun
	for _, queue := range []string{"completions", `q / "ü" %2F`} {
		mustEnqueue(t, relay, relaySpec(queue, "../1"), relaySpec(queue, "2\t<>&"))
		jobs, err := relay.Claim(ctx, queue, 2, 0)
		must(t, err)
		for _, job := range jobs {
			runs = append(runs, job.Run())
		}
	}
	lost := runs[0]
	lost.RunID = "12345678-1234-8123-8123-123456789abc"
	known, err := relay.HeartbeatAll(ctx, []client.RelayHeartbeat{
		{RelayRun: runs[0], State: json.RawMessage(`{"at" : 1.0}`)}, {RelayRun: lost},
		{RelayRun: runs[3]}, {RelayRun: runs[0]}})
	if err != nil || !slices.Equal(known, []bool{true, false, true, true}) {
		t.Errorf("HeartbeatAll = %v, %v", known, err)
	}
	job, err := relay.Get(ctx, runs[0].Queue, runs[0].ID)
	if err != nil || string(job.State) != `{"at" : 1.0}` {
		t.Errorf("the state is %s, %v", job.State, err)
	}
	known, err = relay.CompleteAll(ctx, []client.RelayRun{runs[1], lost, runs[0], runs[1], runs[2],
		runs[3]})
	if err != nil || !slices.Equal(known, []bool{true, false, true, false, true, true}) {
		t.Errorf("CompleteAll = %v, %v", known, err)
	}
	for _, run := range runs {
		mustExist(t, relay, run.Queue, run.ID, false)
	}
	known, err = relay.HeartbeatAll(ctx, []client.RelayHeartbeat{{RelayRun: runs[0]}})
	if err != nil || !slices.Equal(known, []bool{false}) {
		t.Errorf("HeartbeatAll of an ended run = %v, %v", known, err)
	}
	for name, got := range map[string]func() ([]bool, error){
		"CompleteAll":  func() ([]bool, error) { return relay.CompleteAll(ctx, nil) },
		"HeartbeatAll": func() ([]bool, error) { return relay.HeartbeatAll(ctx, nil) },
	} {
		if known, err := got(); known != nil || err != nil {
			t.Errorf("%s of nothing = %v, %v", name, known, err)
		}
	}
}

// What is wrong in one entry is named by its index, here or by the server, and nothing changes.
func TestRelay_CompleteAllRefused(t *testing.T) {
	t.Parallel()
	baseURL, end := exampleServer()
	t.Cleanup(end)
	ctx, relay := t.Context(), mustClient(t, client.Config{BaseURL: baseURL}).Relay()
	mustEnqueue(t, relay, relaySpec("q", "1"))
	good := mustNext(t, relay, "q").Run()
	for name, entry := range map[string]client.RelayHeartbeat{
		"no queue":        {RelayRun: client.RelayRun{ID: "1", RunID: good.RunID}},
		"no id":           {RelayRun: client.RelayRun{Queue: "q", RunID: good.RunID}},
		"no run id":       {RelayRun: client.RelayRun{Queue: "q", ID: "1"}},
		"not a UUID":      {RelayRun: client.RelayRun{Queue: "q", ID: "1", RunID: "x"}},
		"too long":        {RelayRun: client.RelayRun{Queue: "q", ID: longName, RunID: good.RunID}},
		"state not JSON":  {RelayRun: good, State: json.RawMessage(`{`)},
		"state not UTF-8": {RelayRun: good, State: json.RawMessage("\"\xff\"")},
	} {
		known, err := relay.HeartbeatAll(ctx, []client.RelayHeartbeat{{RelayRun: good,
			State: json.RawMessage("1")}, entry})
		if known != nil || !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: HeartbeatAll = %v, %v", name, known, err)
		}
		if name != "state not UTF-8" && !strings.Contains(err.Error(), "run 1: ") {
			t.Errorf("%s: %v does not name the entry", name, err)
		}
		if entry.State != nil {
			continue
		}
		known, err = relay.CompleteAll(ctx, []client.RelayRun{good, entry.RelayRun})
		if known != nil || !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: CompleteAll = %v, %v", name, known, err)
		}
	}
	if job, err := relay.Get(ctx, "q", "1"); err != nil || job.State != nil {
		t.Errorf("the job is %+v, %v", job, err)
	}
}

var longName = strings.Repeat("x", 1025)

// A try whose answer was lost is repeated, and the runs that it has ended are not known then. An
// answer that is not about the runs may come from anything: whether they have ended is uncertain.
func TestRelay_CompleteAllUncertain(t *testing.T) {
	t.Parallel()
	d := newFakeRelay()
	relay := mustRelay(t, d, client.Config{Retry: client.Retry{MaxTries: 3,
		BaseDelay: time.Nanosecond}})
	mustEnqueue(t, relay, relaySpec("q", "1"), relaySpec("q", "2"))
	runs := []client.RelayRun{mustNext(t, relay, "q").Run(), mustNext(t, relay, "q").Run()}
	d.inject(injectedFault{on: "heartbeats", drop: true, after: true})
	known, err := relay.HeartbeatAll(t.Context(), []client.RelayHeartbeat{{RelayRun: runs[0]}})
	if err != nil || !slices.Equal(known, []bool{true}) {
		t.Errorf("HeartbeatAll = %v, %v", known, err)
	}
	for _, body := range []string{``, `null`, `[]`, `{}`, `[{}]`, `[{"known":true}]`,
		`[{"id":"1","run_id":"` + runs[0].RunID + `"}]`,
		`[{"id":"2","run_id":"` + runs[0].RunID + `","known":true}]`} {
		d.inject(injectedFault{on: "completions", status: 200, body: body})
		var fail *client.Error
		known, err := relay.CompleteAll(t.Context(), runs[:1])
		if known != nil || !errors.As(err, &fail) || !fail.Uncertain || fail.Retryable() {
			t.Errorf("answer %q: CompleteAll = %v, %v", body, known, err)
		}
	}
	d.inject(injectedFault{on: "completions", drop: true, after: true})
	known, err = relay.CompleteAll(t.Context(), runs)
	if err != nil || !slices.Equal(known, []bool{false, false}) {
		t.Errorf("CompleteAll = %v, %v", known, err)
	}
	for _, r := range d.requestsOf("completions") {
		if r.method != http.MethodPost || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("the request was %s with %v", r.method, r.header)
		}
	}
	d.inject(injectedFault{on: "completions", status: 404})
	if _, err := relay.CompleteAll(t.Context(), runs); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("without the route: %v", err)
	}
}
