package client_test

import (
	"errors"
	"reflect"
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
		RateLimit: &rate, RatePeriod: &period})
	zero := 0.0
	want := client.AdminQueue{Contract: "relay", Queue: "a/b %", Paused: true, RateLimit: 5,
		RatePeriod: "1m", SubmittedPerMinute: &zero, StartedPerMinute: &zero,
		SucceededPerMinute: &zero, FailedPerMinute: &zero}
	if err != nil || !reflect.DeepEqual(q, want) {
		t.Errorf("got %+v, %v", q, err)
	}
	for got, err := range operator.Queues(ctx, client.AdminQueueFilter{Contract: "relay"}) {
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
		q.Queue = ""
	}
	if q.Queue != "" {
		t.Error("the queue is not listed")
	}
	want.Paused, want.RateLimit, want.RatePeriod = false, 0, ""
	if q, err = operator.ResetQueue(ctx, "relay", "a/b %"); err != nil || !reflect.DeepEqual(q, want) {
		t.Errorf("got %+v, %v", q, err)
	}
	if _, err = operator.ResetQueue(ctx, "nobody", "q"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
