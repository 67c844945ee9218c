package client_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/contract"
)

// TestAdminClients lists clients, limits one and revokes its key (AD-053).
func TestAdminClients(t *testing.T) {
	t.Parallel()
	var forge *contract.Contract
	api, with := serveAdmin(t, withForgeRun(t, &forge))
	operator, ctx := with(api.Token()), t.Context()
	var ids []string
	for range 3 {
		c, err := forge.Accounts.CreateClient(ctx, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	key, err := forge.Accounts.CreateKey(ctx, ids[1], nil, false, "")
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, c := range mustCollect(t, operator.Contracts(ctx)) {
		names += c.Contract + " "
		if !slices.IsSorted(c.States) || len(c.States) == 0 {
			t.Errorf("got %+v", c)
		}
	}
	if names != "forgerun webhook " {
		t.Errorf("CL-005 the contracts are %q", names)
	}
	var listed []string
	for _, c := range mustCollect(t, operator.Clients(ctx, 2)) {
		listed = append(listed, c.ID)
		if c.Jobs.Count == nil || *c.Jobs.Count != 0 || c.RateLimitPerMinute != 1000 {
			t.Errorf("got %+v", c)
		}
	}
	slices.Sort(ids)
	if !slices.Equal(listed, ids) {
		t.Errorf("got %v, want %v", listed, ids)
	}
	id := key.Key.ClientID
	got, err := operator.SetClient(ctx, id, client.AdminClientChange{
		RateLimitPerMinute: client.LimitTo(5), QuotaPerDay: client.LimitTo(70)})
	if err != nil || got.RateLimitPerMinute != 5 || got.QuotaPerDay != 70 ||
		len(got.OverriddenLimits) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = operator.SetClient(ctx, id, client.AdminClientChange{
		RateLimitPerMinute: client.LimitFromSettings()})
	if err != nil || got.RateLimitPerMinute != 1000 || got.QuotaPerDay != 70 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = operator.RevokeAPIKey(ctx, id, key.Key.ID); err != nil ||
		got.APIKeys[0].State != "revoked" || got.APIKeys[0].RevokedAt == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = operator.Client(ctx, id); err != nil || got.ID != id || len(got.APIKeys) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err = operator.Client(ctx, key.Key.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("another id: %v", err)
	}
	if _, err = operator.RevokeAPIKey(ctx, id, id); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
	var e *client.Error
	if _, err = operator.SetClient(ctx, id, client.AdminClientChange{}); !errors.As(err, &e) ||
		e.Status != 400 {
		t.Errorf("no change: %v", err)
	}
}
