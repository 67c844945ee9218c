package schedule_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/schedule"
)

// wantInNeed fails unless these schedules are in need, and all others are listed beside them.
func (w *world) wantInNeed(what string, want ...string) {
	w.Helper()
	found, err := w.NeedingAttention(context.Background(), 100)
	if err != nil {
		w.Fatal(err)
	}
	all, err := w.List(context.Background(), "", 100)
	if err != nil {
		w.Fatal(err)
	}
	var got, really []string
	for _, s := range found {
		got = append(got, s.Name)
	}
	for _, s := range all {
		if s.IsInNeed() {
			really = append(really, s.Name)
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(really, want) {
		w.Errorf("CO-002 %s: in need are %q, and by their states %q, want %q", what, got, really, want)
	}
}

// CO-002: what is in need is found without reading the others: a schedule that cannot submit, or
// has missed its latest time, until a later time is submitted or other times are set.
func TestInNeed(t *testing.T) {
	onEveryStore(t, func(w *world) {
		ctx := context.Background()
		for i := range 20 {
			w.create(fmt.Sprintf("calm%02d", i), func(d *schedule.Definition) { d.Every = 1000 * time.Hour })
		}
		for _, name := range []string{"a", "b"} {
			w.create(name, func(d *schedule.Definition) { d.Every = time.Hour })
		}
		w.wantInNeed("at first")
		served := w.Contracts
		w.Contracts = nil // as on a node that serves them no more
		w.passes(time.Hour+30*time.Second, 30*time.Second)
		w.wantInNeed("while they are refused", "a", "b")
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
		w.wantInNeed("after other times were set", "a")
		w.Contracts = nil
		w.passes(2*time.Minute, 10*time.Second)
		w.wantTicks("SC-006", "a", "3600 missed")
		w.wantInNeed("after one was missed", "a")
		if _, err := w.Pause(ctx, "a", true, nil); err != nil {
			w.Fatal(err)
		}
		w.wantInNeed("while it is paused", "a")
		w.Contracts = served
		if _, err := w.Pause(ctx, "a", false, nil); err != nil {
			w.Fatal(err)
		}
		w.passes(time.Hour, 10*time.Minute)
		w.wantInNeed("after the next one was submitted")
		w.Contracts = nil
		w.passes(time.Hour, 30*time.Minute)
		w.wantInNeed("when it is refused again", "a")
		if err := w.Remove(ctx, "a", false, nil); err != nil {
			w.Fatal(err)
		}
		w.wantInNeed("after it was removed")
	})
}
