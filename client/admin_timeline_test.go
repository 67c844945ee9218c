package client_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
)

// TestAdminTimeline (AD-014): the timeline of a job names who has submitted it.
func TestAdminTimeline(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()).WithActor("ann"), t.Context()
	made, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
		Request: []byte(`{"queue":"q","id":"1","timeout":5,"payload":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := operator.Timeline(ctx, made.Number)
	if err != nil || got.Truncated || len(got.Entries) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	first, by := got.Entries[0], got.Entries[1]
	if first.Kind != client.AdminTimelineSubmitted || first.Text == nil || first.Duration != nil ||
		by.Kind != client.AdminTimelineOperator || *by.Actor != "operator:ann" ||
		*by.Action != "job.submit" {
		t.Errorf("got %+v", got)
	}
	if _, err := operator.Timeline(ctx, made.Number+1); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
