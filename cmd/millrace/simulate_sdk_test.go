package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// sdkServer is a real server for the SDK, and a client of it that has a key.
func sdkServer(t *testing.T) (open *client.ForgeRun, clientID string,
	key client.ForgeRunIssuedAPIKey) {
	t.Helper()
	binary := mustMillrace(t)
	s, err := launch(binary, filepath.Join(t.TempDir(), "data"), nil, "--set",
		"forgerun.duration_scale=0.001", "--set", "forgerun.backoff_base=1ms",
		"--set", "webhook.backoff_base=10ms", "--set", "log.level=error")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	c, err := client.New(client.Config{BaseURL: s.url})
	if err != nil {
		t.Fatal(err)
	}
	open = c.ForgeRun()
	id, err := open.CreateClient(t.Context(), "mine")
	repeated, errAgain := open.CreateClient(t.Context(), "mine")
	if err != nil || errAgain != nil || id == "" || repeated != id {
		t.Fatalf("FR-039 clients %q and %q, %v, %v", id, repeated, err, errAgain)
	}
	key, err = open.CreateFirstAPIKey(t.Context(), id)
	if err != nil || key.APIKey == "" || key.ID == "" || key.CallbackSecret == "" ||
		key.ExpiresAt == nil {
		t.Fatalf("FR-040 %+v, %v", key, err)
	}
	return open, id, key
}

// wantCode fails unless the error is of a kind and has the code.
func wantCode(t *testing.T, what string, err, kind error, code string) {
	t.Helper()
	var fail *client.Error
	if !errors.As(err, &fail) || !errors.Is(err, kind) || fail.Code != code ||
		fail.Instance == "" || fail.Message == "" {
		t.Errorf("%s: %v, want %v and %s", what, err, kind, code)
	}
}

func mustCollect[T any](t *testing.T, items func(func(T, error) bool)) (all []T) {
	t.Helper()
	for item, err := range items {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, item)
	}
	return all
}

// The SDK and a real server agree on clients and keys.
func TestSDKKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	open, id, first := sdkServer(t)
	forge := open.WithAPIKey(first.APIKey)
	_, err := open.CreateFirstAPIKey(ctx, id)
	wantCode(t, "FR-042 a second first key", err, client.ErrUnauthorized,
		client.ForgeRunCodeInvalidCredentials)
	_, err = open.CreateFirstAPIKey(ctx, "nobody")
	wantCode(t, "FR-046 an unknown client", err, client.ErrNotFound, client.ForgeRunCodeNotFound)
	same, err := forge.CreateAPIKey(ctx, id, client.ForgeRunAPIKeyOptions{})
	if err != nil || same.ID != first.ID || same.APIKey != "" ||
		!same.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("FR-043 %+v, %v", same, err)
	}
	rotated, err := forge.CreateAPIKey(ctx, id, client.ForgeRunAPIKeyOptions{Rotate: true})
	if err != nil || rotated.ID == first.ID || rotated.APIKey == "" {
		t.Fatalf("FR-044 %+v, %v", rotated, err)
	}
	_, err = forge.Get(ctx, id)
	wantCode(t, "G-FR-65 the rotated key", err, client.ErrUnauthorized,
		client.ForgeRunCodeKeyDisabled)
	renewed, err := open.WithAPIKey(rotated.APIKey).RenewAPIKey(ctx, id)
	if err != nil || renewed.ID == rotated.ID || renewed.APIKey == "" {
		t.Fatalf("FR-047 %+v, %v", renewed, err)
	}
	forge = open.WithAPIKey(renewed.APIKey)
	keys := mustCollect(t, forge.APIKeys(ctx, id))
	active := slices.IndexFunc(keys,
		func(k client.ForgeRunAPIKey) bool { return k.RevokedAt == nil })
	if len(keys) != 3 || active < 0 || keys[active].ID != renewed.ID {
		t.Errorf("keys %+v", keys)
	}
	wantCode(t, "FR-051 an unknown key", forge.RevokeAPIKey(ctx, id, id), client.ErrNotFound,
		client.ForgeRunCodeNotFound)
	if err := forge.RevokeAPIKey(ctx, id, first.ID); err != nil {
		t.Errorf("G-FR-25 %v", err)
	}
	if err := forge.RevokeAPIKey(ctx, id, renewed.ID); err != nil {
		t.Errorf("FR-050 %v", err)
	}
	_, err = forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute})
	wantCode(t, "FR-015 the revoked key", err, client.ErrUnauthorized,
		client.ForgeRunCodeKeyDisabled)
}

