package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// TestSDK lets the Go SDK, which shares no types with the server, speak to it.
func TestSDK(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	c, err := client.New(client.Config{BaseURL: w.URL, HTTPClient: w.Client,
		Retry: client.Retry{MaxTries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, relay, three := context.Background(), c.Relay(), 3
	s := client.RelaySpec{Queue: "sdk / ü", ID: "../1+2 3", Timeout: 30 * time.Second,
		MaxRetries: &three, Payload: json.RawMessage(`{"n":1.50}`)}
	if err := relay.Enqueue(ctx, []client.RelaySpec{s}, client.RelayUnique); err != nil {
		t.Fatal(err)
	}
	if err := relay.Enqueue(ctx, []client.RelaySpec{s}, client.RelayUnique); !errors.Is(err,
		client.ErrConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	jobs, err := relay.Claim(ctx, s.Queue, 5, 10*time.Second)
	if err != nil || len(jobs) != 1 || jobs[0].ID != s.ID ||
		string(jobs[0].Payload) != `{"n":1.50}` {
		t.Fatalf("got %+v, %v", jobs, err)
	}
	run := jobs[0].Run()
	if err := relay.Heartbeat(ctx, run, json.RawMessage(`"half"`)); err != nil {
		t.Error(err)
	}
	if err := relay.Heartbeat(ctx, run, nil); err != nil {
		t.Error(err)
	}
	got, err := relay.Get(ctx, s.Queue, s.ID)
	if err != nil || string(got.State) != `"half"` || *got.RetriesRemaining != 3 ||
		got.RunID != run.RunID {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := relay.Requeue(ctx, run, []client.RelaySpec{s}, client.RelayUnique); err != nil {
		t.Error(err)
	}
	if err := relay.Heartbeat(ctx, run, nil); !errors.Is(err, client.ErrRunLost) {
		t.Errorf("got %v, want a lost run", err)
	}
	jobs, err = relay.Claim(ctx, s.Queue, 1, 0)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("got %+v, %v", jobs, err)
	}
	if err := relay.Complete(ctx, jobs[0].Run()); err != nil {
		t.Error(err)
	}
	if there, err := relay.Exists(ctx, s.Queue, s.ID); there || err != nil {
		t.Errorf("it is still there: %v, %v", there, err)
	}
	if jobs, err := relay.Claim(ctx, s.Queue, 1, 0); len(jobs) != 0 || err != nil {
		t.Errorf("got %+v, %v", jobs, err)
	}
}
