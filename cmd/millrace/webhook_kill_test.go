package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/testkit/outside"
)

// TestKilledWebhooks (WH-004, WH-005): jobs of all contracts succeed, fail, are retried and deleted
// while the nodes are killed with SIGKILL, and receivers stall, refuse and answer 5xx. Every change
// of every job comes to every webhook of operators that wants it at least once, and to the callback
// of the job, in order for each job. What is every change is read from the history in the database;
// of jobs that leave none it must be a whole life. MILLRACE_TEST_WEBHOOK_KILLS is how often nodes
// are killed at full size.
func TestKilledWebhooks(t *testing.T) {
	t.Parallel()
	kills, _ := testkit.Size(t, "MILLRACE_TEST_WEBHOOK_KILLS", 3)
	nats, s3 := outside.NewNATS(t, ""), outside.NewS3(t, "millrace")
	for name, nodes := range map[string]int{"sqlite": 1, "postgres": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--set", "forgerun.duration_scale=0.05", "--set", "forgerun.lease=2s",
				"--set", "forgerun.heartbeat=500ms", "--set", "taskflow.lease=2s", "--set",
				"fetchbox.lease=2s", "--set", "fetchbox.backoff_base=10ms", "--set",
				"images.lock_timeout=2s", "--set", "images.max_attempts=10", "--set",
				"images.sizes=16", "--set", "webhook.timeout=1s", "--set", "webhook.max_tries=100",
				"--set", "webhook.backoff_base=50ms", "--set", "webhook.backoff_max=500ms"}
			if nodes > 1 {
				args = append(args, "--set", "stream.url="+nats.URL, "--set",
					"objects.url="+s3.Setting())
			}
			w := &killedHooks{killedNodes: startNodes(t, nodes, nil, args...),
				kills: kills}
			if nodes > 1 {
				w.db = pgtest.DB(t, w.store)
			} else {
				var err error
				w.db, err = sql.Open("sqlite", filepath.Join(w.dirs[0], "millrace.db"))
				w.must(err)
				t.Cleanup(func() { _ = w.db.Close() })
			}
			w.subscribe()
			w.workUnderKills()
			w.wantEvents()
			w.killedNodes.stop()
		})
	}
}

// killedHooks is the state of TestKilledWebhooks.
type killedHooks struct {
	*killedNodes
	kills   int
	forge   *client.ForgeRun
	db      *sql.DB
	site    *origin
	killing atomic.Bool // nodes are still killed
	stop    context.CancelFunc

	all    []*hookReceiver          // of webhooks of operators that want everything
	some   *hookReceiver            // of one that wants the events of two contracts
	called map[string]*hookReceiver // of callbacks, by contract

	mu        sync.Mutex // guards what follows
	submitted map[string][]string
	attempts  map[string]int // of jobs of Relay and TaskFlow
}

// subscribe makes receivers and webhooks of operators. One stalls now and then, one refuses all
// connections while nodes are killed, one answers 5xx, and one accepts what it gets.
func (w *killedHooks) subscribe() {
	w.submitted, w.attempts = map[string][]string{}, map[string]int{}
	w.called = map[string]*hookReceiver{}
	w.killing.Store(true)
	accepting := func(int, bool) fault { return accepts }
	failing := func(n int, isFirst bool) fault {
		if isFirst && n%3 == 0 {
			return []fault{http.StatusServiceUnavailable, http.StatusInternalServerError,
				http.StatusBadGateway}[n%9/3]
		}
		return accepts
	}
	w.all = []*hookReceiver{newHookReceiver(w.T, "failing", failing),
		newHookReceiver(w.T, "stalling", func(n int, _ bool) fault {
			if n%29 == 0 {
				return stalls
			}
			return accepts
		}),
		newHookReceiver(w.T, "refusing", func(int, bool) fault {
			if w.killing.Load() {
				return refuses
			}
			return accepts
		})}
	w.some = newHookReceiver(w.T, "accepting", accepting)
	for _, r := range w.all {
		w.create(r, client.AdminWebhookSpec{Events: []string{"*"}, IncludePayload: ref(true)})
	}
	w.create(w.some, client.AdminWebhookSpec{Events: []string{"*"},
		Contracts: &[]string{"images", "relay"}})
	for _, contract := range hookedContracts {
		w.called[contract] = newHookReceiver(w.T, "callbacks of "+contract, failing)
	}
	w.forge = w.forgeClient()
	w.site = newOrigin(w.T, func(out http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/gone"):
			http.NotFound(out, r)
		case strings.HasSuffix(path, "/once") && w.attempt(path) == 1:
			out.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(out, bodyOf(path))
		}
	})
}

