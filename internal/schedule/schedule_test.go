package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/schedule"
	"github.com/millrace/millrace/internal/testkit"
	"github.com/millrace/millrace/internal/worker"
)

func (w *world) wantTicks(what, name string, want ...string) {
	w.Helper()
	if got := w.ticksOf(name); !slices.Equal(got, want) {
		w.Errorf("%s: the ticks are %q, want %q", what, got, want)
	}
}

// SC-001, SC-006: a schedule submits at its times, and each has a tick.
func TestTimes(t *testing.T) {
	onEveryStore(t, func(w *world) {
		w.create("s", nil)
		w.passes(3*time.Minute+10*time.Second, 10*time.Second)
		jobs := w.wantJobs("SC-001", 3)
		w.wantTicks("SC-006", "s", "60 submitted", "120 submitted", "180 submitted")
		ticks, err := w.Ticks(context.Background(), "s")
		if err != nil || ticks[0].Job != jobs[2].Seq || ticks[0].Lateness != 0 {
			w.Errorf("SC-006 the latest tick is %+v: %v", ticks[0], err)
		}
		s, err := w.Get(context.Background(), "s")
		if next := s.Next(w.clock.Now(), 2); err != nil || len(next) != 2 ||
			next[0].Sub(testkit.StartTime) != 4*time.Minute {
			w.Errorf("SC-003 the next times are %v: %v", next, err)
		}
	})
}

// SC-004: what happens while the job of an earlier time is not done.
func TestOverlap(t *testing.T) {
	for overlap, want := range map[schedule.Overlap][]string{
		schedule.Allow:   {"60 submitted", "120 submitted", "180 submitted"},
		schedule.Skip:    {"60 submitted", "120 skipped", "180 skipped"},
		schedule.Queue:   {"60 submitted", "180 skipped"},
		schedule.Replace: {"60 submitted", "120 submitted", "180 submitted"},
	} {
		t.Run("SC-004 "+string(overlap), func(t *testing.T) {
			onEveryStore(t, func(w *world) {
				w.create("s", func(d *schedule.Definition) { d.Overlap = overlap })
				w.passes(3*time.Minute, 30*time.Second)
				w.wantTicks("SC-004", "s", want...)
				if overlap != schedule.Queue {
					return
				}
				w.endJob()
				w.passes(time.Second, 500*time.Millisecond)
				w.wantTicks("G-AD-16 a second later", "s", "60 submitted", "180 skipped",
					"120 submitted")
				w.wantJobs("SC-004", 2)
			})
		})
	}
}

// SC-005: what happens about times that have passed.
func TestCatchUp(t *testing.T) {
	for catchUp, want := range map[schedule.CatchUp][]string{
		schedule.CatchUpLast: {"60 submitted", "360 submitted for 4 more", "420 submitted"},
		schedule.CatchUpNone: {"60 submitted", "360 missed for 4 more", "420 submitted"},
		schedule.CatchUpAll: {"60 submitted", "120 submitted", "180 submitted", "240 submitted",
			"300 submitted", "360 submitted", "420 submitted"},
	} {
		t.Run("SC-005 "+string(catchUp), func(t *testing.T) {
			onEveryStore(t, func(w *world) {
				for _, name := range []string{"down", "jump"} {
					w.create(name, func(d *schedule.Definition) { d.CatchUp = catchUp })
				}
				w.passes(time.Minute, time.Minute)
				if _, err := w.Pause(context.Background(), "down", true, nil); err != nil {
					w.Fatal(err)
				}
				w.clock.Jump(5 * time.Minute)
				if _, err := w.Pause(context.Background(), "down", false, nil); err != nil {
					w.Fatal(err)
				}
				w.run(w)
				w.passes(time.Minute, time.Minute)
				w.wantTicks("SC-005 after a pause", "down", want...)
				w.wantTicks("SC-005 after a jump", "jump", want...)
			})
		})
	}
	t.Run("SC-005 a jump back", func(t *testing.T) {
		onEveryStore(t, func(w *world) {
			w.create("s", nil)
			w.passes(2*time.Minute, time.Minute)
			w.clock.Jump(-90 * time.Second)
			w.passes(3*time.Minute, 10*time.Second)
			w.wantTicks("SC-005", "s", "60 submitted", "120 submitted", "180 submitted")
		})
	})
	t.Run("SC-005 at most 1,000", func(t *testing.T) {
		onEveryStore(t, func(w *world) {
			w.create("s", func(d *schedule.Definition) {
				d.Every, d.CatchUp = time.Second, schedule.CatchUpAll
			})
			w.clock.Jump(time.Hour)
			w.passes(30*time.Millisecond, time.Millisecond)
			w.wantJobs("SC-005", 1000)
			if got := w.ticksOf("s"); len(got) != 100 || got[99] != "3600 submitted" {
				w.Errorf("SC-006 %d ticks, the latest %s", len(got), got[len(got)-1])
			}
		})
	})
	t.Run("G-AD-16 less than a minute is no downtime", func(t *testing.T) {
		onEveryStore(t, func(w *world) {
			w.create("s", func(d *schedule.Definition) { d.Every = 10 * time.Second })
			w.passes(59*time.Second, 59*time.Second)
			w.wantJobs("G-AD-16", 5)
		})
	})
}

