package client_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/relay"
	"github.com/millrace/millrace/internal/testkit"
)

// withRelay adds Relay to the contracts of an admin API.
func withRelay(t *testing.T) func(*admin.Config) {
	return func(c *admin.Config) {
		r, err := relay.New(relay.Config{Engine: c.Engine, Log: slog.New(slog.DiscardHandler),
			Registry: prometheus.NewRegistry(), Settings: relay.Settings{MaxNumJobs: 1,
				BodyLimit: 1 << 20, RetryableStatus: 429}})
		if err != nil {
			t.Fatal(err)
		}
		c.Contracts = []*contract.Contract{r.Offer()}
		testkit.Register(t, c.Engine, c.Contracts[0].JobTypes...)
	}
}

// TestAdminActions submits a job and changes it (AD-016, AD-017).
func TestAdminActions(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	j, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
		Request: []byte(`{"queue":"q","id":"1","timeout":1,"max_retries":0,"payload":{}}`)})
	if err != nil || j.Number < 1 || j.State != "queued" || len(j.Actions) != 1 ||
		j.Actions[0] != client.AdminActionDelete {
		t.Fatalf("got %+v, %v", j, err)
	}
	var refused *client.Error
	_, err = operator.ActOnJob(ctx, j.Number, client.AdminActionCancel)
	if !errors.As(err, &refused) || refused.Code != client.AdminCodeNotAllowed {
		t.Errorf("got %v", err)
	}
	gone, err := operator.ActOnJob(ctx, j.Number, client.AdminActionDelete)
	if err != nil || gone.State != "gone" || gone.Number != j.Number {
		t.Errorf("got %+v, %v", gone, err)
	}
	_, err = operator.ActOnJob(ctx, j.Number, client.AdminActionDelete)
	if !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	_, err = operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
		Request: []byte(`{}`)})
	if !errors.As(err, &refused) || refused.Status != 400 {
		t.Errorf("got %v", err)
	}
}
