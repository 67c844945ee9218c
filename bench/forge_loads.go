package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"
)

// Rates of the loads that do not go as fast as they can.
const (
	forgeSubmitRate = 2000
	forgeStartRate  = 300
)

// forgeSubmit submits jobs as fast as they are accepted. Nothing runs them.
func forgeSubmit(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	phase, err := sendMany(ctx, s.addr, conns, n, http.StatusAccepted, func(i int) []byte {
		return s.submission(i, time.Time{})
	})
	phase.Name = phaseInsert
	return []Phase{phase}, err
}

// forgeSubmitPaced submits jobs at a steady rate, whatever the server does. Nothing runs them.
func forgeSubmitPaced(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	open, closeAll, err := dialMany(ctx, s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	_, phases, err := s.submitSteadily(ctx, open, n, cmp.Or(s.rate, forgeSubmitRate))
	return phases, err
}

// submitSteadily submits n jobs at a rate. Two phases are how long it took: from when each was
// meant to be sent, and from when it was.
func (s *forgeServer) submitSteadily(ctx context.Context, conns []*rawConn, n,
	rate int) ([]forgeJob, []Phase, error) {
	jobs := make([]forgeJob, n)
	started := time.Now()
	meant, sent, err := runPaced(ctx, len(conns), n, rate, func(_ context.Context, g, i int) error {
		return s.submit(conns[g], i, &jobs[i])
	})
	took := time.Since(started)
	return jobs, []Phase{
		{Name: phaseInsert, Jobs: n, Took: took, Latency: meant},
		{Name: "insert, from sending", Jobs: n, Took: took, Latency: sent},
	}, err
}

// forgeStart submits jobs at a steady rate to idle workers. The phases after the submit are how
// long it took until a job ran: from its first event to the one of its start, from the sending of
// the request, and from when that was meant to be sent.
func forgeStart(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	open, closeAll, err := dialMany(ctx, s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	jobs, phases, err := s.submitSteadily(ctx, open, n, cmp.Or(s.rate, forgeStartRate))
	if err != nil {
		return nil, err
	}
	reports, err := s.reports(ctx, open, jobs)
	if err != nil {
		return nil, err
	}
	took := phases[0].Took
	for _, from := range []struct {
		name  string
		event string
		since func(i int) (time.Time, error)
	}{
		{"assigned, from created", "job_assigned", func(i int) (time.Time, error) {
			return reports[i].timeOf("job_created")
		}},
		{"started, from created", "job_started", func(i int) (time.Time, error) {
			return reports[i].timeOf("job_created")
		}},
		{"started, from sending", "job_started", func(i int) (time.Time, error) {
			return jobs[i].sent, nil
		}},
		{startedFromIntended, "job_started", func(i int) (time.Time, error) {
			late := phases[0].Latency[i] - phases[1].Latency[i]
			return jobs[i].sent.Add(-late), nil
		}},
	} {
		delay, err := delaysSince(reports, from.event, from.since)
		if err != nil {
			return nil, err
		}
		phases = append(phases, Phase{Name: from.name, Jobs: n, Took: took, Latency: delay})
	}
	return phases, nil
}

// The jobs of forgeScheduled that come due: how many, how long after the first of them is
// submitted, and over how much time.
const (
	forgeScheduledJobs = 500
	forgeScheduleDelay = 5 * time.Second
	forgeScheduleSpan  = 5 * time.Second
)

// maxEarly is how much before its time a job may be queued.
const maxEarly = time.Second

// forgeScheduled submits n jobs whose time is far away and some whose time comes soon. The phases
// after the submit are how late these were queued and started.
func forgeScheduled(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	farFuture := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	insert, err := sendMany(ctx, s.addr, conns, n, http.StatusAccepted, func(i int) []byte {
		return s.submission(i, farFuture.Add(time.Duration(i)*time.Millisecond))
	})
	if err != nil {
		return nil, fmt.Errorf("jobs of later: %w", err)
	}
	insert.Name = phaseInsert
	// only now: one that is idle for long is closed
	open, closeAll, err := dialMany(ctx, s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	jobs := spreadJobs(time.Now().Add(forgeScheduleDelay), forgeScheduledJobs, forgeScheduleSpan)
	if _, err := runParallel(ctx, len(open), len(jobs), func(_ context.Context, g, i int) error {
		return s.submit(open[g], i, &jobs[i])
	}); err != nil {
		return nil, err
	}
	if remaining := time.Until(jobs[0].due); remaining < 0 {
		return nil, fmt.Errorf("the jobs that come due were submitted %v too late", -remaining)
	}
	if err := sleep(ctx, time.Until(jobs[len(jobs)-1].due)); err != nil {
		return nil, err
	}
	reports, err := s.reports(ctx, open, jobs)
	if err != nil {
		return nil, err
	}
	queued, err := latenessPhase("queued, late", "job_queued", jobs, reports)
	if err != nil {
		return nil, err
	}
	started, err := latenessPhase("started, late", "job_started", jobs, reports)
	return []Phase{insert, queued, started}, err
}

// spreadJobs are n jobs whose times are spread over a span.
func spreadJobs(first time.Time, n int, span time.Duration) []forgeJob {
	first = first.Truncate(time.Millisecond)
	jobs := make([]forgeJob, n)
	for i := range jobs {
		jobs[i].due = first.Add(span * time.Duration(i) / time.Duration(n))
	}
	return jobs
}

// latenessPhase is how much after its time the named event of each job was. It is an error when one
// was before its time, beyond what is allowed.
func latenessPhase(phase, event string, jobs []forgeJob, reports []forgeReport) (Phase, error) {
	by, err := delaysSince(reports, event, func(i int) (time.Time, error) {
		return jobs[i].due, nil
	})
	for i, d := range by {
		if d < -maxEarly {
			return Phase{}, fmt.Errorf("job %s had its %s %v before its time", jobs[i].id, event,
				-d)
		}
	}
	return Phase{Name: phase, Jobs: len(jobs), Took: forgeScheduleSpan, Latency: by}, err
}