// SC-006: a tick that is refused is tried for a minute and missed then; the schedule goes on.
func TestRefused(t *testing.T) {
	onEveryStore(t, func(w *world) {
		s := w.create("s", func(d *schedule.Definition) { d.Every = time.Hour })
		if _, err := w.Change(context.Background(), s.Name, func(one *schedule.Schedule) error {
			one.Contract = "nothing"
			return nil
		}, nil); !job.IsKind(err, job.Invalid) {
			w.Fatalf("SC-002 a contract that there is not: %v", err)
		}
		w.Contracts = nil // as on a node that serves it no more
		w.passes(time.Hour+30*time.Second, 30*time.Second)
		_, why := w.wantFailing()
		w.passes(2*time.Minute, 10*time.Second)
		w.wantTicks("SC-006", "s", "3600 missed")
		ticks, err := w.Ticks(context.Background(), "s")
		if err != nil || len(ticks) != 1 || ticks[0].Error != why {
			w.Errorf("SC-006 the ticks are %+v, want the error %q: %v", ticks, why, err)
		}
		w.Contracts = w.newNode().Contracts
		w.passes(time.Hour, 10*time.Minute)
		w.wantTicks("SC-006 the schedule goes on", "s", "3600 missed", "7200 submitted")
	})
}

// SC-006: a time that was refused for a minute is missed by itself and with the error of the
// contract, also where the next one comes by then, and is none of a downtime.
func TestRefusedForLong(t *testing.T) {
	for _, catchUp := range schedule.CatchUps {
		t.Run("SC-006 "+catchUp, func(t *testing.T) {
			onEveryStore(t, func(w *world) {
				w.create("s", func(d *schedule.Definition) { d.CatchUp = schedule.CatchUp(catchUp) })
				served := w.Contracts
				w.Contracts = nil // as on a node that serves it no more
				w.passes(time.Minute+time.Millisecond, time.Minute+time.Millisecond)
				_, why := w.wantFailing()
				w.passes(4*time.Minute, 5*time.Second)
				w.wantTicks("SC-006", "s", "60 missed", "120 missed", "180 missed", "240 missed")
				ticks, err := w.Ticks(context.Background(), "s")
				for _, tick := range ticks {
					if err != nil || tick.Error != why {
						w.Errorf("SC-006 the error of a tick is %q, want %q: %v", tick.Error, why, err)
					}
				}
				w.Contracts = served
				w.passes(time.Minute, 5*time.Second)
				w.wantTicks("SC-006 the schedule goes on", "s", "60 missed", "120 missed",
					"180 missed", "240 missed", "300 submitted", "360 submitted")
			})
		})
	}
}

// SC-006: what was refused of the times of before an edit is not said of the new ones.
func TestEditOfARefusedSchedule(t *testing.T) {
	onEveryStore(t, func(w *world) {
		w.create("s", nil)
		served := w.Contracts
		w.Contracts = nil
		w.passes(time.Minute, time.Minute)
		w.wantFailing()
		w.Contracts = served
		edit := func(change func(*schedule.Schedule)) *schedule.Schedule {
			w.Helper()
			s, err := w.Edit(context.Background(), "s", func(s *schedule.Schedule) error {
				change(s)
				return nil
			}, nil)
			if err != nil {
				w.Fatal(err)
			}
			return s
		}
		edit(func(s *schedule.Schedule) { s.CatchUp = schedule.CatchUpNone })
		w.wantFailing()
		s := edit(func(s *schedule.Schedule) { s.Every = time.Hour })
		if at, why := s.Failing(); !at.IsZero() || why != "" {
			w.Errorf("SC-006 after the edit it is refused at %v: %s", at, why)
		}
	})
}

// wantFailing fails unless a time of the schedule s is refused at present, and returns it and why.
func (w *world) wantFailing() (at time.Time, why string) {
	w.Helper()
	s, err := w.Get(context.Background(), "s")
	if err != nil {
		w.Fatal(err)
	}
	if at, why = s.Failing(); at.IsZero() || why == "" {
		w.Fatalf("SC-006 while it is tried: %v %q", at, why)
	}
	return at, why
}

