package client_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store/storetest/pgtest"
	"github.com/millrace/millrace/internal/testkit"
)

// TestAdminInbox lists, shows, retries and discards what a producer has submitted by SQL (TX-003).
func TestAdminInbox(t *testing.T) {
	t.Parallel()
	p := testkit.OnPostgres(t)
	var e *engine.Engine
	api, with := serveAdminOn(t, p, func(c *admin.Config) { withRelay(t)(c); e = c.Engine })
	operator, ctx, db := with(api.Token()), t.Context(), pgtest.DB(t, p.URL)
	ids := make([]string, 3)
	for i := range ids {
		if err := db.QueryRow(`SELECT submit('relay', '{"queue":"q","id":"1","timeout":9}',
			'key' || $1::int)`, i).Scan(&ids[i]); err != nil {
			t.Fatal(err)
		}
	}
	list := func(f client.AdminInboxFilter) (all []client.AdminInboxRequest) {
		t.Helper()
		for r, err := range operator.Inbox(ctx, f) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		return all
	}
	all := list(client.AdminInboxFilter{PageSize: 2})
	if len(all) != 3 || all[2].ID != ids[0] || all[2].State != client.AdminInboxWaiting ||
		all[2].IdempotencyKey != "key0" || all[2].Producer == "" || all[2].FinishedAt != nil {
		t.Fatalf("got %+v", all)
	}
	if err := e.ChangeInbox(ctx, job.InboxChanges{Update: []job.InboxRequest{{Number: all[2].Number,
		State: job.InboxRefused, Error: "no"}}}); err != nil {
		t.Fatal(err)
	}
	one, err := operator.InboxRequest(ctx, ids[0])
	if err != nil || one.State != client.AdminInboxRefused || one.Error != "no" ||
		one.FinishedAt == nil || one.Truncated ||
		string(one.Request) != `{"queue":"q","id":"1","timeout":9}` {
		t.Errorf("got %+v, %v", one, err)
	}
	refused := list(client.AdminInboxFilter{State: client.AdminInboxRefused, Contract: "relay"})
	if len(refused) != 1 || refused[0].ID != ids[0] {
		t.Errorf("refused are %+v", refused)
	}
	if got := list(client.AdminInboxFilter{Contract: "taskflow"}); len(got) != 0 {
		t.Errorf("of TaskFlow are %+v", got)
	}
	if one, err = operator.RetryInboxRequest(ctx, ids[0]); err != nil ||
		one.State != client.AdminInboxWaiting || one.Error != "" {
		t.Errorf("got %+v, %v", one, err)
	}
	if _, err := operator.RetryInboxRequest(ctx, ids[0]); !errors.Is(err, client.ErrConflict) {
		t.Errorf("a second retry: %v", err)
	}
	if err := operator.DiscardInboxRequest(ctx, ids[0]); err != nil {
		t.Error(err)
	}
	if err := operator.DiscardInboxRequest(ctx, ids[0]); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a second discard: %v", err)
	}
	for _, err := range operator.Inbox(ctx, client.AdminInboxFilter{State: "gone"}) {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("a state that there is not: %v", err)
		}
	}
}
