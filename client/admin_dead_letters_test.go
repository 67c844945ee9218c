package client_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
	"github.com/millrace/millrace/internal/admin"
	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
)

// TestAdminDeadLetters lists, replays and discards a dead letter (AD-050, AD-051).
func TestAdminDeadLetters(t *testing.T) {
	t.Parallel()
	var e *engine.Engine
	api, with := serveAdmin(t, func(c *admin.Config) { withRelay(t)(c); e = c.Engine })
	operator, ctx := with(api.Token()), t.Context()
	j, err := operator.SubmitJob(ctx, client.AdminSubmission{Contract: "relay",
		Request: []byte(`{"queue":"q","id":"1","timeout":60,"max_retries":0,"payload":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := e.Claim(ctx, engine.ClaimRequest{JobType: "relay", Max: 1})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	if _, err := e.Finish(ctx, engine.Run{ID: claimed[0].ID, Run: claimed[0].Run},
		engine.Outcome{On: job.ExpiredForGood}); err != nil {
		t.Fatal(err)
	}
	list := func(f client.AdminDeadLetterFilter) (all []client.AdminDeadLetter) {
		t.Helper()
		for l, err := range operator.DeadLetters(ctx, f) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		return all
	}
	all := list(client.AdminDeadLetterFilter{Contract: "relay", Queue: "q"})
	if len(all) != 1 || all[0].Number != j.Number || all[0].ReplayedAs != nil {
		t.Fatalf("got %+v", all)
	}
	for g, err := range operator.DeadLetterGroups(ctx, "", 1) {
		if err != nil || g.Count != 1 || g.Fingerprint != all[0].Fingerprint ||
			g.ErrorType != "expired_for_good" || !g.LastAt.Equal(all[0].FailedAt) {
			t.Errorf("the group is %+v, %v", g, err)
		}
	}
	if one, err := operator.DeadLetter(ctx, all[0].ID); err != nil || one != all[0] {
		t.Errorf("got %+v, %v", one, err)
	}
	made, err := operator.ReplayDeadLetter(ctx, all[0].ID, false)
	if err != nil || made.State != "queued" || made.SourceNumber == nil {
		t.Errorf("got %+v, %v", made, err)
	}
	_, err = operator.ReplayDeadLetter(ctx, all[0].ID, false)
	if !errors.Is(err, client.ErrConflict) {
		t.Errorf("a second replay: %v", err)
	}
	all = list(client.AdminDeadLetterFilter{Fingerprint: all[0].Fingerprint})
	if len(all) != 1 || all[0].ReplayedAs == nil || *all[0].ReplayedAs != made.Number {
		t.Fatalf("got %+v", all)
	}
	if err := operator.DiscardDeadLetter(ctx, all[0].ID); err != nil {
		t.Error(err)
	}
	if err := operator.DiscardDeadLetter(ctx, all[0].ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a second discard: %v", err)
	}
	if all = list(client.AdminDeadLetterFilter{}); len(all) != 0 {
		t.Errorf("got %+v", all)
	}
}
