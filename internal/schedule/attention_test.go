package schedule_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/schedule"
)

// wantAttention fails unless these schedules need attention, and all others are listed beside them.
func (w *world) wantAttention(what string, want ...string) {
	w.Helper()
	found, err := w.NeedingAttention(context.Background(), 100)
	if err != nil {
		w.Fatal(err)
	}
	all, err := w.List(context.Background(), "", 100)
	if err != nil {
		w.Fatal(err)
	}
	var got, byState []string
	for _, s := range found {
		got = append(got, s.Name)
	}
	for _, s := range all {
		if s.NeedsAttention() {
			byState = append(byState, s.Name)
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(byState, want) {
		w.Errorf("CO-002 %s: %q need attention, and by their states %q, want %q", what, got, byState, want)
	}
}

// CO-002: what needs attention is found without reading the others: a schedule that cannot submit,
// or has missed its latest time, until a later time is submitted or other times are set.
func TestNeedsAttention(t *testing.T) {
	onEveryStore(t, func(w *world) {
		ctx := context.Background()
		for i := range 20 {
			w.create(fmt.Sprintf("other%02d", i), func(d *schedule.Definition) { d.Every = 1000 * time.Hour })
		}
		for _, name := range []string{"a", "b"} {
			w.create(name, func(d *schedule.Definition) { d.Every = time.Hour })
		}
		w.wantAttention("at first")
		served := w.Contracts
		w.Contracts = nil // as on a node that serves them no more
		w.passes(time.Hour+30*time.Second, 30*time.Second)
		w.wantAttention("while they are refused", "a", "b")
		if few, err := w.NeedingAttention(ctx, 1); err != nil || len(few) != 1 ||
			few[0].Name != "a" {
			w.Errorf("the first one is %v: %v", few, err)
		}
		w.Contracts = served
		if _, err := w.Edit(ctx, "b", func(s *schedule.Schedule) error {
			s.Every = 500 * time.Hour
			return nil
		}, nil); err != nil {
			w.Fatal(err)
		}
		w.wantAttention("after other times were set", "a")
		w.Contracts = nil
		w.passes(2*time.Minute, 10*time.Second)
		w.wantTicks("SC-006", "a", "3600 missed")
		w.wantAttention("after one was missed", "a")
		if _, err := w.Pause(ctx, "a", true, nil); err != nil {
			w.Fatal(err)
		}
		w.wantAttention("while it is paused", "a")
		w.Contracts = served
		if _, err := w.Pause(ctx, "a", false, nil); err != nil {
			w.Fatal(err)
		}
		w.passes(time.Hour, 10*time.Minute)
		w.wantAttention("after the next one was submitted")
		w.Contracts = nil
		w.passes(time.Hour, 30*time.Minute)
		w.wantAttention("when it is refused again", "a")
		if err := w.Remove(ctx, "a", false, nil); err != nil {
			w.Fatal(err)
		}
		w.wantAttention("after it was removed")
	})
}
