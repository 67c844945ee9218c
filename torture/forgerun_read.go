package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// forgeJob is a job of ForgeRun at the end, with the events of its report.
type forgeJob struct {
	Client    string
	State     string
	HasReport bool
	Events    []forgeEvent
}

// forgeEvent is one event, of a report or of the table of events.
type forgeEvent struct{ ID, Prev, Next string }

// readForge reads the jobs of each client with the reports of those that have ended, and waits
// until their events were delivered. The audit reports the events that are missing then.
func (r *run) readForge(ctx context.Context, f *final) error {
	f.Forge = map[string]forgeJob{}
	for _, c := range r.forge {
		if c.id == limitedClient { // all of its jobs are to be read at once
			if err := r.limitClient(ctx, c, 0); err != nil {
				return err
			}
		}
		err := r.readForgeJobs(ctx, f, c)
		if refused, ok := errors.AsType[*refusedError](err); ok { // as when the key is lost
			f.Faults = append(f.Faults, c.id+": "+refused.Error())
			continue
		}
		if err != nil {
			return err
		}
	}
	for d := (drain{timeout: r.plan.Wait}); ; {
		f.Deliveries = map[string][]delivery{}
		missing := 0
		for _, c := range r.forge {
			all := c.sink.received()
			f.Deliveries[c.id] = all
			missing += f.undelivered(c.id, all)
		}
		if missing == 0 || d.hasStalled(missing) || !sleep(ctx, 100*time.Millisecond) {
			break
		}
	}
	return ctx.Err()
}

// undelivered counts the events of a client that its sink has not accepted.
func (f *final) undelivered(client string, all []delivery) (n int) {
	accepted := map[string]bool{}
	for _, d := range all {
		if d.Accepted {
			accepted[d.ID] = true
		}
	}
	for _, j := range f.Forge {
		for _, e := range j.Events {
			if j.Client == client && !accepted[e.ID] {
				n++
			}
		}
	}
	return n
}

// readForgeJobs reads all pages of the jobs of a client, and each job and its report. A job that
// both clients are shown is a fault.
func (r *run) readForgeJobs(ctx context.Context, f *final, c *forgeClient) error {
	found := map[string]string{}
	type shown struct {
		JobID string `json:"job_id"`
	}
	if err := pages(ctx, r, "/v1/jobs?limit=100", func(j shown) {
		found[j.JobID] = c.id
	}, c.key); err != nil {
		return err
	}
	return inParallel(found, func(id, client string, add func(func())) error {
		j, err := r.readForgeJob(ctx, c, id)
		add(func() {
			if other, known := f.Forge[id]; known {
				f.Faults = append(f.Faults, fmt.Sprintf("job %s is shown to %s and %s", id,
					other.Client, client))
			}
			f.Forge[id] = j
		})
		return err
	})
}

// readForgeJob reads a job, and its report if it has one.
func (r *run) readForgeJob(ctx context.Context, c *forgeClient, id string) (forgeJob, error) {
	j := forgeJob{Client: c.id}
	var shown struct{ State string }
	if _, err := r.get(ctx, "/v1/jobs/"+id, &shown, c.key); err != nil {
		return j, err
	}
	j.State = shown.State
	var report struct {
		Events []struct {
			ID   string `json:"event_id"`
			Prev string `json:"prev_state"`
			Next string `json:"next_state"`
		}
	}
	found, err := r.get(ctx, "/v1/jobs/"+id+"/report", &report, c.key)
	j.HasReport = found
	for _, e := range report.Events {
		j.Events = append(j.Events, forgeEvent{e.ID, e.Prev, e.Next})
	}
	return j, err
}

// readEvents reads the events of ForgeRun's jobs from their table, in order.
func readEvents(ctx context.Context, db *sql.DB, f *final) error {
	rows, err := db.QueryContext(ctx, `SELECT j.key, e.prev, e.next FROM events e
		JOIN jobs j ON j.seq=e.seq WHERE j.contract='forgerun' ORDER BY e.id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	f.Events = map[string][]forgeEvent{}
	for rows.Next() {
		var job string
		var e forgeEvent
		if err := rows.Scan(&job, &e.Prev, &e.Next); err != nil {
			return err
		}
		f.Events[job] = append(f.Events[job], e)
	}
	return rows.Err()
}
