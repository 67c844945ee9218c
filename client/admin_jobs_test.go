package client_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
)

// TestAdminJob (AD-013): a job is shown with its bodies, and each of these whole.
func TestAdminJob(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, reader, ctx := with(api.Token()), with("reader"), t.Context()
	made, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
		Request: []byte(`{"queue":"q","id":"1","timeout":5,"payload":{"a":1}}`)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := operator.Job(ctx, made.Number)
	if err != nil || got.ID != "1" || string(got.Payload) != `{"a":1}` || got.PayloadTruncated ||
		len(got.Actions) != 1 || got.DeadLetterID != nil || got.Links.Contract == nil ||
		string(got.Result) != "null" {
		t.Errorf("got %+v, %v", got, err)
	}
	if raw, err := operator.JobBody(ctx, made.Number, client.AdminBodyPayload); err != nil ||
		string(raw) != `{"a":1}` {
		t.Errorf("got %s, %v", raw, err)
	}
	if _, err := operator.JobBody(ctx, made.Number, client.AdminBodyResult); !errors.Is(err,
		client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	api.ReadPayloads = false
	if hidden, err := reader.Job(ctx, made.Number); err != nil || string(hidden.Payload) != "null" {
		t.Errorf("G-AD-03 the read token got %+v, %v", hidden, err)
	}
	if _, err := reader.JobBody(ctx, made.Number, client.AdminBodyPayload); !errors.Is(err,
		client.ErrUnauthorized) {
		t.Errorf("G-AD-03 the read token got %v", err)
	}
}
