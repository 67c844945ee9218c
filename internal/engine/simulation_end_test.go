package engine_test

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/engine"
	"github.com/millrace/millrace/internal/job"
	"github.com/millrace/millrace/internal/store"
)

// finishAll ends a simulation: without faults, honest workers do all that can be done. This does
// not ask the model: no job may be left, and no message.
func (s *simulation) finishAll() {
	s.store.isDown = false
	s.store.plan(fault{})
	s.compareMessages()
	s.side.engine = s.nodes[0].engine
	for _, c := range s.jobTypes {
		for _, queue := range []string{"q", "r"} {
			s.side.noError(s.side.engine.SetQueue(s.side.ctx,
				job.QueueSettings{JobType: c.Name, Queue: queue}))
		}
	}
	left := s.unfinished()
	for range 20 {
		for _, d := range []time.Duration{time.Minute, time.Minute, 3 * time.Hour} {
			s.clock.Advance(d)
			s.finishReady()
		}
		if left = s.unfinished(); len(left) == 0 {
			break
		}
	}
	if len(left) > 0 {
		s.fail("nobody can end %v", names(left))
	}
	messages := 1
	for range 2 { // the term of a node that crashed has to end first
		s.clock.Advance(24 * time.Hour)
		n, err := s.side.engine.Publish(s.side.ctx,
			func(context.Context, []job.Message) error { return nil })
		s.side.noError(err)
		messages = n
	}
	if messages > 0 {
		s.fail("%d messages were published twice", messages)
	}
	s.side.checkInvariants()
}

// finishReady expires the leases that have ended, and claims and finishes all that is ready.
func (s *simulation) finishReady() {
	_, err := s.side.engine.Expire(s.side.ctx)
	s.side.noError(err)
	for _, c := range s.jobTypes {
		jobs, err := s.side.engine.Claim(s.side.ctx,
			engine.ClaimRequest{JobType: c.Name, Max: 1000, Worker: "last"})
		s.side.noError(err)
		for _, j := range jobs {
			run := engine.Run{ID: j.ID, Run: j.Run}
			_, err = s.side.engine.Start(s.side.ctx, run)
			s.side.noError(err)
			s.side.finish(run, job.Succeeded)
		}
	}
}

func (s *simulation) unfinished() (jobs []*job.Job) {
	s.side.noError(s.side.store.View(s.side.ctx, func(r store.Reader) error {
		page, err := r.List(store.Filter{Phases: []job.Phase{job.Waiting, job.Ready, job.Leased}})
		jobs = page.Jobs
		return err
	}))
	return jobs
}
