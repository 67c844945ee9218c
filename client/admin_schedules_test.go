package client_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/millrace/millrace/client"
)

// TestAdminSchedules makes, changes, pauses, runs and deletes a schedule (SC-001).
func TestAdminSchedules(t *testing.T) {
	t.Parallel()
	api, with := serveAdmin(t, withRelay(t))
	operator, ctx := with(api.Token()), t.Context()
	every, contract := "1m", "relay"
	spec := client.AdminScheduleSpec{Every: &every, Contract: &contract, Request: json.RawMessage(
		`{"queue":"q","id":"1","timeout":60,"max_retries":0,"payload":1}`)}
	made, err := operator.CreateSchedule(ctx, "s", spec)
	if err != nil || made.Every != "1m" || len(made.NextTimes) != 1 || made.LastTick != nil {
		t.Fatalf("got %+v, %v", made, err)
	}
	if _, err := operator.CreateSchedule(ctx, "s", spec); !errors.Is(err, client.ErrConflict) {
		t.Errorf("got %v", err)
	}
	cron := "@daily"
	if s, err := operator.SetSchedule(ctx, "s", client.AdminScheduleSpec{Cron: &cron}); err != nil ||
		s.Cron != cron || s.Every != "" {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := operator.PauseSchedule(ctx, "s"); err != nil || !s.Paused {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := operator.ResumeSchedule(ctx, "s"); err != nil || s.Paused {
		t.Errorf("got %+v, %v", s, err)
	}
	if j, err := operator.RunSchedule(ctx, "s"); err != nil || j.Contract != "relay" {
		t.Errorf("got %+v, %v", j, err)
	}
	if s, err := operator.Schedule(ctx, "s", 5); err != nil || len(s.NextTimes) != 5 {
		t.Errorf("got %+v, %v", s, err)
	}
	for s, err := range operator.Schedules(ctx, 1) {
		if err != nil || s.Name != "s" {
			t.Errorf("got %+v, %v", s, err)
		}
	}
	for tick, err := range operator.ScheduleTicks(ctx, "s") {
		t.Errorf("got %+v, %v", tick, err)
	}
	if err := operator.DeleteSchedule(ctx, "s"); err != nil {
		t.Errorf("got %v", err)
	}
	if err := operator.DeleteSchedule(ctx, "s"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