// The SDK and a real server agree on jobs.
func TestSDKJobs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	open, id, key := sdkServer(t)
	forge := open.WithAPIKey(key.APIKey)
	spec := client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind:           client.ForgeRunWorkFailAfterRetryable,
		IdempotencyKey: "one", Callback: "http://127.0.0.1:1/"}
	first, err := forge.Submit(ctx, spec)
	if err != nil || first.State != client.ForgeRunStateCreated || first.JobID == "" ||
		first.CreatedAt.IsZero() {
		t.Fatalf("FR-056 %+v, %v", first, err)
	}
	if repeated, err := forge.Submit(ctx, spec); err != nil || repeated.JobID != first.JobID ||
		!repeated.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("FR-067 %+v, %v", repeated, err)
	}
	spec.Kind = client.ForgeRunWorkSuccessFast
	_, err = forge.Submit(ctx, spec)
	wantCode(t, "FR-068 another job under the key", err, client.ErrConflict,
		client.ForgeRunCodeIdempotencyConflict)
	_, err = forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeDeferred})
	wantCode(t, "FR-063 no time", err, client.ErrInvalid, client.ForgeRunCodeValidationFailed)

	job, err := forge.Wait(ctx, first.JobID)
	if err != nil || job.State != client.ForgeRunStateFailed || job.Failure == nil ||
		!job.Failure.Retryable || job.Definition.DurationMS != 5000 ||
		job.Definition.Seed == 0 || job.Type != client.ForgeRunTypeExecute || job.Callback == "" ||
		job.ExecutionAt != nil {
		t.Fatalf("FR-120 %+v, %v", job, err)
	}
	report, err := forge.Report(ctx, first.JobID)
	if err != nil || len(report.Events) != 5 ||
		report.Events[4].Name != client.ForgeRunEventJobFailed ||
		report.StartedAt == nil ||
		report.Kind != client.ForgeRunWorkFailAfterRetryable || report.Failure == nil ||
		report.Outcome != client.ForgeRunOutcomeFailed {
		t.Errorf("FR-125 %+v, %v", report, err)
	}
	if change, err := forge.Retry(ctx, first.JobID); err != nil ||
		change.State != client.ForgeRunStateQueued || change.Attempt != 1 {
		t.Errorf("FR-139 %+v, %v", change, err)
	}
	if job, err = forge.Wait(ctx, first.JobID); err != nil || job.Attempt != 1 {
		t.Errorf("FR-140 %+v, %v", job, err)
	}
	if change, err := forge.Cancel(ctx, first.JobID); err != nil ||
		change.State != client.ForgeRunStateFailed || !change.UpdatedAt.Equal(job.UpdatedAt) {
		t.Errorf("FR-137 %+v, %v", change, err)
	}
	_, err = forge.Get(ctx, id)
	wantCode(t, "FR-124 an unknown job", err, client.ErrNotFound, client.ForgeRunCodeNotFound)

	due := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	later, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeDeferred,
		ExecutionAt: due})
	if err != nil {
		t.Fatal(err)
	}
	if job, err := forge.Get(ctx, later.JobID); err != nil || job.ExecutionAt == nil ||
		!job.ExecutionAt.Equal(due) || job.Outcome != "" {
		t.Errorf("FR-166 %+v, %v", job, err)
	}
	_, err = forge.Report(ctx, later.JobID)
	wantCode(t, "FR-126 no report yet", err, client.ErrNotFound, client.ForgeRunCodeNotFound)
	_, err = forge.Retry(ctx, later.JobID)
	wantCode(t, "FR-141 nothing to retry", err, client.ErrConflict, client.ForgeRunCodeConflict)
	all := mustCollect(t, forge.Jobs(ctx, client.ForgeRunFilter{PageSize: 1}))
	created := mustCollect(t,
		forge.Jobs(ctx, client.ForgeRunFilter{State: client.ForgeRunStateCreated}))
	if len(all) != 2 || len(created) != 1 || created[0].ID != later.JobID {
		t.Errorf("G-FR-43 %d jobs, created %+v", len(all), created)
	}
	if change, err := forge.Cancel(ctx, later.JobID); err != nil ||
		change.State != client.ForgeRunStateCanceled {
		t.Errorf("FR-134 %+v, %v", change, err)
	}
}

