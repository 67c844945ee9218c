package client_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
)

// TestAdminWhy (AD-015): a job says why it does not run.
func TestAdminWhy(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	made, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
		Request: []byte(`{"queue":"q","id":"1","timeout":5,"payload":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	paused := true
	if _, err := operator.SetQueue(ctx, "relay", "q",
		client.AdminQueueChange{Paused: &paused}); err != nil {
		t.Fatal(err)
	}
	why, err := operator.Why(ctx, made.Number)
	if err != nil || len(why.Reasons) != 2 || why.Summary != why.Reasons[0].Text ||
		why.Reasons[0].Code != client.AdminReasonQueuePaused ||
		why.Reasons[1].Code != client.AdminReasonNoWorkers || why.Next != nil ||
		string(why.Reasons[1].Facts["since"]) != `"never"` {
		t.Errorf("got %+v, %v", why, err)
	}
	if _, err := operator.Why(ctx, made.Number+1); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
