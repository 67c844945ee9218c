package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/duty"
)

// Run serves until ctx ends or a listener fails, stops gracefully, and closes the store. Listen comes before. When it
// returns nothing of the node is left running, but for a store that does not close.
func (s *Server) Run(ctx context.Context) error {
	duties, stopDuties := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDuties()
	var running sync.WaitGroup
	runner := duty.Runner{Engine: s.engine, Log: s.log, PruneEvery: s.config.Settings.PruneInterval, Outlets: outlets(s.config.Places)}
	running.Go(func() { runner.Run(duties) })
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	worked := make(chan struct{})
	go func() { defer close(worked); s.runRooms(work) }()

	broken := make(chan error, len(s.doors))
	for _, d := range s.doors {
		running.Go(func() {
			if err := d.serve(); err != nil {
				broken <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-broken:
		s.log.Error("a listener failed", "error_message", err)
	}
	began := s.config.Elapsed()
	s.log.Info("stopping", "grace", s.config.Settings.ShutdownGrace)
	s.stopping.Store(true)
	stopWork()
	s.shutDown(s.config.Settings.ShutdownGrace)
	s.awaitWork(worked, s.config.Settings.ShutdownGrace-(s.config.Elapsed()-began))
	stopDuties() // after the work: what it does at last is published, as far as there is time
	running.Wait()
	err = errors.Join(err, s.closeStore())
	s.log.Info("stopped", "duration", s.config.Elapsed()-began)
	return err
}

// shutDown ends the listeners and lets requests finish, for the grace less what the rest of the stop may need.
func (s *Server) shutDown(grace time.Duration) {
	s.engine.Close() // long polls answer 204
	ctx, cancel := context.WithTimeout(context.Background(), grace-grace/8)
	defer cancel()
	var all sync.WaitGroup
	for _, d := range s.doors {
		all.Go(func() {
			if err := d.server.Shutdown(ctx); err != nil {
				s.log.Warn("requests did not end within the grace and are cut off", "address", d.address)
				_ = d.server.Close()
			}
		})
	}
	all.Wait()
}

// workMargin is what executors get beyond the grace to write what became of the jobs they could not end.
const workMargin = 3 * time.Second

// awaitWork waits for what the rooms do by themselves, which had the grace from the same moment as the requests.
func (s *Server) awaitWork(worked <-chan struct{}, left time.Duration) {
	limit := time.NewTimer(max(0, left) + workMargin)
	defer limit.Stop()
	select {
	case <-worked:
	case <-limit.C:
		s.log.Warn("work did not end within the grace and is cut off; its leases will end it")
	}
}

// closeTime bounds the closing of a store that hangs.
const closeTime = 3 * time.Second

func (s *Server) closeStore() error {
	closed := make(chan error, 1)
	go func() { closed <- s.config.Store.Close() }()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case err := <-closed:
		return err
	case <-limit.C:
		return errors.New("the store did not close in time; what was answered is on disk all the same")
	}
}