// The SDK and a real server agree on webhooks, and on how they are signed.
func TestSDKWebhooks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	open, id, key := sdkServer(t)
	forge := open.WithAPIKey(key.APIKey)
	type request struct {
		header http.Header
		body   []byte
	}
	got := make(chan request, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, body}
	}))
	t.Cleanup(receiver.Close)
	receive := func(secrets ...string) client.ForgeRunWebhookEvent {
		t.Helper()
		select {
		case r := <-got:
			notice, err := client.VerifyWebhook(secrets, r.header, r.body, time.Now())
			if err != nil {
				t.Errorf("G-FR-48 %v", err)
			}
			return notice
		case <-time.After(testTimeout):
			t.Fatal("no webhook came")
			return client.ForgeRunWebhookEvent{}
		}
	}
	events := []client.ForgeRunEventName{client.ForgeRunEventJobSucceeded}
	hook, err := forge.CreateWebhook(ctx, receiver.URL, events, "mine")
	if err != nil || hook.ID == "" || hook.Secret == "" {
		t.Fatalf("FR-185 %+v, %v", hook, err)
	}
	if repeated, err := forge.CreateWebhook(ctx, receiver.URL, events, "mine"); err != nil ||
		repeated.ID != hook.ID || repeated.Secret != "" {
		t.Errorf("G-FR-58 %+v, %v", repeated, err)
	}
	_, err = forge.CreateWebhook(ctx, receiver.URL, events, "")
	wantCode(t, "FR-187 twice", err, client.ErrConflict, client.ForgeRunCodeConflict)
	_, err = forge.CreateWebhook(ctx, receiver.URL, nil, "")
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("G-FR-49 %v", err)
	}
	fresh, err := forge.RotateWebhookSecret(ctx, hook.ID)
	if err != nil || fresh == "" || fresh == hook.Secret {
		t.Fatalf("%q, %v", fresh, err)
	}
	list := mustCollect(t, forge.Webhooks(ctx))
	if len(list) != 1 || list[0].ID != hook.ID || list[0].URL != receiver.URL ||
		!slices.Equal(list[0].Events, events) || list[0].Disabled {
		t.Errorf("%+v", list)
	}
	receipt, err := forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeEmitEvent,
		Kind: client.ForgeRunWorkSuccessFast})
	if err != nil {
		t.Fatal(err)
	}
	notice := receive(hook.Secret) // both sign for a day
	if notice.JobID != receipt.JobID || notice.Name != client.ForgeRunEventJobSucceeded ||
		notice.Prev != client.ForgeRunStateRunning ||
		notice.Scenario != client.ForgeRunWorkSuccessFast {
		t.Errorf("FR-196 %+v", notice)
	}
	var deliveries []client.ForgeRunDelivery
	pollUntil(t.Fatalf, "the delivery to be recorded", func() bool {
		deliveries = mustCollect(t, forge.Deliveries(ctx, hook.ID, 1))
		return len(deliveries) == 1 && deliveries[0].Status == client.ForgeRunDeliveryDelivered
	})
	if d := deliveries[0]; d.EventID != notice.EventID || len(d.Attempts) != 1 ||
		d.Attempts[0].StatusCode != 200 || d.NextAttemptAt != nil {
		t.Errorf("G-FR-62 %+v", d)
	}
	replay, err := forge.ReplayDelivery(ctx, hook.ID, deliveries[0].ID)
	if err != nil || replay.EventID != notice.EventID || replay.ID == deliveries[0].ID {
		t.Errorf("%+v, %v", replay, err)
	}
	if repeated := receive(fresh); repeated.EventID != notice.EventID {
		t.Errorf("replayed %+v", repeated)
	}
	if enabled, err := forge.EnableWebhook(ctx, hook.ID); err != nil || enabled.Disabled ||
		enabled.ID != hook.ID {
		t.Errorf("%+v, %v", enabled, err)
	}
	if err := forge.DeleteWebhook(ctx, hook.ID); err != nil {
		t.Error(err)
	}
	wantCode(t, "FR-188 again", forge.DeleteWebhook(ctx, hook.ID), client.ErrNotFound,
		client.ForgeRunCodeNotFound)
	_, err = forge.RotateWebhookSecret(ctx, id)
	wantCode(t, "an unknown one", err, client.ErrNotFound, client.ForgeRunCodeNotFound)

	_, err = forge.Submit(ctx, client.ForgeRunSpec{Type: client.ForgeRunTypeExecute,
		Kind: client.ForgeRunWorkSuccessFast, Callback: receiver.URL + "/callback"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []client.ForgeRunEventName{client.ForgeRunEventJobCreated,
		client.ForgeRunEventJobQueued,
		client.ForgeRunEventJobAssigned, client.ForgeRunEventJobStarted,
		client.ForgeRunEventJobSucceeded} {
		if notice := receive(key.CallbackSecret); notice.Name != want {
			t.Errorf("FR-189 %s, want %s", notice.Name, want)
		}
	}
}
