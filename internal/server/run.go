package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/maintenance"
)

// Run serves until ctx ends or a listener fails, stops gracefully, and closes the store. Listen
// must have succeeded before. When Run returns, no goroutine of the node is left, except for
// those of background work or of a store that did not end in time.
//
// Maintenance, the background work of the contracts and every listener run on goroutines of
// their own. None of them ends with ctx by itself: they end in the order that the package
// describes, so that what still runs has maintenance and the store below it. The error joins
// that of a listener that failed and that of the store; nil means that the node stopped because
// it was asked to.
func (s *Server) Run(ctx context.Context) error {
	maintenanceCtx, stopMaintenance := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMaintenance()
	var wg sync.WaitGroup
	background := maintenance.Runner{Engine: s.engine, Log: s.log,
		PruneInterval: s.config.Settings.PruneInterval,
		Publishers:    append(outboxPublishers(s.config.Contracts), s.config.Publishers...)}
	wg.Go(func() { background.Run(maintenanceCtx) })
	for _, run := range s.config.Background {
		wg.Go(func() { run(maintenanceCtx) })
	}
	workCtx, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	workDone := make(chan struct{})
	go func() { defer close(workDone); s.runContracts(workCtx) }()

	listenerErrs := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		wg.Go(func() {
			if err := l.serve(); err != nil {
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
	stopMaintenance() // after the work, so that its last messages are published if time allows
	wg.Wait()
	err = errors.Join(err, s.closeStore())
	s.log.Info("stopped", "duration", s.config.Monotonic()-stopStarted)
	return err
}

// shutDownListeners closes the listeners and lets requests finish. It leaves an eighth of the
// grace to the rest of the stop. Requests that are still under way then are cut off: what they
// have committed stays, and what they have not is undone by the store.
func (s *Server) shutDownListeners(grace time.Duration) {
	s.engine.Close() // long polls answer 204
	ctx, cancel := context.WithTimeout(context.Background(), grace-grace/8)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range s.listeners {
		wg.Go(func() {
			if err := l.server.Shutdown(ctx); err != nil {
				s.log.Warn("requests did not finish within the grace and are cut off",
					"address", l.address)
				_ = l.server.Close()
			}
		})
	}
	wg.Wait()
}

// workGrace is the time beyond the grace in which local workers may store the outcome of attempts
// that did not finish.
const workGrace = 3 * time.Second

// awaitWork waits for the background work of the contracts, whose grace began together with that of
// the requests. remaining is the rest of the grace, and may be negative.
func (s *Server) awaitWork(workDone <-chan struct{}, remaining time.Duration) {
	timer := time.NewTimer(max(0, remaining) + workGrace)
	defer timer.Stop()
	select {
	case <-workDone:
	case <-timer.C:
		s.log.Warn("background work did not finish within the grace; its leases will expire")
	}
}

// closeTimeout bounds the closing of a store that hangs.
const closeTimeout = 3 * time.Second

// closeStore closes the store, and gives up on one that hangs. The goroutine that waits for it
// is then left behind, as the process is about to end.
func (s *Server) closeStore() error {
	closed := make(chan error, 1)
	go func() { closed <- s.config.Store.Close() }()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case err := <-closed:
		return err
	case <-timer.C:
		return errors.New("the store did not close in time; all acknowledged changes are on disk")
	}
}
