package bulk_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/bulk"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// openVault keeps secrets as they are.
type openVault struct{}

func (openVault) Seal(plain []byte) (string, error)  { return string(plain), nil }
func (openVault) Open(sealed string) ([]byte, error) { return []byte(sealed), nil }

// newWebhooks makes the webhooks of a node. Nothing is sent.
func (n *node) newWebhooks(t *testing.T) {
	t.Helper()
	var err error
	n.webhooks, err = webhook.New(webhook.Config{Engine: n.engine, Vault: openVault{},
		Client: http.DefaultClient, Timeout: time.Second, MaxAttempts: 1, BackoffBase: time.Second,
		BackoffMax: time.Hour, BackoffFactor: 2, Random: rand.Reader, Elapsed: n.clock.Monotonic,
		CallbackSecret: func(context.Context, string) (string, error) { return "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Register(t, n.engine, n.webhooks.JobType())
}

// eventsOfJob is how many events the jobs of the tests have, whose deliveries are a chain.
const eventsOfJob = 3

// missed registers a webhook of which so many deliveries were given up, some at a time, and returns
// its id.
func (n *node) missed(t *testing.T, count, atOnce int) string {
	t.Helper()
	const owner = "0b8f7a52-0000-4000-8000-000000000001"
	h, _, err := n.webhooks.Register(t.Context(), owner, "http://localhost:9/",
		[]string{"job_failed"}, "")
	if err != nil {
		t.Fatal(err)
	}
	var events []webhook.Event
	for i := range count {
		events = append(events, webhook.Event{Owner: owner, OccurredAt: h.CreatedAt,
			Chain: fmt.Sprint("job ", i/eventsOfJob), Body: []byte(`{}`),
			Ref: webhook.EventRef{ID: fmt.Sprint("event ", i), Name: "job_failed"}})
	}
	if err := n.webhooks.Deliver(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	for ended := 0; ended < count; {
		jobs, err := n.engine.Claim(t.Context(), engine.ClaimRequest{JobType: webhook.Name,
			Max: atOnce, Worker: "w"})
		if err != nil {
			t.Fatal(err)
		}
		var all []engine.FinishRequest
		for _, j := range jobs {
			all = append(all, engine.FinishRequest{Run: engine.Run{ID: j.ID, Run: j.Run},
				Outcome: engine.Outcome{On: job.FailedForGood}})
		}
		for _, r := range n.engine.FinishAll(t.Context(), all) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		ended += len(jobs)
	}
	n.clock.Advance(time.Second)
	return h.ID
}

// replay starts an operation that makes the deliveries of a webhook once more.
func (n *node) replay(t *testing.T, id string) string {
	t.Helper()
	o, err := n.ops.Start(t.Context(), n.clock.Now(), bulk.Request{Action: bulk.Replay,
		Jobs: &bulk.JobFilter{JobTypes: []string{webhook.Name}, Owner: id,
			States: []job.State{"exhausted"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o.ID
}

// deliveries returns the deliveries of a webhook, the oldest first.
func (n *node) deliveries(t *testing.T, id string) []*job.Job {
	t.Helper()
	all, err := n.engine.List(t.Context(), store.Filter{JobType: webhook.Name, Owner: id,
		WithoutBodies: true})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// AD-052, AD-021: of a replay of a webhook whose node is killed again and again, each delivery is
// made once more and counted once, and those of one job stay in their order, also where they are of
// several batches. Another replay makes none of them again; a pause and a cancel end it.
func TestKillsReplays(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		const count = 450
		hook := n.missed(t, count, count)
		id := n.replay(t, hook)
		kills := 0
		for round := range 8 {
			s := &mortal{Store: p.Store, commits: round%2 == 1}
			s.left.Store(2) // its claim and a batch, or what was done of one and another
			dying := newNode(t, s, p.Clock)
			if o, _, claimed := dying.runUnfinished(t); claimed && o.On == job.Released {
				kills++
			}
			n.wait(t, time.Minute)
		}
		if kills < 4 {
			t.Errorf("the node was killed %d times", kills)
		}
		n.runOnce(t)
		n.want(t, id, bulk.Done, count, 0, 0)
		n.wantInOrder(t, hook, count)

		again := n.replay(t, hook)
		n.runOnce(t)
		n.want(t, again, bulk.Done, 0, count, 0)
		stopped := n.replay(t, hook)
		if err := n.change(t, stopped, bulk.Pause); err != nil {
			t.Fatal(err)
		}
		n.runOnce(t)
		n.want(t, stopped, bulk.Paused, 0, 0, 0)
		if err := n.change(t, stopped, bulk.Cancel); err != nil {
			t.Fatal(err)
		}
		if got := n.deliveries(t, hook); len(got) != 2*count {
			t.Errorf("AD-052 there are %d deliveries, want %d", len(got), 2*count)
		}
	})
}

// wantInOrder checks that all deliveries of a webhook were made once more, and that those of a job
// wait for one another.
func (n *node) wantInOrder(t *testing.T, hook string, count int) {
	t.Helper()
	all := n.deliveries(t, hook)
	if len(all) != 2*count {
		t.Fatalf("AD-052 there are %d deliveries, want %d", len(all), 2*count)
	}
	ids := make([]job.ID, count) // of the replays, by the event
	for _, j := range all[count:] {
		replay, err := n.engine.Get(t.Context(), j.ID)
		if err != nil {
			t.Fatal(err)
		}
		var of struct {
			Event string `json:"event_id"`
		}
		if err := json.Unmarshal(replay.Definition, &of); err != nil {
			t.Fatal(err)
		}
		i, err := strconv.Atoi(strings.TrimPrefix(of.Event, "event "))
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = j.ID
	}
	before, err := n.engine.Dependencies(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range ids {
		isFirst := i%eventsOfJob == 0
		if isFirst != (len(before[j]) == 0) || (!isFirst && before[j][0] != ids[i-1]) {
			t.Fatalf("AD-052 replay %d waits for %v, want the one before it", i, before[j])
		}
	}
}

// A bulk replay of dead letters keeps the deliveries of a job in their order too, and a replay of
// their webhook makes none of them again.
func TestReplayDeadLettersOfDeliveries(t *testing.T) {
	testkit.OnEveryStore(t, func(t *testing.T, p testkit.Database) {
		n := newNode(t, p.Store, p.Clock)
		const count = 120             // more than a batch
		hook := n.missed(t, count, 1) // so that the dead letters of a job are side by side
		id := n.start(t, bulk.Request{Action: bulk.Replay, DeadLetters: &bulk.DeadLetterFilter{
			JobTypes: []string{webhook.Name}}}, "")
		n.runOnce(t)
		n.want(t, id, bulk.Done, count, 0, 0)
		n.wantInOrder(t, hook, count)
		again := n.replay(t, hook)
		n.runOnce(t)
		n.want(t, again, bulk.Done, 0, count, 0)
	})
}

// A webhook that is disabled while its deliveries are made once more lets the rest be skipped.
func TestReplayOfDisabled(t *testing.T) {
	t.Parallel()
	p := testkit.InMemory(t)
	n := newNode(t, p.Store, p.Clock)
	hook := n.missed(t, eventsOfJob, 1)
	id := n.replay(t, hook)
	if _, err := n.webhooks.SetDisabled(t.Context(), webhook.AnyOwner, hook, "why",
		func(engine.RecordWriter, webhook.Subscription) error { return nil }); err != nil {
		t.Fatal(err)
	}
	n.runOnce(t)
	n.want(t, id, bulk.Done, 0, eventsOfJob, 0)
}
