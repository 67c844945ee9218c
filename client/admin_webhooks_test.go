package client_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/forgerun"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/webhook"
)

// withForgeRun adds ForgeRun to the contracts of an admin API.
func withForgeRun(t *testing.T, offer **contract.Contract) func(*admin.Config) {
	return func(c *admin.Config) {
		f, err := forgerun.New(forgerun.Config{Engine: c.Engine,
			Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Now: c.Now,
			Elapsed: c.Elapsed, Random: testkit.RandomBytes, Pepper: c.Pepper, Node: "node",
			Client: http.DefaultClient, NoLocalWorkers: true,
			Settings: forgerun.Settings{Types: []string{"EXECUTE"}, JobsPerWorker: 1,
				Lease: 30 * time.Second, Heartbeat: time.Second, MaxRunTime: time.Minute,
				RatePerMinute: 1000, AnonymousPerMinute: 1000, MaxActiveJobs: 1000,
				QueueSize: 1000, BodyLimit: 1 << 20, PayloadLimit: 1 << 20, DurationScale: 1,
				Webhook: forgerun.Webhook{Timeout: time.Second, MaxAttempts: 1,
					BackoffBase: time.Second, BackoffMax: time.Hour, BackoffFactor: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		*offer = f.Offer()
		c.Contracts = []*contract.Contract{*offer}
		testkit.Register(t, c.Engine, (*offer).JobTypes...)
	}
}

// TestAdminWebhooks sees, tests, replays, disables and enables a webhook (AD-052).
func TestAdminWebhooks(t *testing.T) {
	t.Parallel()
	var forge *contract.Contract
	api, with := serveAdmin(t, withForgeRun(t, &forge))
	operator, ctx := with(api.Token()), t.Context()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	}))
	t.Cleanup(receiver.Close)
	owner, err := forge.Accounts.CreateClient(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := forge.Webhooks.Register(ctx, owner.ID, receiver.URL, []string{"job_failed"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := forge.Webhooks.Deliver(ctx, []webhook.Event{{Owner: owner.ID, Chain: "j",
		Ref: webhook.EventRef{ID: "e", Name: "job_failed"}, OccurredAt: h.CreatedAt,
		Body: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	all := mustCollect(t, operator.Webhooks(ctx, client.AdminWebhookFilter{ClientID: owner.ID,
		State: "enabled"}))
	if len(all) != 1 || all[0].ID != h.ID || all[0].Pending != 1 || all[0].SuccessRate != nil {
		t.Errorf("got %+v", all)
	}
	deliveries := mustCollect(t, operator.Deliveries(ctx, h.ID, "pending", 0))
	if len(deliveries) != 1 || deliveries[0].EventID != "e" || deliveries[0].Number < 1 {
		t.Errorf("got %+v", deliveries)
	}
	tested, err := operator.TestWebhook(ctx, h.ID)
	if err != nil || tested.Succeeded || tested.Status != http.StatusTeapot ||
		tested.Response != "short and stout" || !strings.Contains(tested.Error, "418") {
		t.Errorf("got %+v, %v", tested, err)
	}
	if got, err := operator.DisableWebhook(ctx, h.ID); err != nil || got.State != "disabled" {
		t.Errorf("got %+v, %v", got, err)
	}
	f := client.AdminDeliveryReplayFilter{From: h.CreatedAt, State: "delivered"}
	if _, err := operator.ReplayDeliveries(ctx, h.ID, f); !errors.Is(err, client.ErrConflict) {
		t.Errorf("a disabled one: %v", err)
	}
	if got, err := operator.EnableWebhook(ctx, h.ID); err != nil || got.State != "enabled" {
		t.Errorf("got %+v, %v", got, err)
	}
	id, err := operator.ReplayDeliveries(ctx, h.ID, f)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := operator.BulkOperation(ctx, id); err != nil ||
		b.Action != client.AdminActionReplay {
		t.Errorf("got %+v, %v", b, err)
	}
	if _, err := operator.TestWebhook(ctx, owner.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("another id: %v", err)
	}
}

// A replay goes on with the cursor of each answer, and adds up what was done (AD-052).
func TestReplayPages(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f, script := mustForge(t, okAnswer(200, `{"replayed":1000,"skipped":2,"next_cursor":"n"}`),
		okAnswer(200, `{"replayed":5,"skipped":0,"next_cursor":null}`))
	got, err := f.ReplayDeliveries(t.Context(), "w", client.ForgeRunDeliveryReplayFilter{From: from,
		Status: client.ForgeRunDeliveryExhausted})
	if err != nil || got != (client.ForgeRunDeliveryReplayResult{Replayed: 1005, Skipped: 2}) {
		t.Errorf("got %+v, %v", got, err)
	}
	want := []string{`{"from":"2026-01-02T03:04:05Z","state":"exhausted"}`,
		`{"from":"2026-01-02T03:04:05Z","state":"exhausted","cursor":"n"}`}
	for i, r := range script.requests {
		if r.body != want[i] {
			t.Errorf("request %d has %s", i, r.body)
		}
	}
}