// hookedContracts are all contracts.
var hookedContracts = []string{"forgerun", "taskflow", "fetchbox", "images", "relay"}

// create makes a webhook of operators.
func (w *killedHooks) create(r *hookReceiver, spec client.AdminWebhookSpec) {
	w.Helper()
	spec.URL, spec.MaxInFlight = &r.URL, ref(32)
	_, _, err := w.admin().CreateWebhook(w.Context(), spec, "")
	w.must(err)
}

func (w *killedHooks) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// attempt counts what is tried under a name, and returns how often that was.
func (w *killedHooks) attempt(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[name]++
	return w.attempts[name]
}

// workUnderKills submits jobs and works while the nodes are killed in turn.
func (w *killedHooks) workUnderKills() {
	ctx, stop := context.WithCancel(w.Context())
	w.stop = stop
	w.Cleanup(stop)
	var workers sync.WaitGroup
	workers.Go(func() { w.work(ctx, w.workTaskFlow) })
	workers.Go(func() { w.work(ctx, w.workRelay) })
	w.Cleanup(workers.Wait)
	for kill := range w.kills {
		var submitter sync.WaitGroup
		half := make(chan struct{})
		submitter.Go(func() { w.submit(kill, half) })
		<-half
		w.kill(kill)
		submitter.Wait()
	}
	w.killing.Store(false)
}

// submit submits jobs of all contracts, and closes half when half of them are accepted.
func (w *killedHooks) submit(round int, half chan<- struct{}) {
	const jobs = 3
	for i := range 2 * jobs {
		if i == jobs {
			close(half)
		}
		name := fmt.Sprintf("%d-%d", round, i)
		for _, contract := range hookedContracts {
			id, err := w.submitOne(contract, name, i)
			if err != nil {
				w.Errorf("%s %s: %v", contract, name, err)
			}
			w.mu.Lock()
			w.submitted[contract] = append(w.submitted[contract], id)
			w.mu.Unlock()
		}
	}
}

// submitOne submits job i of a round, with a callback. Some will fail; some jobs of Relay are
// deleted at once.
func (w *killedHooks) submitOne(contract, name string, i int) (id string, err error) {
	ctx, c, callback := w.Context(), w.client(), w.called[contract].URL
	switch contract {
	case "forgerun":
		made, err := w.forge.Submit(ctx, client.ForgeRunSpec{Type: "EXECUTE",
			Kind:     []client.ForgeRunWorkKind{"SUCCESS_FAST", "FAIL_IMMEDIATE"}[i%2],
			Callback: callback})
		return made.JobID, err
	case "taskflow":
		made, err := c.TaskFlow().SubmitOnce(ctx, name, client.TaskFlowSpec{Name: name, Queue: "q",
			Retry: client.TaskFlowRetryPolicy{MaxAttempts: 10,
				Strategy:  client.TaskFlowBackoffFixed,
				BaseDelay: time.Second},
			Callback: &client.TaskFlowCallback{URL: callback, Events: []string{"taskflow.job.*"}}})
		return made.ID, err
	case "fetchbox":
		last := []string{"once", "gone", "there"}[i%3]
		manifest, err := client.FetchBoxManifest{Resources: []client.FetchBoxResource{
			{ID: "a", URL: w.site.URL + "/" + name + "/a"},
			{ID: "b", URL: w.site.URL + "/" + name + "/" + last}}}.Encode()
		if err != nil {
			return "", err
		}
		made, err := c.FetchBox().Submit(ctx, client.FetchBoxSpec{Type: "default",
			Manifest: manifest, CallbackURL: callback})
		return made.JobID, err
	case "images":
		picture := smallPNG()
		if i%3 == 2 {
			picture = picture[:len(picture)/2]
		}
		made, err := c.Images().Upload(ctx, client.ImageUpload{Body: bytes.NewReader(picture),
			Type: "image/png", CallbackURL: callback})
		return made.JobID, err
	}
	err = c.Relay().Enqueue(ctx, []client.RelaySpec{{Queue: "q", ID: name, Timeout: 2 * time.Second,
		MaxRetries: ref(1000), CallbackURL: callback}}, client.RelayIgnore)
	if i%3 == 1 {
		deleted := c.Relay().Delete(ctx, "q", name)
		if !errors.Is(deleted, client.ErrNotFound) { // it may be completed, or deleted by a try
			err = errors.Join(err, deleted)
		}
	}
	return name, err
}