// SC-001: a jitter beyond the next time is refused: it would bring times out of their order, of
// which some were lost then.
func TestLongJitter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cron       string
		every, max time.Duration
	}{
		{every: time.Minute, max: time.Minute},
		{every: 48 * time.Hour, max: schedule.MaxJitter},
		{cron: "*/7 * * * *", max: 4 * time.Minute},
		{cron: "0 9,10,17 * * MON-FRI", max: time.Hour},
		{cron: "30 23 28,29 2 *", max: schedule.MaxJitter},
		{cron: "30 0,23 29 2 *", max: 23 * time.Hour},
	} {
		d := definition(func(d *schedule.Definition) {
			d.Cron, d.Every, d.Jitter = tt.cron, tt.every, tt.max
		})
		if err := d.Validate(); err != nil {
			t.Errorf("SC-001 %q %v with a jitter of %v: %v", tt.cron, tt.every, tt.max, err)
		}
		d.Jitter++
		if err := d.Validate(); !job.IsKind(err, job.Invalid) ||
			!strings.Contains(err.Error(), "jitter must be") {
			t.Errorf("SC-001 %q %v with a jitter of %v: %v", tt.cron, tt.every, d.Jitter, err)
		}
	}
}

// SC-004: three nodes, twenty kills between submission and outcome or before it, and each time has
// one job, over a gap and an overlap of the clock.
func TestEachTimeOnce(t *testing.T) {
	for _, tt := range []struct {
		what  string
		start time.Time
	}{
		{"the clock put ahead", time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)},
		{"the clock put back", time.Date(2026, 10, 25, 0, 0, 0, 0, time.UTC)},
	} {
		t.Run("SC-004 "+tt.what, func(t *testing.T) {
			onEveryStore(t, func(w *world) {
				w.clock.Jump(tt.start.Sub(w.clock.Now()))
				s := w.create("s", func(d *schedule.Definition) {
					d.Cron, d.Every, d.TimeZone = "*/5 * * * *", 0, "Europe/Berlin"
					d.CatchUp = schedule.CatchUpAll
				})
				want := s.Next(w.clock.Now(), 30)
				nodes := []*node{w.node, w.newNode(), w.newNode()}
				random := rand.New(rand.NewPCG(1, 2))
				kills := 0
				for ; w.clock.Now().Before(want[29].Add(time.Minute)); w.clock.Advance(15 * time.Second) {
					n := nodes[random.IntN(3)]
					for _, j := range n.claim(w, 10) {
						kind := random.IntN(3)
						if kills >= 20 {
							kind = 2
						}
						if kind == 0 { // killed before it did anything
							kills++
							continue
						}
						o := n.Handle(context.Background(), &worker.ClaimedJob{Job: j})
						if kind == 1 { // killed before its outcome was written
							kills++
							continue
						}
						n.finish(w, j, o)
					}
				}
				if kills != 20 {
					w.Errorf("%d kills, want 20", kills)
				}
				w.clock.Advance(time.Minute)
				w.run(w)
				ticks, err := w.Ticks(context.Background(), "s")
				if err != nil || len(ticks) < 30 {
					w.Fatalf("%d ticks: %v", len(ticks), err)
				}
				w.wantJobs("SC-004", len(ticks))
				slices.Reverse(ticks)
				for i, at := range want {
					if !ticks[i].Time.Equal(at) || ticks[i].Job == 0 {
						w.Errorf("SC-004 tick %d is %+v, want %v", i, ticks[i], at)
					}
				}
			})
		})
	}
}

// SC-001: a run that goes on while its schedule is paused, changed or deleted submits nothing more.
// A time that is due then is submitted once, by the schedule as it is now.
func TestChangeDuringARun(t *testing.T) {
	ctx := context.Background()
	must := func(w *world) func(_ *schedule.Schedule, err error) {
		return func(_ *schedule.Schedule, err error) {
			w.Helper()
			if err != nil {
				w.Fatal(err)
			}
		}
	}
	onEveryStore(t, func(w *world) {
		w.create("s", func(d *schedule.Definition) { d.CatchUp = schedule.CatchUpAll })
		ok := must(w)
		stale := func(change func()) {
			w.Helper()
			w.clock.Advance(time.Minute)
			j := w.claim(w, 1)[0]
			change()
			w.finish(w, j, w.Handle(ctx, &worker.ClaimedJob{Job: j}))
		}
		stale(func() { ok(w.Pause(ctx, "s", true, nil)) })
		w.wantJobs("SC-001 paused", 0)
		ok(w.Pause(ctx, "s", false, nil))
		w.run(w)
		w.wantJobs("SC-001 resumed", 1)
		stale(func() {
			ok(w.Edit(ctx, "s", func(s *schedule.Schedule) error {
				s.Request = []byte(`{"name":"n","queue":"other"}`)
				return nil
			}, nil))
		})
		w.wantJobs("SC-001 changed", 1)
		w.run(w)
		if jobs := w.wantJobs("SC-001 changed", 2); jobs[1].Queue != "other" {
			w.Errorf("SC-001 after the change it submits to %s", jobs[1].Queue)
		}
		stale(func() {
			if err := w.Remove(ctx, "s", false, nil); err != nil {
				w.Fatal(err)
			}
			w.create("s", nil)
		})
		w.wantJobs("SC-001 deleted", 2)
		w.passes(time.Minute, time.Minute)
		w.wantJobs("SC-001 made again", 3)
		w.wantTicks("SC-006 made again", "s", "240 submitted")
	})
}

