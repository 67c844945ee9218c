package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// operatorLoad is the load on schedules and bulk operations: a schedule submits a job of TaskFlow
// each second, which no worker claims, and operations delete them.
type operatorLoad struct{ *run }

const (
	operatorToken    = "torture-operator"
	operatorPath     = "/admin/v1"
	scheduledQueue   = "flow_scheduled"
	scheduleName     = "each-second"
	schedulePath     = operatorPath + "/schedules/" + scheduleName
	bulkPath         = operatorPath + "/bulk"
	scheduleInterval = time.Second
)

// load starts the operator, who pauses the schedule when load ends.
func (l *operatorLoad) load(load context.Context) {
	a := l.newActor("operator")
	starts := time.UnixMicro(l.ledger.now()).UTC()
	l.producersRunning.Go(func() {
		for !a.createSchedule(starts) && a.pause(load, 200*time.Millisecond) {
		}
		for a.pause(load, time.Second) {
			a.operate(bulkPath, map[string]any{"action": "delete",
				"filter": map[string]any{"contract": taskflow, "queue": scheduledQueue}})
		}
		for range 100 {
			if status := a.operate(schedulePath+"/pause", map[string]any{}); status/100 == 2 ||
				!a.pause(context.Background(), 200*time.Millisecond) {
				return
			}
		}
	})
}

// createSchedule creates the schedule, and reports whether it is there. All times from its start on
// have a job, also those that pass while no server runs.
func (a *actor) createSchedule(starts time.Time) bool {
	status := a.operate(operatorPath+"/schedules", map[string]any{"name": scheduleName,
		"every": scheduleInterval.String(), "starts_at": starts, "contract": taskflow,
		"overlap": "allow", "catch_up": "all",
		"request": map[string]any{"name": "scheduled", "queue": scheduledQueue}})
	return status == http.StatusCreated || status == http.StatusConflict
}

// operate sends a request of the operator, and returns the status of its answer; 0 is none. It is
// not in the ledger: what has come of the requests is read at the end.
func (a *actor) operate(path string, body map[string]any) int {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	status, _, err := a.exchangeRaw(ctx, http.MethodPost, a.nodes[a.random.IntN(len(a.nodes))],
		path, encode(body), operatorToken)
	if err != nil {
		return 0
	}
	return status
}

// finalSchedule is the schedule at the end, with its ticks, the latest first, and how many of its
// jobs the bulk operations have deleted.
type finalSchedule struct {
	Created time.Time `json:"created_at"`
	Starts  time.Time `json:"starts_at"`
	Ticks   []tick
	Deleted int
	Failed  int      // actions of the operations
	Open    []string // operations that have not ended
}

// tick is what a schedule has done about one of its times.
type tick struct {
	Time    time.Time
	Outcome string
	Job     int64
}

// readSchedule reads the schedule and the bulk operations.
func (r *run) readSchedule(ctx context.Context, f *final) error {
	found, err := r.get(ctx, schedulePath, &f.Schedule, operatorToken)
	if err != nil || !found {
		return err
	}
	var ticks struct{ Items []tick }
	_, err = r.get(ctx, schedulePath+"/ticks", &ticks, operatorToken)
	f.Schedule.Ticks = ticks.Items
	type operation struct {
		ID           string `json:"bulk_id"`
		State        string
		Done, Failed int
	}
	return errors.Join(err, pages(ctx, r, bulkPath+"?limit=100", func(o operation) {
		f.Schedule.Deleted += o.Done
		f.Schedule.Failed += o.Failed
		if o.State != "done" {
			f.Schedule.Open = append(f.Schedule.Open, fmt.Sprint(o.ID, " is ", o.State))
		}
	}, operatorToken))
}

// checkSchedule checks I16: each time of the schedule has one job, at its time, and each job is
// there or was deleted, and counted, once.
func (a *audit) checkSchedule() {
	s, kind := &a.final.Schedule, "I16 schedules and bulk operations"
	if len(s.Ticks) == 0 {
		return
	}
	if s.Failed > 0 || len(s.Open) > 0 {
		a.add(kind, "%d deletions have failed; operations left: %q", s.Failed, s.Open)
	}
	jobs := map[int64]bool{}
	for i, t := range s.Ticks {
		isNext := i == 0 || s.Ticks[i-1].Time.Sub(t.Time) == scheduleInterval
		if t.Outcome != "submitted" || jobs[t.Job] || !isNext {
			shown, _ := json.Marshal(t)
			a.add(kind, "tick %d from the latest is %s", i, shown)
		}
		jobs[t.Job] = true
	}
	left := 0
	for _, r := range a.final.Rows {
		if r.Queue == scheduledQueue {
			left++
		}
	}
	if want := s.times(); left+s.Deleted != want {
		a.add(kind, "%d times have come, %d jobs are left and %d deleted", want, left, s.Deleted)
	}
}

// times returns how many times have come from the creation of the schedule to its latest tick.
func (s *finalSchedule) times() int {
	first := s.Starts
	for !first.After(s.Created) {
		first = first.Add(scheduleInterval)
	}
	return int(s.Ticks[0].Time.Sub(first)/scheduleInterval) + 1
}