var smallPNG = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, image.NewGray(image.Rect(0, 0, 64, 48))) // a buffer takes everything
	return b.Bytes()
})

// forgeClient makes a client of ForgeRun with a key, which asks the nodes as the operator does.
func (w *killedHooks) forgeClient() *client.ForgeRun {
	forge := w.client().ForgeRun()
	id, err := forge.CreateClient(w.Context(), "")
	w.must(err)
	key, err := forge.CreateFirstAPIKey(w.Context(), id)
	w.must(err)
	return forge.WithAPIKey(key.APIKey)
}

// work repeats what a worker does until the test is over.
func (w *killedHooks) work(ctx context.Context, claim func(context.Context) error) {
	for ctx.Err() == nil {
		if err := claim(ctx); err != nil && ctx.Err() == nil {
			w.Error(err)
		}
	}
}

// workTaskFlow claims jobs and ends their runs. Of three jobs one fails the first time, and one of
// five for good.
func (w *killedHooks) workTaskFlow(ctx context.Context) error {
	api := w.client().WorkerAPI()
	jobs, err := api.Claim(ctx, client.ClaimQuery{Contract: "taskflow", Max: 4}, time.Second)
	outcomes := make([]client.RunOutcome, len(jobs))
	for i, j := range jobs {
		outcomes[i].RunID = j.RunID
		digit := int(j.ID[len(j.ID)-1])
		switch n := w.attempt(j.ID); {
		case digit%5 == 0:
			outcomes[i].Failure = &client.JobFailure{Error: "it broke"}
		case digit%3 == 0 && n == 1:
			outcomes[i].Failure = &client.JobFailure{Error: "not now", Retryable: true}
		}
	}
	if err != nil {
		return err
	}
	_, err = api.Finish(ctx, outcomes) // a run may have been lost meanwhile
	return err
}

// workRelay claims jobs and completes them. Of three runs one is left to its time-out.
func (w *killedHooks) workRelay(ctx context.Context) error {
	relay := w.client().Relay()
	jobs, err := relay.Claim(ctx, "q", 4, time.Second)
	var runs []client.RelayRun
	for _, j := range jobs {
		if w.attempt("relay runs")%3 != 0 {
			runs = append(runs, j.Run())
		}
	}
	if err != nil || len(runs) == 0 {
		return err
	}
	_, err = relay.CompleteAll(ctx, runs)
	return err
}

// wantEvents waits until all jobs are done and all their events have come, and fails unless they
// come. Then it checks what the receivers have noticed.
func (w *killedHooks) wantEvents() {
	began, missing := time.Now(), ""
	pollWithin(testTimeout, func(string, ...any) { w.Errorf("WH-004 %s", missing) }, "", func() bool {
		missing = w.missing()
		return missing == ""
	})
	w.stop()
	w.Logf("all has come %.1f s after the last kill", time.Since(began).Seconds())
	for _, r := range w.all {
		r.check(w.T, true)
	}
	w.some.check(w.T, false)
	for _, contract := range hookedContracts {
		w.called[contract].check(w.T, true)
	}
	lost := 0
	for _, came := range w.all[0].came {
		for _, a := range came {
			if a.name == "relay.job.retrying" {
				lost++
			}
		}
	}
	if w.Logf("%d runs of Relay were lost", lost); lost == 0 {
		w.Error("WH-004 no run was lost")
	}
}

// historyEvent is a row of the history of a job.
type historyEvent struct{ cause, prev, next string }

// history reads the history of all jobs, by their numbers.
func (w *killedHooks) history() map[int64][]historyEvent {
	rows, err := w.db.Query("SELECT seq,cause,prev,next FROM events ORDER BY id")
	w.must(err)
	defer rows.Close()
	all := map[int64][]historyEvent{}
	for rows.Next() {
		var number int64
		var e historyEvent
		w.must(rows.Scan(&number, &e.cause, &e.prev, &e.next))
		all[number] = append(all[number], e)
	}
	w.must(rows.Err())
	return all
}

// missing says what has not come yet; "" is nothing.
func (w *killedHooks) missing() string {
	known := map[string]bool{}
	history := w.history()
	for _, contract := range hookedContracts {
		for j, err := range w.admin().Jobs(w.Context(), client.AdminJobQuery{
			Filter: client.AdminFilter{Contract: contract}}) {
			w.must(err)
			known[j.ID] = true
			if j.Phase != "done" && j.Phase != "dead" {
				return fmt.Sprintf("job %d of %s is still %s", j.Number, contract, j.State)
			}
			if text := w.missingOf(&j, history[j.Number]); text != "" {
				return text
			}
		}
	}
	for contract, ids := range w.submitted {
		for _, id := range ids {
			if contract == "relay" {
				if text := w.missingOfRelay(id); text != "" {
					return text
				}
			} else if !known[id] {
				return fmt.Sprintf("job %s of %s is lost", id, contract)
			}
		}
	}
	return ""
}

