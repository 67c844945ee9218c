package fetchbox_test

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/contract/fetchbox"
	"github.com/millrace/millrace/internal/events"
	"github.com/millrace/millrace/internal/job"
)

// TestStatesOfEvents: WH-003: the previous state of an event is the status that the events before
// it reported. A job whose tasks have succeeded is completed to its clients, and its event comes
// only when its handler has finished.
func TestStatesOfEvents(t *testing.T) {
	t.Parallel()
	w := inMemory(t, config())
	catalog := events.New([]*contract.Contract{w.fetchbox.Offer()})
	const none = "<nil>"
	for _, c := range []struct {
		from           job.State
		on             job.Cause
		failed         int // dependencies, after the change
		previous, then string
	}{
		{job.StateNone, job.Submitted, 0, none, "queued"},
		{"queued", job.Started, 0, "queued", "in_progress"},
		{"finalizing", job.Succeeded, 0, "in_progress", "completed"},
		{"finalizing", job.FailedForGood, 1, "in_progress", "failed"},
		{"closing", job.Succeeded, 0, "in_progress", "completed"},
		{"closing", job.FailedForGood, 1, "in_progress", "failed"},
		{"ended", job.Retried, 0, "in_progress", "in_progress"},
		{"finalizing", job.Retried, 0, "in_progress", "in_progress"},
		{"completed", job.Retried, 0, "completed", "in_progress"},
		{"failed", job.Retried, 0, "failed", "in_progress"},
	} {
		tr, ok := fetchbox.JobMachine.Next(c.from, c.on)
		if !ok {
			t.Fatalf("%s does not change by %s", c.from, c.on)
		}
		j := &job.Job{ID: job.ID{JobType: fetchbox.Name, Key: "k"}, State: tr.To,
			FailedDeps: c.failed}
		data, _ := catalog.Data(j, job.Event{Prev: c.from, Cause: c.on, Next: tr.To})
		var got struct {
			State    string
			Previous *string `json:"previous_state"`
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		previous := none
		if got.Previous != nil {
			previous = *got.Previous
		}
		what := "WH-003 " + string(c.from) + " " + string(c.on)
		assertEqual(t, what+": previous state", previous, c.previous)
		assertEqual(t, what+": state", got.State, c.then)
	}
}
