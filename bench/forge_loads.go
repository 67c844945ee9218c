package main

import (
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

// forgeSubmit hands jobs in as fast as they are taken. Nothing runs them.
func forgeSubmit(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	phase, err := rawCrowd(ctx, s.addr, conns, n, http.StatusAccepted, func(i int) []byte { return s.submission(i, time.Time{}) })
	phase.Name = phaseInsert
	return []Phase{phase}, err
}

// forgeSubmitPaced hands jobs in at a steady rate, whatever the server does.
// Nothing runs them.
func forgeSubmitPaced(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	open, hangUp, err := dialCrowd(ctx, s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	_, phases, err := s.steady(ctx, open, n, forgeSubmitRate)
	return phases, err
}

// steady hands n jobs in at a rate. Two phases tell how long it took: from when
// each was meant to be sent, and from when it was.
func (s *forgeServer) steady(ctx context.Context, conns []*rawConn, n, rate int) ([]forgeJob, []Phase, error) {
	jobs := make([]forgeJob, n)
	begin := time.Now()
	meant, sent, err := paced(ctx, len(conns), n, rate, func(_ context.Context, g, i int) error { return s.submit(conns[g], i, &jobs[i]) })
	took := time.Since(begin)
	return jobs, []Phase{
		{Name: phaseInsert, Jobs: n, Took: took, Latency: meant},
		{Name: "insert, from sending", Jobs: n, Took: took, Latency: sent},
	}, err
}

// forgeStart hands jobs in at a steady rate to idle workers. The phases after the
// submit tell how long it took until a job ran: from its first event to the one of
// its start, and from the sending of the request.
func forgeStart(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	open, hangUp, err := dialCrowd(ctx, s.addr, conns)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	jobs, phases, err := s.steady(ctx, open, n, forgeStartRate)
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
		{"assigned, from created", "job_assigned", func(i int) (time.Time, error) { return reports[i].at("job_created") }},
		{"started, from created", "job_started", func(i int) (time.Time, error) { return reports[i].at("job_created") }},
		{"started, from sending", "job_started", func(i int) (time.Time, error) { return jobs[i].sent, nil }},
	} {
		delay, err := delays(reports, from.event, from.since)
		if err != nil {
			return nil, err
		}
		phases = append(phases, Phase{Name: from.name, Jobs: n, Took: took, Latency: delay})
	}
	return phases, nil
}

// The jobs of forgeScheduled that come due: how many, how long after the first of
// them is handed in, and over how much time.
const (
	forgeDue       = 500
	forgeDueAfter  = 5 * time.Second
	forgeDueWithin = 5 * time.Second
)

// forgeEarly is how much before its time a job may be queued.
const forgeEarly = time.Second

// forgeScheduled hands in n jobs whose time is far away and some whose time comes
// soon. The phases after the submit tell how late these were queued and started.
func forgeScheduled(ctx context.Context, s *forgeServer, conns, n int) ([]Phase, error) {
	far := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	insert, err := rawCrowd(ctx, s.addr, conns, n, http.StatusAccepted, func(i int) []byte {
		return s.submission(i, far.Add(time.Duration(i)*time.Millisecond))
	})
	if err != nil {
		return nil, fmt.Errorf("jobs of later: %w", err)
	}
	insert.Name = phaseInsert
	open, hangUp, err := dialCrowd(ctx, s.addr, conns) // only now: one that is idle for long is closed
	if err != nil {
		return nil, err
	}
	defer hangUp()
	jobs := dueSoon(time.Now().Add(forgeDueAfter), forgeDue, forgeDueWithin)
	if _, err := crowd(ctx, len(open), len(jobs), func(_ context.Context, g, i int) error { return s.submit(open[g], i, &jobs[i]) }); err != nil {
		return nil, err
	}
	if left := time.Until(jobs[0].due); left < 0 {
		return nil, fmt.Errorf("the jobs that come due were handed in %v too late", -left)
	}
	if err := pause(ctx, time.Until(jobs[len(jobs)-1].due)); err != nil {
		return nil, err
	}
	reports, err := s.reports(ctx, open, jobs)
	if err != nil {
		return nil, err
	}
	queued, err := late("queued, late", "job_queued", jobs, reports)
	if err != nil {
		return nil, err
	}
	started, err := late("started, late", "job_started", jobs, reports)
	return []Phase{insert, queued, started}, err
}

// dueSoon are n jobs whose times are spread over a span.
func dueSoon(first time.Time, n int, span time.Duration) []forgeJob {
	first = first.Truncate(time.Millisecond)
	jobs := make([]forgeJob, n)
	for i := range jobs {
		jobs[i].due = first.Add(span * time.Duration(i) / time.Duration(n))
	}
	return jobs
}

// late is how much after its time the named event of each job was. It is an error
// when one was before its time, beyond what is allowed.
func late(phase, event string, jobs []forgeJob, reports []forgeReport) (Phase, error) {
	by, err := delays(reports, event, func(i int) (time.Time, error) { return jobs[i].due, nil })
	for i, d := range by {
		if d < -forgeEarly {
			return Phase{}, fmt.Errorf("job %s had its %s %v before its time", jobs[i].id, event, -d)
		}
	}
	return Phase{Name: phase, Jobs: len(jobs), Took: forgeDueWithin, Latency: by}, err
}