// missingOf says what has not come of a job that has a history.
func (w *killedHooks) missingOf(j *client.AdminJob, history []historyEvent) string {
	var want, called []string
	for _, e := range history {
		types := typesOf(j, e)
		want = append(want, types...)
		switch {
		case j.Contract == "forgerun":
			called = append(called, forgeEvent(e))
		case j.Contract == "taskflow":
			called = append(called, types...)
		default:
			called = append(called, slices.DeleteFunc(types, func(name string) bool {
				return !finalType.MatchString(name)
			})...)
		}
	}
	number, key := strconv.FormatInt(j.Number, 10), strconv.FormatInt(j.Number, 10)
	if j.Contract == "forgerun" {
		key = j.ID
	}
	if got := w.called[j.Contract].of(key); got != strings.Join(called, " ") {
		return fmt.Sprintf("the callback of job %d has %q, want %q", j.Number, got, called)
	}
	return w.missingAt(j.Contract, number, strings.Join(want, " "))
}

// missingAt says which webhook of operators has not got the events of a job.
func (w *killedHooks) missingAt(contract, number, want string) string {
	for _, r := range w.all {
		if got := r.of(number); got != want {
			return fmt.Sprintf("%s: job %s has %q, want %q", r.name, number, got, want)
		}
	}
	if contract != "images" && contract != "relay" {
		want = ""
	}
	if got := w.some.of(number); got != want {
		return fmt.Sprintf("%s: job %s has %q, want %q", w.some.name, number, got, want)
	}
	return ""
}

// relayLife is the life of a job of Relay, and the last word its final event.
var (
	relayLife = regexp.MustCompile(`^relay.job.submitted( relay.job.started relay.job.retrying)*` +
		`( relay.job.started relay.job.completed|( relay.job.started)? relay.job.deleted)$`)
	finalType = regexp.MustCompile(`\.job\.(completed|failed|canceled|blocked|dead|deleted)$`)
)

// missingOfRelay says what has not come of a job of Relay, which leaves no history: its events must
// be a whole life, the same to all.
func (w *killedHooks) missingOfRelay(id string) string {
	number := w.all[0].jobOf("relay", id)
	life := w.all[0].of(number)
	if !relayLife.MatchString(life) {
		return fmt.Sprintf("job %s of relay has the life %q", id, life)
	}
	final := life[strings.LastIndex(life, " ")+1:]
	if got := w.called["relay"].of(number); got != final {
		return fmt.Sprintf("the callback of job %s of relay has %q, want %q", id, got, final)
	}
	return w.missingAt("relay", number, life)
}

// typesOf returns the types of events that a change of a job is, by the table of docs/webhooks.md.
func typesOf(j *client.AdminJob, e historyEvent) []string {
	kind := ""
	if j.Kind != nil {
		kind = *j.Kind
	}
	change := ""
	switch next := strings.ToLower(e.next); {
	case kind == "resource":
		switch next {
		case "done":
			return []string{"fetchbox.resource.completed"}
		case "dead":
			return []string{"fetchbox.resource.failed"}
		}
		return nil
	case e.cause == "submitted":
		change = "submitted"
	case next == "completed", next == "succeeded":
		change = "completed"
	case next == "failed":
		change = "failed"
	case kind == "manifest":
		if e.prev == "queued" && next == "in_progress" {
			change = "started"
		}
	case j.Contract == "forgerun":
		if next == "running" {
			change = "started"
		}
	case e.cause == "claimed":
		change = "started"
	case slices.Contains([]string{"failed", "expired", "released"}, e.cause):
		change = "retrying"
	}
	if change == "" {
		return nil
	}
	types := []string{j.Contract + ".job." + change}
	if file := map[string]string{"completed": "ready", "failed": "failed"}[change]; file != "" &&
		j.Contract == "images" {
		types = append(types, "images.file."+file)
	}
	return types
}

// forgeEvent returns the event that a change is to a client of ForgeRun.
func forgeEvent(e historyEvent) string {
	switch {
	case e.next == "RUNNING":
		return "job_started"
	case e.prev == "ASSIGNED" && e.next == "QUEUED":
		return "job_requeued"
	}
	return "job_" + strings.ToLower(e.next)
}
