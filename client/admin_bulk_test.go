package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
)

// TestAdminBulk starts, shows, lists and changes bulk operations, of which none goes on, as the
// server does no work in the background (AD-020, AD-021, AD-033).
func TestAdminBulk(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, func(c *admin.Config) { withRelay(t)(c) })
	operator, reader, ctx := with(api.Token()), with("reader"), t.Context()
	for i := range 3 {
		if _, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
			Request: fmt.Appendf(nil, `{"queue":"q","id":"%d","timeout":60,"max_retries":0,
				"payload":{}}`, i)}); err != nil {
			t.Fatal(err)
		}
	}
	r := client.AdminBulkRequest{Action: client.AdminActionDelete, Filter: client.AdminFilter{
		Contract: "relay", Queue: "q", Phases: []string{"ready"}, MaxAge: "1h",
		CreatedBefore: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}, RatePerSecond: 5, Canary: 1}
	seen, err := reader.PreviewBulkOperation(ctx, r)
	if err != nil || seen.Matching != 3 || len(seen.Sample) != 3 || seen.Refused != 0 {
		t.Errorf("AD-020 the dry run saw %+v, %v", seen, err)
	}
	if _, err := operator.StartBulkOperation(ctx, client.AdminBulkRequest{
		Action: client.AdminActionDelete}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("AD-020 an empty filter: %v", err)
	}
	id, err := operator.StartBulkOperation(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	cleared, err := operator.ClearQueue(ctx, "relay", "q")
	if err != nil || cleared == id {
		t.Errorf("AD-033 got %q, %v", cleared, err)
	}
	if b, err := operator.BulkOperation(ctx, id); err != nil || b.ID != id || b.State != "running" ||
		b.RatePerSecond != 5 || b.Canary != 1 || b.Total != nil || b.EndedAt != nil {
		t.Errorf("AD-021 got %+v, %v", b, err)
	}
	b, err := operator.PauseBulkOperation(ctx, id)
	if err != nil || b.State != "paused" || b.Reason != "operator" {
		t.Errorf("AD-021 paused is %+v, %v", b, err)
	}
	if b, err = operator.ResumeBulkOperation(ctx, id); err != nil || b.State != "running" {
		t.Errorf("AD-021 resumed is %+v, %v", b, err)
	}
	if b, err = operator.CancelBulkOperation(ctx, id); err != nil || b.State != "canceled" {
		t.Errorf("AD-021 canceled is %+v, %v", b, err)
	}
	if _, err = operator.CancelBulkOperation(ctx, id); !errors.Is(err, client.ErrConflict) {
		t.Errorf("AD-021 a second cancel: %v", err)
	}
	if _, err = operator.BulkOperation(ctx, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("AD-021 an id that there is not: %v", err)
	}
	listed := map[string]bool{}
	for b, err := range operator.BulkOperations(ctx, 1) {
		if err != nil {
			t.Fatal(err)
		}
		listed[b.ID] = true
	}
	if len(listed) != 2 || !listed[id] || !listed[cleared] {
		t.Errorf("AD-021 the list has %v", listed)
	}
}
