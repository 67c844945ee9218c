package client_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/client"
)

// TestAdminCounts reads counts over several pages (AD-018).
func TestAdminCounts(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	for i, queue := range []string{"a", "b", "b"} {
		if _, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
			Request: fmt.Appendf(nil, `{"queue":%q,"id":"%d","timeout":60,"max_retries":0,"payload":1}`,
				queue, i)}); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int64{}
	for _, by := range []string{"queue", "state", "phase"} {
		for n, err := range operator.Counts(ctx, client.AdminCountQuery{By: by, PageSize: 1}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, value := range []*string{n.Queue, n.State, n.Phase} {
				if value != nil {
					got[by+" "+*value] = *n.Count
				}
			}
		}
	}
	for name, want := range map[string]int64{"queue a": 1, "queue b": 2, "state queued": 3,
		"phase ready": 3, "phase dead": 0} {
		if n, counted := got[name]; !counted || n != want {
			t.Errorf("AD-018 %s has %d, want %d", name, n, want)
		}
	}
	for _, err := range operator.Counts(ctx, client.AdminCountQuery{By: "color"}) {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
}
