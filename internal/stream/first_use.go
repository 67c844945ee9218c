package stream

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
)

// An embedded server wakes its process many times a second, also while it has nothing to do. So one
// that nothing was published to waits for the first message. Until then its streams are as if they
// were empty: nobody but this process could have put anything into them.
//
//	waiting ──Start──────────────────────────────────────> open, ready
//	        ──Publish──> open ──BeforeUse returns nil────> ready
//	                       └────BeforeUse fails: Publish fails, the next one calls it again

// firstUse is whether the streams are open.
type firstUse struct {
	mu     sync.Mutex    // held while the server starts
	isOpen atomic.Bool   // the streams have their ids
	ready  chan struct{} // closed when they may be used
	closed chan struct{} // closed by Close
}

// close ends the waits for the first message. It waits for a start in progress.
func (f *firstUse) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isClosed() {
		close(f.closed)
	}
}

func (f *firstUse) isClosed() bool { return isDone(f.closed) }

func (f *firstUse) isReady() bool { return isDone(f.ready) }

// isDone reports whether a channel is closed.
func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// await waits until the streams may be used, and reports whether they may: not when ctx has ended
// or they were closed before.
func (f *firstUse) await(ctx context.Context) bool {
	select {
	case <-f.ready:
	case <-f.closed:
	case <-ctx.Done():
	}
	return f.isReady()
}

// mayWait reports whether the server may wait for its first message.
func (s *Streams) mayWait() bool {
	c := &s.config
	if !c.StartWhenUsed || c.URL != "" || c.Listen != "" {
		return false
	}
	_, err := os.Stat(filepath.Join(c.Dir, server.JetStreamStoreDir))
	return os.IsNotExist(err)
}

// IsOpen reports whether the streams are open: IDs then has their ids.
func (s *Streams) IsOpen() bool { return s.firstUse.isOpen.Load() }

// Start opens streams that wait for their first message; they may be used then. It does nothing
// where they are open.
func (s *Streams) Start(ctx context.Context) error {
	s.firstUse.mu.Lock()
	defer s.firstUse.mu.Unlock()
	if s.firstUse.isReady() {
		return nil
	}
	if err := s.openLocked(ctx); err != nil {
		return err
	}
	close(s.firstUse.ready)
	return nil
}

// openLocked opens the streams, unless they are open. What it opened before an error is closed.
func (s *Streams) openLocked(ctx context.Context) error {
	switch {
	case s.firstUse.isClosed():
		return errUnavailable
	case s.IsOpen():
		return nil
	}
	if err := s.open(ctx); err != nil {
		s.stop()
		s.conn, s.embedded = nil, nil
		return err
	}
	s.firstUse.isOpen.Store(true)
	return nil
}

// startForUse opens the streams for a message, and has BeforeUse agree. A caller that leaves does
// not interrupt that, as others wait for it.
func (s *Streams) startForUse(ctx context.Context) error {
	if s.firstUse.isReady() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	s.firstUse.mu.Lock()
	defer s.firstUse.mu.Unlock()
	if s.firstUse.isReady() {
		return nil
	}
	report := s.config.Monitor.Begin()
	err := s.openLocked(ctx)
	if s.reportResult(report, "stream.open", err) != nil {
		return err
	}
	if s.config.BeforeUse != nil {
		if err := s.config.BeforeUse(ctx); err != nil {
			return err
		}
	}
	close(s.firstUse.ready)
	return nil
}
