package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
)

// noticed is an audience that wants notices alone.
type noticed struct{}

func (noticed) Wants(*job.Job, job.Event) (wanted, readsBodies bool) { return false, false }

func (noticed) Message(*job.Job, job.Event) []byte { return nil }

func (noticed) EventBody(n engine.FeedEvent) []byte {
	data, err := json.Marshal(n.Data)
	return fmt.Appendf(nil, "%s of %s, %s: %s %v", n.Type, n.JobType, n.Subject, data, err)
}

// WH-002: a time that is missed is published once, with its tick; one that is submitted is not.
func TestMissedIsPublished(t *testing.T) {
	onEveryStore(t, func(w *world) {
		w.engine.SetFeed(engine.Feed{JobType: "feed",
			Read: func(engine.RecordReader) (engine.Subscriptions, error) {
				return noticed{}, nil
			}})
		w.create("s", func(d *schedule.Definition) { d.CatchUp = schedule.CatchUpNone })
		w.passes(time.Minute, time.Minute)
		w.clock.Jump(5 * time.Minute)
		w.run(w)
		w.passes(time.Minute, time.Minute)
		w.wantTicks("SC-005", "s", "60 submitted", "360 missed for 4 more", "420 submitted")
		var published []string
		if _, err := w.engine.Publish(context.Background(),
			func(_ context.Context, all []job.Message) error {
				for _, m := range all {
					published = append(published, string(m.Body))
				}
				return nil
			}, "feed"); err != nil {
			t.Fatal(err)
		}
		ticks, err := w.Ticks(context.Background(), "s")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{fmt.Sprintf(`schedule.missed of taskflow, schedule s: {"schedule":"s",`+
			`"contract":"taskflow","time":"2026-03-01T12:06:00Z","passed":4,"error":%q} <nil>`,
			ticks[1].Error)}
		if !slices.Equal(published, want) {
			t.Errorf("WH-002 published %q, want %q", published, want)
		}
	})
}
