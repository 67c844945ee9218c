package webhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/webhook"
)

// WH-004: two events of one subject and type in one transaction, such as two times of a schedule
// that a run has missed, are two events; each is delivered once, however often it is published.
func TestEventsOfOneTransaction(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, _ := n.operate("http://127.0.0.1:1/", nil, "schedule.missed")
		if _, err := n.engine.Submit(n.ctx, engine.Unique, []engine.Submission{{Job: job.Job{
			ID: job.ID{JobType: worked.Name, Key: "a"}, Queue: "q", Lease: time.Hour}}}); err != nil {
			t.Fatal(err)
		}
		claimed, err := n.engine.Claim(n.ctx, engine.ClaimRequest{JobType: worked.Name, Max: 1})
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		missed := func(minute int) engine.FeedEvent {
			return engine.FeedEvent{Type: "schedule.missed", JobType: worked.Name,
				Subject: "schedule s", Data: map[string]int{"minute": minute}}
		}
		if _, err := n.engine.Finish(n.ctx, engine.Run{ID: claimed[0].ID, Run: claimed[0].Run},
			engine.Outcome{On: job.Released,
				Published: []engine.FeedEvent{missed(1), missed(2)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.engine.Publish(n.ctx, func(ctx context.Context, all []job.Message) error {
			if err := n.DeliverEvents(ctx, all); err != nil {
				return err
			}
			return n.DeliverEvents(ctx, all)
		}, webhook.Name); err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		var bodies []string
		for _, d := range slices.Backward(n.operatorDeliveries(h.ID)) {
			ids[d.EventID] = true
			j, err := n.engine.Get(n.ctx, job.ID{JobType: webhook.Name, Key: d.ID})
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, string(j.Payload[len(j.Payload)-len(`{"minute":1}}`):]))
		}
		want := []string{`{"minute":1}}`, `{"minute":2}}`}
		if len(ids) != 2 || !slices.Equal(bodies, want) {
			t.Errorf("WH-004 %d events with %s, want 2 with %s", len(ids), fmt.Sprint(bodies), want)
		}
	})
}

// writer is a function as io.Writer.
type writer func()

func (w writer) Write(p []byte) (int, error) { w(); return len(p), nil }

// WH-004: deliveries are stored as they are made, so that those of all messages, with their bodies,
// are never in memory together, and one that is cut short has less to do when it begins anew.
func TestDeliveriesAreStoredAsTheyAreMade(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		var stop context.CancelFunc
		atBroken := writer(func() { stop() })
		n := newWorld(t, database, false, func(c *webhook.Config) {
			c.Log = slog.New(slog.NewTextHandler(atBroken, nil))
		}).node()
		h, _ := n.operate("http://127.0.0.1:1/", nil, "queue.paused")
		if err := n.engine.SetQueue(n.ctx, job.QueueSettings{JobType: worked.Name, Queue: "q",
			Paused: true}); err != nil {
			t.Fatal(err)
		}
		var messages []job.Message
		if _, err := n.engine.Publish(n.ctx, func(_ context.Context, all []job.Message) error {
			for range 250 {
				m := all[0]
				m.ID = int64(len(messages))
				messages = append(messages, m)
			}
			return nil
		}, webhook.Name); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(n.ctx)
		stop = cancel
		if err := n.DeliverEvents(ctx, append(messages, job.Message{Body: []byte("{")})); err == nil {
			t.Fatal("WH-004 it was not cut short")
		}
		if got := len(n.operatorDeliveries(h.ID)); got != 200 {
			t.Errorf("WH-004 %d deliveries were stored, want 200", got)
		}
		if err := n.DeliverEvents(n.ctx, messages); err != nil {
			t.Fatal(err)
		}
		if got := len(n.operatorDeliveries(h.ID)); got != 250 {
			t.Errorf("WH-004 %d deliveries were stored, want 250", got)
		}
	})
}

// WH-004: an event that a node of an earlier version has written is delivered as that one would
// have done, and one that is cut is passed over and holds up no other.
func TestFormerMessages(t *testing.T) {
	onEveryDatabase(t, func(t *testing.T, database string) {
		n := newWorld(t, database, false).node()
		h, _ := n.operate("http://127.0.0.1:1/", nil, "schedule.missed")
		const head = `{"types":["schedule.missed"],"contract":"worked","chain":"schedule s"`
		at := n.clock.Now().Add(time.Second)
		if err := n.DeliverEvents(n.ctx, []job.Message{
			{ID: 1, At: at, Body: []byte(head + `,"size":9}` + "\n" + `{"n"`)},
			{ID: 2, At: at, Body: []byte(head + `,"data":{"minute":1}}`)}}); err != nil {
			t.Fatal(err)
		}
		made := n.operatorDeliveries(h.ID)
		if len(made) != 1 {
			t.Fatalf("%d deliveries, want 1", len(made))
		}
		j, err := n.engine.Get(n.ctx, job.ID{JobType: webhook.Name, Key: made[0].ID})
		if err != nil || !strings.HasSuffix(string(j.Payload), `"data":{"minute":1}}`) {
			t.Errorf("the body is %s, %v", j.Payload, err)
		}
	})
}
