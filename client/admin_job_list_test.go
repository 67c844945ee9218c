package client_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

// TestAdminJobList lists jobs by filters, over several pages and in both orders (AD-010, AD-011).
func TestAdminJobList(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	for i := range 5 {
		if _, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
			Request: fmt.Appendf(nil, `{"queue":"q%d","id":"%d","timeout":1,"max_retries":0,
				"payload":{"a":"b%d"}}`, i%2, i, i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		list client.AdminJobQuery
		want string
	}{
		{client.AdminJobQuery{}, "43210"},
		{client.AdminJobQuery{Oldest: true, PageSize: 2}, "01234"},
		{client.AdminJobQuery{Filter: client.AdminFilter{Queue: "q0"}, PageSize: 1}, "420"},
		{client.AdminJobQuery{Filter: client.AdminFilter{Contract: "relay", Queue: "q1",
			States: []string{"queued", "running"}, Phases: []string{"ready", "dead"}}}, "31"},
		{client.AdminJobQuery{Filter: client.AdminFilter{BodyContains: "B4"}}, "4"},
		{client.AdminJobQuery{Filter: client.AdminFilter{ParentNumber: 77}}, ""},
		{client.AdminJobQuery{Filter: client.AdminFilter{CreatedFrom: time.Unix(1, 0),
			MaxAge: "90m", ID: "3"}}, "3"},
	} {
		got := ""
		for j, err := range operator.Jobs(ctx, tt.list) {
			if err != nil || j.Number < 1 || j.Phase != "ready" || j.Kind != nil {
				t.Fatalf("%+v: got %+v, %v", tt.list, j, err)
			}
			got += j.ID
		}
		if got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.list, got, tt.want)
		}
	}
	var refused *client.Error
	for _, err := range operator.Jobs(ctx, client.AdminJobQuery{
		Filter: client.AdminFilter{Fingerprint: "f"}}) {
		if !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("got %v", err)
		}
	}
	if refused == nil {
		t.Error("a filter of dead letters is ignored")
	}
}