// SC-004: of two runs of one time, as after a lease that has ended unnoticed, one submits.
func TestTwoRunsOfOneTime(t *testing.T) {
	onEveryStore(t, func(w *world) {
		w.create("s", nil)
		w.clock.Advance(time.Minute)
		j := w.claim(w, 1)[0]
		w.clock.Advance(30 * time.Second)
		again := w.claim(w, 1)
		if len(again) != 1 {
			w.Fatal("the run did not expire")
		}
		other := w.newNode()
		testkit.RunConcurrently(2, func(i int) error {
			n, one := w.node, j
			if i == 1 {
				n, one = other, again[0]
			}
			n.finish(w, one, n.Handle(context.Background(), &worker.ClaimedJob{Job: one}))
			return nil
		})
		w.run(w)
		w.wantJobs("SC-004", 1)
		w.wantTicks("SC-004", "s", "60 submitted")
	})
}

// SC-007: the settings' schedules are made, changed and removed; those of operators stay.
func TestSettings(t *testing.T) {
	onEveryStore(t, func(w *world) {
		w.create("mine", nil)
		w.create("both", nil)
		apply := func(all schedule.Settings) {
			w.Helper()
			w.Settings = all
			if err := w.ApplySettings(context.Background()); err != nil {
				w.Fatal(err)
			}
		}
		apply(schedule.Settings{"both": new(definition(nil)), "set": new(definition(nil))})
		ctx := context.Background()
		if _, err := w.Edit(ctx, "set", func(*schedule.Schedule) error { return nil },
			nil); !job.IsKind(err, job.Conflict) {
			w.Errorf("SC-007 an edit: %v", err)
		}
		if err := w.Remove(ctx, "both", false, nil); !job.IsKind(err, job.Conflict) {
			w.Errorf("SC-007 a removal: %v", err)
		}
		if _, err := w.Pause(ctx, "set", true, nil); err != nil {
			w.Errorf("SC-007 a pause: %v", err)
		}
		apply(schedule.Settings{"set": new(definition(func(d *schedule.Definition) {
			d.Every = time.Hour
		}))})
		if _, err := w.Get(ctx, "both"); !job.IsKind(err, job.NotFound) {
			w.Errorf("SC-007 it is still there: %v", err)
		}
		s, err := w.Get(ctx, "set")
		if err != nil || !s.Paused || s.Every != time.Hour {
			w.Errorf("SC-007 got %+v: %v", s, err)
		}
		apply(schedule.Settings{})
		all, err := w.List(ctx, "", 10)
		if err != nil || len(all) != 1 || all[0].Name != "mine" {
			w.Errorf("SC-007 left are %v: %v", all, err)
		}
	})
}

// SC-007: nodes that start at the same moment with the same settings are not in each other's way,
// and a schedule that its contract refuses is named and keeps no other one from being made.
func TestSettingsOfTwoNodes(t *testing.T) {
	onEveryStore(t, func(w *world) {
		all := schedule.Settings{}
		for i := range 20 {
			all[fmt.Sprintf("s%d", i)] = new(definition(nil))
		}
		nodes := []*node{w.node, w.newNode()}
		for i, err := range testkit.RunConcurrently(len(nodes), func(i int) error {
			nodes[i].Settings = all
			return nodes[i].ApplySettings(context.Background())
		}) {
			if err != nil {
				w.Errorf("SC-007 node %d: %v", i, err)
			}
		}
		w.Settings = maps.Clone(all)
		w.Settings["a"] = new(definition(func(d *schedule.Definition) {
			d.Request = json.RawMessage(`{"name":"n","queue":"-"}`)
		}))
		w.Settings["over"] = new(definition(func(d *schedule.Definition) {
			d.EndsAt = w.clock.Now().Add(-time.Hour)
		}))
		err := w.ApplySettings(context.Background())
		if err == nil || !strings.HasPrefix(err.Error(), "schedules.a: ") {
			w.Errorf("SC-007 a request that the contract refuses: %v", err)
		}
		stored, err := w.List(context.Background(), "", 100)
		if err != nil || len(stored) != 21 {
			w.Errorf("SC-007 %d schedules, want 21: %v", len(stored), err)
		}
	})
}
