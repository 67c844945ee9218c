package client_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
)

// TestAdminQueues pauses and limits a queue and takes that back (AD-030, AD-031).
func TestAdminQueues(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	paused, rate, period := true, 5, "60s"
	q, err := operator.SetQueue(ctx, "relay", "a/b %", client.AdminQueueChange{Paused: &paused,
		Rate: &rate, RatePeriod: &period})
	want := client.AdminQueue{Contract: "relay", Queue: "a/b %", Paused: true, Rate: 5,
		RatePeriod: "1m"}
	if err != nil || q != want {
		t.Errorf("got %+v, %v", q, err)
	}
	for got, err := range operator.Queues(ctx, client.AdminQueueFilter{Contract: "relay"}) {
		if err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
		q.Queue = ""
	}
	if q.Queue != "" {
		t.Error("the queue is not listed")
	}
	want = client.AdminQueue{Contract: "relay", Queue: "a/b %"}
	if q, err = operator.ResetQueue(ctx, "relay", "a/b %"); err != nil || q != want {
		t.Errorf("got %+v, %v", q, err)
	}
	if _, err = operator.ResetQueue(ctx, "nobody", "q"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
