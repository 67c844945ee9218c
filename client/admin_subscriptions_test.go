package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
)

// WH-001, WH-002: an operator's webhook is made, read, changed, given another secret and removed,
// and the types of events are listed.
func TestAdminSubscriptions(t *testing.T) {
	t.Parallel()
	var forge *contract.Contract
	api, with := serveAdmin(t, withForgeRun(t, &forge))
	operator, ctx := with(api.Token()), t.Context()
	var types []string
	for _, one := range mustCollect(t, operator.WebhookEventTypes(ctx)) {
		types = append(types, one.Type)
		if one.Description == "" || len(one.Schema) == 0 || len(one.Example) == 0 {
			t.Errorf("WH-002 got %+v", one)
		}
	}
	if !slices.Contains(types, "forgerun.job.completed") || !slices.Contains(types, "queue.paused") {
		t.Errorf("WH-002 the types are %v", types)
	}
	url, name, payload, limit := "http://a.example/in", "mine", true, 7
	rate, period, queues := 5, "1m", []string{"q"}
	spec := client.AdminWebhookSpec{URL: &url, Events: []string{"forgerun.*"}, Name: &name,
		IncludePayload: &payload, MaxInFlight: &limit, RateLimit: &rate, RatePeriod: &period,
		Queues: &queues}
	made, secret, err := operator.CreateWebhook(ctx, spec, "")
	if err != nil || !strings.HasPrefix(secret, "whsec_") || made.URL != url ||
		made.ClientID != "" || made.Name != name || !made.IncludePayload || made.MaxInFlight != 7 ||
		made.RateLimit != 5 || made.RatePeriod != "1m" || !slices.Equal(made.Queues, queues) {
		t.Errorf("WH-001 made %+v, %q, %v", made, secret, err)
	}
	if _, _, err := operator.CreateWebhook(ctx, spec, ""); !errors.Is(err, client.ErrConflict) {
		t.Errorf("WH-001 the same once more: %v", err)
	}
	given := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	spec.Events = []string{"*"}
	if _, got, err := operator.CreateWebhook(ctx, spec, given); err != nil || got != given {
		t.Errorf("WH-001 a given secret: %q, %v", got, err)
	}
	none := 0
	changed, err := operator.SetWebhook(ctx, made.ID, client.AdminWebhookSpec{RateLimit: &none,
		Queues: &[]string{}})
	if err != nil || changed.RateLimit != 0 || len(changed.Queues) != 0 || changed.Name != name ||
		changed.Events[0] != "forgerun.*" {
		t.Errorf("WH-001 changed %+v, %v", changed, err)
	}
	if got, err := operator.Webhook(ctx, made.ID); err != nil || got.MaxInFlight != 7 {
		t.Errorf("WH-001 got %+v, %v", got, err)
	}
	if got, err := operator.RotateWebhookSecret(ctx, made.ID); err != nil || got == secret ||
		!strings.HasPrefix(got, "whsec_") {
		t.Errorf("WH-001 rotated to %q, %v", got, err)
	}
	if err := operator.DeleteWebhook(ctx, made.ID); err != nil {
		t.Errorf("WH-001 removed: %v", err)
	}
	if _, err := operator.Webhook(ctx, made.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("WH-001 a removed one: %v", err)
	}
	if _, err := operator.SetWebhook(ctx, made.ID, spec); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("WH-001 a removed one is changed: %v", err)
	}
	if _, _, err := operator.CreateWebhook(ctx, client.AdminWebhookSpec{URL: &url,
		Events: []string{"nothing"}}, ""); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("WH-002 a pattern that means nothing: %v", err)
	}
}
