package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestEvent is the name of the event that Test sends. No subscription lists it.
const TestEvent = "millrace.test"

// TestResult is what came back from a test.
type TestResult struct {
	EventID string
	Attempt
}

// Test sends an event of the name TestEvent to a subscription now, signed as every other, and
// returns what came back. A subscription that is disabled gets it too. It is no delivery: it is not
// stored, is not tried again, and decides nothing about the subscription. also, unless nil, writes
// in the transaction that reads the subscription, before anything is sent.
//
// Errors: those of Subscription; Unavailable while too many attempts are in flight at the receiver.
func (w *Webhooks) Test(ctx context.Context, owner, id string,
	also func(engine.RecordWriter) error) (TestResult, error) {
	a, err := w.newTest(ctx, owner, id, also)
	if err != nil {
		return TestResult{}, err
	}
	s, _, _ := w.destinations.acquire(a.receiver())
	if s == nil {
		return TestResult{}, &job.Error{Kind: job.Unavailable, Op: "webhook.test",
			Msg: "too many requests to this receiver are in flight"}
	}
	defer w.destinations.releaseUnused(s)
	startedAt := w.Elapsed()
	t, _, err := w.postTraced(ctx, a)
	took := w.Elapsed() - startedAt
	if err != nil && ctx.Err() != nil {
		kind := job.Aborted
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			kind = job.Unavailable
		}
		return TestResult{}, &job.Error{Kind: kind, Op: "webhook.test", Err: context.Cause(ctx)}
	}
	w.destinations.release(s, err == nil, took)
	t.DurationMS = took.Milliseconds()
	return TestResult{EventID: a.EventID, Attempt: t}, nil
}

// newTest returns the attempt of a test, with its secrets.
func (w *Webhooks) newTest(ctx context.Context, owner, id string,
	also func(engine.RecordWriter) error) (*execution, error) {
	var rec *job.Record
	var s *record
	var now time.Time
	read := func(r engine.RecordReader) (err error) {
		now = r.Now()
		rec, s, err = findSubscription(r, owner, id)
		return err
	}
	var err error
	if also == nil {
		err = w.Engine.ViewRecords(ctx, read)
	} else {
		err = w.Engine.ChangeRecords(ctx, "webhook.test", func(to engine.RecordWriter) error {
			if err := read(to); err != nil {
				return err
			}
			return also(to)
		})
	}
	if err != nil {
		return nil, err
	}
	eventID, err := w.newRandomID()
	if err != nil {
		return nil, err
	}
	body, err := testBody(rec, eventID, now.UTC().Truncate(time.Microsecond))
	if err != nil {
		return nil, err
	}
	a := &execution{
		delivery: &delivery{EventID: eventID, EventName: TestEvent, URL: s.URL, Client: rec.Owner,
			SubscriptionIDs: []string{rec.Key}},
		job:           &job.Job{Payload: body},
		startedAt:     now,
		sealedSecrets: validSecrets(s.Secrets, now),
	}
	return a, w.loadSecrets(ctx, a)
}

// testBody returns the body of a test, in the form of the events of its owner.
func testBody(rec *job.Record, eventID string, at time.Time) ([]byte, error) {
	if rec.Owner == Operators {
		data, err := json.Marshal(map[string]string{"webhook_id": rec.Key})
		return standardBody(TestEvent, at, data), err
	}
	return json.Marshal(struct {
		ID        string    `json:"event_id"`
		Name      string    `json:"event_name"`
		WebhookID string    `json:"webhook_id"`
		At        time.Time `json:"occurred_at"`
	}{eventID, TestEvent, rec.Key, at})
}
