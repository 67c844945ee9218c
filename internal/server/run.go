package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/maintenance"
)

// Run serves until ctx ends or a listener fails, stops gracefully, and closes the store. Listen
// comes before. When it returns nothing of the node is left running, but for a store that does not
// close.
func (s *Server) Run(ctx context.Context) error {
	maintenanceCtx, stopMaintenance := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMaintenance()
	var wg sync.WaitGroup
	background := maintenance.Runner{Engine: s.engine, Log: s.log,
		PruneInterval: s.config.Settings.PruneInterval,
		Publishers:    outboxOutlets(s.config.Contracts)}
	wg.Go(func() { background.Run(maintenanceCtx) })
	workCtx, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	workDone := make(chan struct{})
	go func() { defer close(workDone); s.runContracts(workCtx) }()

	listenerErrs := make(chan error, len(s.listeners))
	for _, d := range s.listeners {
		wg.Go(func() {
			if err := d.serve(); err != nil {
				listenerErrs <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-listenerErrs:
		s.log.Error("a listener failed", "error_message", err)
	}
	stopStarted := s.config.Monotonic()
	s.log.Info("stopping", "grace", s.config.Settings.ShutdownGrace)
	s.stopping.Store(true)
	stopWork()
	s.shutDownListeners(s.config.Settings.ShutdownGrace)
	s.awaitWork(workDone, s.config.Settings.ShutdownGrace-(s.config.Monotonic()-stopStarted))
	stopMaintenance() // after the work: what it does at last is published, as far as there is time
	wg.Wait()
	err = errors.Join(err, s.closeStore())
	s.log.Info("stopped", "duration", s.config.Monotonic()-stopStarted)
	return err
}

// shutDownListeners ends the listeners and lets requests finish, for the grace less what the rest
// of the stop may need.
func (s *Server) shutDownListeners(grace time.Duration) {
	s.engine.Close() // long polls answer 204
	ctx, cancel := context.WithTimeout(context.Background(), grace-grace/8)
	defer cancel()
	var wg sync.WaitGroup
	for _, d := range s.listeners {
		wg.Go(func() {
			if err := d.server.Shutdown(ctx); err != nil {
				s.log.Warn("requests did not end within the grace and are cut off", "address",
					d.address)
				_ = d.server.Close()
			}
		})
	}
	wg.Wait()
}

// workGrace is what executors get beyond the grace to write what became of the jobs they could not
// end.
const workGrace = 3 * time.Second

// awaitWork waits for what the rooms do by themselves, which had the grace from the same moment as
// the requests.
func (s *Server) awaitWork(workDone <-chan struct{}, remaining time.Duration) {
	timer := time.NewTimer(max(0, remaining) + workGrace)
	defer timer.Stop()
	select {
	case <-workDone:
	case <-timer.C:
		s.log.Warn("work did not end within the grace and is cut off; its leases will end it")
	}
}

// closeTimeout bounds the closing of a store that hangs.
const closeTimeout = 3 * time.Second

func (s *Server) closeStore() error {
	closed := make(chan error, 1)
	go func() { closed <- s.config.Store.Close() }()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return errors.New("the store did not close in time; what was answered is on disk all the same")
	}
}
