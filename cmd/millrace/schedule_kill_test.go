package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/client"
)

const (
	// killedSchedules is how many schedules have a time every two seconds, one after the other, so
	// that one is mostly being submitted when a node is killed.
	killedSchedules = 20
	scheduleKills   = 20
	schedulePeriod  = 2 * time.Second
)

// TestKilledSchedules (SC-004): three nodes, twenty of which are killed and started again while
// schedules are due, submit exactly one job for each time, and no time is left out. On SQLite it is
// one node.
func TestKilledSchedules(t *testing.T) {
	onKilledNodes(t, 3, (*killedNodes).checkSchedules, "--set", "contracts=taskflow")
}

func (w *killedNodes) checkSchedules() {
	every, start := schedulePeriod.String(), time.Now().Truncate(time.Microsecond)
	var first [killedSchedules]time.Time
	for i := range first {
		start = start.Add(schedulePeriod / killedSchedules)
		created := w.createSchedule(scheduleName(i), client.AdminScheduleSpec{Every: &every,
			StartsAt: &start})
		for first[i] = start; !first[i].After(created); {
			first[i] = first[i].Add(schedulePeriod)
		}
	}
	var latest time.Time
	for kill := range scheduleKills {
		before := latest
		pollUntil(w.Fatalf, "a job to be submitted", func() bool {
			latest = w.latest()
			return latest.After(before)
		})
		w.kill(kill)
	}
	over := time.Now()
	for i := range first {
		w.checkTimes(scheduleName(i), over, func(nth int) time.Time {
			return first[i].Add(time.Duration(nth) * schedulePeriod)
		})
	}
}

// createSchedule creates a schedule of jobs in a queue of its name, and returns when that was.
// Times in which no node runs are not caught up.
func (w *killedNodes) createSchedule(name string, spec client.AdminScheduleSpec) time.Time {
	w.Helper()
	contract, catchUp := "taskflow", "none"
	spec.Contract, spec.CatchUp = &contract, &catchUp
	spec.Request = fmt.Appendf(nil, `{"name":"n","queue":%q}`, name)
	made, err := w.admin().CreateSchedule(w.Context(), name, spec)
	if err != nil {
		w.Fatal(err)
	}
	return made.CreatedAt
}

func scheduleName(i int) string { return fmt.Sprintf("s%02d", i) }

// latest returns when the latest job was submitted, by whichever schedule.
func (w *killedNodes) latest() (at time.Time) {
	w.Helper()
	for s, err := range w.admin().Schedules(w.Context(), killedSchedules) {
		if err != nil {
			w.Fatal(err)
		}
		if s.LastTick != nil && s.LastTick.At.After(at) {
			at = s.LastTick.At
		}
	}
	return at
}

// countJobs returns how many jobs a queue has.
func (w *killedNodes) countJobs(queue string) (n int) {
	w.Helper()
	flow := w.client().TaskFlow()
	for _, err := range flow.Search(w.Context(), client.TaskFlowFilter{Queue: queue,
		PageSize: 100}) {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}

// checkTimes waits until a schedule has gone beyond a moment, and fails unless each of its times up
// to then, the nth of which is want(n), has one job, which is the only one of the time.
func (w *killedNodes) checkTimes(name string, over time.Time, want func(nth int) time.Time) {
	w.Helper()
	var ticks []client.AdminScheduleTick
	pollUntil(w.Fatalf, name+" to go on", func() bool {
		ticks = w.ticks(name)
		return len(ticks) > 0 && ticks[len(ticks)-1].Time.After(over)
	})
	if _, err := w.admin().PauseSchedule(w.Context(), name); err != nil {
		w.Fatal(err)
	}
	w.checkTicks(name, want)
}

// checkTicks fails unless each time of a schedule has one job, which is the only one of the time.
func (w *killedNodes) checkTicks(name string, want func(nth int) time.Time) {
	w.Helper()
	var ticks []client.AdminScheduleTick
	pollUntil(w.Fatalf, "a job for each time of "+name, func() bool {
		ticks = w.ticks(name) // with one that was being submitted when the schedule was paused
		return w.countJobs(name) == len(ticks)
	})
	jobs := map[int64]bool{}
	for i, tick := range ticks {
		if !tick.Time.Equal(want(i)) || tick.Outcome != "submitted" || jobs[tick.JobNumber] {
			shown, _ := json.Marshal(tick)
			w.Errorf("SC-004 %s: time %d is %s, want %v", name, i, shown, want(i))
		}
		jobs[tick.JobNumber] = true
	}
}

// ticks are the ticks of a schedule, the earliest first.
func (w *killedNodes) ticks(name string) (ticks []client.AdminScheduleTick) {
	w.Helper()
	for tick, err := range w.admin().ScheduleTicks(w.Context(), name) {
		if err != nil {
			w.Fatal(err)
		}
		ticks = append(ticks, tick)
	}
	slices.Reverse(ticks)
	return ticks
}
